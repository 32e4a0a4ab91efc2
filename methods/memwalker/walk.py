"""MeMWalker's walk: from the root to the segment that answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.method import (
    Generation,
    LanguageModel,
    SearchStep,
    SearchTrace,
    VisitedNode,
    beginning,
    fits,
    join_passages,
    passages,
)
from bench.schema import ContextItem, JsonValue, Prediction, Question
from methods.memwalker.prompts import (
    MEMWALKER_ANSWER,
    MEMWALKER_GO_BACK,
    Wording,
    memwalker_leaf_prompt,
    memwalker_retry_prompt,
    memwalker_triage_prompt,
)
from methods.memwalker.tree import Tree, segment_text

SHOWN_CHARACTERS = 200
"""Characters of a reply in the trace, and in the prompt of a retry."""
Failure = Literal["no_legal_action", "exhausted", "max_steps"]
_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(-?[0-9]{1,4})[ \t]*[.,;]?[ \t]*(?=$|Answer:)", re.M | re.I)
_ANSWER = re.compile(r"\s*Answer:(.*)", re.S | re.I)


@dataclass(frozen=True)
class Action:
    """A parsed reply: a number, and at a segment the answer that comes with it."""

    number: int
    answer: str = ""


def parse_action(reply: str, possible: Sequence[int]) -> Action | None:
    """The action of a reply, or None if the reply does not follow the format.

    The format: one line ``Action: <number>`` with a number in ``possible``, and after -2 a non-empty
    ``Answer: ...`` that extends to the end. Text before the action is the reason, if any.
    """
    actions = list(_ACTION.finditer(reply))
    if len(actions) != 1:
        return None
    number = int(actions[0][1])
    if number not in possible:
        return None
    if number != MEMWALKER_ANSWER:
        return Action(number)
    answer = _ANSWER.match(reply, actions[0].end())
    return Action(number, answer[1].strip()) if answer and answer[1].strip() else None


class Walk:
    """The walk of one question through the tree."""

    def __init__(
        self,
        tree: Tree,
        question: Question,
        lm: LanguageModel,
        *,
        reasoning: bool,
        retries: int,
        reply_tokens: int,
        window: int,
        wording: Wording = "ours",
    ) -> None:
        """reasoning: whether a reply gives its reason first; retries: after a reply without a valid action.

        reply_tokens: most tokens of a reason and action; window: of a prompt and its reply.
        """
        self.tree, self.question, self.lm, self.reasoning = tree, question, lm, reasoning
        self.retries, self.reply_tokens, self.window, self.wording = retries, reply_tokens, window, wording
        self.path = [len(tree.nodes) - 1]
        """Nodes from the root to the current one."""
        self.tried: set[int] = set()
        self.memory: list[int] = []
        """Nodes in working memory, oldest first: summaries that were entered, segments that were left."""
        self.steps: list[SearchStep] = []
        self.rejected = 0
        self.over_window = False
        self.last: Generation | None = None
        self.context: list[ContextItem] = []
        """The content of the last prompt."""
        self.dropped = 0
        """Nodes of the working memory that did not fit the last prompt."""

    async def prediction(self) -> Prediction:
        """The answer, or an empty one with the flag ``navigation_failed``.

        A failed walk scores 0. Its text is empty, since any words ("no answer") could overlap with the
        reference "no".
        """
        answer, failure = await self._walk()
        text = beginning(self.lm, answer, self.question.max_new_tokens) if answer else ""
        assert self.last is not None
        flags = [f"tree_{event}" for event in self.tree.events]
        if failure:
            flags.append("navigation_failed")
        if self.rejected:
            flags.append("illegal_action")
        if self.over_window:
            flags.append("over_window")
        trace = SearchTrace(steps=self.steps, rejected_replies=self.rejected, failure=failure)
        return Prediction(
            text=text,
            context=self.context,
            prompt_tokens=self.last.prompt_tokens,
            completion_tokens=min(self.lm.count_tokens(text), self.question.max_new_tokens),
            truncated=self.dropped > 0,
            flags=tuple(flags),
            trace=trace.to_json(),
        )

    async def _walk(self) -> tuple[str, Failure | None]:
        """The answer, or the reason why there is none."""
        for _ in range(2 * len(self.tree.nodes)):  # our choice: no source says
            node = self.tree.nodes[self.path[-1]]
            action = await (self._choose_child() if node.children else self._read_segment())
            if action is None:
                return "", "no_legal_action"
            if action.number == MEMWALKER_ANSWER:
                return action.answer, None
            if action.number == MEMWALKER_GO_BACK:
                self._go_back()
                if not self.path:
                    return "", "exhausted"
            else:
                self.path.append(self._untried()[action.number])
        return "", "max_steps"

    def _untried(self) -> list[int]:
        return [child for child in self.tree.nodes[self.path[-1]].children if child not in self.tried]

    def _go_back(self) -> None:
        """Go up to the next node with an untried child; the path becomes empty if there is none."""
        while True:
            left = self.path.pop()
            self.tried.add(left)
            if not self.tree.nodes[left].children:
                self.memory.append(left)
            if not self.path or self._untried():
                return

    async def _choose_child(self) -> Action | None:
        """Triage: ask which untried child to visit; at the root, going back is not offered."""
        if self.path[-1] not in self.memory:
            self.memory.append(self.path[-1])
        children = self._untried()
        possible = [*range(len(children)), *([MEMWALKER_GO_BACK] if len(self.path) > 1 else [])]
        summaries = [self.tree.nodes[child].summary for child in children]
        prompt = memwalker_triage_prompt(
            summaries,
            self.question.text,
            reasoning=self.reasoning,
            go_back=MEMWALKER_GO_BACK in possible,
            wording=self.wording,
        )
        self.context, self.dropped = [self._summary_item(child) for child in children], 0
        step: dict[str, JsonValue] = {"offered": self._ids(children)}
        return await self._ask(lambda rejected: _again(prompt, rejected, possible), 0, possible, step)

    async def _read_segment(self) -> Action | None:
        """Read a segment with the working memory as background: answer, or go back."""
        at = self.path[-1]
        segment = self.tree.nodes[at].segment
        possible = [MEMWALKER_ANSWER, MEMWALKER_GO_BACK]
        room = self.question.max_new_tokens
        step: dict[str, JsonValue] = {}

        def prompt(rejected: Sequence[str]) -> str:
            remembered = list(self.memory)
            while True:
                background = join_passages([self._content(node) for node in remembered])
                asked = memwalker_leaf_prompt(
                    segment_text(segment),
                    self.question.text,
                    background,
                    reasoning=self.reasoning,
                    wording=self.wording,
                )
                asked = _again(asked, rejected, possible)
                if not remembered or fits(asked, self.lm, self.reply_tokens + room, self.window):
                    break
                del remembered[0]
            self.dropped = len(self.memory) - len(remembered)
            self.context = [item for node in (*remembered, at) for item in self._items(node)]
            step["memory"] = self._ids(remembered)
            return asked

        return await self._ask(prompt, room, possible, step)

    async def _ask(
        self,
        prompt: Callable[[Sequence[str]], str],
        answer_tokens: int,
        possible: Sequence[int],
        step: dict[str, JsonValue],
    ) -> Action | None:
        """The model's action, with retries after invalid replies; None if no retry is left."""
        rejected: list[str] = []
        action = None
        while action is None and len(rejected) <= self.retries:
            asked, reply_tokens = prompt(rejected), self.reply_tokens + answer_tokens
            self.over_window |= not fits(asked, self.lm, reply_tokens, self.window)
            self.last = await self.lm.generate(asked, reply_tokens)
            action = parse_action(self.last.text, possible)
            if action is None:
                rejected.append(" ".join(self.last.text.split())[:SHOWN_CHARACTERS])
        assert self.last is not None
        self.rejected += len(rejected)
        number = None if action is None else action.number
        here = VisitedNode(id=self.tree.ids[self.path[-1]])
        reply = self.last.text[:SHOWN_CHARACTERS]
        self.steps.append(SearchStep(nodes=[here], reply=reply, **step, action=number, rejected=rejected))
        return action

    def _content(self, node: int) -> str:
        at = self.tree.nodes[node]
        return at.summary if at.children else segment_text(at.segment)

    def _items(self, node: int) -> list[ContextItem]:
        """A node as context items: a summary, or a segment's passages."""
        at = self.tree.nodes[node]
        if at.children:
            return [self._summary_item(node)]
        return [part for chunk in at.segment for part in passages(chunk, self.question)]

    def _summary_item(self, node: int) -> ContextItem:
        return ContextItem(self.tree.nodes[node].summary, node=self.tree.ids[node])

    def _ids(self, nodes: Sequence[int]) -> list[JsonValue]:
        return [self.tree.ids[node] for node in nodes]


def _again(prompt: str, rejected: Sequence[str], possible: Sequence[int]) -> str:
    """The prompt, with the rejected replies if there are any."""
    return memwalker_retry_prompt(prompt, rejected, possible) if rejected else prompt
