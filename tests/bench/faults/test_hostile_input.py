"""Input that was written to break something: data files, cards, ids, titles, huge texts, pages."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from bench.cli.show import command as show
from bench.data import load
from bench.data.cards import Card, load_card
from bench.errors import BenchError
from bench.files.paths import DATASET_CARDS
from bench.files.yaml import read_definition, read_yaml
from bench.method.chunking import chunk_documents
from bench.method.options import build_config, parse_assignments
from bench.method.registry import load_method
from bench.report.page import environment
from bench.results.records import read_records
from bench.schema import Document, DocumentSet, Question
from bench.tables.definition import TableDefinition
from tests.bench.data.lines import line
from tests.bench.faults import hostile
from tests.bench.faults.runs import run
from tests.bench.models.builders import text_tokenizer
from tests.bench.report.seen import Seen
from tests.stand_ins import GEOMETRY, WordModel, WordModels, examples, stand_in_cell

DETERMINISTIC = settings(
    max_examples=40, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)

# --- data files -----------------------------------------------------------------------------------

GOOD = line(1, answers=["Ilse"], documents=[{"title": "T", "text": "Ilse crossed the bridge."}])
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | hostile.text
    | st.text(max_size=8),  # half characters included
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def loaded_or_refused(content: bytes, folder: Path) -> str:
    """What a file with that content comes to; anything else than data or a BenchError is a failure."""
    path = folder / "own.jsonl"
    path.write_bytes(content)
    try:
        data = load(load_card("qasper"), str(path))
    except BenchError as error:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", str(error)), repr(str(error))
        return str(error)
    for example in data.examples:
        json.dumps([example.id, example.question, example.answers]).encode()
        for document in example.documents.documents:
            document.full_text.encode("utf-8")
    return ""


@DETERMINISTIC
@given(field=st.sampled_from(list(GOOD)), value=ANYTHING, second=st.booleans())
def test_a_field_of_any_type_and_text_is_data_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: Any, second: bool
) -> None:
    lines = [json.dumps({**GOOD, field: value})]
    lines = [json.dumps({**GOOD, "id": "first"}), *lines] if second else lines
    loaded_or_refused("\n".join(lines).encode(), tmp_path_factory.mktemp("data"))


@DETERMINISTIC
@given(junk=st.binary(max_size=60), at=st.integers(0, 200), keep=st.booleans())
def test_bytes_thrown_into_a_file_are_data_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, keep: bool
) -> None:
    line = json.dumps(GOOD).encode() + b"\n"
    content = (line * 2)[:at] + junk + ((line * 2)[at:] if keep else b"")
    loaded_or_refused(content, tmp_path_factory.mktemp("data"))


ODD_FILES: dict[str, tuple[bytes, str]] = {
    "carriage returns": ("".join(json.dumps({**GOOD, "id": i}) + "\r\n" for i in "12").encode(), ""),
    "a number too large": (json.dumps(GOOD).encode()[:-1] + b', "n": 1e999}', ""),
    "a number too long": (json.dumps(GOOD).encode()[:-1] + b', "n": ' + b"9" * 10_000 + b"}", "own.jsonl:1"),
    "a null byte": (json.dumps(GOOD).encode().replace(b"Ilse", b"Il\x00se"), "own.jsonl:1"),
    "a key given twice": (json.dumps(GOOD).encode()[:-1] + b', "question": "What else?"}', ""),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_odd_files(tmp_path: Path, name: str) -> None:
    content, message = ODD_FILES[name]
    refusal = loaded_or_refused(content, tmp_path)
    assert message in refusal if message else not refusal, refusal


# --- cards, tables, options -----------------------------------------------------------------------

CARD = (DATASET_CARDS / "hotpotqa.yaml").read_text("utf-8")
BOMB = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
ODD_YAML = {
    "aliases that multiply": BOMB,
    "nested too deeply": "a: " + "[" * 2_000,
    "a list as a key": "? [a, b]\n: c\n",
    "an object": "name: !!python/object/apply:os.system ['true']\n",
    "a tag": "name: !Evil x\n",
    "a date that does not exist": "name: 2024-99-99\n",
    "a number too long": f"max_new_tokens: {'9' * 10_000}\n",
    "not a number": "max_new_tokens: .nan\n",
    "binary": "name: !!binary '####'\n",
    "two documents": "a: 1\n---\nb: 2\n",
    "a control character": "name: \x00\n",
    "merge keys": "<<: {a: 1}\nname: x\n",
    "a set": "name: !!set {a, b}\n",
    "nothing": "",
    "a text": "just words",
    "a byte order mark inside": "name: a\ufeffb\n",
}


def read_hotpotqa(path: Path) -> Card:
    return read_yaml(path, Card, "data set card")


def read_table(path: Path) -> TableDefinition:
    return read_definition(path, TableDefinition)


@pytest.mark.parametrize("name", ODD_YAML)
def test_odd_yaml_is_a_clear_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "hotpotqa.yaml"
    path.write_text(ODD_YAML[name], encoding="utf-8")
    for read in (read_hotpotqa, read_table) if name in ("a list as a key", "nothing") else (read_hotpotqa,):
        with pytest.raises(BenchError, match=r"hotpotqa\.yaml"):
            read(path)


@pytest.mark.parametrize("opened", ["[" * 60 + "]" * 60, "{a: " * 60, "- " * 60])
def test_yaml_nested_beyond_what_plain_data_need_is_refused_in_its_place(tmp_path: Path, opened: str) -> None:
    """Thousands of levels were read for seconds, up to the limit of recursion."""
    path = tmp_path / "hotpotqa.yaml"
    path.write_text(f"name: x\nid:\n  {opened}\n", encoding="utf-8")
    with pytest.raises(BenchError, match=r"hotpotqa\.yaml:3: nested too deeply"):
        read_hotpotqa(path)


@settings(DETERMINISTIC, max_examples=12)
@given(line=st.integers(0, 40), junk=hostile.text | st.sampled_from(list(ODD_YAML.values())))
def test_a_file_with_anything_thrown_in_is_read_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, line: int, junk: str
) -> None:
    path = tmp_path_factory.mktemp("definitions") / "hotpotqa.yaml"
    lines = CARD.split("\n")
    path.write_text("\n".join([*lines[:line], junk, *lines[line:]]), encoding="utf-8")
    try:
        read_hotpotqa(path)
    except BenchError as error:
        assert "hotpotqa.yaml" in str(error)


@DETERMINISTIC
@given(option=st.sampled_from(["k", "order", "chunk_tokens", "k1", "prompt"]), value=hostile.text)
def test_an_option_of_any_text_is_a_config_or_a_clear_error(option: str, value: str) -> None:
    try:
        build_config(load_method("bm25").Config, parse_assignments([f"{option}={value}"]), "bm25")
    except BenchError as error:
        assert option in str(error)


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 10_000, "NaN", "-Infinity"])
def test_an_option_that_json_chokes_on_is_a_clear_error(value: str) -> None:
    with pytest.raises(BenchError, match="k1"):
        build_config(load_method("bm25").Config, parse_assignments([f"k1={value}"]), "bm25")


# --- ids and titles -------------------------------------------------------------------------------

IDS = (
    "../../../../../../tmp/escaped",
    "/etc/passwd",
    "..",
    "CON",
    "a/b\\c:d*e?f",
    "long" * 2_000,
    "\x00\x1b[2J",
    "\u202eid",
    "-rf",
    "{id}",
    "<script>alert(1)</script>",
)


def test_ids_and_titles_never_become_paths(tmp_path: Path) -> None:
    (one,) = examples(1)
    texts = [DocumentSet((Document(id_, f"text {at}"),)) for at, id_ in enumerate(IDS)]
    sample = [
        replace(one, id=id_, question=f"What is {id_}?", answers=(id_,), documents=text)
        for id_, text in zip(IDS, texts, strict=True)
    ]
    run(stand_in_cell(sample), tmp_path / "in")
    names = {path.relative_to(tmp_path / "in").as_posix() for path in (tmp_path / "in").rglob("*")}
    expected = r"cell(/(\.lock|cell\.json|records\.jsonl|summary\.json))?"
    expected += r"|indexes(/echo(/[0-9a-f]{24}(/(index\.json|manifest\.json|arrays\.safetensors))?)?)?"
    assert all(re.fullmatch(expected, name) for name in names), names
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    records = list(read_records(tmp_path / "in" / "cell" / "records.jsonl"))
    assert [record.example_id for record in records] == list(IDS)
    assert all(record.error is None for record in records)


def test_a_record_is_shown_without_commands_to_the_terminal(tmp_path: Path) -> None:
    hostile_id = "\x1b]0;owned\x07\x9b2Jid\r\x08"
    example = replace(examples(1)[0], id=hostile_id, question="What\x1b[2J\x9b31m is\ta\rthis")
    run(stand_in_cell([example]), tmp_path)
    shown = CliRunner().invoke(show, [str(tmp_path / "cell")])
    assert shown.exit_code == 0, shown.output
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown.output), repr(shown.output)
    assert "\ufffd]0;owned" in shown.output


# --- huge texts -----------------------------------------------------------------------------------

MEGABYTES_2 = 2_000_000
HUGE = {
    "words": " ".join(f"w{(n * n) % 9973}" for n in range(400_000))[:MEGABYTES_2],
    "one word": "a" * MEGABYTES_2,
    "blanks": " \n" * (MEGABYTES_2 // 2),
    "marks": "e\u0301" * (MEGABYTES_2 // 3),
    "control words": "<|eot_id|>" * (MEGABYTES_2 // 10),
}


@pytest.mark.parametrize(("method", "kind"), [*(("bm25", kind) for kind in HUGE), ("tfidf", "words")])
def test_two_megabytes_are_ranked_and_read(kind: str, method: str) -> None:
    documents = DocumentSet((Document("", HUGE[kind]),))
    ranker = load_method(method)(load_method(method).Config(), GEOMETRY, 0)
    question = Question("w1 w4 who", documents, 8)

    async def both() -> Any:
        return await ranker.answer(await ranker.index(documents, WordModels()), question, WordModels())

    prediction = asyncio.run(both())
    assert all(item.text == HUGE[kind][item.start : item.end] for item in prediction.context)
    assert bool(prediction.context) == (kind != "blanks")


def test_two_megabytes_are_cut_into_chunks_that_give_them_back() -> None:
    part = MEGABYTES_2 // 8
    text = "".join(HUGE[kind][: part // len(HUGE[kind][0].encode())] for kind in HUGE if kind != "words")
    documents = DocumentSet((Document("", text + "end"),))
    for tokenize in (text_tokenizer().encode, WordModel().tokenize):
        chunks = chunk_documents(documents, tokenize, 75)
        assert "".join(chunk.text for chunk in chunks) == text + "end"


# --- pages ----------------------------------------------------------------------------------------

TEMPLATE = environment().from_string('<p title="{{ text }}">{{ text }}</p>')
DATA = environment().from_string("{{ data|tojson }}")


@DETERMINISTIC
@given(text=hostile.text | st.text(max_size=30))
def test_escaped_text_is_one_text_and_embedded_json_comes_back(text: str) -> None:
    inside = Seen(TEMPLATE.render(text=text))
    assert [(tag, list(attributes)) for tag, attributes in inside.tags] == [("p", ["title"])]
    data = DATA.render(data={"text": text})
    assert not re.search("[<>&\u2028\u2029]", data) and json.loads(data) == {"text": text}
