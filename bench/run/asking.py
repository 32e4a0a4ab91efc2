"""One question about files of the user's own, with the places that its answer rests on.

The code behind ``bench ask`` and :func:`bench.ask`. A question is a cell of its own below ``results/asked``;
its index is kept with all others, so that the next question about the same documents needs none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.data import LoadedData
from bench.data.document_files import place_of, read_documents
from bench.data.own import own_card
from bench.errors import ConfigError
from bench.method.trace import SearchTrace, described
from bench.results.index_store import index_key
from bench.results.records import Record
from bench.run.cell import CellRequest, plan_on
from bench.run.fitness import caution, default_reader
from bench.run.hooks import RunHooks
from bench.run.running import run_blocking
from bench.run.session import Session
from bench.run.threads import Threads
from bench.schema import Document, DocumentSet, Example, JsonValue

DEFAULT_METHOD = "bm25"
"""Needs no index and no second model: the first answer comes soonest.  # our choice"""
ASKED = "asked"
"""Folder of these cells below the results folder; they are no data set, and in no table or report."""
EXCERPT = 300
"""Characters shown of a passage.  # our choice"""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class ReadPassage:
    """One passage or node that the reader was given, in the order given."""

    text: str
    place: str
    """Where it stands: ``paper.pdf, page 3``; empty for a node."""
    excerpt: str
    """The part of it with most words of question and answer, on one line; all of it if it is short."""
    excerpt_place: str
    """Where that stands; empty for a node."""
    node: str | None
    """Id of a node; None for a passage of a document."""
    score: float | None
    """The method's."""


@dataclass(frozen=True)
class Answer:
    """A method's answer to one question."""

    question: str
    method: str
    model: str
    """The reader, as tables print it."""
    text: str
    """Empty where it failed."""
    error: str | None
    passages: tuple[ReadPassage, ...]
    unsupported: tuple[str, ...]
    """Names and numbers of the answer that are neither in the question nor in anything that was read."""
    flags: tuple[str, ...]
    """Events that the record names (docs/records.md)."""
    path: str
    """The nodes that it read, step by step, as a table; empty for a method that ranks once."""
    tflops: float
    """For this question alone."""
    index_tflops: float
    """Once for the documents."""
    index_kept: bool
    """Whether the index was there from an earlier question; also true for a method without one."""
    wall_s: float
    """Seconds for the answer, without the index."""
    warnings: tuple[str, ...]
    folder: Path
    """With the record: ``bench show FOLDER``."""
    record: Record


def ask(
    question: str,
    files: str | Path | Sequence[str | Path],
    *,
    method: str = DEFAULT_METHOD,
    model: str | None = None,
    options: Mapping[str, JsonValue] | None = None,
    dtype: str | None = None,
    results: str | Path = "results",
) -> Answer:
    """The answer to a question about text, Markdown, HTML, PDF or DOCX files, or all of them in a folder.

    model: the reader; None: the small shipped one for text of its generator, else a reader of real text that
    is on this machine. options: of the method, as ``--set`` takes them. results: where index and record are
    kept; the same question again is answered from there.
    Raises BenchError: for no readable document, an unknown name, an option that does not fit, no reader.
    A failure of the method itself is the answer's ``error``.
    """
    paths = [Path(f) for f in ([files] if isinstance(files, str | Path) else files)]
    collection = read_documents(paths)
    collection.require_one()
    name = paths[0].resolve().stem if len(paths) == 1 else "documents"
    warnings = [str(problem) for problem in collection.problems]
    request = CellRequest(method, model=model or "", options=options or {}, dtype=dtype)
    return ask_documents(question, collection.documents, name, request, Path(results), warnings=warnings)


