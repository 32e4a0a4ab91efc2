import hashlib
import json

import pytest

from bench.files.paths import ASSETS
from training.evaluate import Exam, Reader, auroc, bullet_figures, calibration, figures
from training.generator.world import Fact

FOLDER = ASSETS / "tiny"
FACTS = [
    Fact("job", ("Mara Oakby", "baker")),
    Fact("hide", ("Mara Oakby", "the red key", "the old mill")),
    Fact("fear", ("Otto Fenley", "bees")),
]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(FOLDER)


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


def test_auroc_counts_ordered_pairs() -> None:
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1
    assert auroc([0.1], [0.9]) == 0
    assert auroc([0.5, 0.9], [0.5]) == 0.75


def test_calibration_is_the_gap_between_confidence_and_outcome() -> None:
    error, curve = calibration([(0.95, True), (0.95, True), (0.25, True), (0.25, False), (1.0, False)])

    assert curve == [[0.25, 0.5, 2], [0.967, 0.667, 3]]
    assert error == pytest.approx((2 * 0.25 + 3 * 0.3) / 5)


def test_shipped_files_are_whole_and_small() -> None:
    sums = json.loads((FOLDER / "checksums.json").read_text())

    assert "model.safetensors" in sums and "tokenizer.json" in sums
    for name, digest in sums.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest
    assert (FOLDER / "model.safetensors").stat().st_size <= 16 * 2**20


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


def test_every_figure_of_the_plan_is_measured(reader: Reader) -> None:
    barred = {
        (f["figure"], f.get("tokens") or f.get("bullets") or f.get("facts"))
        for f in figures(_Fast(reader), Exam(), 0.0)  # type: ignore[arg-type]
        if f["bar_gpu"] is not None
    }

    assert barred == {
        *((name, n) for name in ("one_hop_exact_match", "one_hop_question_first")
          for n in (170, 300, 550, 1000, 2000)),
        ("lists_cut", None), ("three_hop_exact_match", 20),
        ("two_hop_exact_match", 300), ("unanswerable_when_not_told", 300),
        ("sufficiency_auroc", 8), ("sufficiency_auroc", 32),
        ("bullets_facts_kept", 6), ("bullets_facts_kept", 20), ("bullets_wrong", 6), ("bullets_wrong", 20),
        ("choice_among_5_summaries", None),
    }  # fmt: skip


class _Fast:
    """Answers without a model."""

    def __init__(self, reader: Reader) -> None:
        self.template = reader.template

    def exact(self, cases: list[object]) -> tuple[list[bool], float]:
        return [True] * len(cases), 1.0

    def yes_probability(self, prompts_: list[str]) -> list[float]:
        return [0.5] * len(prompts_)

    def generate(self, prompt: str, most: int) -> str:
        return "Action: 0"

    def ends(self, prompt: str, most: int) -> bool:
        return True
