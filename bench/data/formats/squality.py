"""SQuALITY: short stories with four summaries each (Wang et al. 2022).

    {"metadata": {"passage_id", ...}, "document",
     "questions": [{"question_text", "question_number", "responses": [{"response_text"}, ...]}, ...]}

Only the question for the plot becomes an example: it is about the whole story. The other four questions on a
story are about one aspect of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.data.entries import Entry
from bench.data.format import EntryError, Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document

PLOT = "What is the plot of the story?"


class _Response(Fields):
    response_text: str


class _Question(Fields):
    question_text: str
    responses: list[_Response]


class _Metadata(Fields):
    passage_id: str


class _Story(Fields):
    metadata: _Metadata
    document: str
    questions: list[_Question]


def _parse(entry: Entry) -> Iterator[Parsed]:
    story = fields_of(entry, _Story)
    plot_questions = [question for question in story.questions if question.question_text.strip() == PLOT]
    if not plot_questions:
        raise EntryError(f"none of its {len(story.questions)} questions is {PLOT!r}")
    yield parsed(
        id=f"squality-{story.metadata.passage_id}",
        question=PLOT,
        answers=(response.response_text for response in plot_questions[0].responses),
        documents=(Document("", story.document),),
        task="summarization",
        datasets=("squality",),
    )


SQUALITY = Format("squality", "SQuALITY", has("document", "questions"), _parse)
