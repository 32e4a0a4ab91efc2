import base64
import hashlib
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import command
from bench.errors import BenchError
from bench.report.content import Report, collect_report
from bench.report.page import report_page
from bench.run.cell import CellRequest
from tests.bench.faults.hostile import MARKUP
from tests.bench.report.finished import bm25, finish, own, own_file, pecan, steps
from tests.bench.report.seen import Seen

HOSTILE = (*MARKUP[:3], f"{MARKUP[4]} \u2028 \u2029 \u0000 \ufffe \x1b[31m", MARKUP[3])
FOREIGN = "Thermohaline circulation; isotopic stratigraphy corroborates palaeoclimatic proxies. " * 20


def hostile_page(folder: Path, texts: tuple[str, ...]) -> str:
    """A page on own data where title, text, question, answer, error, flag, node and log are these texts."""
    a, b, c, d, e = texts
    file = own_file(folder, [(a, b), (c, d)])
    changes = {
        0: {"prediction": e, "flags": [a], "question": b, "answers": [c], "trace": steps(0.9)},
        1: {"prediction": None, "error": d, "trace": {a: b, "list": [c]}},
    }
    changes[0]["trace"]["steps"][0]["nodes"][0]["id"] = e
    cell = finish(folder / "results", own(file), [1, 0], changes)
    path = cell.folder(folder / "results") / "cell.json"
    description = json.loads(path.read_text())
    description.update(model_label=a, data_label=b, unfit_models=[a])
    description["config"]["graph_model"] = c
    path.write_text(json.dumps(description))
    return report_page(collect_report(folder / "results", [file]))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    return hostile_page(tmp_path_factory.mktemp("hostile"), HOSTILE)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    finish(folder, bm25(), [1, 0])
    finish(folder, pecan(), [1, 1], {at: {"trace": steps(0.7)} for at in range(2)})
    return folder


@pytest.fixture(scope="module")
def report(results: Path) -> Report:
    return collect_report(results)


def test_no_text_of_a_record_becomes_an_element_or_an_attribute(hostile: str, tmp_path: Path) -> None:
    seen, plain = Seen(hostile), Seen(hostile_page(tmp_path, tuple("abcde")))
    assert [tag for tag, _ in seen.tags] == [tag for tag, _ in plain.tags]
    assert [set(attrs) for _, attrs in seen.tags] == [set(attrs) for _, attrs in plain.tags]
    names = {name for _, attrs in seen.tags for name in attrs}
    assert not any(name.startswith("on") for name in names) and not {"src", "style", "action"} & names
    links = [attrs["href"] for _, attrs in seen.tags if "href" in attrs]
    assert links and all(link is not None and link.startswith("#") for link in links)


def test_the_data_hold_every_text_as_it_is_and_cannot_end_their_element(hostile: str) -> None:
    data, script = Seen(hostile).scripts
    assert not re.search("[<>&\u2028\u2029]", data) and data.isascii()
    content = json.loads(data)
    first, second = content["sets"][0]["methods"][0]["answers"]
    assert first["prediction"] == HOSTILE[4] and first["flags"] == [HOSTILE[0]]
    assert second["error"] == HOSTILE[3]
    assert content["texts"][first["context"][0][3]] == f"{HOSTILE[0]}\n{HOSTILE[1]}"
    assert script.strip().startswith('"use strict"')
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "setTimeout"):
        assert way not in script


def test_the_page_may_run_its_own_script_only_and_reach_nothing(hostile: str) -> None:
    seen = Seen(hostile)
    (policy,) = [attrs["content"] for _, attrs in seen.tags if "http-equiv" in attrs]
    assert policy is not None and policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", hostile, re.DOTALL)
    for source in (style[1], seen.scripts[1]):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not re.search(r"(https?:)?//\w", style[1].replace("/*", "")) and "@import" not in style[1]


def test_a_figure_is_an_image_within_the_page(report: Report) -> None:
    page = report_page(report)
    images = [attrs for name, attrs in Seen(page).tags if name == "img"]
    assert [image["alt"] for image in images] == [f"{one.title}. {one.about}" for one in report.overview]
    assert len(images) == 1
    for image, figure in zip(images, report.overview, strict=True):
        kind, _, content = (image["src"] or "").partition(",")
        assert kind == "data:image/svg+xml;base64" and base64.b64decode(content) == figure.svg


