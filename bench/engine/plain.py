"""A model's own forward with its own cache, one request at a time: for models that the packed engine refuses.

Each context has the cache that the model made for it. A cache of plain keys and values is cut when a context
is rolled back; any other (of a sliding window, a convolution, a recurrent state) is copied before what will
be rolled back, or made again. Slower than packed passes, and correct wherever the model continues a text
from its cache as it reads it at once, which :func:`plain_runner` checks.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional

from bench.engine.heads import Heads
from bench.engine.kv_cache import PAGE, Pages
from bench.engine.prefixes import Slot
from bench.engine.scheduler import Limits, Outcome, Request, Step
from bench.errors import BenchError

LIMITS = Limits(tokens=512, rows=1)
CONTEXTS = 8
"""Contexts that may be open at once; a search may hold one while another answers."""
TOLERANCE, HALF_TOLERANCE = 1e-3, 6e-2
"""Largest relative difference of logits between two ways of reading a text, in full and half precision."""
HALF = (torch.bfloat16, torch.float16)


ELSEWHERE = "Use another model, or one behind a server: --model server:URL#MODEL."


class UncontinuableError(BenchError):
    """A model that does not continue a text from its cache as it reads it at once."""


@dataclass
class _Kept:
    """A context's cache and the tokens that it holds."""

    cache: Any = None
    tokens: list[int] = field(default_factory=list)


class PlainRunner:
    """Runs the forwards of one model; the counterpart of :class:`bench.engine.runner.Runner`."""

    def __init__(self, model: Any, tokens: int) -> None:
        """model: a transformers causal model; tokens: positions of all open contexts together."""
        self.model, self.kv_cache = model, Pages(tokens)
        self.attends = False
        """Whether its attention weights can be read; :func:`plain_runner` finds out."""
        self.passes = self.tokens = 0
        self._kept: WeakKeyDictionary[Slot, _Kept] = WeakKeyDictionary()

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        """The outcome of each step; one that raises has changed no request."""
        with torch.inference_mode():
            return [self._one(step) for step in steps]

    def _one(self, step: Step) -> Outcome:
        request, outcome = step.request, Outcome()
        kept = self._kept.pop(request.slot, None) or _Kept()  # gone if this raises
        kept = self._cut(kept, request.slot.tokens)
        first = request.slot.length
        behind = 0 if request.decodes else max(0, request.forwarded + len(step.tokens) - len(request.tokens))
        body, suffix = step.tokens[: len(step.tokens) - behind], step.tokens[len(step.tokens) - behind :]
        out, rows = None, []
        if body:
            out = self._run(kept, body, request)
            rows.append((first, out))
        if suffix:
            continued = _Kept(copy.deepcopy(kept.cache), list(kept.tokens))
            out = self._run(continued, suffix, request)
            rows.append((first + len(body), out))
        if request.watched:
            self._record(request, rows, outcome)
        if step.asks:
            assert out is not None
            _read(out.logits[0, -1].float(), request, outcome)
        self._kept[request.slot] = kept
        return outcome

    def _cut(self, kept: _Kept, tokens: Sequence[int]) -> _Kept:
        """The cache of exactly these tokens, cut or made again if it holds others."""
        if kept.tokens == tokens:
            return kept
        if kept.tokens[: len(tokens)] == tokens and tokens and _can_be_cut(kept.cache):
            kept.cache.crop(len(tokens) - len(kept.tokens))  # negative: how many go
            return _Kept(kept.cache, list(tokens))
        again = _Kept()
        for start in range(0, len(tokens), LIMITS.tokens):
            self._run(again, tokens[start : start + LIMITS.tokens], None)
        return again

    def _run(self, kept: _Kept, tokens: Sequence[int], request: Request | None) -> Any:
        """The model's output for these tokens behind the kept ones; the cache grows by them."""
        watching = request is not None and bool(request.watched)
        out = self.model(
            input_ids=torch.tensor([list(tokens)], device=self.model.device),
            past_key_values=kept.cache,
            use_cache=True,
            output_attentions=watching,
        )
        kept.cache = out.past_key_values
        kept.tokens += tokens
        self.passes += 1
        self.tokens += len(tokens)
        return out

    def _record(self, request: Request, rows: Sequence[tuple[int, Any]], outcome: Outcome) -> None:
        """Attention of the new tokens to the watched spans: mean over heads, and over a span's tokens."""
        parts: list[torch.Tensor] = []
        for first, out in rows:
            begin = max(0, request.watch_from - first)
            tokens = first + out.logits.shape[1]
            weights = mean_attention(out.attentions, request.heads, tokens)[begin:]
            if len(weights):
                spans = [weights[:, start:end].mean(-1) for start, end in request.watched]
                parts.append(torch.stack(spans, -1))
        outcome.attention = torch.cat(parts) if parts else None


