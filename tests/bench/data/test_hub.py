"""The hub loader, offline: against a hub cache that the test lays out, and against no hub at all."""

from __future__ import annotations

import hashlib
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from bench.cli.data import command as data_command
from bench.data import hub, load
from bench.data.cards import Card, HubFile, load_card
from bench.errors import DataError
from tests.bench.data.files_of_every_kind import parquet
from tests.bench.data.lines import write
from tests.bench.data.test_formats import COLUMNAR, HOTPOT_COLUMNS, MEETING


def cached(cache: Path, card: Card, contents: dict[str, bytes]) -> None:
    """Lay out files as the hub's cache keeps them: blobs by checksum, and links to them by revision."""
    repository = cache / f"datasets--{card.hub.repo.replace('/', '--')}"
    for name, content in contents.items():
        blob = repository / "blobs" / hashlib.sha256(content).hexdigest()
        link = repository / "snapshots" / card.hub.revision / name
        for path in (blob, link):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link.symlink_to(blob)


def with_files(card: Card, examples: int, **files: bytes) -> Card:
    """The card with other files, their checksums included."""
    parts = tuple(HubFile(path=name, sha256=hashlib.sha256(files[name]).hexdigest()) for name in files)
    changed = card.hub.model_copy(update={"files": parts, "examples": examples})
    return card.model_copy(update={"hub": changed})


