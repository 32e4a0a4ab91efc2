"""Iter-RetGen: the answer finds what the question does not name."""

from __future__ import annotations

import pytest

from methods.iter_retgen import IterRetGen, IterRetGenConfig
from tests.methods.multi_hop import QUESTION, ScriptedReader, asked_by_the_reranker, replayed


def test_a_round_reads_only_what_question_and_last_answer_find() -> None:
    reader = ScriptedReader(["Otto lives lives", "Harbury"])
    (one, two), meter = replayed(IterRetGen, IterRetGenConfig, reader, rounds=(1, 2))
    assert [item.document for item in one.prediction.context] == [0]
    assert [item.document for item in two.prediction.context] == [1]
    assert (one.prediction.text, two.prediction.text) == ("Otto lives lives", "Harbury")
    assert "Mara gave the kite" not in reader.prompts[1]
    assert one.meter.flops < two.meter.flops == meter.flops


def test_a_round_that_finds_the_same_ends_it_without_another_generation() -> None:
    reader = ScriptedReader(["Mara kite"])
    results, _ = replayed(IterRetGen, IterRetGenConfig, reader, rounds=(5, 1))
    assert [result.prediction.text for result in results] == ["Mara kite", "Mara kite"]
    assert len(reader.prompts) == 1 and results[0].prediction.trace["answers"] == ["Mara kite", "Mara kite"]


def test_a_ranker_asks_the_reader_the_question_and_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_by_the_reranker(monkeypatch)
    reader = ScriptedReader(["Otto", "Harbury"])
    replayed(IterRetGen, IterRetGenConfig, reader, rounds=(2,), ranker="rerank")
    assert asked == [QUESTION.text] * 4 + [f"{QUESTION.text} Otto"] * 4
