"""What a new user types at first, and what the answer says to type instead."""

import pytest

from bench.cli.main import main


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.out == "" and shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1, "one line"
    return shown.err


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("run bm25 qasper", "Did you mean: bench run --method bm25 --dataset qasper"),
        ("run --dataset qasper", "--method is missing. Methods: bench list methods"),
        ("run --method bm25,tfidf --dataset qasper", "Several: bench sweep --method bm25 --method tfidf"),
        ("run --method bm25 --dataset qasper --model gpt-4o", "a model behind a server"),
        ("run --method bm25:top_k=3 --dataset qasper", "What they do: bench list methods bm25"),
        ("methods", "Did you mean: bench list methods"),
        ("bm25", "Did you mean: bench run --method bm25 --dataset NAME"),
        ("ask", 'Which files? bench ask "QUESTION" FILES...'),
        ("ask When? ", 'Which files? bench ask "When?" FILES...'),
        ("ask pyproject.toml When?", 'The question comes first: bench ask "QUESTION" pyproject.toml'),
        ("run --method bm25 --data ~nobody-here/x", "~nobody-here/x: no such file or folder"),
        ("run --limit x", "'x' is not a valid integer range. See: bench run --help"),
        ("compare bm25 sbert --judge tiny --plan 2", "--plan is of a comparison by scores"),
        ("compare bm25 sbert --protocol paper", "--protocol is of a judge's comparison: add --judge MODEL"),
        ("table table1 --prices p.yaml", "--prices is of --columns price: add it."),
        ("table table1_real --from docs/real_reader --seed 4", "--seed chooses what runs, and --from"),
        ("figure pareto_real --from docs/real_reader --dataset x", "no cell of x, but of hotpotqa, musique"),
        ("compare bm25 sbert --data datasets/sample/qasper.jsonl", "bm25 on qasper (datasets/sample/qasper"),
        ("run --method bm25 --dataset qasper --model server:http://a..b/v1#m", "be sent (Unicode"),
        ("table gor4 --columns published --dataset qmsum", "paper prints nothing for qmsum, but for wcep"),
        ("compare bm25 sbert --dataset hotpotqa --plan nan", "nan is not a number"),
        (
            "run --method bm25:k=3 --set k=4 --dataset qasper",
            "k stands in --method and in --set, or in a file's; give it once",
        ),
        ("run --method bm25 --method tfidf --dataset qasper", "--method stands there 2 times; expected once"),
        ("run --method bm25 --dataset qasper --timeout nan", "nan is not a number"),
        ("figure fig4 --dataset mine", "Unknown data set of fig4 'mine'"),
    ],
)
def test_a_wrong_guess_is_one_line(typed: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer in error_of(capsys, *typed.split(" "))


def test_a_guess_is_made_only_where_a_name_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean" not in error_of(capsys, "run", "--method", "rag", "--dataset", "qasper")
    assert "Did you mean 'bm25'" in error_of(capsys, "run", "--method", "bm52", "--dataset", "qasper")
    gone = error_of(capsys, "run", "--method", "bm25", "--dataset", "qasper", "--model", "gpt-4o")
    assert "contriever" not in gone and "minilm" not in gone, "an encoder is no reader"


@pytest.mark.parametrize("typed", ["-V", "help show"])
def test_what_other_commands_understand_is_understood(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(typed.split())
    assert end.value.code == 0 and capsys.readouterr().err == ""
