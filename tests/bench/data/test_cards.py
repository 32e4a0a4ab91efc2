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
    assert {name for name, card in cards.items() if card.selection} == papers


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


@pytest.mark.parametrize(
    ("card", "accepted", "others"),
    [
        ("gov_report", ["gov_report", "GovReport", "gov-report", "gov_report_summ"], ["government"]),
        ("qasper", ["QASPER", "qasper_original", "qasper-e", "Qasper (LongBench)"], ["qasperx", "my_qasper"]),
        ("qasper", ["qasper"], ["hotpotqa", ""]),
    ],
)
def test_variants_of_a_set_belong_to_its_card_however_a_name_of_two_words_is_joined(
    card: str, accepted: list[str], others: list[str]
) -> None:
    assert [name for name in [*accepted, *others] if load_card(card).accepts(name)] == accepted


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max_new_tokens: 32", "max_new_token: 32", "max_new_token: is not a known key. Did you mean 'max_"),
        ("  split: validation", "  splt: validation", "hub.splt: is not a known key. Did you mean 'split'?"),
        ("max_new_tokens: 32", "max_new_tokens: -1", "max_new_tokens: Input should be greater than 0; found"),
        ("max_new_tokens: 32", "max_new_tokens: '32'", "max_new_tokens: Input should be a valid integer;"),
        ("{bm25: 4, ", "{bm25: 0, ", "papers.pecan.top_x.bm25: Input should be greater than 0; found 0"),
        ("revision: 1908", "revision: main # ", "hub.revision: String should match pattern"),
        ("task: qa", "task: questions", "task: Input should be 'qa' or 'summarization'; found 'questions'"),
        ("metrics: [f1", "metrics: [f2", "metrics: Unknown metric 'f2'. Did you mean 'f1'"),
        ("given passages.\n  {context}", "given passages.", "longbench_prompt: needs {context} exactly"),
        ("  mean_tokens: 1318", "  mean_token: 1318", "lengths.mean_token: is not a known key. Did"),
    ],
)
def test_a_bad_value_is_named_with_line_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, says: str
) -> None:
    card = (DATASET_CARDS / "hotpotqa.yaml").read_text(encoding="utf-8")
    assert old in card
    changed = card.replace(old, new, 1)
    path = tmp_path / "hotpotqa.yaml"
    path.write_text(changed, encoding="utf-8")
    monkeypatch.setattr("bench.data.cards.DATASET_CARDS", tmp_path)
    with pytest.raises(DataError) as error:
        load_card("hotpotqa")
    line = changed.partition(says.split(":")[0].split(".")[-1] + ":")[0].count("\n") + 1
    assert f"{path}:{line}: {says}" in str(error.value)
