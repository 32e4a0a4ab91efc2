import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.errors import ConfigError
from training.generator import sample_set, write_other_worlds, write_samples, write_summary_samples
from training.generator.names import NameSource
from training.generator.sets import SHAPES, UNANSWERABLE
from training.generator.summaries import DATASET, PARTS, summary_rows

COMMITTED = Path(__file__).parents[3] / "datasets" / "sample"
VERSION_2 = {
    "narrativeqa": "72c39f7521ea0257",
    "qasper": "631ad40b50b7e3d6",
    "hotpotqa": "30ccc8bc569ac204",
    "musique": "9081deef6efb0c49",
}
"""The first digits of the SHA-256 of each file, when it was the shipped one."""


@pytest.fixture(scope="module")
def sets() -> dict[str, list[dict[str, Any]]]:
    return {dataset: sample_set(dataset) for dataset in SHAPES}


def full_text(row: dict[str, Any]) -> str:
    return "\n\n".join(f"{d['title']}\n{d['text']}" for d in row["documents"])


@pytest.mark.parametrize(("write", "names"), [(write_samples, SHAPES), (write_summary_samples, PARTS)])
def test_writing_twice_gives_the_committed_bytes(write: Any, names: Any, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert [path.name for path in first] == [f"{name}.jsonl" for name in names]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes() == (COMMITTED / one.name).read_bytes()


@pytest.mark.parametrize("part", PARTS)
def test_every_name_of_a_reference_is_told_in_the_documents(part: str) -> None:
    for row in summary_rows(part):
        text = full_text(row)
        for answer in row["answers"]:
            names = {word for word in answer.replace(".", "").replace(",", "").split() if word[0].isupper()}
            assert names and all(name in text for name in names)
    assert summary_rows(DATASET, seed=1)[0]["answers"] != summary_rows(DATASET)[0]["answers"]


def test_version_2_is_written_as_it_was(tmp_path: Path) -> None:
    hashes = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in
              write_samples(tmp_path, version="2")}  # fmt: skip

    assert hashes == VERSION_2
    with pytest.raises(ConfigError, match=r"no version '1' of the sample sets; there are: 2, 3\."):
        write_samples(tmp_path, version="1")


@pytest.mark.parametrize("dataset", SHAPES)
def test_answers_stand_in_documents(dataset: str, sets: dict[str, list[dict[str, Any]]]) -> None:
    for row in sets[dataset]:
        if row["answers"][0] not in (UNANSWERABLE, "Yes", "No"):
            assert row["answers"][0].lower() in full_text(row).lower()


@pytest.mark.parametrize("dataset", ["hotpotqa", "musique"])
def test_evidence_points_at_the_sentences_and_lies_in_as_many_documents_as_hops(
    dataset: str, sets: dict[str, list[dict[str, Any]]]
) -> None:
    for row in sets[dataset]:
        places = row["evidence"]
        for place in places:
            assert place["text"] in row["documents"][place["document"]]["text"]
        if row["answers"] == [UNANSWERABLE]:
            assert places == []
        else:
            assert len({p["document"] for p in places}) == len(places) == row["metadata"]["hops"]
            assert any(row["answers"][0].lower() in p["text"].lower() for p in places)


def test_an_unanswerable_twin_lacks_one_supporting_sentence(sets: dict[str, list[dict[str, Any]]]) -> None:
    rows = sets["musique"]
    twins = [row for row in rows if not row["metadata"]["answerable"]]
    assert len(twins) >= 5
    for twin in twins:
        (original,) = [r for r in rows if r["question"] == twin["question"] and r is not twin]
        text = full_text(twin)
        missing = [e for e in original["evidence"] if e["text"] not in text]
        assert len(missing) == 1


@pytest.mark.parametrize("dataset", SHAPES)
def test_no_name_of_the_sets_occurs_in_training(dataset: str, sets: dict[str, list[dict[str, Any]]]) -> None:
    training = NameSource("train").all_names()
    for row in sets[dataset]:
        words = set(re.findall(r"[A-Z][a-z]+", full_text(row) + " " + row["question"]))
        assert words.isdisjoint(training), words & training


def test_other_worlds_have_the_samples_shapes_and_share_no_document_or_id_with_them(tmp_path: Path) -> None:
    paths = write_other_worlds(tmp_path, [7, 8])
    assert [path.name for path in paths] == [f"{name}.jsonl" for name in SHAPES]
    rows = [json.loads(line) for line in (tmp_path / "hotpotqa.jsonl").read_text().splitlines()]
    shipped = sample_set("hotpotqa")
    assert len(rows) == 2 * len(shipped) == len({row["id"] for row in rows})
    texts = {document["text"] for row in shipped for document in row["documents"]}
    assert not texts & {document["text"] for row in rows for document in row["documents"]}
    assert {row["metadata"]["kind"] for row in rows} == {row["metadata"]["kind"] for row in shipped}


@pytest.mark.parametrize("seeds", [[7, 7], [7, 2024], [-1]])
def test_seeds_that_give_the_same_worlds_are_refused(tmp_path: Path, seeds: list[int]) -> None:
    with pytest.raises(ConfigError, match="seed"):
        write_other_worlds(tmp_path, seeds)
