"""Pieces of a JSON document that is rewritten whole (capture/sources/document.py cuts it), each read by itself. Never raises.

Of a new version we only get the new pieces: its frames (everything that is no element of an array), and between them the elements
that changed. So the frame before an element says to which array it belongs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_OPENS = re.compile(r'"((?:[^"\\]|\\.){0,200})"\s*:\s*([\[{])$')
_TAIL = 300


class DocumentPiece(NamedTuple):
    """`members` of the top level; `opens`: the array (or object) whose elements come next, "" at the document's end."""

    members: Mapping[str, Any]
    opens: str
    first: bool


class Element(NamedTuple):
    value: object


def piece(text: str, inside: bool) -> DocumentPiece | Element | None:
    """None if it can't be read. `inside`: the frame before it opened an array."""
    bare = text.strip().lstrip("\ufeff")
    opens = _OPENS.search(bare[-_TAIL:])
    first = bare.startswith("{") and (bool(opens) or not inside)
    if not first and not bare.startswith(("]", "}")):
        bare = bare.lstrip(",")
        # An object is cut like an array: then this is one member of it.
        element = (_parsed(bare) or _parsed(f"{{{bare}}}")) if inside else None
        return Element(element[0]) if element else None
    body = bare if first else "{" + bare[1:].lstrip().lstrip(",")
    if opens:
        body += "]}" if opens[2] == "[" else "}}"
    found = _parsed(body)
    if found is None or not isinstance(found[0], dict):
        return None
    return DocumentPiece(found[0], opens[1] if opens else "", first)


def _parsed(text: str) -> tuple[Any] | None:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None
