"""The text of documents as people keep them: plain text, Markdown, HTML, PDF and DOCX.

A document's title is the name of its file. Each page of a PDF ends with a form feed, so that a span of the
text has a page; spans of other files have a line or a paragraph (:func:`place_of`). Content decides over the
name's ending, nothing in a file is run or fetched, and a file that cannot be read is a :class:`Problem` that
names it, beside the documents that could be.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import re
import time
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.data.entries import ARCHIVES, Problem
from bench.errors import DataError
from bench.packages import require
from bench.schema import Document

PLAIN_SUFFIXES = frozenset({".txt", ".text", ".md", ".markdown", ".rst", ".tex"})
HTML_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
DOCUMENT_SUFFIXES = PLAIN_SUFFIXES | HTML_SUFFIXES | {".pdf", ".docx"}
"""Suffixes of documents in a folder; a file passed by its own path may have any name."""

MAX_FILE_BYTES = 100 * 10**6
"""Largest file that is read.  # our choice"""
MAX_TEXT_CHARS = 20 * 10**6
"""Longest text of one document, some forty thick books.  # our choice"""
MAX_TAGS = 1_000_000
"""Most tags of a Word document, of which a tree is built.  # our choice"""
MAX_PARSING_S = 600.0
"""Seconds after which no more of a PDF or an HTML page is read; a book takes some ten.  # our choice"""

NO_FILE = "not a regular file; save the text to one first."
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order mark -> encoding; UTF-32's begins with UTF-16's."""
_PAGE_END = "\f"


class UnreadableFileError(DataError):
    """A file without a text that can be read; the message names the file, the reason and what to do."""

    def __init__(self, path: Path | str, reason: str) -> None:
        place = _one_line(str(path))
        super().__init__(f"{place}: {reason}")
        self.problem = Problem(place, reason)


@dataclass(frozen=True)
class DocumentFiles:
    """The documents of some files, and what is wrong with the others."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...] = ()
    """An error for each file that could not be read, a warning for what was left out."""

    def require_one(self) -> None:
        """Raise DataError, with every problem, where no document could be read."""
        if not self.documents:
            reasons = "\n".join(str(problem) for problem in self.problems)
            raise DataError(f"No document could be read.\n{reasons}".rstrip())


