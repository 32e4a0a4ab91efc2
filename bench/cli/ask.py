"""``bench ask``: a question about files of the user's own, answered with its sources."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.options import METHOD, results_option
from bench.cli.terminal import counted, print_columns, print_labelled, standard_output
from bench.errors import BenchError, ConfigError
from bench.files.printable import printable

if TYPE_CHECKING:
    from bench.data.document_files import DocumentFiles
    from bench.run.asking import Answer

STDIN = "-"


@click.command(name="ask")
@click.argument("question", required=False, default="", metavar="QUESTION")
@click.argument("files", nargs=-1, metavar="FILES...")
@click.option("--method", "methods", multiple=True, metavar=METHOD,
              help="see: bench list methods; may be given several times  [default: bm25]")  # fmt: skip
@click.option("--model", help="reader: preset, hub id, folder or server  [default: one that can read it]")
@click.option("--full", is_flag=True, help="print every passage in full")
@results_option
def command(
    question: str,
    files: tuple[str, ...],
    methods: tuple[str, ...],
    model: str | None,
    full: bool,
    results: Path,
) -> None:
    """Answer QUESTION from FILES: text, Markdown, HTML, PDF, DOCX, folders of them, or - for standard input.

    Prints the answer, the passages or nodes that it rests on with page or line, and what it cost. Indexes are
    kept, so that the next question about the same files is quicker.
    """
    from bench.method.options import parse_method
    from bench.run.asking import DEFAULT_METHOD, ask_documents
    from bench.run.cell import CellRequest
    from bench.run.progress import Progress

    class Waiting(Progress):
        def on_cell_finished(self, *cell: object, **sweep: object) -> None:
            """The answer says it."""

    there = [text for text in (question, *files) if os.path.exists(text)]  # noqa: PTH110 -- however long
    if there == [question] and STDIN not in files:
        raise ConfigError(f'The question comes first: bench ask "QUESTION" {question}')
    if not files or "" in files:
        raise ConfigError(f'Which files? bench ask "{question or "QUESTION"}" FILES...')
    collection = _documents(files)
    collection.require_one()
    for problem in collection.problems:
        click.echo(f"{'warning' if problem.severity == 'warning' else 'left out'}: {problem}", err=True)
    name = printable(Path(files[0]).resolve().stem) if len(files) == 1 and files[0] != STDIN else "documents"
    names, progress = methods or (DEFAULT_METHOD,), Waiting()
    parsed = map(parse_method, names)
    requests = [CellRequest(method, model=model or "", options=options) for method, options in parsed]
    try:
        answers = [
            ask_documents(question, collection.documents, name, request, results, hooks=[progress])
            for request in requests
        ]
    finally:
        progress.close()
    show(answers, names, len(collection.documents), full=full)
    if all(answer.error is not None for answer in answers):
        raise BenchError("No method could answer.")


def _documents(files: Sequence[str]) -> DocumentFiles:
    """The documents in the files; ``-`` is standard input."""
    from bench.data.document_files import DocumentFiles, UnreadableFileError, document_of, read_documents

    collection = read_documents([Path(name) for name in files if name != STDIN])
    if STDIN not in files:
        return collection
    documents, problems = list(collection.documents), list(collection.problems)
    try:
        documents.append(document_of(sys.stdin.buffer.read(), "standard input", "standard input")[0])
    except UnreadableFileError as error:
        problems.append(error.problem)
    return DocumentFiles(tuple(documents), tuple(problems))


def show(answers: Sequence[Answer], names: Sequence[str], documents: int, *, full: bool = False) -> None:
    """Print the answers: one alone, several side by side, then what each of them read."""
    first, console = answers[0], standard_output()
    count = f"{counted(documents, 'document')}, reader {first.model}"
    print_labelled(console, f"{first.question}\n{count}\n")
    if len(answers) == 1:
        print_labelled(console, f"answer      {_text(first)}\ncost        {_cost(first)}")
    else:
        rows = {
            "answer": [_text(answer) for answer in answers],
            "read": [f"{len(a.passages)}: {'; '.join(_places(a))}" for a in answers],
            "cost": [_cost(answer) for answer in answers],
        }
        print_columns(console, names, rows)
    for answer, name in zip(answers, names, strict=True):
        console.print()
        of = "" if len(answers) == 1 else f"{name} "
        print_labelled(console, "\n".join(_sources(answer, of, full=full)))
    for warning in dict.fromkeys(warning for answer in answers for warning in answer.warnings):
        print_labelled(console, f"\nwarning     {warning}")


def _places(answer: Answer) -> list[str]:
    """The places of everything that was read, each once."""
    return list(dict.fromkeys(p.place or f"node {p.node}" for p in answer.passages))


def _text(answer: Answer) -> str:
    if answer.error is not None:
        return f"FAILED: {answer.error}"
    return answer.text or "(an empty answer)"


def _cost(answer: Answer) -> str:
    cost = f"{answer.tflops:.3g} TFLOPs, {answer.wall_s:.1f} s"
    if answer.index_tflops:
        when = "kept from before" if answer.index_kept else "built now, kept"
        cost += f"; index {answer.index_tflops:.3g} TFLOPs, {when}"
    return cost


def _sources(answer: Answer, name: str, *, full: bool) -> Iterator[str]:
    """What an answer rests on, in the order read."""
    yield f"{name}read, in this order (bench show {shlex.quote(str(answer.folder))}):"
    for number, passage in enumerate(answer.passages, start=1):
        place = passage.place or f"node {passage.node}"
        cut = not full and len(passage.excerpt) < len(" ".join(passage.text.split()))
        at = passage.excerpt_place if cut else ""
        yield f"  {number:>2}. {place}{f'; at {at}:' if at and at != place else ''}"
        text = f"... {passage.excerpt} ..." if cut else passage.text.strip() or "(only the name of the file)"
        yield f"      {' '.join(text.split())}"
    if not answer.passages:
        yield "  nothing"
    if answer.path:
        yield answer.path
    if answer.flags:
        yield f"flags       {', '.join(answer.flags)} (docs/records.md says what they mean)"
    if "bare_yes_no" in answer.flags:
        yield "check       only Yes or No, though the question asks for more: try a larger reader (--model)"
    if answer.unsupported:
        made_up = ", ".join(answer.unsupported)
        yield f"check       in nothing that was read: {made_up}; the model may have made it up"
