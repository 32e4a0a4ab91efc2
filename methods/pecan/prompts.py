"""PECAN's prompts, in the words of its paper (Tables A1 and A2)."""

from __future__ import annotations

from typing import Literal

from bench.method import DEFAULT_PROMPT, PromptStyle, answer_instruction, reader_prompt
from bench.schema import Question

PECAN_NODE = "* {text}\n"
"""One node in a list of information; tokenised separately, so that its token span is exact."""

PECAN_GRAPH_HEAD = "Summary the following information. Each segment is separated by a new line symbol.\n\n"
PECAN_GRAPH_TAIL = (
    "\n"
    "Split your summary into different summary points according to the semantic information in these "
    "information points. It is not necessary to generate each summary point for each information point. "
    "Gather and organize information into summary points. In each summary point, try to avoid using pronouns "
    "like he/she/they and instead use full names. Generate in the format of:\n\n"
    "* summary point\n* summary point\n* summary point\n\n"
    "Do not provide any explanation and start the summary directly."
)


def pecan_search_head(question: str) -> str:
    """Turn 1 of PECAN's search up to the first node (Table A2)."""
    return f"{PECAN_SEARCH_BEFORE_QUESTION}{question}{PECAN_SEARCH_AFTER_QUESTION}"


# The quotes are those of the paper's PDF, which TeX makes of ``Yes''; its code may have straight ones.
PECAN_SEARCH_BEFORE_QUESTION = (
    "Can this question be answered by the following information? Response “Yes” or “No” in one word. "
    "Do not provide any explanation.\n\nQuestion:\n"
)
PECAN_SEARCH_AFTER_QUESTION = "\n\nInformation:\n"
PECAN_CHOICES = ("Yes", "No")


PECAN_QUESTION_BEHIND = {
    "before": "",
    "around": "\nQuestion:\n{question}",
    "asked": "\nCan the question “{question}” be answered from the information above? Response “Yes” or “No” "
    "in one word.",
}  # our choice; the quotes and "Response" as in the paper's own probe
"""``probe_question`` -> what a probe has behind the nodes; empty for the paper's."""


def pecan_turns(
    style: Literal["paper", "restated", "none"], question: Question, prompt: PromptStyle = DEFAULT_PROMPT
) -> tuple[str, str]:
    """Turn 1 of PECAN's search up to the first node, and turn 2 (Table A2); two departures are ours.

    In the paper's wording only turn 1 has the question. A small reader of real text then answers turn 1
    again, with Yes, whatever the question; ``restated`` asks it once more, with ``prompt=longbench`` by the
    text after the context in LongBench's template. ``none``: what stands around the context in the prompt of
    any other reader, for one turn. Raises ConfigError if the data set's card has no such template.
    """
    before, _, after = reader_prompt(prompt, "\0", question).partition("\0")
    if style == "none":
        return before, after
    second = answer_instruction(question.task)
    if style == "restated":
        again = f"{second}\n\nQuestion: {question.text}\nAnswer:"
        second = again if prompt == DEFAULT_PROMPT else after.strip()
    return pecan_search_head(question.text), second
