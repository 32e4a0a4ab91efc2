"""A table of text as Markdown, LaTeX (booktabs) and CSV; the same table gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from bench.metrics.statistics import Interval

DASH = "–"
MINUS = "−"


@dataclass(frozen=True)
class Section:
    """Rows under their own heading."""

    heading: str
    """Empty for a table with a single section."""
    rows: tuple[tuple[str, ...], ...]
    """One text per column of the table, in each row."""


@dataclass(frozen=True)
class TextTable:
    """Text cells in rows under columns; the first column is aligned left, the others right."""

    id: str
    title: str
    columns: tuple[str, ...]
    sections: tuple[Section, ...]
    caption: tuple[str, ...]
    """Sentences that explain the numbers."""
    notes: tuple[str, ...] = ()
    """Footnotes, each on its own line."""
    spans: tuple[tuple[str, int], ...] = ()
    """Headings over several columns, from the second column on: (text, number of columns); for LaTeX."""
    brief: tuple[str, ...] = ()
    """The sentences of caption and notes that a terminal shows; empty: the first two of the caption."""
    csv: str = ""
    """The table's values, for other programs."""

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows of all sections."""
        return tuple(row for section in self.sections for row in section.rows)

    def files(self) -> dict[str, str]:
        """Suffix -> content, in the order in which the user sees them."""
        return {"md": self.markdown(), "tex": self.latex(), "csv": self.csv}

    def markdown(self) -> str:
        """A heading, a grid per section, the caption and the notes."""
        lines = [f"# {self.title}", ""]
        for section in self.sections:
            shown = (self.columns, *section.rows)
            widths = [max(len(_in_markdown(row[i])) for row in shown) for i in range(len(self.columns))]
            rule = "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths))
            lines += [f"## {section.heading}", ""] if section.heading else []
            lines += [_markdown_row(self.columns, widths), f"|{rule}|"]
            lines += [_markdown_row(row, widths) for row in section.rows]
            lines.append("")
        lines += [" ".join(self.caption), ""]
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip().replace("<", "&lt;") + "\n"

    def latex(self) -> str:
        """A float per section, none wider than the page, and a paragraph of caption and notes below them.

        Needs the packages booktabs and graphicx; works in one column and in two.
        """
        lines = ["% \\usepackage{booktabs,graphicx}"]
        for at, section in enumerate(self.sections):
            heading = f"{self.title}: {section.heading}" if section.heading else self.title
            lines += [
                "\\begin{table*}[tp]",
                "\\setlength{\\abovecaptionskip}{0pt}\\setlength{\\belowcaptionskip}{4pt}%",
                "\\centering\\footnotesize\\setlength{\\tabcolsep}{4pt}%",
                f"\\caption{{{latex_escape(heading)}.}}",
                f"\\label{{tab:{self.id}{f'-{at + 1}' if len(self.sections) > 1 else ''}}}",
                "\\sbox0{%",
                f"{self._tabular(section)}}}%",
                "\\ifdim\\wd0>\\textwidth\\resizebox{\\textwidth}{!}{\\usebox0}\\else\\usebox0\\fi",
                "\\end{table*}",
            ]
        lines += ["\\par\\medskip\\noindent{\\footnotesize " + latex_escape(" ".join(self.caption))]
        if self.notes:
            lines += ["\\begin{itemize}", *(f"\\item {latex_escape(note)}" for note in self.notes)]
            lines += ["\\end{itemize}"]
        return "\n".join([*lines, "\\par}"]) + "\n"

    def _tabular(self, section: Section) -> str:
        """The grid of a section, its headings below those that span several columns."""
        from pandas import DataFrame

        over = self._latex_spans()
        names = [name.removesuffix(" publ.") if over else name for name in self.columns]  # a span says so
        heads: dict[object, str] = dict(enumerate(map(latex_escape, names)))
        style = DataFrame(list(section.rows), columns=range(len(names))).style.hide(axis="index")
        style = style.format(lambda text: latex_escape(str(text))).format_index(heads.__getitem__, axis=1)
        columns = f"@{{}}l{'r' * (len(names) - 1)}@{{}}"
        text = str(style.to_latex(hrules=True, column_format=columns)).rstrip()
        return text.replace("\\toprule\n", f"\\toprule\n{over}", 1)

    def _latex_spans(self) -> str:
        """The headings over several columns; empty without."""
        starts = [2]
        for _, width in self.spans:
            starts.append(starts[-1] + width)
        over = [f"\\multicolumn{{{width}}}{{c}}{{{latex_escape(text)}}}" for text, width in self.spans]
        rules = [
            f"\\cmidrule(lr){{{start}-{end - 1}}}"
            for (text, _), (start, end) in zip(self.spans, pairwise(starts), strict=True)
            if text
        ]
        return " & ".join(["", *over]) + r" \\" + "".join(rules) + "\n" if over else ""


def plain_table(
    id: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    caption: Sequence[str],
    notes: Sequence[str] = (),
    brief: Sequence[str] = (),
) -> TextTable:
    """A table of one section; its CSV has the same rows and columns, with numbers as programs read them."""
    plain = [[re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.replace(MINUS, "-")) for text in row] for row in rows]
    numbers = [["" if text == DASH else text for text in row] for row in plain]
    return TextTable(
        id, title, tuple(columns), (Section("", tuple(rows)),), tuple(caption), tuple(notes),
        csv=csv_text((columns, *numbers)), brief=tuple(brief),
    )  # fmt: skip


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """The rows, headings first, as CSV with line feeds as line ends."""
    from pandas import DataFrame

    head, *body = map(list, rows)
    frame = DataFrame(body, columns=head, dtype=object)
    return str(frame.to_csv(index=False, lineterminator="\n"))


def _in_markdown(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        _in_markdown(text).ljust(w) if i == 0 else _in_markdown(text).rjust(w)
        for i, (text, w) in enumerate(zip(row, widths, strict=True))
    ]
    return "| " + " | ".join(cells) + " |"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "…": r"\dots{}",
}


def latex_escape(text: str) -> str:
    r"""Text that LaTeX prints literally, also at the start of a row.

    After ``\\`` LaTeX takes ``[`` and ``*`` for arguments; two hyphens would become a dash.
    """
    text = re.sub("-(?=-)", "\0", text)
    text = "".join(_LATEX.get(character, character) for character in text).replace("\0", "-{}")
    return re.sub(r"^[\[*]", lambda match: f"{{{match[0]}}}", text)


def signed(value: float, digits: int) -> str:
    """The value with a sign, except if it rounds to zero."""
    size = f"{abs(value):.{digits}f}"
    return size if not size.strip("0.") else f"{'+' if value > 0 else MINUS}{size}"


def in_brackets(of: Interval, form: Callable[[float], str] = "{:.1f}".format) -> str:
    """The ends of an interval behind its value: a space, and ``[low, high]``; empty without them."""
    return "" if of.low is None or of.high is None else f" [{form(of.low)}, {form(of.high)}]"


def percent(score: Interval, unit: str = " %") -> str:
    """A score of 0..100 with its interval; unit: what stands behind the number."""
    return f"{score.mean:.1f}{unit}{in_brackets(score)}"


def from_to(low: str, high: str) -> str:
    """A range as text; one value where both are the same."""
    return low if low == high else f"{low} to {high}"


def three_digits(value: float) -> str:
    """A cost with three significant digits and no exponent: 92.5, 0.0123, 1830."""
    return "0" if value == 0 else f"{Decimal(f'{value:#.3g}'):f}"