def read_documents(paths: Sequence[Path], besides: Collection[Path] = ()) -> DocumentFiles:
    """The documents in these files, and in and below these folders, each once, by name within a folder.

    Hidden files and links that lead out of a folder are left out, and so are ``besides``, which are no
    documents. Raises DataError for a path that does not exist.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    left_out: list[Problem] = []
    found: dict[str, tuple[Path, str]] = {}
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder.")
        for file in _below(path, besides, left_out) if path.is_dir() else [path]:
            title = os.path.relpath(file, path) if path.is_dir() else path.name
            found.setdefault(os.path.realpath(file), (file, title))
    titles = Counter(title for _, title in found.values())
    for file, title in found.values():
        try:
            document, notes = read_document(file, title if titles[title] == 1 else str(file))
        except UnreadableFileError as error:
            problems.append(error.problem)
            continue
        documents.append(document)
        problems.extend(Problem(_one_line(str(file)), note, "warning") for note in notes)
    return DocumentFiles(tuple(documents), (*problems, *left_out))


def has_documents(folder: Path) -> bool:
    """Whether there is a document in the folder or below it, by the names of files alone."""
    return any(path.suffix.lower() in DOCUMENT_SUFFIXES for path in _files_below(folder, []))


def read_document(path: Path, title: str | None = None) -> tuple[Document, Sequence[str]]:
    """The document in a file, and what of it is missing; title: by default the file's name.

    Raises UnreadableFileError, and DataError where a package that reads the format is not installed.
    """
    if not path.is_file():
        reason = "a link to nothing." if path.is_symlink() and not path.exists() else NO_FILE
        raise UnreadableFileError(path, reason)
    try:
        status = path.stat()
        if status.st_size > MAX_FILE_BYTES:
            raise UnreadableFileError(
                path,
                f"{status.st_size / 1e6:,.0f} MB; at most {MAX_FILE_BYTES // 10**6} MB are read. Split it.",
            )
        return _read(path, path.name if title is None else title, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror or error}.") from None


@lru_cache(maxsize=256)
def _read(path: Path, title: str, changed_ns: int, size: int) -> tuple[Document, Sequence[str]]:
    """The document in a file, cached: one command asks for it several times, and PDFs take a while."""
    return document_of(path.read_bytes(), str(path), title)


def document_of(content: bytes, path: str, title: str) -> tuple[Document, Sequence[str]]:
    """The document in the bytes of a file, and what of it is missing; path: as messages name it.

    Raises like :func:`read_document`.
    """
    suffix = Path(path).suffix.lower()
    notes: list[str] = []
    if not content:
        raise UnreadableFileError(path, "the file is empty.")
    if b"%PDF-" in content[:1024]:
        text = _pdf_text(content, path, notes)
    elif content.startswith(b"PK\x03\x04") and suffix == ".docx":
        text = _docx_text(content, path)
    elif content.startswith(ARCHIVES):
        raise UnreadableFileError(path, "an archive or compressed file; unpack it and name what is inside.")
    elif suffix in (".pdf", ".docx"):
        raise UnreadableFileError(path, f"not a {suffix[1:].upper()} file, whatever its name says.")
    elif suffix in HTML_SUFFIXES or re.match(rb"\s*<(!doctype html|html)\b", content[:256], re.IGNORECASE):
        text = _html_text(content, path)
    else:
        text = _plain_text(content, path)
    if not text.strip():
        raise UnreadableFileError(path, "there is no text in it.")
    if len(text) > MAX_TEXT_CHARS:
        raise UnreadableFileError(path, f"{len(text):,} characters; at most {MAX_TEXT_CHARS:,}. Split it.")
    sound = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")  # no half characters either
    return Document(_one_line(title), sound), tuple(notes)


def place_of(document: Document, start: int, end: int) -> str:
    """Where a span of ``document.full_text`` stands: ``paper.pdf, page 3``, ``notes.md, lines 10-14``.

    Without a title the place alone; pages count as in the file, from 1, not as printed.
    """
    full = document.full_text
    first = len(full) - len(document.text)
    end = max(end, first + 1)
    start = min(max(start, first), end - 1)
    while start < end - 1 and full[start].isspace():
        start += 1
    end = start + max(1, len(full[start:end].rstrip()))
    if _PAGE_END in document.text:
        unit, mark = "page", _PAGE_END
    elif Path(document.title).suffix.lower() in HTML_SUFFIXES | {".docx"}:
        unit, mark = "paragraph", "\n"
    else:
        unit, mark = "line", "\n"
    low = 1 + full.count(mark, first, start)
    high = low + full.count(mark, start, end - 1)
    where = f"{unit} {low}" if low == high else f"{unit}s {low}-{high}"
    return f"{document.title}, {where}" if document.title else where


def _below(folder: Path, besides: Collection[Path], problems: list[Problem]) -> Iterator[Path]:
    """The documents in and below a folder; other files are noted once, in ``problems``."""
    root = folder.resolve()
    others: Counter[str] = Counter()
    files = [file for file in _files_below(folder, problems) if file not in besides]
    if not files:
        problems.append(Problem(_one_line(str(folder)), "there is no file in this folder."))
    for file in files:
        if file.suffix.lower() not in DOCUMENT_SUFFIXES:
            others[file.suffix.lower() or "no ending"] += 1
        elif not Path(os.path.realpath(file)).is_relative_to(root):
            problems.append(Problem(_one_line(str(file)), "a link that leads out of the folder."))
        else:
            yield file
    if others:
        listed = ", ".join(f"{count} {suffix}" for suffix, count in sorted(others.items()))
        known = " ".join(sorted(DOCUMENT_SUFFIXES))
        message = f"left out by their ending: {listed}; read are {known}"
        problems.append(Problem(_one_line(str(folder)), message, "warning"))


def _files_below(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Files in and below a folder, by name; hidden ones and linked folders are passed over."""

    def unread(error: OSError) -> None:
        problems.append(Problem(_one_line(str(error.filename)), f"cannot be read: {error.strerror}."))

    for inside, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith((".", "~$")):
                yield Path(inside) / name


