from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from bench.data import check, load, loading
from bench.data.cards import load_card
from bench.data.loading import DataUnavailableError, has_training_part
from bench.errors import ConfigError, DataError
from bench.run.cell import CellRequest, plan_cell
from tests.bench.data.files_of_every_kind import parquet
from tests.bench.data.lines import line, write

QASPER = load_card("qasper")


def test_a_path(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", *(line(n) for n in range(5)))
    loaded = load(QASPER, str(path))
    assert [example.id for example in loaded.examples] == ["q0", "q1", "q2", "q3", "q4"]
    assert (loaded.label, loaded.source, loaded.format) == ("qasper (dev.jsonl)", "path", "bench")
    assert loaded.revision == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.warnings == ()
    assert len({id(example.documents) for example in loaded.examples}) == 1  # one text, held once


def test_the_limit_takes_the_first_in_file_order_and_reads_no_further(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", *(line(n) for n in range(5)))
    whole = load(QASPER, str(path))
    with path.open("a") as file:
        file.write("not json\n")
    assert load(QASPER, str(path), limit=3).examples == whole.examples[:3]
    assert len(load(QASPER, str(path), limit=5).examples) == 5
    with pytest.raises(DataError, match="not JSON"):
        load(QASPER, str(path), limit=6)
    for limit in (0, -1):
        with pytest.raises(ConfigError, match="expected at least 1"):
            load(QASPER, str(path), limit=limit)


def test_the_first_error_stops_and_names_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", line(0), line(1, task="chat", answers=[True]), line(2, question=3))
    with pytest.raises(DataError) as error:
        load(QASPER, str(path))
    assert str(error.value).startswith(
        f"{path}:2: task: input should be 'qa' or 'summarization', found 'chat'; answers[0]: expected text, "
        f'found True. (All problems of a file: bench data check {path}) A right line:\n{{"question": '
    )


def test_a_document_longer_than_is_read_anywhere_is_refused_before_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.data.source.MAX_TEXT_CHARS", 10)
    path = write(tmp_path / "dev.jsonl", line(0))
    with pytest.raises(DataError, match=r":1: the document 'T' has 14 characters; at most 10 are read"):
        load(QASPER, str(path))
    assert not check(path).usable


def test_warnings_are_grouped(tmp_path: Path) -> None:
    without = [line(n, documents=[]) for n in range(4)]
    path = write(tmp_path / "dev.jsonl", *without, line(5, answers=["a", ""]), line(6, answers=["北京"]))
    assert load(QASPER, str(path)).warnings == (
        f"{path}:1: there are no documents (and 3 more)",
        f"{path}:5: one of the reference answers is empty",
        f"{path}:6: no reference answer has a letter a-z or a digit, all that ROUGE counts: ROUGE will be 0",
    )


def test_another_sets_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", line(0), line(1, dataset="hotpotqa_e"))
    with pytest.raises(DataError) as error:
        load(QASPER, str(path))
    assert f"{path}:2: this is hotpotqa_e data, not qasper; use --dataset hotpotqa_e" in str(error.value)
    for name in ("qasper_original", "Qasper-v0.3"):
        assert load(QASPER, str(write(path, line(0, dataset=name)))).examples[0].dataset == "qasper"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is empty"),
        ("[]", "holds no entries"),
        ("{}", "in an unknown format"),
        ('{"a": 1, "b": 2}', "JSON lines in an unknown format, with the fields a, b. Our own format needs"),
        ('{"question": "Q?", "answer": "A", "context": "C"}', "Perhaps: context -> documents, answer ->"),
        ("a,b\n", "holds no entries"),
        ('{"id": \n', "not JSON"),
    ],
)
def test_files_without_examples(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "file.txt"
    path.write_text(content)
    with pytest.raises(DataError) as error:
        load(QASPER, str(path))
    assert str(error.value).startswith(str(path))
    assert says in str(error.value)


def test_a_name_that_is_not_utf_8_is_refused_before_records_hold_it() -> None:
    with pytest.raises(ConfigError, match=r"'caf\\udce9.jsonl': the name is not UTF-8"):
        load(load_card("qasper"), "caf\udce9.jsonl")


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data file in it"):
        load(QASPER, str(tmp_path))
    (tmp_path / "README.md").write_text("# About")
    write(tmp_path / "dev.jsonl", line(0))
    loaded = load(QASPER, str(tmp_path))
    assert (len(loaded.examples), loaded.label) == (1, f"qasper ({tmp_path.name})")
    write(tmp_path / "other.jsonl", line(0))
    with pytest.raises(DataError, match=r"2 data files in this folder; .*: dev.jsonl, other.jsonl"):
        load(QASPER, str(tmp_path))
    write(tmp_path / "test.jsonl", line(0), line(1))
    loaded = load(QASPER, str(tmp_path))
    assert (len(loaded.examples), loaded.label) == (2, "qasper (test.jsonl)"), "the evaluated split's"


def test_parquet_shards_of_a_folder(tmp_path: Path) -> None:
    for shard in range(2):
        path = tmp_path / f"test-{shard:05d}-of-00002.parquet"
        path.write_bytes(parquet([line(2 * shard + n) for n in range(2)]))
    assert [example.id for example in load(QASPER, str(tmp_path)).examples] == ["q0", "q1", "q2", "q3"]
    path.unlink()
    with pytest.raises(DataError, match="1 of 2 shards"):
        load(QASPER, str(tmp_path))


def test_the_sample_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "SAMPLE_SETS", tmp_path)
    with pytest.raises(DataError, match="has no sample set"):
        load(QASPER)
    write(tmp_path / "qasper.jsonl", line(0))
    assert (load(QASPER).label, load(QASPER).source) == ("qasper (sample)", "sample")


