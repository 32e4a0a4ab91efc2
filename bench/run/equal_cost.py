"""``k=auto:METHOD``: the number of passages at which a ranker costs as much as another method.

The papers compare PECAN with retrievers at equal cost: their Top-X is the number of passages at which
reading costs about as much as PECAN's search does on that data set (PECAN, Table 1). ``k=auto:pecan``
finds it for any model and data: the k whose mean query FLOPs are nearest to those of PECAN's cell. The
result is a plain k, so the cell is the same as with that k on the command line. METHOD has its defaults, or
the options that follow it: ``k=auto:pecan:variant=garlic`` (GARLIC, Table 1: "similar TFLOPs to GARLIC").

``n_nodes=auto:METHOD`` is the same for a method that reads a fixed number of nodes: as many as METHOD reads
on average, rounded (PECAN, Sec. 4.2: "corresponding to the average used by PECAN").

Costs are measured, not estimated: every k that the search tries is a cell with its own records. Cost
grows almost linearly with k, so a few cells are enough. Requests that differ only in ``order`` get one k,
that of the request without it: the same passages, in another order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bench.errors import BenchError, ConfigError
from bench.method.options import parse_method
from bench.method.registry import load_method
from bench.results.finished import FinishedCell, records_so_far
from bench.results.models import CellDescription, read_description
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.session import Group, Session
from bench.schema import JsonValue

FIRST_K = 5
"""Start of the search: the papers' fixed Top-5, a cell that most tables need anyway."""
_MOST_OTHERS = 4
"""Most cells whose records are read for a first guess."""


PASSAGES, NODES = "k", "n_nodes"
"""Options that can depend on another cell: to match its cost, or the number of nodes it reads."""
ORDER = "order"
"""Arranges the passages. The answers' lengths differ, so each order by itself could get another k."""


def is_auto(value: JsonValue, option: str) -> bool:
    """Whether an option's value is ``auto:METHOD``; raises ConfigError for ``auto`` alone."""
    if not isinstance(value, str) or not value.startswith("auto"):
        return False
    if not re.fullmatch(r"auto:\w+(:.+)?", value):
        raise ConfigError(f"{option}={value}: expected auto:METHOD, with the name of a method, or a number.")
    return True


def waiting_option(options: Mapping[str, JsonValue]) -> str | None:
    """The option set to ``auto:METHOD``; None if there is none."""
    return next((o for o in (PASSAGES, NODES) if is_auto(options.get(o), o)), None)


