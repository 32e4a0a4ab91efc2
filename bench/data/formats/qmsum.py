"""QMSum: meetings with queries about them (Zhong et al. 2021).

    {"meeting_transcripts": [{"speaker", "content"}, ...], "general_query_list": [{"query", "answer"}],
     "specific_query_list": [...], "topic_list": [...]}

Only the general queries become examples, as in Graph of Records: they are about the whole meeting; specific
ones are about a span of it. The document has one line per turn, ``speaker: content``. The files do not name
their split.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document


class _Turn(Fields):
    speaker: str
    content: str


class _Query(Fields):
    query: str
    answer: str


class _Meeting(Fields):
    meeting_transcripts: list[_Turn]
    general_query_list: list[_Query]


def _parse(entry: Entry) -> Iterator[Parsed]:
    meeting = fields_of(entry, _Meeting)
    text = "\n".join(f"{turn.speaker}: {turn.content}" for turn in meeting.meeting_transcripts)
    for number, query in enumerate(meeting.general_query_list):
        yield parsed(
            id=f"qmsum-{entry.position}-{number}",
            question=query.query,
            answers=[query.answer],
            documents=(Document("", text),),
            task="summarization",
            datasets=("qmsum",),
        )


QMSUM = Format("qmsum", "QMSum", has("meeting_transcripts"), _parse)
