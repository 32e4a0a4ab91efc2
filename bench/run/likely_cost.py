"""Which k probably makes a ranker cost what another method costs, from the lengths of its prompts.

The index is ranked for each question, prompts are put together and counted, and nothing is read: of all costs
only those of the answers are a guess, as many tokens as the other method's answers have. What is found is
where :func:`bench.run.equal_cost.closest_k` looks first, in one run for both neighbours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

from bench.engine.sampling import Sampling
from bench.errors import BenchError
from bench.flops.meter import Meter, current_meter, metered
from bench.method.ranking import PickAndRead
from bench.models.api import Embedder, Generation, LanguageModel, ModelSet, PairScorer
from bench.models.language_model import CausalLanguageModel
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.cell_folder import finished_summary
from bench.run.equal_cost import PASSAGES, measured_costs, neighbours, provisional, reference_cell, with_k
from bench.run.hooks import IndexProgress
from bench.run.question_runner import QuestionRunner
from bench.run.redaction import fault_text
from bench.run.session import Session
from bench.run.time_limit import TimeLimit
from bench.schema import Question

log = logging.getLogger(__name__)


def likely_cells(request: CellRequest, session: Session) -> list[Cell]:
    """The cells of a request with ``k=auto:METHOD`` that are probably needed, for one run of them all.

    None where their costs are measured already, where METHOD's cell is not finished, and for a method whose
    costs cannot be counted beforehand. Raises BenchError as :func:`bench.run.cell.plan_cell`.
    """
    reference = reference_cell(request)
    summary = None if reference is None else finished_summary(reference, reference.folder(session.results))
    if summary is None or PASSAGES not in request.options or session.executor is not None:
        return []
    target = summary.query_flops.mean
    if neighbours(target, lambda k: None, measured_costs(request, session.results)) is not None:
        return []
    cell = plan_cell(provisional(request))
    if cell.training is not None or not isinstance(cell.method, PickAndRead):
        return []
    if PASSAGES not in cell.method.replayed:
        return []  # cells of several k share no run
    decoded = round(summary.tokens.completion)
    try:
        with session.preparing(replace(cell, request=request)) as on_index:
            prompts = _Prompts(cell, session, decoded, on_index)
            around = neighbours(target, prompts.cost)
    except _UncountableError:
        return []
    assert around is not None
    low, high, _ = around
    # Where all that there is costs less: that k, and one more that shows it.
    return [with_k(request, k) for k in ((low, high or low + 1) if low else (high,))]


class _UncountableError(Exception):
    """A method that does more with its reader than ask it once, or that ranks no question."""


class _Prompts:
    """A cell's questions, ranked; costs of reading the best k."""

    def __init__(
        self, cell: Cell, session: Session, decoded: int, on_index: Callable[[IndexProgress], None]
    ) -> None:
        """decoded: tokens of an answer. on_index: told how far the indexes are that were missing."""
        self.cell, models = cell, session.models(cell)
        self.models = _CountingModels(models, decoded)
        asker = QuestionRunner(
            [cell], session.indexes, models, TimeLimit(session.timeout_s), session.in_flight
        )
        self.ranked = asyncio.run(self._rank(asker, models, on_index))

    async def _rank(
        self, asker: QuestionRunner, models: ModelSet, on_index: Callable[[IndexProgress], None]
    ) -> list[tuple[Question, Any, int]]:
        """Question, ranking and FLOPs of the ranking; questions that fail are left out.

        Raises BenchError for a fault of the setup.
        """
        method: Any = self.cell.method

        async def one(question: Question) -> tuple[Question, Any, int]:
            with metered(Meter()) as meter:
                index = (await asker.index(question.documents)).index
                ranked = await asker.limit.run(method.rank(index, question, models), "ranking")
            return question, ranked, meter.flops

        questions = [self.cell.question(example) for example in self.cell.data.examples]
        sets = {question.documents.id: question.documents for question in questions}
        async with asker.working():
            await asker.build_ahead(list(sets.values()), on_index)
            rankings = await asyncio.gather(*map(one, questions), return_exceptions=True)
        faults = [each for each in rankings if isinstance(each, BaseException)]
        for fault in faults:
            if isinstance(fault, BenchError) or not isinstance(fault, Exception):
                raise fault  # the setup is at fault, not the question
        if faults:
            log.warning(
                "%s: %d of %d questions could not be ranked, such as: %s",
                *(self.cell.name, len(faults), len(questions), fault_text(faults[0])),
            )
        if len(faults) == len(questions):
            raise _UncountableError("no question could be ranked")
        return [each for each in rankings if not isinstance(each, BaseException)]

    def cost(self, k: int) -> float:
        """Mean FLOPs of a question that reads its k best passages."""
        return asyncio.run(self._cost(k))

    async def _cost(self, k: int) -> float:
        method: Any = self.cell.method
        config = method.config.model_copy(update={PASSAGES: k})
        costs = []
        for question, ranked, flops in self.ranked:
            positions = method.pick(ranked, config).positions
            with metered(Meter()) as meter:
                await method.read_picked(ranked, positions, question, self.models)
            costs.append(flops + meter.flops)
        return fmean(costs)


class _CountingModels:
    """Models that count the tokens of what they are asked, and answer nothing."""

    def __init__(self, models: ModelSet, decoded: int) -> None:
        self._models, self._decoded = models, decoded

    def lm(self, role: str = "reader") -> LanguageModel:
        lm = self._models.lm(role)
        if not isinstance(lm, CausalLanguageModel):
            raise _UncountableError(role)
        counting: Any = _CountingModel(lm, self._decoded)
        model: LanguageModel = counting
        return model

    def embedder(self, role: str = "embedder", *, pooling: Any = None) -> Embedder:
        raise _UncountableError(role)

    def pair_scorer(self, role: str = "scorer") -> PairScorer:
        raise _UncountableError(role)


class _CountingModel:
    """A reader that credits an answer of so many tokens to each prompt."""

    def __init__(self, lm: CausalLanguageModel, decoded: int) -> None:
        self._lm, self._decoded = lm, decoded

    def __getattr__(self, name: str) -> Any:
        if name in ("open", "hf_model", "engine"):
            raise _UncountableError(name)
        return getattr(self._lm, name)

    async def generate(
        self, prompt: str, max_new_tokens: int, sampling: Sampling | None = None
    ) -> Generation:
        tokens = self._lm.chat_overhead + self._lm.count_tokens(prompt)
        self._lm.credit_answer(current_meter(), tokens, tokens, min(self._decoded, max_new_tokens))
        return Generation("", (), "stop", tokens)