def hotpot_row(number: int) -> dict[str, Any]:
    own = {"id": f"h{number}", "question": f"Question {number}?"}
    return {**HOTPOT_COLUMNS, **own, "supporting_facts": {"title": ["T"], "sent_id": [1]}}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for GitHub."""
    monkeypatch.setattr(hub, "GITHUB", (tmp_path / "site").as_uri())
    return tmp_path / "site"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_shards_are_read_in_order_under_the_pinned_revision(cache: Path) -> None:
    shards = {"a.parquet": parquet([hotpot_row(0), hotpot_row(1)]), "b.parquet": parquet([hotpot_row(2)])}
    card = with_files(load_card("hotpotqa"), examples=3, **shards)
    cached(cache, card, shards)
    loaded = load(card, "hub")
    assert [example.id for example in loaded.examples] == ["h0", "h1", "h2"]
    assert (loaded.label, loaded.source, loaded.format) == ("hotpotqa (hub)", "hub", "hotpotqa-columnar")
    assert loaded.revision == card.hub.revision
    assert loaded.warnings == ()
    assert loaded.examples[0].documents.documents[0].text == "One. Two."
    assert load(card, "hub", limit=1).examples == loaded.examples[:1]


def test_the_hubs_columns_of_qasper_survive_parquet(cache: Path) -> None:
    files = {"0000.parquet": parquet([COLUMNAR])}
    card = with_files(load_card("qasper"), examples=2, **files)
    cached(cache, card, files)
    first, second = load(card, "hub").examples
    assert first.answers == ("a, b", "a thing", "No", "Yes", "Unanswerable") and second.answers == ("No",)
    assert first.evidence[0].text == "Second."


@pytest.mark.parametrize("known", [True, False], ids=["checksum-in-card", "checksum-of-the-hub"])
def test_a_damaged_copy_is_removed_and_never_read(cache: Path, known: bool) -> None:
    whole = parquet([hotpot_row(0)])
    card = with_files(load_card("hotpotqa"), examples=1, **{"a.parquet": whole})
    if not known:
        files = (HubFile(path="a.parquet"),)
        card = card.model_copy(update={"hub": card.hub.model_copy(update={"files": files})})
    cached(cache, card, {"a.parquet": whole})
    blob = next(cache.glob("*/blobs/*"))
    blob.write_bytes(whole[:100])
    with pytest.raises(DataError, match="is damaged .* and was removed"):
        load(card, "hub")
    assert not blob.exists()
    with pytest.raises(DataError, match="is not in the local cache"):
        load(card, "hub")


def test_without_network_and_cache_the_error_says_what_to_do(cache: Path) -> None:
    card = load_card("qasper")
    with pytest.raises(DataError) as error:
        load(card, "hub")
    message = str(error.value)
    for part in (
        "qasper/test/0000.parquet of allenai/qasper at revision 06806e46",
        "bench data fetch --dataset qasper",
        "HF_HUB_OFFLINE",
        "--data PATH",
        "--data sample",
    ):
        assert part in message
    assert list(cache.rglob("*.parquet")) == []


def test_files_of_a_commit_on_github_are_fetched_once_whole_or_not_at_all(
    cache: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = load_card("qmsum")
    with pytest.raises(DataError, match="HF_HUB_OFFLINE"):
        load(card, "hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(DataError, match=r"test\.jsonl of Yale-LILY/QMSum at revision 83d7768.*--data PATH"):
        load(card, "hub")
    folder = site / card.hub.repo / card.hub.revision / "data/ALL/jsonl"
    folder.mkdir(parents=True)
    for name in ("test", "train"):
        write(folder / f"{name}.jsonl", MEETING | {"topic_list": [{"topic": name}]})
    loaded = load(card, "hub")
    assert (loaded.revision, len(loaded.examples), loaded.warnings) == (card.hub.revision, 1, ())
    assert len(load(card, "hub", training=True).examples) == 1
    monkeypatch.setattr(hub, "GITHUB", "file:///nowhere")
    assert load(card, "hub").examples == loaded.examples


def test_the_stories_that_the_released_code_learns_from_are_not_asked_about(
    cache: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = load_card("squality")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    folder = site / card.hub.repo / card.hub.revision / "data/v1-3/txt"
    folder.mkdir(parents=True)
    asked = [{"question_text": "What is the plot of the story?", "responses": [{"response_text": "A plot."}]}]
    for name, count in (("test", 52), ("dev", 2), ("train", 3)):
        stories = [
            {"metadata": {"passage_id": f"{name}{n}"}, "document": f"{name} {n}", "questions": asked}
            for n in range(count)
        ]
        write(folder / f"{name}.jsonl", *stories)
    loaded = load(card, "hub")
    assert [example.id for example in loaded.examples] == [f"squality-test{n}" for n in range(25, 52)]
    assert "questions on the first 25 document sets are left out" in " ".join(loaded.warnings)
    assert len(load(card, "hub", training=True).examples) == 5
    own = load(card, str(folder / "test.jsonl"))  # whose file it is nobody knows
    assert own.examples[0].id == "squality-test0" and len(own.examples) == 30


@pytest.mark.parametrize("fault", [IncompleteRead(b"half", 100), TimeoutError()])  # the latter says no more
def test_a_download_from_github_that_is_cut_is_one_clear_error_and_leaves_no_file(
    fault: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    answer = MagicMock()
    answer.__enter__().read.side_effect = fault
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: answer)
    with pytest.raises(DataError, match=rf"test\.jsonl of Yale-LILY/QMSum .* {type(fault).__name__}"):
        load(load_card("qmsum"), "hub")
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_only_what_was_compared_with_a_checksum_is_called_verified(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = load_card("qmsum")
    (unknown,) = card.hub.files
    folder = tmp_path / "longdoc-bench" / card.hub.repo / card.hub.revision
    (folder / unknown.path).parent.mkdir(parents=True)
    (folder / unknown.path).write_bytes(b"{}")
    for known, status in ((None, "not verified"), (hashlib.sha256(b"{}").hexdigest(), "verified")):
        files = (unknown.model_copy(update={"sha256": known}),)
        changed = card.model_copy(update={"hub": card.hub.model_copy(update={"files": files})})
        monkeypatch.setattr("bench.cli.data.load_card", lambda _, changed=changed: changed)
        result = CliRunner().invoke(data_command, ["fetch", "--dataset", "qmsum"])
        assert result.exit_code == 0, result.output
        (line,) = [line for line in result.output.splitlines() if line.startswith("qmsum: 1 file")]
        assert line.endswith(status) and ("not" in status) == ("not verified" in line)
