import io
import json
from pathlib import Path
from typing import Any

import pytest

from bench.cli.main import main
from bench.errors import DataError
from bench.metrics import get_metrics
from bench.metrics.scoring import Answered, parse_answered, question_scores, read_answered, score_questions
from tests.bench.data.lines import write

_METRICS = get_metrics(["f1", "rouge_l", "bleu_4"])
_GOOD = {"prediction": "the old mill by the river", "answers": ["an old mill by the river", "a mill"]}


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["score", *arguments])
    return int(stopped.value.code or 0)


def test_one_document_with_lines_and_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path / "answers.jsonl",
        _GOOD | {"example_id": "q1", "flops": {"query": 3}},
        {"prediction": "Paris", "answers": ["Rome", "Paris"]},
    )
    assert _run(str(path)) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["lines", "mean", "corpus_level", "n", "failed"]
    first, second = shown["lines"]
    assert first.pop("scores") == {"f1": pytest.approx(1), "rouge_l": pytest.approx(5 / 6)}
    assert first == {"line": 1, "example_id": "q1"}
    assert second == {"line": 2, "scores": {"f1": 1, "rouge_l": 1}}
    assert shown["mean"]["f1"] == 1 and shown["mean"]["rouge_l"] == pytest.approx(11 / 12)
    # 1- to 4-grams of both lines together; "the" counts once, as in the reference; no brevity penalty
    assert shown["mean"]["bleu_4"] == pytest.approx((6 / 7 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    assert (shown["corpus_level"], shown["n"], shown["failed"]) == (["bleu_4"], 2, 0)


def test_failed_questions_score_0_and_stay_in_every_mean() -> None:
    answered = Answered("an old mill by the river", ("an old mill by the river",))
    failed = Answered(None, ("an old mill by the river",), line=2, example_id="q2")
    scores = score_questions([answered, failed], _METRICS)
    assert scores.failed == 1
    assert scores.mean["f1"] == scores.mean["rouge_l"] == 0.5
    assert 0 < scores.mean["bleu_4"] < 1  # the missing answer's length counts: brevity penalty
    shown = {"line": 2, "example_id": "q2", "failed": True, "scores": {"f1": 0, "rouge_l": 0}}
    assert scores.to_json()["lines"][1] == shown


@pytest.mark.parametrize(
    ("error", "failed"), [("out of memory", True), ({"kind": "oom"}, True), (None, False), ("", False)]
)
def test_a_line_with_an_error_is_a_failed_question(error: Any, failed: bool) -> None:
    (asked,) = parse_answered([json.dumps(_GOOD | {"error": error}).encode()], "x")
    assert (asked.prediction is None) == failed


def test_question_scores_leaves_corpus_metrics_out_and_has_none_without_a_reference() -> None:
    assert question_scores("Paris", ["Paris"], _METRICS) == {"f1": 1, "rouge_l": 1}
    assert question_scores(None, ["Paris"], _METRICS) == {"f1": 0, "rouge_l": 0}
    assert question_scores("Paris", [], _METRICS) == {}


def test_a_line_without_a_reference_is_in_no_mean_and_counted() -> None:
    """The folder of a cell of the user's own questions was refused for one of them."""
    bare = {"prediction": "a", "answers": []}
    lines = [json.dumps(line).encode() for line in (_GOOD, bare)]
    scores = score_questions(parse_answered(lines, "x"), get_metrics(["f1", "bleu_4"])).to_json()
    alone = score_questions(parse_answered(lines[:1], "x"), get_metrics(["f1", "bleu_4"])).to_json()
    assert (scores["mean"], scores["n"], scores["unscored"]) == (alone["mean"], 2, 1)
    with pytest.raises(DataError, match="no line has a reference answer"):
        parse_answered(lines[1:], "x")


def test_line_separators_inside_strings_do_not_end_a_line() -> None:
    text = "one\u2028two\u0085three"
    raw = json.dumps({"prediction": text, "answers": [text]}, ensure_ascii=False).encode() + b"\r\n"
    (asked,) = parse_answered(io.BytesIO(b"\xef\xbb\xbf" + raw), "x")
    assert asked.prediction == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"prediction": "a", "answ', "x:2: the line: Invalid JSON.* Expected one object a line"),
        (b"[1, 2]", "x:2: the line: Input should be an object"),
        (b"\xff{}", "x:2: the line: Invalid JSON"),
        (b"[" * 100_000, "x:2: the line: Invalid JSON: recursion limit"),
        (b'{"answers": ["a"], "text": 1}', r"x:2: there is no prediction\. .* say why in"),
        (b'{"prediction": "a"}', "answers: Field required"),
        (b'{"prediction": 7, "answers": ["a"]}', "prediction: Input should be a valid string"),
        (b'{"prediction": "a", "answers": "a"}', "answers: Input should be a valid "),
        (b'{"prediction": "a", "answers": ["a", null]}', r"answers\.1: Input should be a valid string"),
    ],
)
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_answered([json.dumps(_GOOD).encode(), line], "x")


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl cannot be read: No such file"):
        read_answered(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="is a folder; .* Name a file inside it"):
        read_answered(tmp_path)
    with pytest.raises(DataError, match=r"empty\.jsonl holds no record"):
        read_answered(write(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match=r"a\.jsonl/b cannot be read"):
        read_answered(write(tmp_path / "a.jsonl", _GOOD) / "b")


@pytest.mark.parametrize("metrics", ["f1,rouge", ",", ""])
def test_bad_metrics_end_with_2(metrics: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(str(write(tmp_path / "a.jsonl", _GOOD)), "--metrics", metrics) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and ("Did you mean" in shown.err or "names no metric" in shown.err)


def test_further_answers_of_a_line_are_averaged_with_the_first() -> None:
    line = b'{"prediction": "Paris", "answers": ["Paris"], "drawn": ["Rome", "Paris"]}\n'
    (answered,) = parse_answered([line], "x")
    assert answered.drawn == ("Rome", "Paris")
    assert score_questions([answered], get_metrics(["f1"])).mean["f1"] == pytest.approx(2 / 3)
    with pytest.raises(DataError, match="x:1: drawn: Input should be a valid "):
        parse_answered([line.replace(b'["Rome", "Paris"]', b"3")], "x")


def test_bleu_counts_all_answers_of_a_question_with_the_weight_of_one() -> None:
    right, wrong = "the kite lay in the mill", "the kite was sold at a fair"
    bleu = get_metrics(["bleu_4"])

    def score(*questions: Answered) -> float:
        return score_questions(questions, bleu).mean["bleu_4"]

    alone, other = Answered(right, (right,)), Answered("a b c d e f", ("a b c d e f",))
    drawn = Answered(right, (right,), drawn=(wrong,))
    assert score(drawn) == pytest.approx(score(alone, Answered(wrong, (right,))))
    assert score(drawn, other) > score(alone, Answered(wrong, (right,)), other)
    same = Answered(right, (right,), drawn=(right, right))
    assert score(same, Answered(wrong, (right,))) == pytest.approx(score(alone, Answered(wrong, (right,))))
    assert score(Answered(None, (right,)), alone) == score(Answered("", (right,)), alone)
