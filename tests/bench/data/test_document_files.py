from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from bench.data import document_files
from bench.data.document_files import UnreadableFileError, place_of, read_document, read_documents
from bench.packages import MissingPackageError
from bench.schema import Document
from tests.bench.data.files_of_every_kind import docx, encrypted_pdf, pdf

HTML = b"""<!DOCTYPE html><html><head><title>Pumps</title><style>p {color: red}</style>
<script>document.write("run")</script></head><body><!-- unseen --><h1>Heat
 pumps</h1><p>They <b>move</b> heat.</p><ul><li>air</li><li>ground</li></ul>
<table><tr><td>Oslo</td><td>3</td></tr></table><pre>a
b</pre></body></html>"""

MARKED = """<w:p><w:r><w:t>Signed by </w:t></w:r><w:ins w:id="1"><w:r><w:t>Alice</w:t></w:r></w:ins>
<w:del w:id="2"><w:r><w:delText>nobody</w:delText></w:r></w:del></w:p>
<w:sdt><w:sdtContent><w:p><w:r><w:t>Oslo</w:t></w:r></w:p></w:sdtContent></w:sdt>
<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="3"/></w:tcPr>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>500 euros</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:p/></w:tc>
<w:tc><w:p><w:r><w:t>due</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"""
"""Of a Word document: an insertion, a deletion, a content control, a table in a cell over three columns."""


def text(tmp_path: Path, name: str, content: bytes) -> str:
    (tmp_path / name).write_bytes(content)
    return read_document(tmp_path / name)[0].text


def refusal(tmp_path: Path, name: str, content: bytes) -> str:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableFileError) as error:
        read_document(tmp_path / name)
    place, _, reason = str(error.value).partition(": ")
    assert place == str(tmp_path / name)
    return reason


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "Grüße\r\nzwei\rdrei".encode(), "Grüße\nzwei\ndrei"),
        ("a.txt", b"\xef\xbb\xbfmarked", "marked"),
        ("a.md", "utf-16 ä".encode("utf-16"), "utf-16 ä"),
        ("notes", b"<html><p>no ending</p></html>", "no ending"),
        ("a.html", HTML, "Pumps\nHeat pumps\nThey move heat.\nair\nground\nOslo 3\na\nb"),
        ("a.pdf", pdf(["Page one.", "Page two."]), "Page one.\fPage two.\f"),
        ("misnamed.txt", pdf(["A PDF."]), "A PDF.\f"),
        ("a.pdf", pdf(["the reac-\ntor"]), "the reactor\f"),
        ("a.docx", docx("First.", "Second.", row=["Oslo", "3"]), "First.\nSecond.\nOslo | 3"),
        ("a.docx", docx("Last.", first=MARKED), "Signed by Alice\nOslo\n500 euros | due\nLast."),
        ("a.html", b"<table><tr><td>Revenue<td>100<tr><th>Loss<td>3</table>", "Revenue 100\nLoss 3"),
        ("a.html", b"A &amp; &nbsp; B<svg><title>i</title></svg> C", "A & B C"),
        ("a.html", "<title>Zürich</title><meta charset=utf-8>café".encode(), "Zürich\ncafé"),
        ("a.html", "<meta charset=gb2312><p>中<p>朱镕基<iframe><b>no</iframe>".encode("gbk"), "中\n朱镕基"),
        ("a.html", "<p>from now on 22 °C".encode(), "from now on 22 °C"),
        ("a.html", b"<script src=a.js/>var x</script><script src='b'/><p>seen<option>x<option>y", "seenx y"),
    ],
)
def test_texts(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    assert text(tmp_path, name, content) == expected


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.pdf", pdf(["", ""]), "no text on its 2 page(s), so it is probably a scan"),
        ("a.pdf", b"%PDF-1.4 and then nothing", "damaged, or not a PDF that can be read"),
        ("a.pdf", pdf(["One."])[:200], "damaged, or not a PDF that can be read"),
        ("a.pdf", b"plain text", "not a PDF file, whatever its name says"),
        ("a.docx", b"PK\x03\x04 broken", "damaged, or not a Word document"),
        ("a.docx", b"old Word", "not a DOCX file"),
        ("a.txt", b"PK\x03\x04", "an archive or compressed file"),
        ("a.txt", b"\x1f\x8b\x08", "an archive or compressed file"),
        ("a.txt", b"ELF\0\0\0", "not text (it holds zero bytes)"),
        ("a.txt", b"first\ncaf\xe9", "not UTF-8: byte 0xe9 in line 2. Save it as UTF-8"),
        ("a.txt", b" \n", "there is no text in it"),
        ("a.html", b"<script>x</script>", "there is no text in it"),
    ],
)
def test_files_without_a_readable_text(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    assert says in refusal(tmp_path, name, content)


def test_an_encrypted_pdf(tmp_path: Path) -> None:
    assert "encrypted; save a copy without a password" in refusal(tmp_path, "a.pdf", encrypted_pdf("secret"))
    assert text(tmp_path, "b.pdf", encrypted_pdf("")) == "Secret.\f"  # opens without a password in any viewer


def test_a_page_without_text_is_mentioned(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(["One.", "", "Three."]))
    document, notes = read_document(tmp_path / "a.pdf")
    assert document.text == "One.\f\fThree.\f"
    assert notes == ("no text on 1 of 3 pages (page 2)",)


def test_large_files_are_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(200 * 10**6)
    with pytest.raises(UnreadableFileError, match="200 MB; at most 100 MB are read"):
        read_document(tmp_path / "a.txt")
    monkeypatch.setattr(document_files, "MAX_TEXT_CHARS", 10)
    assert "12 characters; at most 10. Split it" in refusal(tmp_path, "b.txt", b"123456789012")


def test_a_word_document_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"0" * 3_000_000)
    monkeypatch.setattr(document_files, "MAX_FILE_BYTES", 10**6)
    with pytest.raises(UnreadableFileError, match="unpacks to 3 MB"):
        read_document(tmp_path / "a.docx")