def test_only_the_evaluated_set_of_a_release_is_used(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "documents.csv").write_text("document_id,set,kind,wiki_title\nd1,test,movie,Film\n")
    (tmp_path / "tmp/d1.content").write_text("A story.")
    rows = ["d1,test,Who?,a,b", "d1,train,When?,a,b", "d1,valid,Why?,a,b", "d1,train,How?,a,b"]
    header = "document_id,set,question,answer1,answer2"
    (tmp_path / "qaps.csv").write_text("\n".join([header, *rows]))
    loaded = load(load_card("narrativeqa"), str(tmp_path))
    assert [example.question for example in loaded.examples] == ["Who?"]
    assert loaded.warnings == (f"{tmp_path}: only the split 'test' is used; left out: train 2, valid 1",)
    (tmp_path / "qaps.csv").write_text("\n".join([header, *rows[1:]]))
    with pytest.raises(DataError, match="no question of the split 'test'.* found train 2, valid 1"):
        load(load_card("narrativeqa"), str(tmp_path))


def test_of_a_folder_of_several_sets_the_part_with_the_cards_name_is_used(tmp_path: Path) -> None:
    write(tmp_path / "qasper.jsonl", line(0))
    write(tmp_path / "musique.jsonl", line(1))
    loaded = load(QASPER, str(tmp_path))
    assert loaded.label == "qasper (qasper.jsonl)" and len(loaded.examples) == 1
    with pytest.raises(DataUnavailableError, match="nothing is named hotpotqa; there are musique, qasper"):
        load(load_card("hotpotqa"), str(tmp_path))
    assert issubclass(DataUnavailableError, DataError)
    write(tmp_path / "qasper.json", line(0))
    with pytest.raises(DataError, match=r"has qasper\.json and qasper\.jsonl for qasper; pass one"):
        load(QASPER, str(tmp_path))
    with pytest.raises(DataUnavailableError, match="wcep cannot be downloaded"):
        load(load_card("wcep"), "hub")


def test_a_selection_is_mentioned_only_where_it_leaves_something_out(tmp_path: Path) -> None:
    card = load_card("qmsum")
    assert card.selection is not None and card.selection.documents == 30
    qmsum = {"dataset": "qmsum", "task": "summarization"}
    *lines, beyond = (line(n, **qmsum, documents=[{"title": "", "text": f"Text {n}."}]) for n in range(31))
    again = {**lines[0], "id": "again"}
    loaded = load(card, str(write(tmp_path / "exactly.jsonl", *lines, again)))
    assert len(loaded.examples) == 31 and loaded.warnings == ()
    loaded = load(card, str(write(tmp_path / "more.jsonl", *lines, beyond, again)))
    assert len(loaded.examples) == 31
    (warning,) = loaded.warnings
    assert "only the questions on the first 30 document sets are used" in warning
    assert warning.endswith("left out: 1")


