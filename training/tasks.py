"""Training conversations: what the reader is asked to do with generated text, in the methods' own prompts.

Each task returns a conversation whose assistant turns carry a kind for the log. Several questions share one
context wherever that is possible: the denser the supervision, the earlier retrieval is learnt.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.method.prompts import ANSWER_INSTRUCTION, SUMMARY_INSTRUCTION, join_passages, question_prompt
from methods.gor.prompts import gor_answer_prompt, gor_question_prompt
from methods.memwalker.prompts import (
    MEMWALKER_ANSWER,
    MEMWALKER_GO_BACK,
    memwalker_leaf_prompt,
    memwalker_parent_prompt,
    memwalker_retry_prompt,
    memwalker_segment_prompt,
    memwalker_triage_prompt,
)
from methods.pecan.prompts import PECAN_GRAPH_HEAD, PECAN_GRAPH_TAIL, PECAN_NODE, pecan_search_head
from methods.raptor.prompts import raptor_summary_prompt
from training.generator import relations as rel
from training.generator.names import NameSource
from training.generator.rendering import Article, articles, chronicle, report, state, story
from training.generator.summaries import QUERY as SUMMARY_QUERY
from training.generator.world import (
    QA,
    Fact,
    World,
    ask,
    ask_check,
    ask_hops,
    make_world,
    running_sentences,
    short_sentences,
)

UNANSWERABLE = "Unanswerable"


@dataclass(frozen=True)
class Turn:
    """One user message and the reply to it."""

    user: str
    reply: str
    kind: str
    answers: tuple[str, ...] = ()
    """Lines of the reply that are scored; none: the whole reply is. The others say what is to be answered."""


Conversation = list[Turn]

ALL_TOLD = 28
"""Bullets of a text of more facts leave details out: a summary has to be shorter than its text."""
DETAILS = frozenset({"property", "habits", "journeys"})
"""What they leave out: what somebody did with a thing, liked, or visited; who is who, and where, stays."""
MOST_TOLD = 34
"""Facts that bullets tell at most: about 420 tokens, which fit the summary of a graph's batch (512)."""
OF_A_SUBJECT = 3
"""Where more than ``MOST_TOLD`` are left: at most so many of one subject, fewer where that is too many."""


@dataclass(frozen=True)
class Options:
    """What the schedule varies within tasks; each field is a probability."""

    share: float = 0.35
    """A world has confusable names."""
    hops: float = 0.1
    """A question combines two to four facts."""
    unanswerable: float = 0.1
    """A question asks for what is not told."""
    checks: float = 0.0
    """A question is a yes/no question."""
    checks_first: float = 0.0
    """The same of a question that stands before its text, as in a search."""
    styled: float = 0.0
    """A document is a story, a report, articles or cut passages rather than a chronicle."""
    adversarial: float = 0.0
    """Information that does not suffice is chosen to look as if it did."""
    dense: float = 0.0
    """A context gets one question for every two facts rather than at most ten."""
    reversed: float = 0.0
    """A question asks for the subject of a fact, if it can: the hardest slot, as the name comes before its
    key."""
    unevenness: float = 0.0
    """A prompt is worded otherwise than in the papers."""
    upper: float = 0.25
    """Long lists of bullets are of the bullets of earlier batches rather than of text."""
    full: float = 0.0
    """Bullets are asked of as much text as fits, as in a graph, rather than of a drawn number of facts."""


