"""An agent's own bytes inside a frame's body, and out again, byte for byte. Pure.

    {"source":"main",…,"sizes":[17,2],"lines":[{"type":"user"…},"not JSON"]}

Each element is one line (or piece) of a source. A line that is a JSON object stands there verbatim, so that parsing the frame
parses it, too, and `jq` can look into it; `sizes` (the bytes of each element in the frame) allows to cut its exact bytes out
again. Anything else is a JSON string, or base64 in a list if it is no UTF-8. `sizes` and `lines` are the last members.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from dreamkeep.event import RawChunk

_LINES = b'"lines":['
# Parsers stop at some depth (orjson at 1024, others earlier), and a frame is deeper than the line in it. Deep lines stay text.
_DEPTH = 200
_DEEPER = 1024 - _DEPTH
_OPEN, _CLOSE = b"[" * _DEEPER, b"]" * _DEEPER


def pack(about: Mapping[str, Any], lines: Sequence[bytes], as_text: Collection[int] = ()) -> RawChunk:
    """A body with `about` and the lines. `as_text`: the numbers of those that are only part of a line, even if they look like
    JSON."""
    import orjson

    elements = [_as_json_text(line) if n in as_text else element(line) for n, line in enumerate(lines)]
    head = orjson.dumps({**about, "sizes": [len(e) for e in elements]})[:-1]
    raw = b"%b,%b%b]}" % (head, _LINES, b",".join(elements))
    return RawChunk(raw, [n for n, (found, line) in enumerate(zip(elements, lines, strict=True)) if found is not line])


def element(line: bytes) -> bytes:
    import orjson

    if line[:1] == b"{" and b"\n" not in line:
        try:
            # Nearly all lines are shallow, and counting is cheaper than building lists around them.
            deep = line.count(b"[") + line.count(b"{") > _DEPTH
            orjson.loads(_OPEN + line + _CLOSE if deep else line)
            return line
        except orjson.JSONDecodeError:
            pass  # a strict parser does not take it, so it stays text
    return _as_json_text(line)


def _as_json_text(line: bytes) -> bytes:
    import orjson

    try:
        return orjson.dumps(line.decode())
    except UnicodeDecodeError:
        return b'["%b"]' % base64.b64encode(line)


def unpack(body: bytes) -> list[bytes]:
    """The lines of a packed body, from its raw bytes."""
    import orjson

    start = body.index(_LINES)
    sizes = orjson.loads(body[:start].rstrip(b",") + b"}")["sizes"]
    at = start + len(_LINES)
    found = []
    for size in sizes:
        found.append(_bytes(body[at : at + size]))
        at += size + 1
    return found


def changed(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A packed body with each line changed to another of the same length, in the same form. Any other body is changed as a
    whole."""
    if _LINES not in body:
        return change(body)
    import orjson

    start = body.index(_LINES)
    about = orjson.loads(body[:start].rstrip(b",") + b"}")
    at = start + len(_LINES)
    elements = []
    for size in about["sizes"]:
        elements.append(_changed(body[at : at + size], change))
        at += size + 1
    head = orjson.dumps({**about, "sizes": [len(one) for one in elements]})[:-1]
    return b"%b,%b%b]}" % (head, _LINES, b",".join(elements))


def _changed(piece: bytes, change: Callable[[bytes], bytes]) -> bytes:
    line = _bytes(piece)
    now = change(line)
    if now == line:
        return piece
    return now if piece[:1] == b"{" else _as_json_text(now) if piece[:1] == b'"' else b'["%b"]' % base64.b64encode(now)


def _bytes(piece: bytes) -> bytes:
    if piece[:1] == b"{":
        return piece
    import orjson

    value = orjson.loads(piece)
    return base64.b64decode(value[0]) if isinstance(value, list) else str(value).encode()


def contents(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | bytes]:
    """The lines of a parsed body, for a reader: an object for a line that was one, else its bytes."""
    for value in body["lines"]:
        if isinstance(value, dict):
            yield value
        elif isinstance(value, list):
            yield base64.b64decode(value[0])
        else:
            yield str(value).encode()