TWO, KIDS = pdf(["One.", "Two."]), b"/Count 2 /Kids [5 0 R 7 0 R]"
DRAWN = b"BT /F1 12 Tf 72 700 Td (One.) Tj 0 -14 Td ET"
SWOLLEN = zlib.compress(b"0 " * 40_000_000, 1)
RUNNING = b"/Type /Catalog /OpenAction << /S /JavaScript /JS (app.alert) >>"
LONG = b"/Filter /FlateDecode /Length %d >> stream\n%s" % (len(SWOLLEN), SWOLLEN)
PDFS = {
    "pages that hold themselves": (TWO.replace(KIDS, b"/Count 2 /Kids [2 0 R 2 0 R]"), ""),
    "ten million pages declared": (TWO.replace(KIDS, b"/Count 9999999 /Kids [5 0 R]"), "One.\f"),
    "a page 100,001 times": (TWO.replace(KIDS, b"/Kids [%s]" % (b"5 0 R " * 100_001)), ""),
    "80 MB on a page": (TWO.replace(b"/Length %d >> stream\n%s" % (len(DRAWN), DRAWN), LONG), ""),
    "JavaScript": (TWO.replace(b"/Type /Catalog", RUNNING), "One.\fTwo.\f"),
}


@pytest.mark.parametrize("name", PDFS)
def test_pdfs_that_loop_lie_or_swell(tmp_path: Path, name: str) -> None:
    content, expected = PDFS[name]
    if expected:
        assert text(tmp_path, "a.pdf", content) == expected
    else:
        assert "damaged, or not a PDF that can be read" in refusal(tmp_path, "a.pdf", content)


def test_a_pdf_that_takes_too_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_files, "MAX_PARSING_S", -1.0)
    assert "its 2 pages take more than" in refusal(tmp_path, "a.pdf", TWO)


def docx_with(body: bytes, head: bytes = b"") -> bytes:
    """A Word document that has this XML in place of its paragraph."""
    packed = io.BytesIO()
    old = zipfile.ZipFile(io.BytesIO(docx("MARK")))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            part = re.sub(rb"<w:p>.*MARK.*</w:p>", lambda _: body, old.read(name), flags=re.DOTALL)
            new.writestr(name, part.replace(b"?>", b"?>" + head, 1) if part != old.read(name) else part)
    return packed.getvalue()


def test_a_word_document_cannot_name_other_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("top secret")
    entity = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]>'.encode()
    body = b"<w:p><w:r><w:t>MARK</w:t></w:r><w:r><w:t>&x;</w:t></w:r></w:p>"
    assert text(tmp_path, "a.docx", docx_with(body, entity)) == "MARK"


LAUGHS = b"<!DOCTYPE d [<!ENTITY a 'ha'>%s]>" % b"".join(
    b"<!ENTITY %c '%s'>" % (letter, b"&%c;" % (letter - 1) * 10) for letter in b"bcdefghi"
)


def test_word_documents_and_books_that_swell(tmp_path: Path) -> None:
    empty = docx_with(b"<w:p/>" * 1_100_000)
    assert len(empty) < 100_000 and "tags; at most 1,000,000 are read" in refusal(tmp_path, "a.docx", empty)
    laughing = docx_with(b"<w:p><w:r><w:t>&i;</w:t></w:r></w:p>", LAUGHS)
    assert "damaged, or not a Word document" in refusal(tmp_path, "b.docx", laughing)
    assert "unpack it" in refusal(tmp_path, "a.epub", docx("One."))


