"""Whether an answer is a bare Yes or No to a question that asked for something else.

A reader that was asked "can this be answered?" may keep answering that question. In the score such an
answer looks merely wrong; counted separately it shows the collapse. The references play no part.
"""

from __future__ import annotations

import re

from bench.metrics.squad import normalize_answer

_OPENS_YES_NO = frozenset(
    "am is are was were be do does did has have had can could will would shall should may might must".split()
)
_ASKS_FOR_MORE = frozenset("what which who whom whose where when why how".split())


def only_yes_or_no(answer: str, question: str) -> bool:
    """Whether the answer says Yes or No and nothing else, though the question cannot be answered so.

    A question is taken to ask for Yes or No when it begins with an auxiliary verb, or holds no question
    word (English; our choice, made to miss a collapse rather than to accuse a right answer).
    """
    if normalize_answer(answer) not in ("yes", "no"):
        return False
    words = re.findall(r"[a-z]+", question.lower())
    return bool(words) and words[0] not in _OPENS_YES_NO and not _ASKS_FOR_MORE.isdisjoint(words)
