"""Counts of a real model's forward beside the closed form, as ``bench model flops --measure`` shows them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bench.cli.main import command
from bench.errors import ConfigError, ModelUnavailableError
from bench.flops.architecture import architecture_from_config
from bench.flops.formulas import forward_flops
from bench.models.flop_counts import count_forward
from tests.bench.models.builders import causal_model


@pytest.mark.parametrize("family", ["llama", "gemma", "mixtral"])
@pytest.mark.parametrize(("new", "cached", "rows"), [(17, 0, 1), (17, 0, 17), (3, 11, 2)])
def test_both_counters_see_what_the_closed_form_says(family: str, new: int, cached: int, rows: int) -> None:
    model = causal_model(family, "eager")
    if family == "mixtral":
        model.set_experts_implementation("grouped_mm")  # as it is loaded: products that no counter sees
    closed = forward_flops(
        architecture_from_config(model.config), new, cached, convention="matmul", logit_rows=rows
    )
    counted = count_forward(model, new, cached, rows)
    assert (counted.torch, counted.fvcore) == (closed, closed)


def test_the_command_shows_three_numbers_and_their_ratios() -> None:
    done = CliRunner().invoke(command, ["model", "flops", "tiny", "--new-tokens", "5", "--measure"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()[2:]
    assert [line.split("  ")[0] for line in lines] == [
        "closed form",
        "torch FlopCounterMode",
        "fvcore, doubled",
    ]
    assert {tuple(line.split()[-2:]) for line in lines} == {(lines[0].split()[-2], "1.000000")}


def test_a_model_that_is_not_here_or_no_causal_one_is_refused() -> None:
    def measure(model: str, tokens: str = "5") -> None:
        arguments = ["model", "flops", model, "--new-tokens", tokens, "--measure"]
        CliRunner().invoke(command, arguments, catch_exceptions=False)

    with pytest.raises(ModelUnavailableError, match="bench model fetch llama-3.1-8b"):
        measure("llama-3.1-8b")
    with pytest.raises(ConfigError, match="counts causal language models"):
        measure("minilm")
    with pytest.raises(ConfigError, match="0 new tokens"):
        measure("tiny", "0")
