"""A drawn figure as an element of a page whose policy allows no inline style."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_LOCAL = re.compile(r"url\(#([^)]+)\)")
_SIZES = ("width", "height", "version")
_SCALE = 1.65
"""Pixels per unit of the file: its letters are then as large as the page's.  # our choice"""


def inline_svg(content: bytes, prefix: str, label: str) -> str:
    """An SVG file of ours as an ``<svg>`` element without style, metadata or comments.

    Styles become attributes, which need no permission in a content security policy. prefix: told before
    every id, so that several pictures stand on one page; label: what a screen reader says.
    Raises ValueError for a file without a viewBox.
    """
    root = ElementTree.fromstring(content)
    try:
        _, _, width, _ = map(float, root.attrib["viewBox"].split())
    except (KeyError, ValueError):
        raise ValueError("the SVG has no viewBox of four numbers; expected a file of matplotlib") from None
    _prune(root)
    elements = list(root.iter())
    used = {name for element in elements for name in _references(element)}
    for element in elements:
        _rewrite(element, prefix, used)
    for name in _SIZES:
        root.attrib.pop(name, None)
    root.attrib |= {
        "width": f"{_SCALE * width:.0f}",
        "role": "img",
        "aria-label": label,
        "stroke-linejoin": "round",
    }
    return ElementTree.tostring(root, encoding="unicode")


def _prune(parent: ElementTree.Element) -> None:
    """Remove style sheets and metadata, whose elements have no place in a page."""
    for child in list(parent):
        if _plain(child.tag) in ("style", "metadata"):
            parent.remove(child)
        else:
            _prune(child)


def _plain(name: str) -> str:
    """A tag or attribute without its namespace."""
    return name.rpartition("}")[2]


def _references(element: ElementTree.Element) -> list[str]:
    """The ids that an element points at."""
    found = [value[1:] for key, value in element.attrib.items() if _plain(key) == "href"]
    return found + [name for value in element.attrib.values() for name in _LOCAL.findall(value)]


def _rewrite(element: ElementTree.Element, prefix: str, used: set[str]) -> None:
    """Plain names, styles as attributes, and only such ids as something points at, with the prefix."""
    attributes = {_plain(key): value for key, value in element.attrib.items()}
    for declaration in attributes.pop("style", "").split(";"):
        key, colon, value = declaration.partition(":")
        if colon:
            attributes[key.strip()] = value.strip()
    if attributes.get("id") not in used:
        attributes.pop("id", None)
    for key, value in attributes.items():
        if key == "id":
            attributes[key] = f"{prefix}-{value}"
        elif key == "href":
            attributes[key] = f"#{prefix}-{value.removeprefix('#')}"
        else:
            attributes[key] = _LOCAL.sub(rf"url(#{prefix}-\1)", value)
    element.tag = _plain(element.tag)
    element.attrib.clear()
    element.attrib.update(attributes)
    if element.text is not None and not element.text.strip():
        element.text = None
    element.tail = "\n" if element.tail is not None else None