@dataclass(frozen=True)
class CostMatch:
    """A request whose k, or number of nodes, follows from what another cell costs."""

    request: CellRequest
    option: str
    """``k`` or ``n_nodes``."""
    reference: Cell
    """The other cell."""
    trial: Cell
    """The request's cell with a number in place of ``auto:METHOD``, without ``order``."""

    def settled(self, session: Session) -> Cell | None:
        """The cell that matches; None as long as a cost that is needed is not measured."""
        reference = session.finished(self.reference)
        if reference is None or not session.is_done(self.reference) or reference.summary.all_failed:
            return None
        if self.option == NODES:
            counts = [len(record.context) for record in reference.records if not record.error]
            return _with(self.request, self.option, max(1, round(fmean(counts)) if counts else 1))
        target, costs = reference.summary.query_flops.mean, self._costs(session)
        k, place = closest_k(target, costs), self.trial.folder(session.results)
        if k is None and not reference.is_whole and place in session.tried:
            k = _nearest(target, costs)  # what was measured is near enough for a first pass
        return None if k is None else _with(self.request, self.option, k)

    def to_measure(self, session: Session) -> list[Cell]:
        """The cells to run next: the reference, then some k around its cost; ConfigError if it all failed."""
        reference = session.finished(self.reference)
        if reference is None or not session.is_done(self.reference):
            return [self.reference]
        if reference.summary.all_failed:
            why = f"every question of {self.reference.name} failed: it has no cost to match"
            raise ConfigError(f"{self.option}=auto: {why}. Mend it, then --retry-failed.")
        target, costs = reference.summary.query_flops.mean, self._costs(session)
        session.tried.add(self.trial.folder(session.results))
        expected = costs | self._expected(session, reference, costs)
        k = closest_k(target, expected) or next_k(target, expected)
        if not expected:
            k = self._first_k(session, target)
        near = [k]
        if PASSAGES in self.trial.method.replayed:
            # Its neighbours' answers come from the same run, which costs little more than the highest's.
            near = list(range(k - (2 if expected.keys() == costs.keys() else 1), k + 2))
        low, high = bracket(target, costs)
        near = [n for n in near if n > low and not 0 < high <= n]
        return [_with(self.trial.request, self.option, n) for n in near or [next_k(target, costs)]]

    def _expected(
        self, session: Session, reference: FinishedCell, costs: Mapping[int, float]
    ) -> dict[int, float]:
        """K -> what it will cost, where a first pass has asked it some of the questions.

        To what the nearest finished k costs, or else the reference, comes what it costs more on these.
        """
        folders = {k: cell.folder(session.results) for k, cell in self._own(session).items()}
        found = {}
        for k in folders.keys() - costs.keys():
            so_far = records_so_far(folders[k])
            nearest = min(costs, key=lambda other: abs(other - k), default=None)
            known = reference.records if nearest is None else records_so_far(folders[nearest]).values()
            more = [
                so_far[record.example_id].flops.query - record.flops.query
                for record in known
                if record.example_id in so_far
            ]
            if more:
                base = reference.summary.query_flops.mean if nearest is None else costs[nearest]
                found[k] = base + fmean(more)
        return found

    def _first_k(self, session: Session, target: float) -> int:
        """Where the search begins: by what cells with other options cost on the same questions."""
        asked, costs = self.trial.identity, dict[int, list[int]]()
        for k, about, folder in self._others(session):
            if (about.examples, about.models) == (asked.examples, asked.models) and len(costs) < _MOST_OTHERS:
                costs[k] = [record.flops.query for record in records_so_far(folder).values()]
        return next_k(target, {k: fmean(measured) for k, measured in costs.items() if measured})

    def _costs(self, session: Session) -> dict[int, float]:
        """K -> mean query FLOPs of the request's finished cells, whatever their k."""
        found = {k: session.finished(cell) for k, cell in self._own(session).items()}
        return {k: finished.summary.query_flops.mean for k, finished in found.items() if finished is not None}

    def _own(self, session: Session) -> dict[int, Cell]:
        """K -> the request's cell with it, for each that it has been asked with."""
        trial = self.trial.request
        cells = ((k, _with(trial, self.option, k), folder) for k, _, folder in self._others(session))
        return {k: cell for k, cell, folder in cells if cell.identity.folder == folder.name}

    def _others(self, session: Session) -> Iterator[tuple[int, CellDescription, Path]]:
        """The method's cells on the data set that have a k: it, what they are, and where."""
        folder = self.trial.folder(session.results)
        for other in sorted(folder.parent.glob(folder.name.rpartition("--")[0] + "--*")):
            try:
                about = read_description(other)
            except BenchError:
                continue  # damaged
            k = about.config.get(PASSAGES)
            if isinstance(k, int):
                yield k, about, other


def cost_match(request: CellRequest) -> CostMatch | None:
    """What the request's k or number of nodes depends on; None for a request without ``auto:METHOD``.

    An ablation waits for its method with the same ``editions`` (GARLIC, Sec. 4.4: as many nodes as GARLIC).
    Raises BenchError like :func:`bench.run.cell.plan_cell`.
    """
    option = waiting_option(request.options)
    if option is None:
        return None
    method, own = parse_method(str(request.options[option]).partition(":")[2])
    kept = load_method(method).editions if method == request.method else frozenset()
    options = {name: value for name, value in request.options.items() if name in kept}
    options |= own
    reference = plan_cell(replace(request, method=method, options=options))
    measured = {name: value for name, value in request.options.items() if name != ORDER}
    return CostMatch(request, option, reference, _with(replace(request, options=measured), option, FIRST_K))


