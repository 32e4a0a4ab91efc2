"""Tables of plain text, for those that do not show one cell per line, as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from bench.rendering import Rendered, latex_escape


@dataclass(frozen=True)
class PlainTable:
    """Text cells in rows under columns, with sentences below; the first column is aligned left."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: tuple[str, ...]

    def render(self) -> Rendered:
        """The table in all formats."""
        return Rendered(self._markdown(), self._latex(), self._csv())

    def _markdown(self) -> str:
        widths = [max(len(row[i]) for row in (self.columns, *self.rows)) for i in range(len(self.columns))]
        rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
        lines = [f"# {self.title}", "", _line(self.columns, widths), rule]
        lines += [_line(row, widths) for row in self.rows]
        return "\n".join([*lines, "", " ".join(self.caption)]) + "\n"

    def _latex(self) -> str:
        rows = [" & ".join(latex_escape(x) for x in row) + r" \\" for row in self.rows]
        return (
            "\n".join(
                [
                    "% \\usepackage{booktabs}",
                    "\\begin{table*}[t]",
                    "\\centering\\small",
                    f"\\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                    "\\toprule",
                    " & ".join(latex_escape(c) for c in self.columns) + r" \\",
                    "\\midrule",
                    *rows,
                    "\\bottomrule",
                    "\\end{tabular}",
                    f"\\caption{{{latex_escape(' '.join(self.caption))}}}",
                    f"\\label{{tab:{self.id}}}",
                    "\\end{table*}",
                ]
            )
            + "\n"
        )

    def _csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        text.replace("|", "\\|").ljust(w) if i == 0 else text.rjust(w)
        for i, (text, w) in enumerate(zip(row, widths, strict=True))
    ]
    return "| " + " | ".join(cells) + " |"
