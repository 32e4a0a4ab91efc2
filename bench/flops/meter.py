"""The ledger: every forward pass is credited to the meter of the question or document that requested it.

The current meter travels in a context variable, so a method never passes it along, and the engine
notes it when a request is submitted. Counts are kept as sums from which any FLOP convention can be
recomputed (:mod:`bench.flops.formulas`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from bench.schema import JsonValue


@dataclass
class Usage:
    """Sums over the forward passes of one model in one phase."""

    calls: int = 0
    new_tokens: int = 0
    """Σ n: tokens that went through the layers."""
    attended: int = 0
    """Σ n·(m+n): new tokens times all tokens in the cache after the call (quadratic attention term)."""
    logit_rows: int = 0
    """Σ positions whose logits were computed."""
    flops: int = 0
    """FLOPs in convention ``paper``."""
    cached: int | None = 0
    """Σ m: tokens in the cache before the call; None: of a record from before they were counted."""

    def add(self, other: Usage) -> None:
        """Add another usage to this one."""
        self.calls += other.calls
        self.new_tokens += other.new_tokens
        self.attended += other.attended
        self.logit_rows += other.logit_rows
        self.flops += other.flops
        self.cached = None if self.cached is None or other.cached is None else self.cached + other.cached


@dataclass
class Meter:
    """The ledger of one question (or of one index): usage by (model, phase)."""

    usage: dict[tuple[str, str], Usage] = field(default_factory=dict)
    reused_tokens: int = field(default=0, compare=False)
    """Of the tokens credited, those whose keys and values were reused from another context.

    An observation of the run; the credited costs never depend on it. Negative where a server had to compute
    again what its context had forwarded before."""
    reuse_known: bool = field(default=True, compare=False)
    """Whether every model said how many tokens it reused; some servers do not."""
    events: set[str] = field(default_factory=set, compare=False)
    """What happened in the models and is counted, such as ``probe_from_top_list``: flags of the record."""

    def credit(self, model: str, phase: str, usage: Usage) -> None:
        """Add ``usage`` under ``model`` and ``phase`` (``prefill``, ``probe``, ``decode``, ``embed`` ...)."""
        self.usage.setdefault((model, phase), Usage()).add(usage)

    def add(self, other: Meter) -> None:
        """Add all of another meter to this one."""
        for (model, phase), usage in other.usage.items():
            self.credit(model, phase, usage)
        self.reused_tokens += other.reused_tokens
        self.reuse_known = self.reuse_known and other.reuse_known
        self.events |= other.events

    @property
    def flops(self) -> int:
        """FLOPs over all models and phases, convention ``paper``."""
        return sum(u.flops for u in self.usage.values())

    @property
    def new_tokens(self) -> int:
        """Tokens forwarded over all models and phases."""
        return sum(u.new_tokens for u in self.usage.values())

    def to_json(self) -> dict[str, JsonValue]:
        """``{model: {phase: {calls, new_tokens, attended, logit_rows, flops, cached}}}``, sorted by name."""
        out: dict[str, dict[str, dict[str, int | None]]] = {}
        for (model, phase), use in sorted(self.usage.items()):
            out.setdefault(model, {})[phase] = dict(vars(use))
        return out

    def shared(self, by: int) -> Meter:
        """One of ``by`` equal shares of it, every sum rounded down."""
        meter = Meter()
        for key, usage in self.usage.items():
            sums = {name: value and value // by for name, value in vars(usage).items()}  # None stays None
            meter.usage[key] = Usage(**sums)
        return meter

    @classmethod
    def combined(cls, meters: Iterable[Meter]) -> Meter:
        """A new meter with the sums of ``meters``."""
        total = cls()
        for meter in meters:
            total.add(meter)
        return total

    @classmethod
    def from_json(cls, data: dict[str, JsonValue]) -> Meter:
        """The meter that :meth:`to_json` wrote."""
        meter = cls()
        for model, phases in data.items():
            for phase, use in phases.items():
                meter.usage[(model, phase)] = Usage(**{"cached": None, **use})
        return meter


_current: ContextVar[Meter | None] = ContextVar("bench_meter", default=None)


def current_meter() -> Meter:
    """The meter of the running question or document; outside of both, a throw-away meter."""
    meter = _current.get()
    return meter if meter is not None else Meter()


@contextmanager
def metered(meter: Meter) -> Iterator[Meter]:
    """Credit every forward pass requested inside the block to ``meter``."""
    token = _current.set(meter)
    try:
        yield meter
    finally:
        _current.reset(token)


@contextmanager
def charged() -> Iterator[Meter]:
    """A separate meter for the block, whose usage is also credited to the surrounding meter."""
    outer = current_meter()
    with metered(Meter()) as meter:
        try:
            yield meter
        finally:
            outer.add(meter)
