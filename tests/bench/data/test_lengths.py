"""The same questions at controlled lengths."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli.main import command
from bench.data import load
from bench.data.cards import load_card
from bench.data.lengths import LENGTH, at_lengths
from bench.errors import DataError
from bench.schema import Document, DocumentSet, Evidence, Example


def words(text: str) -> int:
    return len(text.split())


def examples(count: int = 6) -> list[Example]:
    """Each has two documents with the answer to it, of 5 words, and three without."""
    return [
        Example(
            id=f"q{n}",
            dataset="hotpotqa",
            task="qa",
            question=f"where is kite{n}",
            answers=(f"mill{n}",),
            documents=DocumentSet(
                (
                    Document("", f"rain fell on town{n} a"),
                    Document("", f"kite{n} lay in mill{n} then"),
                    Document("", f"rain fell on town{n} b"),
                    Document("", f"mara hid kite{n} last year"),
                    Document("", f"mill{n} is old and red"),
                )
            ),
            evidence=(Evidence(3), Evidence(1)),
        )
        for n in range(count)
    ]


def test_what_answers_stays_and_the_rest_fills_up_to_the_length() -> None:
    made = at_lengths(examples(), [40, 12, 25], questions=2, count=words)
    assert [(e.id, e.metadata[LENGTH]) for e in made.examples] == [
        *(("q0-12", 12), ("q1-12", 12), ("q0-25", 25), ("q1-25", 25), ("q0-40", 40), ("q1-40", 40))
    ]
    for example in made.examples:
        texts = [document.text for document in example.documents.documents]
        total, n = sum(map(words, texts)), example.id[1]
        assert example.metadata[LENGTH] - 5 < total <= example.metadata[LENGTH]
        gold = {texts[label.document] for label in example.evidence or ()}
        assert gold == {f"kite{n} lay in mill{n} then", f"mara hid kite{n} last year"}
        assert f"mill{n} is old and red" not in texts and len(set(texts)) == len(texts)


def test_a_longer_text_holds_what_a_shorter_one_holds_in_the_same_order() -> None:
    made = at_lengths(examples(), [12, 25, 60], questions=1, count=words).examples
    short, middle, long = ([d.text for d in e.documents.documents] for e in made)
    assert [text for text in middle if text in short] == short
    assert [text for text in long if text in middle] == middle
    assert at_lengths(examples(), [60], 1, words, seed=1).examples[0].documents != made[2].documents


def test_lengths_that_cannot_be_made_are_refused_or_passed_over() -> None:
    with pytest.raises(DataError, match=r"come to \d+ tokens for 'q0'; 900 were asked"):
        at_lengths(examples(), [900], 1, words)
    with pytest.raises(DataError, match="several documents with labels"):
        at_lengths([e.__class__(**{**vars(e), "evidence": None}) for e in examples()], [25], 1, words)
    assert at_lengths(examples(), [9, 40], 9, words).passed_over == 6


def test_the_command_writes_data_that_the_card_takes(tmp_path: Path) -> None:
    out = tmp_path / "lengths.jsonl"
    arguments = [
        "data",
        "lengths",
        "--tokens",
        "400",
        "--tokens",
        "800",
        "--questions",
        "3",
        "--out",
        str(out),
    ]
    command.main(arguments, standalone_mode=False)
    loaded = load(load_card("hotpotqa"), str(out)).examples
    assert len(loaded) == 6 and {example.metadata[LENGTH] for example in loaded} == {400, 800}
    assert all(example.evidence for example in loaded)
