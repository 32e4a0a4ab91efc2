"""``bench flops``: FLOPs of a forward pass, from the model's config alone or counted on the real model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import cast

import click

from bench.cli.options import gathered
from bench.errors import ConfigError
from bench.flops.formulas import CONVENTIONS, Convention, flops_of_usage, flops_terms, forward_usage
from bench.models.spec import ModelSpec, resolve

_COUNT = click.IntRange(min=0)


@dataclass(frozen=True)
class ForwardPass:
    """The forward pass in question."""

    new_tokens: int
    cached: int
    logit_rows: int | None


@click.command("flops")
@click.option("--model", required=True, help="Preset, hub id or local folder; a preset needs no download.")
@click.option("--new-tokens", required=True, type=_COUNT, help="Tokens that go through the model.")
@click.option("--cached", default=0, show_default=True, type=_COUNT, help="Tokens already in its KV cache.")
@click.option(
    "--logit-rows", type=_COUNT, help="Positions whose logits are computed (matmul). Default: the last one."
)
@gathered("forward", ForwardPass)
@click.option(
    "--convention",
    default="paper",
    show_default=True,
    type=click.Choice(CONVENTIONS),
    help="paper: 2*N*n + 4*L*n*(m+n)*d; matmul: what a counter of matrix products measures.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Run the pass on the real model too, and count its matrix products with torch and fvcore.",
)
def command(model: str, forward: ForwardPass, convention: str, measure: bool) -> None:
    """FLOPs of one forward pass, as one JSON document; one multiply-add is two FLOPs.

    With --measure: a table of the closed form (convention matmul) and two counts of the real model.
    """
    spec = resolve(model)
    if measure:
        click.echo(_measured(spec, forward))
        return
    usage = forward_usage(
        spec.architecture, forward.new_tokens, forward.cached, logit_rows=forward.logit_rows
    )
    terms = flops_terms(spec.architecture, usage, cast(Convention, convention))
    document = {
        "model": spec.name,
        "convention": convention,
        "new_tokens": forward.new_tokens,
        "cached": forward.cached,
        "logit_rows": usage.logit_rows,
        "parameters": spec.architecture.parameters,
        "active_parameters": spec.architecture.active_parameters,
        "terms": terms,
        "flops": sum(terms.values()),
    }
    click.echo(json.dumps(document, indent=2))


def _measured(spec: ModelSpec, forward: ForwardPass) -> str:
    """Closed form and both counts, each with its ratio to the closed form."""
    from bench.models.flop_counts import count_forward, require_local
    from bench.models.loader import load_causal

    if spec.kind != "causal":
        raise ConfigError(f"{spec.name} is a text encoder; --measure counts causal language models.")
    usage = forward_usage(
        spec.architecture, forward.new_tokens, forward.cached, logit_rows=forward.logit_rows
    )
    closed = flops_of_usage(spec.architecture, usage, "matmul")
    require_local(spec)
    model = load_causal(replace(spec, attention="eager"))
    counted = count_forward(model, forward.new_tokens, forward.cached, usage.logit_rows)
    rows = {"closed form": closed, "torch FlopCounterMode": counted.torch, "fvcore, doubled": counted.fvcore}
    return "\n".join(
        [
            f"{spec.name}: {forward.new_tokens} new tokens on {forward.cached} cached, logits of "
            f"{usage.logit_rows}; matrix products, eager attention",
            f"{'':<22} {'FLOPs':>24}  {'/ closed form':>13}",
            *(f"{name:<22} {flops:>24,}  {flops / closed:>13.6f}" for name, flops in rows.items()),
        ]
    )