class Teacher:
    """Draws conversations of every task from one name source."""

    def __init__(self, names: NameSource, options: Options) -> None:
        self.names, self.options = names, options

    def world(self, rng: random.Random, facts: int) -> World:
        """A world of that many facts, confusable with probability ``share``."""
        return make_world(rng, self.names, facts, share=self.options.share)

    # --- reading -------------------------------------------------------------------------------------------

    def answer(self, rng: random.Random, facts: int, questions: int) -> Conversation:
        """Questions about a document, one after the other."""
        world = self.world(rng, facts)
        context = self.document(rng, world, world.facts)
        turns: Conversation = []
        for fact in rng.sample(world.facts, min(questions, len(world.facts))):
            qa, kind = self.question(rng, world, fact)
            turns.append(Turn(self._asked(rng, context if not turns else "", qa.question), qa.answer, kind))
        return turns

    def quiz(self, rng: random.Random, facts: int, questions: int) -> Conversation:
        """A text, then questions about it and their answers, line by line; only the answers are scored.

        The densest supervision of reading: a question takes half of the tokens that it takes as a turn.
        """
        world = self.world(rng, facts)
        asked: list[tuple[str, str]] = []
        while len(asked) < questions:
            for fact in rng.sample(world.facts, len(world.facts)):
                qa, _ = self.question(rng, world, fact)
                asked.append((qa.question, qa.answer))
        asked = asked[:questions]
        reply = "".join(f"{question}\n{answer}\n" for question, answer in asked)
        context = self.document(rng, world, world.facts)
        user = f"Information:\n{context}\n\nAsk questions about it and answer them."
        return [Turn(user, reply, "quiz", tuple(answer for _, answer in asked))]

    def answer_simple(self, rng: random.Random, facts: int, questions: int) -> Conversation:
        """One-hop questions about a short chronicle, in the plain wording only (the first stage)."""
        world = self.world(rng, facts)
        context = chronicle(rng, world.facts).text
        turns: Conversation = []
        for fact in rng.sample(world.facts, min(questions, len(world.facts))):
            qa = self.ask(rng, fact)
            user = f"Question:\n{qa.question}" if turns else question_prompt(context, qa.question)
            turns.append(Turn(user, qa.answer, "one"))
        return turns

    def question(self, rng: random.Random, world: World, fact: Fact) -> tuple[QA, str]:
        """A question of a drawn kind; the fact is what it asks for where one hop is drawn."""
        o, draw = self.options, rng.random()
        if draw < o.hops:
            hops = rng.choices((2, 3, 4), (0.75, 0.18, 0.07))[0]
            qa = ask_hops(rng, world.facts, hops)
            if qa:
                return qa, "two" if hops == 2 else "more"
        elif draw < o.hops + o.unanswerable:
            untold = world.draw_fact()
            if untold:
                qa = self.ask(rng, untold)
                return QA(qa.question, UNANSWERABLE, qa.slot, ()), "none"
        elif draw < o.hops + o.unanswerable + o.checks:
            return ask_check(rng, world, fact, truth=rng.random() < 0.5), "check"
        return self.ask(rng, fact), "one"

    def ask(self, rng: random.Random, fact: Fact) -> QA:
        """A one-hop question, ``reversed`` more often than a uniform choice of slots would have it."""
        often = self.options.reversed
        backwards = often > 0 and "s" in fact.rel.questions and rng.random() < often
        return ask(rng, fact, "s" if backwards else None)

    def ask_first(self, rng: random.Random, world: World, fact: Fact) -> QA:
        """A question of one fact that stands before its text, in some of them a yes/no question."""
        often = self.options.checks_first
        if often > 0 and rng.random() < often:
            return ask_check(rng, world, fact, truth=rng.random() < 0.5)
        return self.ask(rng, fact)

    def document(self, rng: random.Random, world: World, facts: Sequence[Fact]) -> str:
        """The facts as a document in one of the styles of the sample sets."""
        if rng.random() >= self.options.styled:
            return chronicle(rng, facts).text
        style = rng.choices(("story", "report", "articles", "passages"), (0.3, 0.2, 0.3, 0.2))[0]
        if style == "story":
            return story(rng, world, facts).text
        if style == "report":
            return report(rng, facts, f"Report on {rng.choice(world.towns)}").full_text
        if style == "articles":
            return join_passages([a.full_text for a in articles(rng, facts)])
        whole: Article = rng.choice((story(rng, world, facts), report(rng, facts), chronicle(rng, facts)))
        pieces = cut_passages(rng, whole.text)
        rng.shuffle(pieces)
        return join_passages(pieces)

    def _asked(self, rng: random.Random, context: str, question: str) -> str:
        if not context:
            short = rng.random() < 0.9
            return f"Question:\n{question}" if short else f"Question:\n{question}\n\n{ANSWER_INSTRUCTION}"
        if rng.random() >= self.options.unevenness:
            return question_prompt(context, question)
        return rng.choice(OTHER_WORDINGS).format(context=context, question=question)

    # --- sufficiency ---------------------------------------------------------------------------------------

    def judge(self, rng: random.Random, facts: int, questions: int) -> Conversation:
        """Several sufficiency questions about one list of information."""
        world = self.world(rng, facts + questions + 2)
        rng.shuffle(world.facts)
        shown, hidden = world.facts[:facts], world.facts[facts:]
        nodes = self.nodes(rng, shown)
        turns: Conversation = []
        for _ in range(questions):
            yes = rng.random() < 0.5
            qa = self.ask_first(rng, world, rng.choice(shown if yes else hidden))
            user = f"Question:\n{qa.question}" if turns else search_prompt(qa.question, nodes)
            turns.append(Turn(user, "Yes" if yes else "No", "suff_many"))
            if yes and rng.random() < 0.4:
                turns.append(Turn(ANSWER_INSTRUCTION, qa.answer, "suff_answer"))
        return turns

    def search(self, rng: random.Random, facts: int) -> Conversation:
        """One question, nodes that come in a few groups, Yes or No after each, then the answer.

        What does not suffice is, with probability ``adversarial``, sorted by what it shares with the
        question,
        and a two-hop question has then one of its two facts among it.
        """
        near = rng.random() < self.options.adversarial
        world = self.world(rng, 2 * facts + 6 if near else facts + 4)
        qa = None
        if rng.random() < self.options.hops:
            qa = ask_hops(rng, world.facts, 2)
        qa = qa or self.ask_first(rng, world, rng.choice(world.facts))
        yes = rng.random() < 0.5
        chosen = distractors(rng, world.facts, qa, facts - (qa.hops if yes else 0), near=near)
        if yes:
            chosen = [*chosen, *qa.facts]
        elif qa.hops == 2 and near:
            chosen = [*chosen[: max(0, facts - 1)], rng.choice(qa.facts)]
        rng.shuffle(chosen)
        groups = deal(rng, chosen, rng.choice((1, 1, 2, 3)))
        turns: Conversation = []
        known: set[Fact] = set()
        kind = "suff" if qa.hops == 1 else "suff_two"
        for group in groups:
            known.update(group)
            enough = known.issuperset(qa.facts)
            nodes = self.nodes(rng, group)
            user = (
                "".join(PECAN_NODE.format(text=n) for n in nodes)
                if turns
                else search_prompt(qa.question, nodes)
            )
            turns.append(Turn(user, "Yes" if enough else "No", kind))
            if enough:
                break
        if known.issuperset(qa.facts) or rng.random() < 0.2:
            answer = qa.answer if known.issuperset(qa.facts) else UNANSWERABLE
            turns.append(Turn(ANSWER_INSTRUCTION, answer, "suff_answer"))
        return turns

    def read_first(self, rng: random.Random, facts: int) -> Conversation:
        """A question, then many nodes that tell the answer, Yes, and the answer, which alone is to be learnt.

        As at the end of a long search: the question stands far back, and often the same facts are told twice,
        by bullets and by the passages below them.
        """
        world = self.world(rng, facts)
        qa = None
        if rng.random() < self.options.hops:
            qa = ask_hops(rng, world.facts, 2)
        qa = qa or self.ask_first(rng, world, rng.choice(world.facts))
        if rng.random() < 0.4:
            content = world.facts[: max(len(world.facts) * 55 // 100, 1)]
            content = list(dict.fromkeys((*content, *qa.facts)))
            passages = [fold(p) for p in cut_passages(rng, chronicle(rng, content).text)]
            nodes = [*running_sentences(content), *passages]
            if rng.random() < 0.5:
                rng.shuffle(nodes)
        else:
            nodes = self.nodes(rng, world.facts)
        return [
            Turn(search_prompt(qa.question, nodes), "Yes", "given"),
            Turn(ANSWER_INSTRUCTION, qa.answer, "first"),
        ]

    def walk(self, rng: random.Random, facts: int) -> Conversation:
        """PECAN's search of every difficulty: a question, nodes in groups, Yes or No after each group.

        How much of what the question needs is told (none, some, all), where it stands among the nodes, how
        much the other nodes resemble it, and how many nodes there are is drawn evenly, so that the confidence
        of the reader has to cover the whole range. The search goes on after the first Yes, as PECAN's does.
        """
        world = self.world(rng, facts * rng.choice((1, 2)) + 6)
        qa = None
        if rng.random() < 2 * self.options.hops:
            qa = ask_hops(rng, world.facts, rng.choices((2, 3), (0.75, 0.25))[0])
        qa = qa or self.ask_first(rng, world, rng.choice(world.facts))
        needed = rng.sample(qa.facts, len(qa.facts))
        if rng.random() < 0.4:
            needed = needed[: rng.randrange(len(needed))]
        others = distractors(rng, world.facts, qa, len(world.facts), near=True)
        count = max(0, facts - len(needed))
        near = int(rng.random() * min(count, len(others)))
        chosen = [*others[:near], *rng.sample(others[near:], min(count - near, len(others) - near))]
        remaining = [*chosen, *needed]
        rng.shuffle(remaining)
        whole = rng.random() < 0.35
        turns: Conversation = []
        known: set[Fact] = set()
        kind = "suff" if qa.hops == 1 else "suff_two"
        while remaining:
            size = len(remaining) if whole else min(len(remaining), rng.choice((1, 2, 3, 4, 6, 8, 12)))
            group, remaining = remaining[:size], remaining[size:]
            known.update(group)
            enough = known.issuperset(qa.facts)
            nodes = self.nodes(rng, group)
            user = "".join(PECAN_NODE.format(text=n) for n in nodes)
            if not turns:
                user = search_prompt(qa.question, nodes)
            turns.append(Turn(user, "Yes" if enough else "No", kind))
            if enough and rng.random() < 0.5:
                break
        if known.issuperset(qa.facts):
            turns.append(Turn(ANSWER_INSTRUCTION, qa.answer, "first"))
        elif rng.random() < 0.3:
            turns[-1] = replace(turns[-1], reply="Yes", kind="given")
            turns.append(Turn(ANSWER_INSTRUCTION, UNANSWERABLE, "first_none"))
        return turns

    def search_summary(self, rng: random.Random, facts: int) -> Conversation:
        """A summary asked for in a search: the query, bullets and passages of one text, then the summary."""
        world = self.world(rng, facts)
        text, content = self.article(rng, world)
        passages = [fold(p) for p in cut_passages(rng, text)]
        style = rng.random()
        if style < 0.3:
            nodes = passages
        elif style < 0.6:
            nodes = running_sentences(content)
        else:
            half = len(passages) // 2
            nodes = [*running_sentences(content), *rng.sample(passages, half)]
        reply = " ".join(running_sentences(content))
        return [
            Turn(search_prompt(SUMMARY_QUERY, nodes), "Yes", "given"),
            Turn(SUMMARY_INSTRUCTION, reply, "summary"),
        ]

    def descend(self, rng: random.Random, facts: int) -> Conversation:
        """PECAN's search: a question, the bullets of a document, then passages of it, Yes or No after each.

        A passage that does not suffice is, with probability ``adversarial``, one that shares a name or a word
        with the question. Some searches end without a Yes.
        """
        world = self.world(rng, max(6, facts))
        content = list(world.facts)
        size = rng.choice((3, 4, 5, 6))
        passages = [content[i : i + size] for i in range(0, len(content), size)]
        qa = None
        if rng.random() < self.options.hops:
            qa = ask_hops(rng, content, 2)
        untold = world.draw_fact() if qa is None and rng.random() < 0.15 else None
        qa = qa or self.ask_first(rng, world, untold or rng.choice(content))
        bullets = (
            key_facts(content) if len(content) > ALL_TOLD else rng.sample(content, len(content) * 2 // 3)
        )
        bullets = [fact for fact in content if fact in set(bullets)][: rng.randint(12, 40)]
        known = set(bullets)
        turns = [Turn(search_prompt(qa.question, running_sentences(bullets)), "", "suff_walk")]
        right = [p for p in passages if set(p) & (set(qa.facts) - known)]
        others = [p for p in passages if p not in right]
        rng.shuffle(others)
        if rng.random() < self.options.adversarial:
            words = set(qa.question.rstrip("?").split())
            others.sort(key=lambda p: -len(words & set(" ".join(state(rng, f) for f in p).split())))
        walk = others[: rng.randint(0, 4)]
        if rng.random() < 0.3:
            right = []
        walk += right
        rng.shuffle(walk)
        done = untold is None and known.issuperset(qa.facts)
        turns[0] = Turn(turns[0].user, "Yes" if done else "No", "suff_walk")
        for passage in [] if done else walk:
            known.update(passage)
            done = untold is None and known.issuperset(qa.facts)
            node = fold(chronicle(rng, passage, paragraph=99).text)
            turns.append(Turn(PECAN_NODE.format(text=node), "Yes" if done else "No", "suff_walk"))
            if done:
                break
        if done or rng.random() < 0.3:
            turns.append(Turn(ANSWER_INSTRUCTION, qa.answer if done else UNANSWERABLE, "suff_answer"))
        return turns

    def nodes(self, rng: random.Random, facts: Sequence[Fact]) -> list[str]:
        """Facts as the nodes of a graph: single statements, merged bullets, or cut passages on one line."""
        style = rng.choices(("statements", "bullets", "passages"), (0.4, 0.4, 0.2))[0]
        if style == "statements" or len(facts) < 2:
            return [state(rng, fact) for fact in facts]
        if style == "bullets":
            return short_sentences(facts)
        return [fold(p) for p in cut_passages(rng, chronicle(rng, facts).text)]

    # --- writing -------------------------------------------------------------------------------------------

    def retell(self, rng: random.Random, facts: int) -> Conversation:
        """The same facts again in another order and other words: every slot is an associative recall."""
        world = self.world(rng, facts)
        text = chronicle(rng, world.facts, fillers=0.0, moments=0.05).text
        again = rng.sample(world.facts, len(world.facts))
        reply = chronicle(rng, again, fillers=0.0, moments=0.0, paragraph=99).text
        return [Turn(f"{text}\n\nTell it again.", reply, "retell")]

    def repeat(self, rng: random.Random, items: int) -> Conversation:
        """A random list of names and words, repeated."""
        world = World(rng, self.names, 6, confusable=False)
        draws: tuple[Callable[[], str], ...] = (
            lambda: rng.choice(world.people),
            lambda: f"{self.names.first_name(rng)} {self.names.last_name(rng)}",
            lambda: rng.choice(world.objects)[4:],
            lambda: rng.choice(world.towns),
            lambda: rng.choice(rel.JOBS + rel.ANIMALS + rel.OBJECTS + rel.GOODS),
            lambda: str(rng.randint(1000, 1999)),
            lambda: self.names.pet(rng),
        )
        listed = " ".join(rng.choice(draws)() for _ in range(items))
        return [Turn(listed, listed, "repeat")]

    def bullets(self, rng: random.Random, facts: int) -> Conversation:
        """PECAN's graph prompt: the facts in short, in order; a row about one subject is one bullet.

        Of more than ``ALL_TOLD`` facts those of ``DETAILS`` are left out.
        """
        upper = facts > ALL_TOLD and rng.random() < self.options.upper
        world = self.world(rng, 2 * facts if upper else facts)
        style = rng.random()
        if facts > ALL_TOLD and rng.random() < 0.5:
            style = 0.0
        content = list(world.facts)
        if upper:  # the bullets of earlier batches
            content = [fact for fact in content if fact.rel.section not in DETAILS][: facts * 5 // 4]
            nodes = running_sentences(content)
        elif style < 0.2:
            text, content = self.article(rng, world)
            nodes = [fold(p) for p in cut_passages(rng, text)]
        elif style < 0.4:
            chunks = chronicle(rng, content, paragraph=rng.choice((2, 3, 4))).text.split("\n")
            nodes = [fold(p) for p in chunks]
        elif style < 0.7:
            nodes = [state(rng, fact) for fact in content]
        else:
            groups = deal(rng, content, rng.randint(2, 4))
            nodes = [bullet for group in groups for bullet in short_sentences(group)]
            content = [f for group in groups for f in by_subject(group)]
        # Of many bullets one per subject: where such a list ends can be told from what it has so far.
        told = key_facts(content, 1 if upper else OF_A_SUBJECT)
        reply = "\n".join(f"* {bullet}" for bullet in running_sentences(told))
        return [Turn(pecan_graph_prompt(nodes), reply, "bullets")]

    def summary(self, rng: random.Random, facts: int) -> Conversation:
        """A plain summary: the same sentences as bullets would have, in one paragraph."""
        world = self.world(rng, facts)
        if rng.random() < 0.5:
            text, content = self.article(rng, world)
        else:
            groups = deal(rng, world.facts, rng.randint(2, 8))
            pieces = [" ".join(short_sentences(group)) for group in groups]
            text = "\n\n".join(pieces)
            content = [f for group in groups for f in by_subject(group)]
            if rng.random() < 0.4:  # much shorter: what each of the summaries begins with
                reply = " ".join(running_sentences([group[0] for group in groups]))
                return [Turn(memwalker_parent_prompt(pieces), reply, "summary")]
        wording = rng.choice((raptor_summary_prompt, memwalker_segment_prompt, asked_summary))
        return [Turn(wording(text), " ".join(running_sentences(content)), "summary")]

    def article(self, rng: random.Random, world: World) -> tuple[str, list[Fact]]:
        """A document of any style and its facts in the order in which it tells them."""
        style = rng.choice(("chronicle", "story", "report", "articles"))
        if style == "articles":
            parts = articles(rng, world.facts)
        elif style == "story":
            parts = [story(rng, world, world.facts)]
        elif style == "report":
            parts = [report(rng, world.facts)]
        else:
            parts = [chronicle(rng, world.facts)]
        facts = [s.fact for part in parts for s in part.sentences() if s.fact]
        return join_passages([part.full_text for part in parts]), facts

    def wonder(self, rng: random.Random, facts: int) -> Conversation:
        """A question about a passage, and its answer from the information."""
        world = self.world(rng, facts)
        fact = rng.choice(world.facts)
        passage = self.document(rng, world, world.facts)
        qa = self.ask(rng, fact)
        turns = [Turn(gor_question_prompt(passage), qa.question, "wonder")]
        if rng.random() < 0.5:
            statement = short_sentences([fact])[0]
            turns = [Turn(gor_answer_prompt(passage, qa.question), statement, "statement")]
        return turns

    # --- navigation ----------------------------------------------------------------------------------------

    def triage(self, rng: random.Random, facts: int) -> Conversation:
        """Which of a few numbered summaries to look into; none, where that is offered and none of them fits.

        The summaries leave out what is told below them, in three of four conversations: then the one is right
        below which it is told, and the reason says what hints at it. In one of five there is one summary, as
        when a walk has tried the others: without the way back it is the choice whatever it tells.
        """
        count = 1 if rng.random() < 0.2 else rng.randint(2, 8)
        world = self.world(rng, max(facts, count) + 2)
        below, hidden = world.facts[:-2], world.facts[-2:]
        groups = deal(rng, below, min(count, len(below)))
        kept = rng.choice((0.3, 0.5, 0.7, 1.0))
        shown = [group[: max(1, int(len(group) * kept))] for group in groups]
        pieces = [" ".join(short_sentences(group)) for group in shown]
        reasoning, root = rng.random() < 0.5, rng.random() < 0.5
        possible = [*range(len(pieces)), *([] if root else [MEMWALKER_GO_BACK])]
        turns: Conversation = []
        for _ in range(min(rng.randint(1, 8), len(below))):
            none = (not root or count == 1) and rng.random() < (0.15 if count > 1 else 0.5)
            fact = rng.choice(hidden if none else below)
            qa = self.ask(rng, fact)
            number = 0 if none else next(i for i, g in enumerate(groups) if fact in g)
            reason = "None of the parts tells it."
            if fact in shown[number]:
                reason = short_sentences([fact])[0]
            elif none and not root:
                number = MEMWALKER_GO_BACK
            elif any(f.subject == fact.subject for f in shown[number]):
                reason = f"None of the parts tells it, but this one speaks of {fact.subject}."
            user = f"Question:\n{qa.question}"
            if not turns:
                asked = memwalker_triage_prompt(pieces, qa.question, reasoning=reasoning, go_back=not root)
                user = retried(rng, asked, possible)
            action = f"Action: {number}"
            turns.append(Turn(user, f"Reasoning: {reason}\n{action}" if reasoning else action, "triage"))
        return turns

    def places(self, rng: random.Random, facts: int) -> Conversation:
        """Questions, each with the number of the summary that tells the answer; only that is scored."""
        world = self.world(rng, max(facts, 3))
        groups = deal(rng, world.facts, rng.randint(2, min(6, len(world.facts))))
        pieces = [" ".join(short_sentences(group)) for group in groups]
        order = rng.sample(world.facts, len(world.facts))
        numbers = tuple(str(next(i for i, g in enumerate(groups) if fact in g)) for fact in order)
        lines = (f"{self.ask(rng, fact).question}\n{n}\n" for fact, n in zip(order, numbers, strict=True))
        listed = "\n\n".join(f"Summary {i}:\n{text}" for i, text in enumerate(pieces))
        user = f"{listed}\n\nAsk questions and give the number of the summary that tells the answer."
        return [Turn(user, "".join(lines), "places", numbers)]

    def leaf(self, rng: random.Random, facts: int) -> Conversation:
        """Answer from a segment or go back, with the summaries and segments seen before as background.

        A question over two facts may have one of them in the background and the other in the segment.
        """
        world = self.world(rng, facts + 3)
        shown, hidden = world.facts[:-3], world.facts[-3:]
        split = len(shown) - rng.randint(1, min(24, len(shown)))
        before, here = shown[:split], shown[split:]
        memory: list[str] = []
        if rng.random() < 0.7:
            summary = rng.sample(shown, min(len(shown), rng.randint(2, 6)))
            memory = [" ".join(short_sentences(summary))]
            while before and rng.random() < 0.7:
                size = rng.randint(2, 20)
                memory.append(chronicle(rng, before[:size]).text)
                before = before[size:]
        segment = self.document(rng, world, here)
        reasoning = rng.random() < 0.5
        turns: Conversation = []
        for _ in range(min(rng.randint(1, 4), len(here))):
            answerable = rng.random() < 0.6
            fact = rng.choice(here) if answerable else rng.choice(hidden)
            qa = self.ask(rng, fact)
            if answerable and not turns and memory and rng.random() < 2 * self.options.hops:
                qa = ask_hops(rng, shown[: len(shown) - len(here) - len(before)] + list(here), 2) or qa
            if answerable:
                reason = " ".join(short_sentences(qa.facts))
                action = f"Action: {MEMWALKER_ANSWER}\nAnswer: {qa.answer}"
            else:
                reason = "The text does not tell it."
                action = f"Action: {MEMWALKER_GO_BACK}"
            user = f"Question:\n{qa.question}"
            if not turns:
                asked = memwalker_leaf_prompt(
                    segment, qa.question, join_passages(memory), reasoning=reasoning
                )
                user = retried(rng, asked, (MEMWALKER_ANSWER, MEMWALKER_GO_BACK))
            turns.append(Turn(user, f"Reasoning: {reason}\n{action}" if reasoning else action, "leaf"))
        return turns


def retried(rng: random.Random, prompt: str, possible: Sequence[int]) -> str:
    """The prompt, in one of twelve cases as it is put again after a reply that named no possible action."""
    if rng.random() >= 1 / 12:
        return prompt
    odd = [str(n) for n in range(-3, 12) if n not in possible]
    replies = (f"Action: {rng.choice(odd)}", "Action:", "Reasoning: None of the parts tells it.")
    return memwalker_retry_prompt(prompt, [rng.choice(replies)], possible)


OTHER_WORDINGS = (
    "{context}\n\nQuestion: {question}",
    "Answer the question based on the given passages. Only give me the answer and do not output any "
    "other words."
    "\n\nThe following are given passages.\n{context}\n\nQuestion: {question}\nAnswer:",
    "You are given a text and a question. Answer as concisely as you can, with a single phrase if "
    "possible. If the "
    'question cannot be answered from the text, write "Unanswerable".\n\nText: {context}\n\n'
    "Question: {question}",
    "Context:\n{context}\n\nAnswer the question as concisely as you can.\nQuestion: {question}\nAnswer:",
)


def pecan_graph_prompt(nodes: Sequence[str]) -> str:
    """Prompt that turns nodes into bullets (PECAN, Table A1); nodes must not contain newlines."""
    listed = "".join(PECAN_NODE.format(text=node) for node in nodes)
    return f"{PECAN_GRAPH_HEAD}{listed}{PECAN_GRAPH_TAIL}"


def search_prompt(question: str, nodes: Sequence[str]) -> str:
    """Turn 1 of PECAN's search with the nodes listed."""
    return pecan_search_head(question) + "".join(PECAN_NODE.format(text=n) for n in nodes)


def asked_summary(text: str) -> str:
    """A summary asked for as a question about the context, as every reader of a summarisation set asks."""
    return question_prompt(text, SUMMARY_QUERY, SUMMARY_INSTRUCTION)


def distractors(rng: random.Random, facts: Sequence[Fact], qa: QA, count: int, *, near: bool) -> list[Fact]:
    """Facts that the question does not need; the near ones share a value with those it needs."""
    others = [f for f in facts if f not in qa.facts]
    if near:
        wanted = {value for fact in qa.facts for value in fact.values}
        relations = {fact.relation for fact in qa.facts}
        others.sort(
            key=lambda f: (
                -(rng.random() + 0.8 * (not wanted.isdisjoint(f.values)) + 0.3 * (f.relation in relations))
            )
        )
    else:
        rng.shuffle(others)
    return others[: max(0, count)]


def deal(rng: random.Random, facts: Sequence[Fact], groups: int) -> list[list[Fact]]:
    """The facts dealt to that many groups, none empty."""
    shuffled = rng.sample(list(facts), len(facts))
    return [g for g in (shuffled[i::groups] for i in range(groups)) if g]


def key_facts(facts: Sequence[Fact], of_a_subject: int = OF_A_SUBJECT) -> list[Fact]:
    """What bullets tell of these facts: all of up to ``ALL_TOLD``; of more, no details, unless all are.

    Never more than ``MOST_TOLD``, so that a list ends within the room that a graph gives it: where more are
    left, the first of every subject, at most ``of_a_subject``.
    """
    if len(facts) <= ALL_TOLD:
        return list(facts)
    left = [fact for fact in facts if fact.rel.section not in DETAILS] or list(facts)
    for most in range(of_a_subject, 0, -1):
        if len(left) <= MOST_TOLD:
            break
        left = first_of_subjects(left, most)
    return left[:MOST_TOLD]


def first_of_subjects(facts: Sequence[Fact], most: int) -> list[Fact]:
    """The first ``most`` facts of every subject, in order."""
    seen: Counter[str] = Counter()
    kept = []
    for fact in facts:
        seen[fact.subject] += 1
        if seen[fact.subject] <= most:
            kept.append(fact)
    return kept


def by_subject(facts: Sequence[Fact]) -> list[Fact]:
    """The facts grouped by subject, in order of first appearance."""
    subjects = dict.fromkeys(f.subject for f in facts)
    return [f for s in subjects for f in facts if f.subject == s]


def fold(text: str) -> str:
    """A node's text on one line."""
    return " ".join(text.split())


def cut_passages(rng: random.Random, text: str) -> list[str]:
    """The text cut at word boundaries into passages of 35-60 words, regardless of sentences.

    A cut by tokens leaves a space or a newline in front; half of the documents are cut so.
    """
    words = text.split(" ")
    size = rng.randint(35, 60)
    pieces = [" ".join(words[i : i + size]) for i in range(0, len(words), size)]
    if rng.random() < 0.5:
        return [piece.strip() for piece in pieces]
    return [pieces[0], *(f" {piece}" for piece in pieces[1:])]