def mean_attention(attentions: Sequence[torch.Tensor], heads: Heads | None, tokens: int) -> torch.Tensor:
    """(new tokens, tokens), fp32: the mean over the heads that count; a window's layer has its last alone."""
    weights = [functional.pad(layer[0].float(), (tokens - layer.shape[-1], 0)) for layer in attentions]
    if heads is None:
        return torch.stack([layer.mean(0) for layer in weights]).mean(0)
    return torch.stack([weights[layer][head] for layer, head in heads.pairs]).mean(0)


def _read(logits: torch.Tensor, request: Request, outcome: Outcome) -> None:
    """The next token, and the logits of the request's choices."""
    outcome.valid = not bool((torch.isnan(logits) | torch.isposinf(logits)).any())
    outcome.token = int(logits.argmax())
    if request.sampling is not None and outcome.valid:
        outcome.token = request.sampling.draw(logits, len(request.answer))
    if request.choices:
        outcome.logits = tuple(logits[list(request.choices)].tolist())
        outcome.log_mass = float(torch.logsumexp(logits.double(), -1))


def _can_be_cut(cache: Any) -> bool:
    """Whether the cache is plain keys and values of all positions."""
    from transformers import DynamicCache

    layers = getattr(cache, "layers", None)
    return type(cache) is DynamicCache and all(type(one).__name__ == "DynamicLayer" for one in layers or ())


def plain_runner(name: str, model: Any, max_context: int) -> PlainRunner:
    """A runner of the model's own forward, with room for ``CONTEXTS`` of the longest contexts.

    A short text is continued from the cache and compared with reading it at once. Raises UncontinuableError
    for a model whose cache does not continue it.
    """
    rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    short = rope.get("original_max_position_embeddings", max_context)
    if rope.get("rope_type") == "longrope" and short < max_context:
        reason = f"its rotary embedding (longrope) turns all tokens otherwise beyond {short:,}"
        raise UncontinuableError(f"{name}: {reason}, so what was kept would be wrong. {ELSEWHERE}")
    runner = PlainRunner(model, CONTEXTS * -(-max_context // PAGE) * PAGE)
    vocab = int(model.get_input_embeddings().weight.shape[0])
    ids = [(7 * i + 30) % min(vocab, 997) for i in range(11)]
    with torch.inference_mode():
        try:
            whole = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False)
            expected = whole.logits[0, -1]
            kept = _Kept()
            for part in (ids[:6], ids[6:7], ids[7:]):
                got = runner._run(kept, part, None).logits[0, -1]
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise UncontinuableError(
                f"{name}: {type(model).__name__} cannot be read with a cache ({type(error).__name__}: "
                f"{error}). {ELSEWHERE}"
            ) from error
    worst = float((got.float() - expected.float()).abs().max() / expected.float().abs().max().clamp_min(1e-6))
    if expected.isfinite().all() and not worst <= (HALF_TOLERANCE if model.dtype in HALF else TOLERANCE):
        raise UncontinuableError(
            f"{name}: {type(model).__name__} continues a text from its cache otherwise than it reads it at "
            f"once (logits differ by {worst:.2g} of their size), so a search would be wrong. {ELSEWHERE}"
        )
    runner.attends = _gives_attention(model, ids)
    return runner


def _gives_attention(model: Any, ids: Sequence[int]) -> bool:
    """Whether every layer gives weights over all tokens; the model is set to do so if it can."""
    own = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([list(ids)], device=model.device), output_attentions=True)
        attentions = out.attentions or ()
        layers = int(model.config.get_text_config().num_hidden_layers)
        given = len(attentions) == layers and all(
            weights is not None and weights.shape[-2:] == (len(ids), len(ids)) for weights in attentions
        )
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError):
        given = False
    if not given:
        model.set_attn_implementation(own)
    return given
