"""Every file of the real samples: recognised, counted, and cut as the independently cut copies say."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from bench.data import check, load
from bench.data.cards import load_card
from bench.data.format import Parsed
from bench.data.source import open_source
from bench.schema import Document, Example

RELEASE = "raw/narrativeqa/original_release_sample"
FILES: dict[str, tuple[str, int]] = {  # file -> format, examples (from the lines, items or papers in it)
    "2wikimqa.jsonl": ("bench", 9),
    "gov_report.jsonl": ("bench", 18),
    "hotpotqa.jsonl": ("bench", 9),
    "hotpotqa_distractor.jsonl": ("bench", 60),
    "multi_news.jsonl": ("bench", 60),
    "musique.jsonl": ("bench", 5),
    "musique_original.jsonl": ("bench", 60),
    "narrativeqa.jsonl": ("bench", 4),
    "narrativeqa_summaries.jsonl": ("bench", 30),
    "qasper.jsonl": ("bench", 60),
    "qasper_original.jsonl": ("bench", 42),
    "qmsum.jsonl": ("bench", 54),
    "squality.jsonl": ("bench", 60),
    "raw/hotpotqa/hotpotqa_sample_30.json": ("hotpotqa", 30),
    "raw/hotpotqa/hotpotqa_train_100.json": ("hotpotqa", 100),
    "raw/longbench/multi_news_head60.jsonl": ("longbench", 60),
    "raw/musique/musique_head74.jsonl": ("musique", 74),
    "raw/musique/musique_train_first60.json": ("musique", 60),
    RELEASE: ("narrativeqa-release", 3),
    f"{RELEASE}/qaps.csv": ("narrativeqa-release", 3),
    "raw/qmsum/val_head13.jsonl": ("qmsum", 13),
    "raw/squality/v1-3_txt_dev_head17.jsonl": ("squality", 17),
    "raw/qasper/longbench_qasper_head30.csv": ("longbench", 30),
    "raw/qasper/qasper-original-sample_first7_concatenated_objects.json": ("qasper-columnar", 42),
    "raw/qasper/qasper_sample_small.json": ("qasper-release", 4),
    "raw/qasper/v0.1_loader_sample/qasper-dev-v0.1.json": ("qasper-release", 4),
    "raw/qasper/v0.1_loader_sample/qasper-train-v0.1.json": ("qasper-release", 9),
}


@pytest.mark.parametrize("name", FILES)
def test_usable_file(real_data: Path, name: str) -> None:
    report = check(real_data / name)
    assert [str(p) for p in report.problems if p.severity == "error"] == []
    assert report.usable
    assert (report.format, report.examples) == FILES[name]


@pytest.mark.parametrize(
    ("name", "mean", "minimum", "maximum"),
    [  # words per example as the samples' README lists them
        ("hotpotqa_distractor.jsonl", 959, 350, 1493),
        ("musique_original.jsonl", 1554, 1017, 3068),
        ("narrativeqa.jsonl", 28580, 22686, 36401),
        ("qasper_original.jsonl", 4437, 2349, 7466),
    ],
)
def test_lengths(real_data: Path, name: str, mean: int, minimum: int, maximum: int) -> None:
    words = check(real_data / name).words
    assert (round(fmean(words)), min(words), max(words)) == (mean, minimum, maximum)


def examples(path: Path) -> list[Example]:
    return [item.example for item in open_source(path).examples() if isinstance(item, Parsed)]


def content(example: Example) -> tuple[str, tuple[str, ...], tuple[Document, ...]]:
    return example.question, example.answers, example.documents.documents


REORDERED = {
    "raw/qasper/longbench_qasper_head30.csv",
    "raw/qmsum/val_head13.jsonl",
    "raw/squality/v1-3_txt_dev_head17.jsonl",
}
"""Raw files whose copies hold more examples, in another order."""


@pytest.mark.parametrize(
    ("raw", "cut"),
    [
        ("raw/longbench/multi_news_head60.jsonl", "multi_news.jsonl"),
        ("raw/musique/musique_train_first60.json", "musique_original.jsonl"),
        ("raw/qasper/longbench_qasper_head30.csv", "qasper.jsonl"),
        ("raw/qmsum/val_head13.jsonl", "qmsum.jsonl"),
        ("raw/squality/v1-3_txt_dev_head17.jsonl", "squality.jsonl"),
        ("raw/qasper/qasper-original-sample_first7_concatenated_objects.json", "qasper_original.jsonl"),
    ],
)
def test_original_formats_give_what_was_cut_from_them_apart(real_data: Path, raw: str, cut: str) -> None:
    ours = [content(example) for example in examples(real_data / raw)]
    theirs = [content(example) for example in examples(real_data / cut)]
    assert len(ours) == FILES[raw][1]
    if raw in REORDERED:
        assert all(example in theirs for example in ours)
    else:
        assert ours == theirs


def test_hotpotqa_evidence_points_at_the_labelled_sentences(real_data: Path) -> None:
    path = real_data / "raw/hotpotqa/hotpotqa_train_100.json"
    items = json.loads(path.read_text(encoding="utf-8"))
    for example, item in zip(examples(path), items, strict=True):
        sentences = dict(map(tuple, item["context"]))
        expected = [(title, sentences[title][number]) for title, number in item["supporting_facts"]]
        labels = [(example.documents.documents[e.document].title, e.text) for e in example.evidence]
        assert labels == list(dict.fromkeys(expected))


@pytest.mark.parametrize("name", ["hotpotqa", "musique", "narrativeqa", "qasper"])
def test_every_usable_file_of_a_set_loads_under_its_card(real_data: Path, name: str) -> None:
    card = load_card(name)
    files = [file for file in FILES if file.startswith((f"{name}", f"raw/{name}/"))]
    assert len(files) >= 3
    for file in files:
        loaded = load(card, str(real_data / file))
        n = FILES[file][1] if not file.startswith(RELEASE) else 1  # of its three questions one is in `test`
        assert len(loaded.examples) == n
        assert loaded.label == f"{name} ({Path(file).name})"
        assert {example.dataset for example in loaded.examples} == {name}
        assert len({example.id for example in loaded.examples}) == n


@pytest.mark.parametrize(
    ("name", "file", "used", "remark"),
    [  # GovReport: reports above 8,000 words; of the others the first 30 documents (Graph of Records)
        ("qmsum", "qmsum.jsonl", 31, "first 30 document sets"),
        ("qmsum", "raw/qmsum/val_head13.jsonl", 13, ""),
        ("squality", "squality.jsonl", 30, "first 30 document sets"),
        ("squality", "raw/squality/v1-3_txt_dev_head17.jsonl", 17, ""),
        ("gov_report", "gov_report.jsonl", 4, "more than 8,000 (words)"),
    ],
)
def test_summarisation_sets_are_selected_as_in_the_paper(
    real_data: Path, name: str, file: str, used: int, remark: str
) -> None:
    loaded = load(load_card(name), str(real_data / file))
    assert len(loaded.examples) == used
    assert len({example.documents.id for example in loaded.examples}) <= 30
    assert all(example.question and example.task == "summarization" for example in loaded.examples)
    assert [remark in warning for warning in loaded.warnings] == ([True] if remark else [])
    learned_from = load(load_card(name), str(real_data / file), training=True)
    assert (len(learned_from.examples) > used) == ("first 30" in remark)
