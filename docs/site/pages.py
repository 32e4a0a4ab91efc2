"""The site's pages are the repository's own Markdown files, at their places, so that links hold in both."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/**/*.md", "*/README.md", "performance/RESULTS.md", "bench/assets/*/README.md")
LINKED = (
    "docs/images/*",
    "docs/add_a_method/*.py",
    "docs/add_a_method/pyproject.toml",
    "docs/*/*.csv",
    "docs/*.ipynb",
    "CITATION.cff",
    "Dockerfile",
)
SKIPPED = ("results", ".venv", "build", "dist")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every page, and the files that pages link to."""
    for pattern in (*PAGES, *LINKED):
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT)
            if place.parts[0] not in SKIPPED and files.get_file_from_path(str(place)) is None:
                files.append(File.generated(config, str(place), abs_src_path=str(path)))
    return files
