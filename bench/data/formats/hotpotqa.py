"""HotpotQA: the authors' JSON array and the hub's columnar rows (Yang et al. 2018).

    {"_id", "question", "answer", "type", "level",
     "context": [[title, [sentence, ...]], ...], "supporting_facts": [[title, sentence], ...]}

On the hub the two lists of pairs are columns: ``context: {title: [], sentences: [[]]}`` and
``supporting_facts: {title: [], sent_id: []}``. Sentences include their leading spaces, so a document's
text is their concatenation. 2WikiMultihopQA uses the same JSON with an additional field ``evidences``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import AliasChoices, Field, Strict

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, parsed, rows_of
from bench.schema import Document, Evidence

_Pair = Strict(False)  # JSON has no tuples: a list of two


class _Entry(Fields):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    answer: str
    context: list[Annotated[tuple[str, list[str]], _Pair]]
    supporting_facts: list[Annotated[tuple[str, int], _Pair]]


def _recognises(entry: Entry) -> bool:
    return "supporting_facts" in entry.value or isinstance(entry.value.get("context"), list)


def _is_columnar(entry: Entry) -> bool:
    context = entry.value.get("context")
    return isinstance(context, dict) and "sentences" in context


def _parse_columnar(entry: Entry) -> Iterator[Parsed]:
    pairs = dict(entry.value)
    for name, columns in (("context", ("title", "sentences")), ("supporting_facts", ("title", "sent_id"))):
        if name in pairs:
            pairs[name] = [[row.get(column) for column in columns] for row in rows_of(pairs[name], name)]
    yield from _parse(replace(entry, value=pairs))


def _parse(entry: Entry) -> Iterator[Parsed]:
    fields = fields_of(entry, _Entry)
    dataset, context = "2wikimqa" if "evidences" in entry.value else "hotpotqa", fields.context
    position: dict[str, int] = {}
    for index, (title, _) in enumerate(context):
        position.setdefault(title, index)
    evidence: list[Evidence] = []
    notes: list[str] = []
    for title, sentence in fields.supporting_facts:
        document = position.get(title)
        if document is None:
            notes.append("a supporting fact names a title that the context does not have")
        elif 0 <= sentence < len(context[document][1]):
            evidence.append(Evidence(document, sentence, context[document][1][sentence]))
        else:  # known faults of the release: the document still counts as evidence
            notes.append("a supporting fact names a sentence that its document does not have")
            evidence.append(Evidence(document))
    joined = " " if dataset == "2wikimqa" else ""  # HotpotQA's sentences carry the blank before them
    yield parsed(
        id=fields.id,
        question=fields.question,
        answers=[fields.answer],
        documents=(Document(title, joined.join(sentences)) for title, sentences in context),
        evidence=evidence,
        datasets=(dataset,),
        notes=dict.fromkeys(notes),
    )


HOTPOTQA = Format("hotpotqa", "HotpotQA", _recognises, _parse)
HOTPOTQA_COLUMNAR = Format("hotpotqa-columnar", "HotpotQA, hub columns", _is_columnar, _parse_columnar)
