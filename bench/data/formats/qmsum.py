"""QMSum: meetings with queries about them (Zhong et al. 2021).

    {"meeting_transcripts": [{"speaker", "content"}, ...], "general_query_list": [{"query", "answer"}],
     "specific_query_list": [...], "topic_list": [...]}

Only the general queries become examples, as in Graph of Records: they are about the whole meeting; specific
ones are about a span of it. Topics are joined in the metadata field ``topics``. The files do not name their
split.

Two layouts of the text. ``qmsum``: one line per turn, ``speaker: content``. ``qmsum-speakers``, where a card
names that one: as in Graph of Records' released code, two lines per turn, and the transcribers' marks taken
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document


class _Turn(Fields):
    speaker: str
    content: str


class _Query(Fields):
    query: str
    answer: str


class _Topic(Fields):
    topic: str


class _Meeting(Fields):
    meeting_transcripts: list[_Turn]
    general_query_list: list[_Query]
    topic_list: list[_Topic] = []


MARKS = {
    **{f"{{ {mark} }} ": "" for mark in ("vocalsound", "disfmarker", "pause", "nonvocalsound", "gap")},
    **{"a_m_i_": "ami", "l_c_d_": "lcd", "p_m_s": "pms", "t_v_": "tv"},
}
"""What the transcribers wrote -> what Graph of Records' code makes of it (its ``clean_data``)."""


def _lines(turns: Iterable[_Turn]) -> str:
    return "\n".join(f"{turn.speaker}: {turn.content}" for turn in turns)


def _speaker_and_content(turns: Iterable[_Turn]) -> str:
    text = "\n".join(f"Speaker: {turn.speaker}\nContent: {turn.content}" for turn in turns)
    for mark, clean in MARKS.items():
        text = text.replace(mark, clean)
    return text


def _format(name: str, title: str, layout: Callable[[Iterable[_Turn]], str]) -> Format:
    def parse(entry: Entry) -> Iterator[Parsed]:
        meeting = fields_of(entry, _Meeting)
        document = Document("", layout(meeting.meeting_transcripts))
        topics = ", ".join(topic.topic for topic in meeting.topic_list)
        for number, query in enumerate(meeting.general_query_list):
            yield parsed(
                id=f"{name}-{entry.position}-{number}",
                question=query.query,
                answers=[query.answer],
                documents=(document,),
                task="summarization",
                metadata={"topics": topics} if topics else None,
                datasets=("qmsum",),
            )

    return Format(name, title, has("meeting_transcripts"), parse)


QMSUM = _format("qmsum", "QMSum", _lines)
QMSUM_SPEAKERS = _format("qmsum-speakers", "QMSum as Graph of Records lays it out", _speaker_and_content)
