"""The values that flow through the bench: documents, questions, predictions and what they cost."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Task = Literal["qa", "summarization"]
JsonValue = Any
"""What ``json.dumps`` writes: None, bool, int, finite float, str, list or dict of these."""


@dataclass(frozen=True)
class Document:
    """A full source text with its title ("" when it has none)."""

    title: str
    text: str

    @property
    def full_text(self) -> str:
        """Title line and text as a reader sees them; every character span is an offset into this."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @cached_property
    def id(self) -> str:
        """Content hash: the first 16 hex digits of SHA-256 over title and text."""
        content = f"{self.title}\0{self.text}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True)
class DocumentSet:
    """The documents that one question is asked about, in order: one long text, or several short ones."""

    documents: tuple[Document, ...]

    @cached_property
    def id(self) -> str:
        """Content hash over the documents' ids in order (16 hex digits); the key of an index."""
        return hashlib.sha256("\n".join(d.id for d in self.documents).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Evidence:
    """A gold supporting place: a document (by its position) and, if the format has them, details."""

    document: int
    sentence: int | None = None
    text: str | None = None


@dataclass(frozen=True)
class Example:
    """One question of a data set with its documents, reference answers and evidence labels."""

    id: str
    dataset: str
    task: Task
    question: str
    answers: tuple[str, ...]
    documents: DocumentSet
    evidence: tuple[Evidence, ...] | None = None
    """None: the format carries no labels; empty: it does, and this question has none."""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """The question that a method is asked, and how long and in which form it may answer."""

    text: str
    documents: DocumentSet
    max_new_tokens: int
    task: Task = "qa"
    dataset: str = ""
    longbench_prompt: str = ""
    """The card's LongBench template ({context}, {input}), for ``prompt=longbench``."""
    evidence: tuple[Evidence, ...] | None = None
    """Gold labels; a method of yours that reads them is an upper bound, and no row of a table."""
    paper_values: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """Paper -> option -> its value for this data set, from the card: ``{"garlic": {"t_c": 0.5}}``."""
    retrieval_query: str = ""
    """What is searched with where that is not ``text``, from the card; read :attr:`query`."""

    @property
    def query(self) -> str:
        """The words to search with; the reader is asked ``text``."""
        return self.retrieval_query or self.text


@dataclass(frozen=True)
class Chunk:
    """A contiguous piece of a document; ``text == document.full_text[start:end]`` exactly.

    Where documents were joined before they were cut, it may go on in the documents that follow; its text is
    then that of all its spans, with an empty line between two documents.
    """

    document: int
    """Position of the document in its DocumentSet."""
    index: int
    """Position of the chunk over the whole DocumentSet, counted from 0."""
    start: int
    end: int
    """Character offsets into ``Document.full_text``, half-open."""
    text: str
    tokens: int
    """Length in tokens of the tokenizer that cut it."""
    continued: tuple[tuple[int, int, int], ...] = ()
    """(document, start, end) of what it holds of the documents after the first."""

    @property
    def spans(self) -> tuple[tuple[int, int, int], ...]:
        """(document, start, end) of all of it, in order."""
        return ((self.document, self.start, self.end), *self.continued)


@dataclass(frozen=True)
class ContextItem:
    """One passage or node of the reader's context; a sequence of them keeps the order of the prompt."""

    text: str
    document: int | None = None
    title: str = ""
    start: int | None = None
    end: int | None = None
    node: str | None = None
    """Node id for trees and graphs; None for a chunk of the source."""
    score: float | None = None
    chunk: int | None = None
    """Position in the index of the chunk that it is, or of which it is the part in one document."""


@dataclass(frozen=True)
class Index:
    """A method's data about a DocumentSet, independent of any question: JSON and arrays.

    Stored as JSON + safetensors, so ``data`` must be JSON and ``arrays`` plain numpy arrays.
    """

    data: Mapping[str, JsonValue] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


@dataclass(frozen=True)
class Prediction:
    """A method's answer with the exact context behind it; costs are metered outside the method."""

    text: str
    context: Sequence[ContextItem] = ()
    prompt_tokens: int = 0
    """Length of the final prompt that produced ``text``, template included."""
    completion_tokens: int = 0
    truncated: bool = False
    """True when some of the intended context did not fit and was cut."""
    flags: tuple[str, ...] = ()
    """Named events worth counting under a table, for example ``empty_document``."""
    trace: Mapping[str, JsonValue] = field(default_factory=dict)
    """The method's own log of how it got there (search steps, probabilities)."""
    drawn: tuple[str, ...] = ()
    """Further answers of a method that answers from several random draws: a question's scores are the means
    over ``text`` and these, its cost is that of all."""
