"""MeMWalker's prompts, in the wording of its paper and in ours.

``paper`` follows MeMWalker, App. A.1, as far as passages of it are quoted publicly; the gaps between them
are filled in our words, unchecked against the paper. ``ours`` says the same in the words on which the small
readers of this project were trained. Formats and actions are the paper's in both; at the root only children
can be chosen, so going back is not offered there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Wording = Literal["paper", "ours"]

MEMWALKER_GO_BACK = -1
MEMWALKER_ANSWER = -2


def memwalker_segment_prompt(segment: str, wording: Wording = "ours") -> str:
    """Summary of one segment of a long text (MeMWalker, Sec. 3, App. A.1)."""
    if wording == "paper":
        return f"{segment}\n\nSummarize the above text comprehensively into a fluent passage."
    return f"{segment}\n\nWrite a fluent and complete summary of the text above."


def memwalker_parent_prompt(summaries: Sequence[str], wording: Wording = "ours") -> str:
    """One shorter summary over several (MeMWalker, Sec. 3, App. A.1)."""
    joined = "\n\n".join(summaries)
    if wording == "paper":
        return f"{joined}\n\nCompress each summary into a much shorter summary."
    return f"{joined}\n\nJoin the summaries above into one much shorter summary."


def memwalker_triage_prompt(
    summaries: Sequence[str],
    question: str,
    *,
    reasoning: bool = True,
    go_back: bool = True,
    wording: Wording = "ours",
) -> str:
    """Which child to visit: summaries numbered from 0 (MeMWalker, Sec. 3, App. A.1).

    reasoning: ask for a reason before the action, as in MeMWalker; go_back: offer to go back, which the
    paper's wording never does.
    """
    listed = "\n\n".join(f"Summary {i}:\n{text}" for i, text in enumerate(summaries))
    reply = f"{_REASONING if reasoning else ''}Action: number"
    if wording == "paper":
        compare = "First provide reasoning to compare the summaries before you make the decision.\n"
        return (
            "The following passage(s) are the summaries of the different parts of a story.\n"
            f"To answer the question: {question}\n"
            "Which of the following summary is MOST LIKELY to contain information about the answer?\n"
            f"{compare if reasoning else ''}\n{listed}\n\n"
            "Reply with the passage number as your action.\n"
            f"You MUST choose one summary number and you should reply with the following format:\n{reply}"
        )
    wanted = "First give your reason, then the number" if reasoning else "Give the number"
    back = f", or {MEMWALKER_GO_BACK} if none of them does" if go_back else ""
    return (
        f"The following summaries describe parts of one text.\n\n{listed}\n\nQuestion:\n{question}\n\n"
        f"Which part is MOST LIKELY to contain information about the answer? {wanted} of the part{back}. "
        f"Reply in the format:\n{reply}"
    )


def memwalker_leaf_prompt(
    segment: str, question: str, memory: str = "", *, reasoning: bool = True, wording: Wording = "ours"
) -> str:
    """Read a segment: answer or go back (MeMWalker, Sec. 3, App. A.1).

    memory: what was read on the way; reasoning: ask for a reason before the action, as in MeMWalker.
    """
    reply = f"{_REASONING if reasoning else ''}Action: number\nAnswer: ..."
    if wording == "paper":
        background = f"Story background information: {memory}\n\n" if memory else ""
        also = "also provide your reasoning, and the final answer" if reasoning else "also provide the answer"
        return (
            "Read the text in triple quotes and answer a question:\n"
            f'{background}Main text: """{segment}"""\n\n{question}\n\n'
            f"If the answer CANNOT be inferred from the text above, reply with action {MEMWALKER_GO_BACK}. "
            f"If the answer CAN be inferred from the text above, reply with action {MEMWALKER_ANSWER}, and "
            f"{also}.\nYou should reply with the following format:\n{reply}"
        )
    background = f"Background:\n{memory}\n\n" if memory else ""
    return (
        f"{background}Text:\n{segment}\n\nQuestion:\n{question}\n\n"
        f"If the question can be answered by the text, the action is {MEMWALKER_ANSWER}, followed by the "
        "answer; "
        f"if not, the action is {MEMWALKER_GO_BACK}. Reply in the format:\n{reply}"
    )


_REASONING = "Reasoning: ...\n"


def memwalker_retry_prompt(prompt: str, rejected: Sequence[str], actions: Sequence[int]) -> str:
    """The same prompt again, after replies without a valid action (our words).

    The prompt includes the replies: otherwise greedy decoding would repeat the last one.
    """
    shown = "\n".join(f"{i}. {reply}" for i, reply in enumerate(rejected, start=1))
    possible = ", ".join(map(str, actions))
    return (
        f"{prompt}\n\nThese replies were not accepted:\n{shown}\n"
        f"Reply in the format above. The action must be one of: {possible}."
    )