def test_booksum_takes_the_first_rows_however_many_chapters_they_are_about(tmp_path: Path) -> None:
    rows = [
        {"book_id": f"Emma.{n // 3}", "source": f"guide {n % 3}", "chapter": f"Chapter {n // 3}.",
         "chapter_length": 9000.0 if n % 4 else 8000.0, "summary_text": f"Summary {n}."}
        for n in range(50)
    ]  # fmt: skip
    path = write(tmp_path / "test.jsonl", *rows)
    loaded = load(load_card("booksum"), str(path))
    assert [e.answers[0] for e in loaded.examples] == [f"Summary {n}." for n in range(50) if n % 4][:30]
    assert any("only the first 30 questions are used" in warning for warning in loaded.warnings)
    assert len(load(load_card("booksum"), str(path), training=True).examples) == 37
    about = {"dataset": "booksum", "task": "summarization", "metadata": {"chapter_length": "long"}}
    with pytest.raises(DataError, match=r":1: metadata 'chapter_length' is no number: 'long'"):
        load(load_card("booksum"), str(write(path, line(0, **about))))


def wcep(folder: Path, **counts: int) -> Path:
    """WCEP-10 as it is unpacked: a file of lines for each split."""
    folder.mkdir(parents=True)
    for split, count in counts.items():
        texts = [f"{split} {n}" for n in range(count)]
        rows = ({"document": [f"{text} " + "word " * 6001], "summary": f"{text}."} for text in texts)
        write(folder / f"{split}.txt", *rows)
    return folder


def test_a_folder_with_a_file_a_split_is_evaluated_on_test_and_learned_from_train(tmp_path: Path) -> None:
    card = load_card("wcep")
    folder = wcep(tmp_path / "wcep", test=3, train=5, val=1)
    for data in (folder, tmp_path):  # the set's own folder, or one with several sets
        assert [e.answers[0] for e in load(card, str(data)).examples] == [f"test {n}." for n in range(3)]
        assert len(load(card, str(data), training=True).examples) == 5
        assert has_training_part(card, str(data))
    assert load(card, str(folder / "train.txt")).examples[0].answers == ("train 0.",), "a file is what it is"
    assert not has_training_part(card, str(folder / "train.txt"))
    (folder / "train.txt").unlink()
    assert not has_training_part(card, str(tmp_path))
    assert len(load(card, str(tmp_path)).examples) == 3


def test_papers_of_academic_eval_lie_in_one_folder_and_name_their_split(tmp_path: Path) -> None:
    folder = tmp_path / "academic_eval"
    folder.mkdir()
    for name in ("test_0", "test_1", "train_0", "train_1", "train_2"):
        paper = {"title": f"On {name}", "main_content": f"We study {name}.", "gt": f"Abstract of {name}."}
        (folder / f"{name}.json").write_text(json.dumps(paper), encoding="utf-8")
    card = load_card("academic_eval")
    examples = load(card, str(tmp_path)).examples
    assert [e.answers[0] for e in examples] == ["Abstract of test_0.", "Abstract of test_1."]
    assert has_training_part(card, str(tmp_path))
    assert len(load(card, str(tmp_path), training=True).examples) == 3
    options = {"supervised": "on", "train_on": "train"}
    plan = plan_cell(CellRequest("gor", "academic_eval", data=str(tmp_path), options=options)).training
    assert plan is not None, "what is learned from is what is searched with"
    assert all("text is: On train" in one.question for each in plan.references.values() for one in each)
    assert "around 200 words" in examples[0].question and "On test_0" not in examples[0].question
    assert card.retrieval_query_of(examples[0]).endswith("provided text. The title of the text is: On test_0")