def test_the_command_writes_the_same_bytes_again_and_runs_nothing(results: Path, tmp_path: Path) -> None:
    before = sorted(results.rglob("*"))
    pages = []
    for name in ("one.html", "two.html"):
        out = tmp_path / name
        result = CliRunner().invoke(command, ["report", "--results", str(results), "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert re.search(r"MB, 2 questions, 2 cells", result.output)
        pages.append(out.read_bytes())
    assert pages[0] == pages[1] and sorted(results.rglob("*")) == before


def test_own_data_are_shown_without_being_named_and_what_cannot_read_them_is_said(tmp_path: Path) -> None:
    file = own_file(tmp_path, [("Bridge", FOREIGN), ("River", FOREIGN)], dataset="mine")
    for k, scores in ((5, [1, 0]), (2, [0, 0])):
        finish(tmp_path, CellRequest("bm25", "", data=str(file), options={"k": k}), scores)
    finish(tmp_path, bm25(), [1, 1])
    report = collect_report(tmp_path)
    assert [(data, run.name, bool(run.cell.description.unfit_models)) for data, run in report.runs] == [
        ("hotpotqa (sample)", "bm25", False),
        ("mine (own.jsonl)", "bm25", True),
        ("mine (own.jsonl)", "bm25 k=2", True),
    ]
    (plane,) = report.overview
    assert plane.title.endswith("mine (own.jsonl)") and [row[3] for row in plane.rows] == ["50", "0"]
    (warning,) = report.warnings
    assert warning.startswith("mine (own.jsonl): tiny reads only text like the generated samples")
    only = collect_report(tmp_path, datasets=["mine"])
    assert {data for data, _ in only.runs} == {"mine (own.jsonl)"} and only.browser.questions == 2
    with pytest.raises(BenchError, match="no finished cell on mien "):
        collect_report(tmp_path, datasets=["mine", "mien"])


def test_no_finished_cell_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["report", "--results", str(tmp_path)])
    assert isinstance(result.exception, BenchError) and "bench table table1" in str(result.exception)


FILTERED = r"""
const source = require("fs").readFileSync(process.argv[1], "utf8");
const named = (name) => source.match(new RegExp(`^function ${name}\\(.*?^}`, "ms"))[0];
const methods = [1, 0].map((f1) => ({ answers: [{ scores: { f1 } }, { scores: { f1: 0.25 } }] }));
const fields = { text: { value: "" }, low: { value: "" }, high: { value: "" } };
const [metric, byId] = [() => "f1", (id) => fields[id] || {}];
const set = () => ({ questions: [0, 1].map((id) => ({ id, question: "", references: [] })) });
eval(["score", "scoresOf", "wanted"].map(named).join(""));
const kept = () => [0, 1].filter((at) => wanted(at, methods));
const shown = [kept()];
fields.differ = { checked: true };
shown.push(kept());
fields.differ = {};
fields.low.value = "50";
console.log(JSON.stringify([...shown, kept()]));
"""
"""The filters of the question browser on two questions: one of scores 1 and 0, one of 0.25 twice."""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_questions_are_filtered_by_score_and_by_whether_methods_differ() -> None:
    """Either filter found no question: each answer's place was taken for the metric."""
    script = str(resources.files("bench.report") / "page.js")
    done = subprocess.run(["node", "-e", FILTERED, script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[0, 1], [0], [0]]


def shown_by_a_browser(content: str, folder: Path) -> Seen:
    """The page after its script has run."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    page = folder / "page.html"
    page.write_text(content, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [browser, *options, "--virtual-time-budget=3000", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return Seen(done.stdout)


@pytest.mark.slow
def test_a_browser_lists_at_first_what_all_chosen_cells_were_asked(tmp_path: Path) -> None:
    for limit, scores in ((1, [1]), (3, [1, 0, 1])):
        finish(tmp_path, bm25(limit=limit), scores)
    seen = shown_by_a_browser(report_page(collect_report(tmp_path)), tmp_path)
    assert "1 of 3 questions" in seen.text and "2 of 2 cells" in seen.text
    assert sum(tag == "button" for tag, _ in seen.tags) >= 10, "every column of the runs can be sorted"


@pytest.mark.slow
def test_a_browser_compares_the_best_cell_by_question_in_regions_of_different_names(
    report: Report, tmp_path: Path
) -> None:
    seen = shown_by_a_browser(report_page(report), tmp_path)
    assert (
        "F1 on 2 questions: pecan 100.0 % with 0.002 TFLOPs per question; bm25 50.0 % with 0.002 "
        "TFLOPs per question. The first is better on 1, the second on 0, they are equal on 1." in seen.text
    )
    assert "+100" in seen.text
    names = [attrs["aria-label"] for _, attrs in seen.tags if attrs.get("role") == "region"]
    assert len(set(names)) == len(names) and any(name and "compare two" in name for name in names)


@pytest.mark.slow
def test_a_browser_shows_hostile_texts_and_runs_none(hostile: str, tmp_path: Path) -> None:
    seen = shown_by_a_browser(hostile, tmp_path)
    assert "2 of 2 questions" in seen.text, "the script has run"
    assert HOSTILE[0] in seen.text and HOSTILE[4] in seen.text
    tags = {tag for tag, _ in seen.tags}
    assert not {"img", "iframe", "object", "embed", "link"} & tags
    assert [tag for tag, _ in seen.tags].count("script") == 2
    assert not any(name.startswith("on") for _, attrs in seen.tags for name in attrs)
