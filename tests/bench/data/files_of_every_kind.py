"""Small files of the kinds that documents come in, made here so that no binary lies in the repository."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any


def pdf(pages: Sequence[str]) -> bytes:
    """A PDF with a line of text on each page; an empty page has no text, as a scan."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for page in pages:
        lines = page.split("\n")
        drawn = " ".join(f"({line}) Tj 0 -14 Td" for line in lines)
        stream = f"BT /F1 12 Tf 72 700 Td {drawn} ET".encode() if page else b""
        objects.append(b"<< /Length %d >> stream\n%s\nendstream" % (len(stream), stream))
        kids.append(len(objects) + 1)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (
        len(kids),
        b" ".join(b"%d 0 R" % kid for kid in kids),
    )
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (
        body
        + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
        + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(body))
    )


def encrypted_pdf(password: str) -> bytes:
    """A PDF that only opens with a password."""
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(["Secret."])))
    writer.encrypt(password, algorithm="RC4-128")
    stream = io.BytesIO()
    writer.write(stream)
    return stream.getvalue()


def docx(*paragraphs: str, row: Sequence[str] = (), first: str = "") -> bytes:
    """A Word document with these paragraphs, and after them a table of one row; first: XML before them."""
    import docx as word
    from docx.oxml import ns, parse_xml

    document = word.Document()
    for at, part in enumerate(list(parse_xml(f"<w:body {ns.nsdecls('w')}>{first}</w:body>"))):
        document.element.body.insert(at, part)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    if row:
        table = document.add_table(rows=1, cols=len(row))
        for cell, text in zip(table.rows[0].cells, row, strict=True):
            cell.text = text
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """A parquet file of these rows."""
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), stream)
    return stream.getvalue()
