"""A data set, a method and models that cost nothing, for tests of the harness itself."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.flops.meter import Usage, current_meter
from bench.method.contract import Method, MethodConfig
from bench.models.api import Generation, Geometry, Tokenization
from bench.models.presets import Preset
from bench.models.sources import FolderSource
from bench.models.spec import Local, ModelSpec
from bench.results.finished import FinishedCell
from bench.results.index_store import IndexStore
from bench.run.cell import Cell
from bench.run.session import Session
from bench.schema import ContextItem, Document, DocumentSet, Example, Index, Prediction, Question

GEOMETRY = Geometry(chunk_tokens=8, window=256, input_limit=256, summary_tokens=32)


class WordModel:
    """Reads words; its answer is the last word of the prompt's first line, in one forward pass."""

    name = "words"
    geometry = GEOMETRY
    chat_overhead = 2
    token = r"\s*\S+"

    def tokenize(self, text: str) -> Tokenization:
        matches = list(re.finditer(self.token, text))
        return Tokenization(tuple(range(len(matches))), tuple((m.start(), m.end()) for m in matches))

    def count_tokens(self, text: str) -> int:
        return len(self.tokenize(text).ids)

    async def open(self) -> Any:
        raise NotImplementedError("the stand-in keeps no contexts")

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Generation:
        n = self.count_tokens(prompt) + self.chat_overhead
        current_meter().credit(self.name, "prefill", Usage(1, n, n * n, 1, 10 * n))
        return Generation(prompt.splitlines()[0].split()[-1], (1,), "stop", n)


class Replying(WordModel):
    """Says what a function makes of the prompt, and keeps the prompts, this one included."""

    def __init__(self, reply: Callable[[str], str]) -> None:
        self.reply, self.prompts = reply, list[str]()

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Generation:
        generation = await super().generate(prompt, max_new_tokens, sampling)
        self.prompts.append(prompt)
        return dataclasses.replace(generation, text=self.reply(prompt))


class WordModels:
    """The model set of the stand-in: one reader."""

    def __init__(self, reader: WordModel | None = None) -> None:
        self.reader = reader or WordModel()

    def lm(self, role: str = "reader") -> WordModel:
        return self.reader

    def embedder(self, role: str = "embedder") -> Any:
        raise KeyError(role)


class EchoConfig(MethodConfig):
    """Options of the stand-in method."""

    suffix: str = ""


class Echo(Method[EchoConfig]):
    """Indexes the number of words and echoes the question's last word."""

    name = "echo"
    version = "1"
    summary = "echo"
    paper = "none"
    Config = EchoConfig
    replayed = frozenset({"suffix"})
    indexed: list[str]

    def __init__(self, config: EchoConfig, geometry: Geometry = GEOMETRY, seed: int = 0) -> None:
        super().__init__(config, geometry, seed)
        self.indexed = []

    async def index(self, documents: DocumentSet, models: Any) -> Index:
        self.indexed.append(documents.id)
        text = " ".join(d.full_text for d in documents.documents)
        await models.lm().generate(f"index {len(text)}", 1)
        if "unindexable" in text:
            raise ValueError("this document cannot be indexed")
        return Index({"words": len(text.split())}, {"ones": np.ones(3, np.float32)})

    async def answer(self, index: Index, question: Question, models: Any) -> Prediction:
        if "fail" in question.text:
            raise RuntimeError("asked to fail")
        answer = await models.lm().generate(question.text, question.max_new_tokens)
        document = question.documents.documents[0]
        return Prediction(
            answer.text + self.config.suffix,
            [ContextItem(document.full_text, 0, document.title, 0, len(document.full_text), score=1.0)],
            answer.prompt_tokens,
            len(answer.token_ids),
            trace={"words": index.data["words"]},
        )


def examples(n: int, questions_per_document: int = 2) -> tuple[Example, ...]:
    """``n`` examples; the answer of each is the last word of its question."""
    return tuple(
        Example(
            id=f"q{i}",
            dataset="toy",
            task="qa",
            question=f"What is answer{i}",
            answers=(f"answer{i}",),
            documents=DocumentSet((Document("", f"text {i // questions_per_document}"),)),
        )
        for i in range(n)
    )


def stand_in_cell(questions: Sequence[Example], config: Mapping[str, Any] | None = None) -> Any:
    """A planned cell around the stand-ins, without cards or presets."""
    from types import SimpleNamespace

    from bench.files.hashing import stable_hash
    from bench.run.cell import CellIdentity, CellRequest

    method = Echo(EchoConfig.model_validate(dict(config or {})))
    identity = CellIdentity(
        method="echo",
        method_version="1",
        config=method.config.model_dump(),
        dataset="toy",
        data_source="path",
        data_label="toy (test)",
        data_revision="0" * 64,
        examples=stable_hash([e.id for e in questions]),
        n_examples=len(questions),
        models={"reader": {"name": "words"}},
        geometry={"chunk_tokens": 8, "window": 256, "input_limit": 256, "summary_tokens": 32},
        prompts="0",
        max_new_tokens=8,
        seed=0,
    )
    card = SimpleNamespace(
        name="toy",
        metrics=("f1", "bleu_4"),
        max_new_tokens=8,
        longbench_prompt="",
        papers={},
        retrieval_query_of=lambda example: "",
    )
    data = SimpleNamespace(examples=tuple(questions), label="toy (test)", source="sample", warnings=())
    shape = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1}
    shape |= {"intermediate_size": 8, "vocab_size": 8, "max_position_embeddings": 256}
    preset = Preset(
        name="words",
        kind="causal",
        label="words",
        description="",
        licence="",
        sources=(),
        config=shape,
        small=True,
    )
    reader = ModelSpec("words", FolderSource(Path()), preset, Local(dtype="float32"))
    return Cell(CellRequest("echo", "toy"), method, card, data, reader, {"reader": reader}, identity)  # type: ignore[arg-type]


class StandInSession(Session):
    """A session whose cells are read by the stand-ins, or by the models that are given."""

    def __init__(self, results: Path, models: Callable[[], Any] = WordModels, **options: Any) -> None:
        super().__init__(results, **options)
        self._stand_ins = models

    def models(self, cell: Cell) -> Any:
        return self._stand_ins()


def run_cells(
    places: Sequence[tuple[Any, Path]], indexes: IndexStore, models: Callable[[], Any], **options: Any
) -> list[FinishedCell]:
    """Cells that share one run per question, each in its folder."""
    session = StandInSession(indexes.root.parent, models, **options)
    session.indexes = indexes
    cells = [dataclasses.replace(cell, out=folder) for cell, folder in places]
    finished: list[FinishedCell] = []
    session.run_all([cells], done=lambda group, outcome: finished.extend(outcome))
    return finished


def run_cell(
    cell: Any, folder: Path, indexes: IndexStore, models: Callable[[], Any], **options: Any
) -> FinishedCell:
    """One cell in its folder."""
    (finished,) = run_cells([(cell, folder)], indexes, models, **options)
    return finished