def _plain_text(content: bytes, path: str) -> str:
    """The text of a file in UTF-8, or in UTF-16 or UTF-32 with a byte order mark."""
    encoding = next((name for mark, name in _ENCODINGS.items() if content.startswith(mark)), "utf-8-sig")
    if encoding == "utf-8-sig" and b"\0" in content:
        raise UnreadableFileError(path, "not text (it holds zero bytes).")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableFileError(
            path,
            f"not {encoding.removesuffix('-sig').upper()}: byte 0x{content[error.start]:02x} in line "
            f"{line}. Save it as UTF-8; from Windows, for example: iconv -f WINDOWS-1252 -t UTF-8.",
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _pdf_text(content: bytes, path: str, notes: list[str]) -> str:
    """The text of a PDF, a form feed after each page."""
    require(path, "pypdf")
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of every oddity of every object
    with _parsing(path, "a PDF"):
        try:
            reader = pypdf.PdfReader(io.BytesIO(content))
            if reader.is_encrypted and not reader.decrypt(""):
                raise UnreadableFileError(path, "encrypted; save a copy without a password.")
            pages: list[str] = []
            begun = time.monotonic()
            for page in reader.pages:
                pages.append(page.extract_text())
                if time.monotonic() - begun > MAX_PARSING_S:
                    raise UnreadableFileError(
                        path, f"its {len(reader.pages)} pages take more than {MAX_PARSING_S:g} s. Split it."
                    )
        except (pypdf.errors.DependencyError, ImportError):  # it decrypts AES with another package
            raise UnreadableFileError(path, "encrypted; save a copy without encryption.") from None
    empty = [number for number, text in enumerate(pages, start=1) if not text.strip()]
    if len(empty) == len(pages):
        raise UnreadableFileError(
            path,
            f"no text on its {len(pages)} page(s), so it is probably a scan; recognise its text first, "
            "for example with: ocrmypdf IN.pdf OUT.pdf",
        )
    if empty:
        listed = ", ".join(map(str, empty[:10])) + (", ..." if len(empty) > 10 else "")
        which = f"page{'' if len(empty) == 1 else 's'} {listed}"
        notes.append(f"no text on {len(empty)} of {len(pages)} pages ({which})")
    return "".join(_unhyphenated(text.replace(_PAGE_END, "\n").rstrip()) + _PAGE_END for text in pages)


def _unhyphenated(text: str) -> str:
    """The text with words joined that a line end divides."""
    return re.sub(r"(?<=[a-z])-\n(?=[a-z])", "", text)


def _docx_text(content: bytes, path: str) -> str:
    """The text of a Word document, a paragraph or table row a line."""
    require(path, "docx")
    import docx

    with _parsing(path, "a Word document"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
            if unpacked > MAX_FILE_BYTES:
                size = f"{unpacked / 1e6:,.0f} MB; at most {MAX_FILE_BYTES // 10**6} MB are read."
                raise UnreadableFileError(path, f"unpacks to {size}")
            marked_up = filter(_XML.match, map(archive.read, archive.infolist()))
            # Five attributes weigh as much in the tree as a tag.
            tags = sum(part.count(b"<") + (part.count(b"=") + part.count(b"&")) // 5 for part in marked_up)
            if tags > MAX_TAGS:
                raise UnreadableFileError(path, f"{tags:,} tags; at most {MAX_TAGS:,} are read. Split it.")
        text = "".join(_docx_pieces(docx.Document(io.BytesIO(content)).element.body)).removesuffix("\n")
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


_DOCX_UNREAD = frozenset("del moveFrom Fallback pPr rPr sdtPr".split())
"""Elements of a Word document without text: deleted, moved away, properties, a second form of the same."""


def _docx_pieces(element: Any) -> Iterator[str]:
    """The text below an element in pieces, with insertions, content controls and text boxes."""
    for part in element.iterchildren("{*}*"):
        name = part.tag.rpartition("}")[2]
        if name == "t":
            yield part.text or ""
        elif name in ("tab", "br", "cr"):
            yield " "
        elif name == "tr":
            cells = [cell for cell in part.iter("{*}tc") if next(cell.iterancestors("{*}tr")) is part]
            yield " | ".join(" ".join("".join(_docx_pieces(cell)).split()) for cell in cells) + "\n"
        elif name not in _DOCX_UNREAD:
            yield from _docx_pieces(part)
            yield "\n" if name == "p" else ""


_HTML_LINES = frozenset(
    "address article aside blockquote br caption dd div dl dt figcaption footer h1 h2 h3 h4 h5 h6 header hr "
    "li main nav ol p pre section table tr ul title".split()
)
"""Elements that begin and end a line."""
_HTML_APART = frozenset(("td", "th", "option"))
_HTML_UNSEEN = "script style noscript template svg iframe noembed noframes".split()
_HTML_PIECE = 2**16
"""Characters that are parsed at once; an end tag without a start takes as long as elements are open."""


def _html_text(content: bytes, path: str) -> str:
    """The visible text of an HTML page, a paragraph a line; scripts and styles are left out."""
    require(path, "bs4", "lxml")
    from bs4.dammit import EncodingDetector, UnicodeDammit
    from lxml.etree import HTMLParser

    with _parsing(path, "HTML"):
        declared = EncodingDetector.find_declared_encoding(content, is_html=True)
        page = UnicodeDammit(content, [declared or "utf-8"], is_html=True).unicode_markup or ""
        page = page.replace("\0", "")
        parser = HTMLParser(target=_Visible(), huge_tree=True, encoding="utf-8")
        begun = time.monotonic()
        for at in range(0, len(page), _HTML_PIECE):
            parser.feed(page[at : at + _HTML_PIECE].encode("utf-8", "replace"))
            if time.monotonic() - begun > MAX_PARSING_S:
                raise UnreadableFileError(path, f"takes more than {MAX_PARSING_S:g} s. Split it.")
        text = parser.close()
    return "\n".join(filter(None, (line.strip() for line in text.split("\n"))))


class _Visible:
    """What a parser tells of the visible text of an HTML page; no tree is built, which may be deep."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._open: Counter[str] = Counter()

    def start(self, tag: str, attributes: Any) -> None:
        self._open[tag] += 1
        self._put("\n" if tag in _HTML_LINES else "")

    def data(self, text: str) -> None:
        if not self._open["pre"]:  # the text around an entity comes in pieces
            text = re.sub(r"\s+", " ", text)
            if not self._pieces or self._pieces[-1][-1].isspace():
                text = text.removeprefix(" ")
        self._put(text)

    def end(self, tag: str) -> None:
        self._put("\n" if tag in _HTML_LINES else " " if tag in _HTML_APART else "")
        self._open[tag] -= 1

    def _put(self, text: str) -> None:
        if text and not any(self._open[tag] for tag in _HTML_UNSEEN):
            self._pieces.append(text)

    def close(self) -> str:
        return "".join(self._pieces)


_XML = re.compile(rb"(\xef\xbb\xbf)?\s*<|\0|\xff\xfe|\xfe\xff")
"""How a part of a Word document begins that is XML, in any encoding, rather than a picture."""


@contextmanager
def _parsing(path: str, what: str) -> Iterator[None]:
    """Turn anything that a parser raises of a damaged file into UnreadableFileError."""
    try:
        yield
    except UnreadableFileError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        reason = f"{type(error).__name__}{': ' + text[:120] if text else ''}"
        raise UnreadableFileError(
            path,
            f"damaged, or not {what} that can be read ({reason}). Open it in a viewer and save it again.",
        ) from None


def _one_line(name: str) -> str:
    """A file's name as a title: what cannot be printed, line ends too, is replaced."""
    return "".join(character if character.isprintable() else "\ufffd" for character in name)
