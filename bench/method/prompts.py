"""The reader's prompt: context, question, instruction, in the two wordings that a table may choose.

``pecan`` is the second-turn instruction of PECAN (Table A2), placed after context and question; the
paper's cost columns leave room for 58 to 92 tokens of prompt, question and answer, which fits this
wording and not LongBench's. Summaries are asked for in the same words but without "as concisely as you
can". ``longbench`` is LongBench's own
template of the data set, kept in its card. One choice per table; it is printed under the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

from bench.errors import ConfigError
from bench.schema import Question, Task

PromptStyle = Literal["pecan", "longbench"]
DEFAULT_PROMPT: PromptStyle = "pecan"
Prompting: TypeAlias = PromptStyle | Callable[[str, str], str]
"""A style, or a method's own prompt from context and question."""
PROMPT_CHOICES = "the reader's prompt: " + " or ".join(get_args(PromptStyle))
"""Description of a method's option ``prompt``."""

ANSWER_INSTRUCTION = "Given the above information and question, answer the question as concisely as you can."
"""PECAN, Table A2, turn 2."""

SUMMARY_INSTRUCTION = "Given the above information and question, answer the question."
"""The same where a summary is wanted, which need not be concise.  # our choice"""

PASSAGE_SEPARATOR = "\n\n"
"""Between the passages of a context.  # our choice: the papers do not say"""


def join_passages(passages: Sequence[str]) -> str:
    """The context that a reader is given: passages in the given order, an empty line between them."""
    return PASSAGE_SEPARATOR.join(passages)


def answer_instruction(task: Task) -> str:
    """The sentence that a question ends with, by what is asked for."""
    return SUMMARY_INSTRUCTION if task == "summarization" else ANSWER_INSTRUCTION


def question_prompt(context: str, question: str, instruction: str = ANSWER_INSTRUCTION) -> str:
    """The user turn in our usual wording (PECAN, Table A2); without context, question and instruction."""
    information = f"Information:\n{context}\n\n" if context else ""
    return f"{information}Question:\n{question}\n\n{instruction}"


def reader_prompt(style: Prompting, context: str, question: Question) -> str:
    """The user turn that asks ``question`` about ``context``.

    Raises ConfigError when ``longbench`` is asked for and the data set's card has no such template.
    """
    if callable(style):
        return style(context, question.text)
    if style == DEFAULT_PROMPT:
        return question_prompt(context, question.text, answer_instruction(question.task))
    # Braces in a document are left alone.
    before, _, after = require_template(question.longbench_prompt, question.dataset).partition("{context}")
    return before.replace("{input}", question.text) + context + after.replace("{input}", question.text)


def require_template(template: str | None, dataset: str) -> str:
    """The card's LongBench template; raises ConfigError where it has none."""
    if not template:
        raise ConfigError(
            f"prompt=longbench: the card of data set {dataset!r} has no longbench_prompt. "
            f"Use prompt={DEFAULT_PROMPT}, or add the template to the card."
        )
    return template
