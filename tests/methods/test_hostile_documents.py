"""Every method on documents that were written to break it, read by a small random model.

The model's answers are random too, so what a method does with a model's nonsense is met as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.conformance import MethodConformance
from bench.engine.engine import Engine
from bench.engine.scheduler import Request
from bench.method.validation import require_prediction
from bench.models.language_model import CausalLanguageModel
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from bench.schema import DocumentSet
from tests.bench.faults import hostile
from tests.methods import test_conformance
from tests.methods.test_conformance import Variant

SUITES: dict[str, type[MethodConformance]] = {}
for suite in sorted(test_conformance._suites(MethodConformance), key=lambda s: issubclass(s, Variant)):
    if suite.method and suite.__module__ == test_conformance.__name__:
        SUITES.setdefault(suite.method, suite)


def suite_of(method: str, weights: Path) -> MethodConformance:
    conformance = SUITES[method]()
    conformance.model = str(weights / "reader")  # type: ignore[misc]
    if isinstance(conformance, test_conformance.WithEncoders):
        conformance.options = {"encoder": str(weights / conformance.encoder)}  # type: ignore[misc]
    return conformance


@pytest.fixture
def asked(weights: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """The tokens of everything that the reader is given: by requests to the engine, or by a library."""
    seen: list[list[int]] = []
    run = Engine.run

    async def noted(engine: Engine, request: Request) -> Any:
        seen.append([*request.tokens, *request.suffix])
        return await run(engine, request)

    def direct(_: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if options.get("use_cache"):  # the engine keeps its own cache
            ids = options["input_ids"] if "input_ids" in options else arguments[0]
            seen.extend(ids.tolist())

    monkeypatch.setattr(Engine, "run", noted)
    hook = reader_of(weights).hf_model.register_forward_pre_hook(direct, with_kwargs=True)
    yield seen
    hook.remove()


def reader_of(weights: Path) -> CausalLanguageModel:
    return load_language_model(resolve(str(weights / "reader")))


def control_tokens_outside_of_the_template(reader: CausalLanguageModel, ids: list[int]) -> set[int]:
    """Control tokens that are not part of a piece of the chat template, nor a BOS in front."""
    controls = {i for i, token in reader.hf_tokenizer.added_tokens_decoder.items() if token.content.strip()}
    chat = reader.chat
    text = " " + " ".join(map(str, ids)) + " "
    for piece in sorted((chat.opening, chat.next_turn, chat.reply_opening, chat.closing), key=len)[::-1]:
        if piece:
            text = text.replace(" " + " ".join(map(str, piece)) + " ", " | ")
    rest = [int(part) for part in text.split() if part != "|"]
    if rest and rest[0] == reader.hf_tokenizer.bos_token_id:
        rest = rest[1:]
    return controls & set(rest)


def check(suite: MethodConformance, weights: Path, documents: DocumentSet, asked: list[list[int]]) -> None:
    """The promises of every answer, and no control token but the template's own."""
    asked.clear()
    prediction = suite.check(documents)
    require_prediction(prediction, documents)
    json.dumps(prediction.trace, allow_nan=False).encode("utf-8")
    reader = reader_of(weights)
    assert asked, "the reader was asked"
    for ids in asked:
        smuggled = control_tokens_outside_of_the_template(reader, ids)
        assert not smuggled, reader.hf_tokenizer.convert_ids_to_tokens(sorted(smuggled))


def test_the_check_sees_a_smuggled_control_token(weights: Path) -> None:
    reader = reader_of(weights)
    fine = [*reader.chat.opening, *reader.tokenize("<|eot_id|>").ids, *reader.chat.closing]
    eot = reader.hf_tokenizer.convert_tokens_to_ids("<|eot_id|>")
    assert control_tokens_outside_of_the_template(reader, fine) == set()
    assert control_tokens_outside_of_the_template(reader, [*reader.chat.opening, eot, 77]) == {eot}


@pytest.mark.parametrize("method", SUITES)
def test_every_kind_of_hostile_text_at_once(method: str, weights: Path, asked: list[list[int]]) -> None:
    check(suite_of(method, weights), weights, hostile.EVERYTHING, asked)
