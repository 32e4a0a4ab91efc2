"""IRCoT: retrieval and reasoning in turns; what was reasoned is what is searched for next.

Trivedi et al. 2023 (arXiv 2212.10509): passages are retrieved for the question; then the model writes
the next sentence of its reasoning from the passages so far, and that sentence retrieves more, until it says
that "the answer is", or a limit is met. A reader then answers from all passages. The authors' code,
StonyBrookNLP/ircot, leaves out sentences of pure reasoning as queries; the paper names none.

``rounds`` only says when to stop, so one run serves every smaller number. The paper prompts with examples
written for its data sets; here the model is only told what to do  # our choice: works on any data set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from bench.method import Meter, ModelSet, Replayed, charged, fits, join_passages
from bench.method.ranking import RankedChunks
from bench.schema import Index, Prediction, Question
from methods.retrievers.over_ranker import OverRanker, OverRankerConfig

PROMPT = (
    "Information:\n{context}\n\nQuestion:\n{question}\n\nReasoning so far:\n{thoughts}\n\n"
    "Write the next sentence of the reasoning. If the answer is known, begin with: So the answer is"
)
CONCLUDED = "answer is"
MOST_PASSAGES = 15
"""In all (the authors' code)."""
SENTENCE_TOKENS = 48
"""Most tokens of a sentence.  # our choice"""
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]|$")
_NO_END = re.compile(r"(\b[^\W\d_a-z]|\b(Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|vs)|^\d+)\.$")
"""Text up to the dot of an initial, a title or a list's number."""


class IrcotConfig(OverRankerConfig):
    """Passages of each retrieval, and how many retrievals."""

    k: int = Field(4, ge=1, le=MOST_PASSAGES, description="passages per retrieval (the authors: 2, 4, 6, 8)")
    rounds: int = Field(8, ge=0, le=32, description="most sentences of reasoning (the authors' code: 10)")


@dataclass(frozen=True)
class _Round:
    """The state after a retrieval."""

    positions: tuple[int, ...]
    """Of all chunks so far, in the order in which they were found."""
    thoughts: tuple[str, ...]
    meter: Meter
    """Cost of this round alone."""
    flags: tuple[str, ...]
    """Events of the rankings so far."""


class Ircot(OverRanker[IrcotConfig]):
    """Reason a sentence, search with it, and read all that was found."""

    name = "ircot"
    version = "3"
    summary = "retrieve for the question and for each sentence of reasoning, read all of it"
    paper = "Trivedi et al. 2023 (arXiv 2212.10509)"
    Config = IrcotConfig
    replayed = frozenset({"rounds"})

    async def replay(
        self, index: Index, question: Question, models: ModelSet, configs: Sequence[IrcotConfig]
    ) -> list[Replayed]:
        """As many rounds as the longest config has; each state that a config ends with is read once.

        The surrounding meter is credited with the actual cost.
        """
        with charged() as meter:
            ranked = await self.rank(index, question, models)
        first = ranked.best_first[: self.config.k]
        rounds = [_Round(tuple(map(int, first)), (), meter, tuple(ranked.flags))]
        for _ in range(max(config.rounds for config in configs)):
            last = rounds[-1].thoughts[-1:]
            if not ranked.chunks or any(not thought or CONCLUDED in thought.lower() for thought in last):
                break
            rounds.append(await self._next(ranked, rounds[-1], index, question, models))
        answers: dict[tuple[int, ...], tuple[Prediction, Meter]] = {}
        results = []
        for config in configs:
            done = rounds[: config.rounds + 1]
            positions = done[-1].positions
            if positions not in answers:
                with charged() as reading:
                    prediction = await self.read_picked(ranked, positions, question, models)
                answers[positions] = prediction, reading
            prediction, reading = answers[positions]
            trace = {"thoughts": list(done[-1].thoughts), "passages": [len(one.positions) for one in done]}
            cost = Meter.combined([*(one.meter for one in done), reading])
            flags = tuple(dict.fromkeys((*prediction.flags, *done[-1].flags)))
            results.append(Replayed(replace(prediction, trace=trace, flags=flags), cost))
        return results

    async def _next(
        self, ranked: RankedChunks, last: _Round, index: Index, question: Question, models: ModelSet
    ) -> _Round:
        """One more sentence, and what it retrieves; a conclusion or an empty sentence retrieves nothing."""
        lm, shown = models.lm(), list(last.positions)
        with charged() as meter:
            while True:
                context = join_passages([ranked.chunks[at].text for at in shown])
                thoughts = " ".join(last.thoughts)
                prompt = PROMPT.format(context=context, question=question.text, thoughts=thoughts)
                limit = lm.geometry.input_limit
                if fits(prompt, lm, SENTENCE_TOKENS, limit):
                    break
                if not shown:  # the thoughts alone fill the window: the reasoning ends  # our choice
                    return _Round(last.positions, (*last.thoughts, ""), meter, (*last.flags, "cut_reasoning"))
                shown.pop()
            written = (await lm.generate(prompt, SENTENCE_TOKENS)).text
            thought = first_sentence(written.strip())
            left_out = len(shown) < len(last.positions)
            positions, flags = last.positions, last.flags + ("cut_reasoning",) * left_out
            if thought and CONCLUDED not in thought.lower():
                asked = replace(question, text=thought, retrieval_query="")
                ranking = await self.rank(index, asked, models)
                best = tuple(map(int, ranking.best_first[: self.config.k]))
                flags += tuple(ranking.flags)
                positions = tuple(dict.fromkeys((*positions, *best)))[:MOST_PASSAGES]
        return _Round(positions, (*last.thoughts, thought), meter, flags)


def first_sentence(text: str) -> str:
    """The text up to the first end of a sentence."""
    ends = (end.end() for end in _SENTENCE_END.finditer(text))
    return next(text[:end] for end in ends if end == len(text) or not _NO_END.search(text[:end]))
