from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.tables.formats import Section, TextTable, latex_escape, plain_table

EVIL = '<script>alert("1")</script> & co_ | 100% {x} ~ ^ # $5 \\ --model – × −'


def table(*sections: Section, spans: tuple[tuple[str, int], ...] = ()) -> TextTable:
    columns = ("Method", "F1", "F1 publ.")
    return TextTable("t", EVIL, columns, sections, ("One.", EVIL), ("[note]", EVIL), spans)


TWO = (Section("first", (("a", "1", "2"),)), Section(EVIL, ((EVIL, "3", "4"), ("[b] * c", "5", "6"))))


def test_latex_text_is_printed_as_it_is() -> None:
    assert latex_escape("--row") == "-{}-row" and latex_escape("a---b") == "a-{}-{}-b"
    assert latex_escape("[a] *") == "{[}a] *"
    assert latex_escape("<x>|") == r"\textless{}x\textgreater{}\textbar{}"
    assert latex_escape("−19.1 · 2") == r"$-$19.1 $\cdot$ 2"


def test_spanning_headings_stand_over_their_columns() -> None:
    text = table(*TWO, spans=(("measured", 1), ("published", 1))).latex()
    assert r" & \multicolumn{1}{c}{measured} & \multicolumn{1}{c}{published} \\" in text
    assert r"\cmidrule(lr){2-2}\cmidrule(lr){3-3}" in text
    assert r"Method & F1 & F1 \\" in text  # what the heading above says is not said again


def test_a_table_of_one_part_has_no_section_heading() -> None:
    rendered = plain_table("p", "P", ("A", "B"), (("x|y", "−1,234"),), ("Said.",), ("noted",))
    assert (
        rendered.markdown()
        == "# P\n\n| A    |      B |\n|------|-------:|\n| x\\|y | −1,234 |\n\nSaid.\n\n- noted\n"
    )
    assert rendered.csv == "A,B\nx|y,-1234\n"  # a number to other programs
    assert "\\label{tab:p}" in rendered.latex() and list(rendered.files()) == ["md", "tex", "csv"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("options", ["", "twocolumn"])
def test_latex_compiles_and_fits_the_page(options: str, tmp_path: Path) -> None:
    wide = TextTable(
        "wide", "Wide", ("Method", *(f"column {i}" for i in range(14))),
        (Section("s", tuple((f"row {i}", *["12.3 [10.1, 14.5]"] * 14) for i in range(13))),), ("C.",), (),
    )  # fmt: skip
    (tmp_path / "doc.tex").write_text(
        f"\\documentclass[{options}]{{article}}\\usepackage{{booktabs,graphicx}}\\begin{{document}}\n"
        + table(*TWO, spans=(("measured", 1), ("published", 1))).latex()
        + wide.latex()
        + "\\end{document}\n",
        "utf-8",
    )
    ran = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "doc.tex"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:]
    tables = [line for line in ran.stdout.splitlines() if "Overfull" in line and "alignment" in line]
    assert not tables and "Float too large" not in ran.stdout