def _with(request: CellRequest, option: str, number: int) -> Cell:
    return plan_cell(replace(request, options={**request.options, option: number}))


def match_costs(
    matches: Sequence[CostMatch],
    session: Session,
    failed: Callable[[CostMatch, BenchError], None] | None = None,
) -> list[Cell | None]:
    """The cell of each match; None where a cost that is needed is missing and cannot be measured.

    Cells whose costs are needed run first, those of all matches together. The matching cells themselves
    are not run. failed: called with a match whose cells cannot run; None: the error is raised.
    Raises BenchError as :func:`bench.run.cell.plan_cell` and :meth:`Session.run_all`.
    """
    given_up: set[int] = set()
    while True:
        cells = [match.settled(session) for match in matches]
        open_ = [at for at, cell in enumerate(cells) if cell is None and at not in given_up]
        if not open_ or not session.compute:
            return cells
        groups: dict[int, Group] = {}

        def give_up(at: int, error: BenchError) -> None:
            if failed is None:
                raise error
            failed(matches[at], error)
            given_up.add(at)

        def not_run(group: Group, error: BenchError, groups: Mapping[int, Group] = groups) -> None:
            give_up(next(at for at, own in groups.items() if own is group), error)

        for at in open_:
            try:
                groups[at] = matches[at].to_measure(session)
            except BenchError as error:
                give_up(at, error)
        purpose = "for the rows whose k depends on what another row costs"
        session.run_all(list(groups.values()), purpose=purpose, failed=not_run)


def planned(request: CellRequest, session: Session) -> Cell:
    """The request's cell, for ``auto:METHOD`` once what it depends on has run; raises as match_costs."""
    match = cost_match(request)
    if match is None:
        return plan_cell(request)
    (cell,) = match_costs([match], session)
    assert cell is not None, "the session computes"
    return cell


def closest_k(target: float, costs: Mapping[int, float]) -> int | None:
    """The k >= 1 whose cost is nearest to ``target``, the smaller one of two that are as near.

    costs: k -> cost, which grows with k until everything is read, then stays. None as long as they do not
    show it: two neighbours around the target, or two k that read everything and cost less.
    """
    low, high = bracket(target, costs)
    everything_read = not high and sum(cost == costs.get(low) for cost in costs.values()) > 1
    if high - low != 1 and not everything_read:
        return None
    return _nearest(target, costs)


def _nearest(target: float, costs: Mapping[int, float]) -> int | None:
    """Of all k known, since costs need not grow: Self-Route reads everything where it read too little."""
    return min(costs, key=lambda k: (abs(costs[k] - target), k), default=None)


def bracket(target: float, costs: Mapping[int, float]) -> tuple[int, int]:
    """The largest k known to cost less and the smallest known to cost as much or more; 0 where none is."""
    high = min((k for k, cost in costs.items() if cost >= target), default=0)
    return max((k for k, cost in costs.items() if cost < target and not 0 < high < k), default=0), high


def next_k(target: float, costs: Mapping[int, float]) -> int:
    """The next k to try: by linear interpolation; by doubling or bisection if that takes many steps."""
    low, high = bracket(target, costs)
    if not costs:
        return FIRST_K
    if not high and len(costs) > 6:
        return 2 * low
    if not high:
        # A line through what is known; through the origin where that is one point.
        least = min(costs)
        rise = (costs[low] - costs[least]) / (low - least) if low > least else costs[low] / low
        steps = min((target - costs[low]) / rise, 3 * low) if rise > 0 else 3 * low  # a flat line is endless
        return low + max(round(steps), 1)
    if len(costs) > 10:
        return (low + high) // 2
    base, below = (low, costs[low]) if low else (0, 0.0)
    rise = costs[high] - below
    guess = base + (int((high - base) * ((target - below) / rise)) if rise else 0)
    return min(max(guess, low + 1), high - 1)
