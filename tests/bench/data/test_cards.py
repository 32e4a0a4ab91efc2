from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.data.cards import list_cards, load_card
from bench.errors import DataError
from bench.files.paths import DATASET_CARDS


def test_the_summarisation_sets_have_cards() -> None:
    cards = {card.name: card for card in list_cards() if card.task == "summarization"}
    papers = {"qmsum", "academic_eval", "wcep", "booksum", "gov_report", "squality"}
    assert cards.keys() == {*papers, "chronicles"}
    for card in cards.values():
        assert set(card.metrics) == {"rouge_l_f1_stem", "rouge_1", "rouge_2"}
        assert card.query
        assert card.hub is None or re.fullmatch("[0-9a-f]{40}", card.hub.revision)
        assert card.hub is not None or card.obtain
    selections = {name: cards[name].selection for name in papers}
    thirty = {name for name, chosen in selections.items() if chosen and chosen.documents == 30}
    assert thirty == papers - {"booksum"}
    assert cards["booksum"].selection and cards["booksum"].selection.rows == 30
    limits = {name: chosen.more_than for name, chosen in selections.items() if chosen and chosen.more_than}
    assert limits == {"wcep": 6000, "gov_report": 8000, "booksum": 8000}
    assert cards["booksum"].selection and cards["booksum"].selection.measured_by == "chapter_length"
    assert cards["chronicles"].selection is None


def test_a_name_of_two_words_is_recognised_however_it_is_joined() -> None:
    card = load_card("gov_report")
    for name in ("gov_report", "GovReport", "gov-report", "gov_report_summ"):
        assert card.accepts(name), name
    assert not card.accepts("government")


@pytest.mark.parametrize(
    ("name", "max_new_tokens", "t_c", "top_x", "raptor_ct", "fixed_nodes", "questions"),
    [  # PECAN Table 1 and App. E, GARLIC Table 2, LongBench's dataset2maxlen.json; sizes of the splits
        ("narrativeqa", 128, 0.5, 7, 20, 48, 10557),
        ("qasper", 128, 0.98, 14, 42, 36, 1451),
        ("hotpotqa", 32, 0.5, 4, 12, 17, 7405),
        ("musique", 32, 0.55, 7, 22, 30, 2417),
    ],
)
def test_the_papers_values(
    name: str, max_new_tokens: int, t_c: float, top_x: int, raptor_ct: int, fixed_nodes: int, questions: int
) -> None:
    card = load_card(name)
    pecan, garlic = card.papers["pecan"], card.papers["garlic"]
    assert card.max_new_tokens == max_new_tokens
    assert pecan.options == {"t_c": t_c, "fixed_nodes": None}
    assert garlic.options == {"t_c": 0.5, "fixed_nodes": fixed_nodes}
    assert pecan.top_x == {"bm25": top_x, "sbert": top_x, "dragon": top_x, "raptor_ct": raptor_ct}
    assert card.hub.examples == questions
    assert re.fullmatch("[0-9a-f]{40}", card.hub.revision)


def test_variants_of_a_set_belong_to_its_card() -> None:
    card = load_card("qasper")
    for name in ("qasper", "QASPER", "qasper_original", "qasper-e", "Qasper (LongBench)"):
        assert card.accepts(name), name
    for name in ("hotpotqa", "qasperx", "my_qasper", ""):
        assert not card.accepts(name), name


@pytest.fixture
def card_text() -> str:
    return (DATASET_CARDS / "hotpotqa.yaml").read_text(encoding="utf-8")


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def bad(folder: Path, text: str) -> str:
    path = folder / "hotpotqa.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        load_card("hotpotqa", folder)
    return str(error.value).replace(f"{path}:", "")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "max_new_tokens: 32",
            "max_new_token: 32",
            "max_new_token: is not a known key. Did you mean 'max_new_t",
        ),
        (
            "  split: validation",
            "  splt: validation",
            "hub.splt: is not a known key. Did you mean 'split'?",
        ),
        (
            "max_new_tokens: 32",
            "max_new_tokens: -1",
            "max_new_tokens: Input should be greater than 0; found -1",
        ),
        (
            "max_new_tokens: 32",
            "max_new_tokens: '32'",
            "max_new_tokens: Input should be a valid integer; found '32'",
        ),
        (
            "{bm25: 4, ",
            "{bm25: 0, ",
            "papers.pecan.top_x.bm25: Input should be greater than 0; found 0",
        ),
        ("revision: 1908", "revision: main # ", "hub.revision: String should match pattern"),
        ("task: qa", "task: questions", "task: Input should be 'qa' or 'summarization'; found 'questions'"),
        ("metrics: [f1", "metrics: [f2", "metrics: Unknown metric 'f2'. Did you mean 'f1'"),
        (
            "given passages.\n  {context}",
            "given passages.",
            "longbench_prompt: needs {context} exactly",
        ),
        ("  mean_tokens: 1318", "  mean_token: 1318", "lengths.mean_token: is not a known key. Did"),
    ],
)
def test_a_bad_value_is_named_with_line_and_key(
    tmp_path: Path, card_text: str, old: str, new: str, says: str
) -> None:
    assert old in card_text
    changed = card_text.replace(old, new, 1)
    message = bad(tmp_path, changed)
    key = says.split(":")[0].split(".")[-1]
    assert f"{line_of(changed, key + ':')}: {says}" in message
