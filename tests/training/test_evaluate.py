import pytest

from bench.files.paths import ASSETS
from training.evaluate import Exam, Reader, auroc, bullet_figures, calibration, main
from training.generator.world import Fact

FACTS = [
    Fact("job", ("Mara Oakby", "baker")),
    Fact("hide", ("Mara Oakby", "the red key", "the old mill")),
    Fact("fear", ("Otto Fenley", "bees")),
]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(ASSETS / "tiny")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "* Mara Oakby worked as a baker and hid the red key in the old mill.\n"
            "* Otto Fenley was afraid of bees.",
            (3, 2, 0),
        ),
        (
            "* Mara Oakby worked as a baker, hid the red key in the old mill and was afraid of bees.",
            (2, 1, 1),
        ),
        ("* Otto Oakby was afraid of bees.", (0, 1, 1)),
        ("* Otto Fenley worked as a baker.\n\n* Mara Oakby worked as a baker.", (1, 2, 1)),
        ("", (0, 0, 0)),
    ],
)
def test_bullets_are_compared_fact_by_fact(text: str, expected: tuple[int, int, int]) -> None:
    assert bullet_figures(text, FACTS) == expected


def test_a_quick_look_does_not_replace_the_shipped_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--scale", "0.1"])
    assert "say with --out where they go" in capsys.readouterr().err


def test_auroc_counts_ordered_pairs() -> None:
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1
    assert auroc([0.1], [0.9]) == 0
    assert auroc([0.5, 0.9], [0.5]) == 0.75


def test_calibration_is_the_gap_between_confidence_and_outcome() -> None:
    error, curve = calibration([(0.95, True), (0.95, True), (0.25, True), (0.25, False), (1.0, False)])
    assert curve == [[0.25, 0.5, 2], [0.967, 0.667, 3]]
    assert error == pytest.approx((2 * 0.25 + 3 * 0.3) / 5)


def test_the_exact_match_is_what_generation_gives(reader: Reader) -> None:
    exam = Exam()
    rng = exam.rng("generation")
    cases = [exam.reading(rng, 5, "one") for _ in range(6)]
    assert [reader.generate(c.prompt, 30) == c.reply for c in cases] == reader.exact(cases)[0]


def test_the_shipped_model_reads_short_texts_with_names_it_has_never_seen(reader: Reader) -> None:
    exam = Exam()
    rng = exam.rng("short texts")
    right, tokens = reader.exact([exam.reading(rng, 5, "one") for _ in range(60)])
    assert 90 < tokens < 150
    assert sum(right) / 60 > 0.75
