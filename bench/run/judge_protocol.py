"""How a judge is asked which of two answers is better, and how its reply is read.

``both_orders`` (ours): four criteria (Graph of Records, which has them from GraphRAG), a question for each,
in our words. A judge favours a place, so every pair is shown in both orders, and an answer wins only if it
is preferred in both; otherwise it is a tie. A reply that names none of the three possible verdicts, or
several, is unparsable, and so is its pair.

``paper``: Graph of Records' own. The prompt of its App. D.3 in its words, one reply for each pair, a JSON
object; its ``Overall Winner`` counts, a tie is not offered. Which answer is shown first is drawn for each
question, the same for every judge: the paper does not say, and nothing takes the judge's favour for a place
out of its rates. A reply without such an object is a failure; the paper, too, leaves out those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from bench.files.hashing import stable_hash

Order = Literal["AB", "BA"]
"""Which of the two methods' answers is shown first."""
Verdict = Literal["first", "second", "tie"]
"""The judge's word on the answers as shown."""
ProtocolName: TypeAlias = Literal["both_orders", "paper"]

CRITERIA: Mapping[str, str] = {
    "comprehensiveness": "How many of the aspects and details that the question asks about does the answer "
    "cover?",
    "diversity": "How varied is the answer: how many different sides of the matter does it show?",
    "empowerment": "How well does the answer help a reader to understand the matter and to judge for "
    "themselves?",
    "overall": "All in all, which answer is better?",
}
"""Criterion -> what the judge is told of it (Graph of Records, App. D.3; GraphRAG, Sec. 4.1.2; our words)."""

VERDICT_TOKENS = 16
"""Most tokens of a reply: a line of two words.  # our choice"""
PAPER_TOKENS = 2048
"""Most tokens of a reply with four explanations, and of what a model thinks before it.  # our choice"""
NO_ANSWER = "(no answer)"
"""What the judge is shown for an empty answer or a failed question."""

PAPER_PROMPT = """\
-Role-

You are an expert tasked with evaluating two answers to the same question based on four criteria: \
Comprehensiveness, Diversity, and Empowerment.

-Goal-

You will evaluate two answers to the same question based on four criteria: Comprehensiveness, Diversity, and \
Empowerment.

Comprehensiveness: How much detail does the answer provide to cover all aspects and details of the question?

Diversity: How varied and rich is the answer in providing different perspectives and insights on the question?

Empowerment: How well does the answer help the reader understand and make informed judgments about the topic?

For each criterion, choose the better answer (either Answer 1 or Answer 2) and explain why. Then, select an \
overall winner based on these three categories.

Here is the question: {query}

Here are the two answers: Answer 1: {answer1}; Answer 2: {answer2}

Evaluate both answers using the three criteria listed above and provide detailed explanations for each
criterion.

Avoiding any potential bias and ensuring that the order in which the answers were presented does not affect \
your judgment.

Output your evaluation in the following JSON format:

{{ "Comprehensiveness": {{ "Winner": "[Answer 1 or Answer 2]", "Explanation": "[Provide explanation here]" }},

"Diversity": {{ "Winner": "[Answer 1 or Answer 2]", "Explanation": "[Provide explanation here]" }},

"Empowerment": {{ "Winner": "[Answer 1 or Answer 2]", "Explanation": "[Provide explanation here]" }},

"Overall Winner": {{"Winner": "[Answer 1 or Answer 2]", "Explanation": "[Summarize why this answer is the \
overall winner based on the three criteria]" }} }}"""
"""Graph of Records, App. D.3, as printed, instruction and input (of the four criteria it names three)."""


class JudgeProtocol:
    """Our protocol: every criterion by itself, in both orders."""

    name: ProtocolName = "both_orders"
    criteria: tuple[str, ...] = tuple(CRITERIA)
    """What is asked about every pair."""
    tokens: int = VERDICT_TOKENS
    """Most tokens of a reply."""

    def orders(self, example_id: str) -> tuple[Order, ...]:
        """The orders in which the two answers to a question are shown."""
        return get_args(Order)

    def prompt(self, question: str, first: str, second: str, criterion: str) -> str:
        """The question, both answers in the order they are to be shown, one criterion, and how to reply."""
        return (
            f"Two answers to the same question are to be compared.\n\nQuestion:\n{question}\n\n"
            f"Answer 1:\n{first.strip() or NO_ANSWER}\n\nAnswer 2:\n{second.strip() or NO_ANSWER}\n\n"
            f"Criterion: {criterion}. {CRITERIA[criterion]}\n\n"
            "Which answer is better by this criterion? Reply with one of these and nothing else: Answer 1, "
            "Answer 2, Tie."
        )

    def verdict(self, reply: str) -> Verdict | None:
        """The verdict in the first line of a reply that has text; None where that names none, or several."""
        line = next((line for line in reply.splitlines() if line.strip()), "")
        named = {"tie" if match["tie"] else match["number"] for match in _NAMED.finditer(line)}
        return _VERDICTS[named.pop()] if len(named) == 1 else None


class PaperProtocol(JudgeProtocol):
    """Graph of Records' protocol (App. D.3): one JSON reply for each pair, whose overall winner counts."""

    name: ProtocolName = "paper"
    criteria: tuple[str, ...] = ("overall",)
    tokens: int = PAPER_TOKENS

    def orders(self, example_id: str) -> tuple[Order, ...]:
        """One order, drawn by the question's id."""
        return (get_args(Order)[int(stable_hash(example_id), 16) % 2],)

    def prompt(self, question: str, first: str, second: str, criterion: str) -> str:
        """The paper's instruction and input; the criterion is always the overall winner."""
        answers = {"answer1": first.strip() or NO_ANSWER, "answer2": second.strip() or NO_ANSWER}
        return PAPER_PROMPT.format(query=question, **answers)

    def verdict(self, reply: str) -> Verdict | None:
        """The overall winner of the JSON object in a reply; None where there is no such object or winner.

        What surrounds the object, such as a fence or thoughts, is passed over; the last object counts.
        """
        verdict = None
        for start in re.finditer(r"\{", reply):
            try:
                value, _ = json.JSONDecoder().raw_decode(reply, start.start())
            except (ValueError, RecursionError):
                continue
            if "Overall Winner" in value:
                verdict = value["Overall Winner"]
        winner = verdict.get("Winner") if isinstance(verdict, dict) else None
        named = re.fullmatch(r"\[?\s*answer ([12])\s*\]?", str(winner).strip(), re.IGNORECASE)
        return None if named is None else _VERDICTS[named[1]]


_NAMED = re.compile(r"\b(?:answer\s*)?(?P<number>[12])\b|\b(?P<tie>tie)\b", re.IGNORECASE)
_VERDICTS: Mapping[str, Verdict] = {"1": "first", "2": "second", "tie": "tie"}

BOTH_ORDERS, PAPER = JudgeProtocol(), PaperProtocol()
PROTOCOLS: Mapping[str, JudgeProtocol] = {protocol.name: protocol for protocol in (BOTH_ORDERS, PAPER)}
"""Name -> protocol; the first is the default."""
