"""AcademicEval: write the abstract of a paper (Zhang et al. 2025); one JSON file per paper.

    {"title", "main_content", "gt", ...}

``gt`` is the abstract, or another target text in other settings. Further papers (``additional_info``), which
some settings add as demonstrations, are not part of the document. The split is taken from the file's name, in
which it is a word of its own: ``test_0.json``, ``latest_papers_train_3.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.data.entries import Entry
from bench.data.format import EntryError, Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document

_SPLIT = re.compile(r"(?:^|[_\W])(test|train|val)(?=[_\W]|$)")


class _Paper(Fields):
    title: str
    main_content: str
    gt: str


def _parse(entry: Entry) -> Iterator[Parsed]:
    paper = fields_of(entry, _Paper)
    splits = sorted(set(_SPLIT.findall(entry.place.path.stem.lower())))
    if len(splits) > 1:
        raise EntryError(f"its file name has two splits: {', '.join(splits)}; rename the file after one")
    yield parsed(
        id=f"academic_eval-{entry.place.path.stem}-{entry.position}",
        question="",
        answers=[paper.gt],
        documents=(Document(paper.title, paper.main_content),),
        task="summarization",
        metadata={"title": paper.title},
        datasets=("academic_eval",),
        split="".join(splits),
    )


ACADEMIC_EVAL = Format("academic-eval", "AcademicEval", has("main_content", "gt"), _parse, one_per_file=True)