def ask_documents(
    question: str,
    documents: Sequence[Document],
    name: str,
    request: CellRequest,
    results: Path,
    *,
    warnings: Sequence[str] = (),
    hooks: Sequence[RunHooks] = (),
) -> Answer:
    """As :func:`ask`, about documents.

    name: what they are called. request: method, options, dtype and reader; an empty reader: one that can read
    them. warnings: about the files of them.
    """
    if not question.strip():
        raise ConfigError("The question is empty. Say what you want to know.")
    try:
        question.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"The question holds half a character ({question[error.start]!a} at {error.start}); expected "
            "UTF-8. Does the terminal send another encoding? Set it to UTF-8, or leave accents out."
        ) from None
    card, asked = own_card(name), DocumentSet(tuple(documents))
    id_ = hashlib.sha256(question.encode("utf-8")).hexdigest()[:12]
    example = Example(id_, card.name, "qa", question, (), asked)
    data = LoadedData((example,), card.name, "path", "asked", f"documents:{asked.id}")
    reader = request.model or default_reader(asked)
    cell = plan_on(replace(request, dataset=card.name, model=reader, data=name), card, data)
    session = Session(results, hooks=hooks, retry_failed=True, threads=Threads.begin())
    key = index_key({**cell.index_key_parts(), "documents": example.documents.id})
    kept = session.indexes.has(cell.index_name, key)
    cell = replace(cell, out=results / ASKED / cell.identity.folder)
    result = run_blocking(lambda: session.run(cell))
    (record,) = result.records
    read = _passages(record, example.documents)
    return Answer(
        question=question,
        method=cell.request.method,
        model=cell.reader.label,
        text=record.prediction or "",
        error=record.error,
        passages=read,
        unsupported=unsupported(record.prediction or "", question, [passage.text for passage in read]),
        flags=(*(("truncated",) if record.truncated else ()), *record.flags),
        path=described(record.trace) if SearchTrace.read(record.trace) else "",
        tflops=record.flops.query_tflops,
        index_tflops=record.flops.index_tflops,
        index_kept=kept or not result.answered or not record.flops.index,
        wall_s=record.wall_s,
        warnings=(*warnings, *([caution(cell.unfit)] if cell.unfit else [])),
        folder=result.folder,
        record=record,
    )


def _passages(record: Record, documents: DocumentSet) -> tuple[ReadPassage, ...]:
    """What was read, with its places."""
    read = []
    wanted = f"{record.question} {record.prediction or ''}"
    for item in record.context:
        if item.document is None or item.start is None or item.end is None:
            text, place, excerpt_place = item.text or "", "", ""
            first, last = best_part(text, wanted)
        else:
            document = documents.documents[item.document]
            start = max(item.start, len(document.full_text) - len(document.text))  # without the title line
            text = document.full_text[start : item.end]
            place = place_of(document, start, item.end)
            first, last = best_part(text, wanted)
            excerpt_place = place_of(document, start + first, start + last)
        excerpt = " ".join(text[first:last].split())
        read.append(ReadPassage(text, place, excerpt, excerpt_place, item.node, item.score))
    return tuple(read)


def best_part(text: str, wanted: str) -> tuple[int, int]:
    """First and last character of the sentences, some ``EXCERPT`` long, with most words of ``wanted``."""
    if len(text) <= EXCERPT:
        return 0, len(text)
    words = {word for word in _WORD.findall(wanted.lower()) if len(word) > 3 or word.isdigit()}
    begins = [0, *(match.end() for match in re.finditer(r"[.!?:]\s+|\n\s*", text))]

    def words_from(begin: int) -> int:
        return len(words & set(_WORD.findall(text[begin : begin + EXCERPT].lower())))

    begin = max(begins, key=lambda at: (words_from(at), -at))
    ends = [at for at in (*begins, len(text)) if begin < at <= begin + EXCERPT]
    return begin, max(ends, default=min(len(text), begin + EXCERPT))


_NAME_OR_NUMBER = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z]\w{2,}|\b\w*\d[\w.,]*\b")


def unsupported(answer: str, question: str, read: Sequence[str]) -> tuple[str, ...]:
    """Names and numbers of an answer that are neither in the question nor in a text that was read.

    A name is a capitalised word that begins no sentence. An answer without any may be wrong all the same; one
    with some was not taken from the text.
    """
    known = " ".join([question, *read]).lower()
    claims = dict.fromkeys(match.rstrip(".,") for match in _NAME_OR_NUMBER.findall(answer))
    return tuple(word for word in claims if word.lower() not in known)
