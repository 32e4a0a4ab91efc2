"""What a reader is asked: the instruction follows the task, the template comes from the card."""

from __future__ import annotations

import pytest

from bench.data.cards import load_card
from bench.errors import ConfigError
from bench.method.prompts import ANSWER_INSTRUCTION, SUMMARY_INSTRUCTION, question_prompt, reader_prompt
from bench.run.cell import CellRequest, plan_cell
from bench.schema import DocumentSet, Question, Task

NOTHING = DocumentSet(())


@pytest.mark.parametrize(
    ("task", "instruction"), [("qa", ANSWER_INSTRUCTION), ("summarization", SUMMARY_INSTRUCTION)]
)
def test_a_summary_is_not_asked_for_as_concisely_as_possible(task: Task, instruction: str) -> None:
    prompt = reader_prompt("pecan", "Text.", Question("What is told?", NOTHING, 8, task=task))
    assert prompt == f"Information:\nText.\n\nQuestion:\nWhat is told?\n\n{instruction}"
    assert ("concisely" in prompt) == (task == "qa")


def test_without_context_only_question_and_instruction_remain() -> None:
    assert question_prompt("", "Who?").startswith("Question:\nWho?")


def test_longbenchs_template_of_a_set_without_questions() -> None:
    template = load_card("gov_report").longbench_prompt
    question = Question("Summarize the report.", NOTHING, 8, task="summarization", longbench_prompt=template)
    prompt = reader_prompt("longbench", "A {report}.", question)
    assert "Report:\nA {report}.\n\nNow, write a one-page summary" in prompt
    assert "Summarize the report." not in prompt  # LongBench asks nothing of its own here


def test_a_set_without_a_template_says_so() -> None:
    with pytest.raises(ConfigError, match="'squality' has no longbench_prompt"):
        reader_prompt("longbench", "Text.", Question("Plot?", NOTHING, 8, dataset="squality"))


def test_the_instruction_for_summaries_is_part_of_what_a_cell_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def prompts(dataset: str) -> str:
        return plan_cell(CellRequest("bm25", dataset, limit=1)).identity.prompts

    before = prompts("chronicles"), prompts("qasper")
    monkeypatch.setattr("bench.run.cell.prompts.SUMMARY_INSTRUCTION", "Otherwise.")
    assert prompts("chronicles") != before[0]
    assert prompts("qasper") == before[1]


def test_what_is_asked_where_data_ask_nothing_is_part_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def prompts(dataset: str, **changes: str) -> str:
        card = load_card(dataset).model_copy(update=changes)
        monkeypatch.setattr("bench.run.cell.card_for", lambda *_: card)
        return plan_cell(CellRequest("bm25", dataset, limit=1)).identity.prompts

    assert load_card("chronicles").query and not load_card("qasper").query
    assert prompts("chronicles") != prompts("chronicles", query="Summarize it in verse.")
    assert prompts("qasper") == "a20da413b7a5d893"  # as it always was
