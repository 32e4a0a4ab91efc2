"""The texts of recorded passages: records store character spans, the data have the text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.data import load as load_data
from bench.data.own import card_for
from bench.errors import BenchError
from bench.results.records import ContextRecord
from bench.schema import Document


class SourceTexts:
    """The documents of one data set by content hash, loaded for the first passage that needs its text."""

    def __init__(self, dataset: str, source: str, own_files: Sequence[Path] = ()) -> None:
        """source: ``sample``, ``hub`` or ``path``; own_files: the user's files, for source ``path``."""
        self.dataset = dataset
        self.places = [str(path) for path in own_files] if source == "path" else [source]
        self.missing = 0
        """Number of passages whose document is missing."""
        self.reason = "" if self.places else "name your file with --documents"
        """Why documents are missing, if known."""
        self._loaded: dict[str, Document] | None = None

    def text(self, item: ContextRecord, ids: Sequence[str]) -> str | None:
        """The passage's text as the reader received it; None if the document is unavailable.

        ids: the content hashes of the record's documents.
        """
        if item.text is not None:
            return item.text
        if item.document is None or item.start is None or item.document >= len(ids):
            return None
        if self._loaded is None:
            self._loaded = self._load()
        document = self._loaded.get(ids[item.document])
        if document is None:
            self.missing += 1
            return None
        return document.full_text[item.start : item.end]

    def _load(self) -> dict[str, Document]:
        documents: dict[str, Document] = {}
        for place in self.places:
            try:
                data = load_data(card_for(self.dataset, place), place)
            except BenchError as error:
                self.reason = str(error)
                continue
            documents |= {d.id: d for example in data.examples for d in example.documents.documents}
        return documents