ENDLESS = ("<a", "<a b='", "<!--", "</a", "<![CDATA[", "<?", "<script>", "<p " + "a=1 " * 20)


def test_html_is_read_once_however_deep_and_unended_it_is(tmp_path: Path) -> None:
    assert text(tmp_path, "a.html", b"<div>" * 100_000 + b"deep<p/>x &amp; y") == "deep\nx & y"
    for start in ENDLESS:
        assert text(tmp_path, "b.html", b"<p>x" + start.encode() * 100_000) == "x"


def test_links_in_a_circle_and_names_that_command(tmp_path: Path) -> None:
    (tmp_path / "me.txt").symlink_to(tmp_path / "me.txt")
    (tmp_path / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a\n\x1b[2J.txt").write_text("mine")
    (tmp_path / "\x1b[31mred.pdf").write_bytes(b"%PDF-")
    files = read_documents([tmp_path])
    assert files.documents == (Document("a\ufffd\ufffd[2J.txt", "mine"),)
    unreadable, link = sorted(map(str, files.problems), key=lambda problem: "a link to nothing." in problem)
    assert "\x1b" not in unreadable and "\ufffd[31mred.pdf: damaged" in unreadable and "me.txt" in link


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdf", None)
    (tmp_path / "a.pdf").write_bytes(pdf(["One."]))
    with pytest.raises(MissingPackageError, match=r"a.pdf needs pypdf; .* Run: pip install .*\[documents\]'"):
        read_document(tmp_path / "a.pdf")


def test_a_folder_is_read_with_what_is_below_it(tmp_path: Path) -> None:
    for name in ("b.txt", "a/b.txt", ".hidden.txt", ".git/c.txt", "photo.png"):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(f"text of {name}")
    (tmp_path / "docs/bad.txt").write_bytes(b"\xff")
    loaded = read_documents([tmp_path / "docs"])
    assert [d.title for d in loaded.documents] == ["b.txt", "a/b.txt"]
    problems = [str(problem).removeprefix(f"{tmp_path}/") for problem in loaded.problems]
    assert problems[0].startswith("docs/bad.txt: not UTF-8")
    assert problems[1].startswith("docs: left out by their ending: 1 .png; read are .docx .htm")


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(folder: Path, onerror: Any) -> Any:
        onerror(PermissionError(13, "Permission denied", f"{folder}/locked"))
        return [(str(folder), [], ["b.txt"])]

    (tmp_path / "b.txt").write_text("text")
    monkeypatch.setattr(os, "walk", walk)
    (problem,) = read_documents([tmp_path]).problems
    assert str(problem).endswith("locked: cannot be read: Permission denied.")


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/more.txt").write_text("secret too")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("mine")
    (folder / "inside.txt").symlink_to(folder / "a.txt")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "broken.txt").symlink_to(folder / "nothing.txt")
    loaded = read_documents([folder])
    assert {d.text for d in loaded.documents} == {"mine"}
    broken, outside = (problem.message for problem in loaded.problems)
    assert broken == "a link to nothing." and outside == "a link that leads out of the folder."


def test_two_files_of_one_name_keep_their_folders(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "report.txt" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(f"of {path.parent.name}")
    assert [d.title for d in read_documents(paths).documents] == [str(path) for path in paths]
    assert [d.title for d in read_documents(paths[:1]).documents] == ["report.txt"]
    folders = [path.parent for path in paths]
    assert [d.title for d in read_documents([*folders, paths[0]]).documents] == [str(path) for path in paths]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(UnreadableFileError, match="not a regular file"):
        read_document(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("document", "span", "expected"),
    [
        (Document("a.pdf", "One.\fTwo.\fThree.\f"), "Two.", "a.pdf, page 2"),
        (Document("a.pdf", "One.\fTwo.\fThree.\f"), "Two.\fThree.\f", "a.pdf, pages 2-3"),
        (Document("a.pdf", "One.\fTwo.\fThree.\f"), "a.pdf\nOne.\f", "a.pdf, page 1"),
        (Document("a.md", "# One\n\ntwo\nthree"), "two\nthree", "a.md, lines 3-4"),
        (Document("a.md", "# One\n\ntwo\nthree"), "\n\ntwo\n", "a.md, line 3"),
        (Document("a.docx", "One\ntwo"), "two", "a.docx, paragraph 2"),
        (Document("", "one\ntwo"), "two", "line 2"),
    ],
)
def test_the_place_of_a_span(document: Document, span: str, expected: str) -> None:
    start = document.full_text.index(span)
    assert place_of(document, start, start + len(span)) == expected
