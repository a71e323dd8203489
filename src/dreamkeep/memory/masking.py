"""Secrets out of an agent's own bytes, so that these stay what they were in all else (`capture.redact_raw`). Pure, deterministic.

    {"type":"user","text":"the key is sk-live-4242424242"}
    {"type":"user","text":"the key is [redacted]********"}

Every line is as long as it was, and JSON stays JSON: only inside of its strings something is masked. So places, sizes and line
feeds hold, and whoever compares a line with what was kept of it (`hides`) need not know how it was masked.

Lines that are masked together help each other: what one betrays is masked in all of them. Names, ids and words by which records
are understood (`type`, `role`, …) are masked only if they have the form of a secret themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.memory.outward import named_secret
from dreamkeep.memory.redact import MARK, everywhere, joined, secrets_in
from dreamkeep.memory.secret_words import telling_for_sure

_MARK = MARK.encode()
#: A string of JSON, and whether it is a name.
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*)"(\s*+:)?', re.DOTALL)
#: One sign of such a string: a pair of surrogates, an escape, or what stands for itself.
_SIGN = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]", re.DOTALL)
_ASCII = re.compile(rb"[^\\\x80-\xff]*+\Z")
#: Blanks stay, also written as escapes: a key's lines stay lines.
_DARK = re.compile(rb"(\\[nrt])|(?:\\[^nrt\s]|\\(?![nrt])|[^\s\\])+")
_MASKED = re.compile(rb"\[redacted\]\**+|\*++")
#: What these hold is known again by it.
_STRUCTURE = re.compile(
    r"(?:.*(?:id|Id|ID|uuid|Uuid)|type|subtype|kind|role|status|state|method|jsonrpc|model|version|name|table|\$.*)\Z"
)


class _Site(NamedTuple):
    """A text in one of the lines: where its bytes are, and its own name."""

    line: int
    start: int
    raw: bytes
    text: str
    escaped: bool
    name: str = ""


def mask_lines(lines: Sequence[bytes]) -> list[bytes]:
    """Each a JSON text or any other; the same object where nothing was masked."""
    sites: list[_Site] = []
    for n, line in enumerate(lines):
        sites += _strings(n, line) if _is_json(line) else [_Site(n, 0, line, _decoded(line), False)]
    found: dict[int, list[tuple[int, bytes]]] = {}
    for site, spans in _found(sites):
        for start, end in _bytes(site, spans):
            found.setdefault(site.line, []).append((site.start + start, dark(site.raw[start:end])))
    return [_with(line, found[n]) if n in found else line for n, line in enumerate(lines)]


def mask_text(text: bytes) -> bytes:
    """As one text, whatever it looks like, and of however many lines."""
    site = _Site(0, 0, text, _decoded(text), False)
    found = [(start, dark(text[start:end])) for _, spans in _found([site]) for start, end in _bytes(site, spans)]
    return _with(text, found) if found else text


def mask_data(value: Any) -> Any:
    """JSON data, each text of it as long as it was."""
    sites = [_Site(0, 0, b"", text, False, name) for name, text in _texts("", value)]
    spans = iter([spans for _, spans in _found(sites, every=True)])
    return _changed(value, lambda text: _darkened(text, next(spans)))


def hides(kept: bytes, line: bytes) -> bool:
    """Whether `kept` is `line`, but for what is masked in it."""
    if len(kept) != len(line):
        return False
    at = 0
    for run in _MASKED.finditer(kept):
        if kept[at : run.start()] != line[at : run.start()]:
            return False
        at = run.end()
    return at > 0 and kept[at:] == line[at:]


class Hidden:
    """Lines that were kept, to find the one that is another with something masked in it."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._by_length: dict[int, list[bytes]] = {}
        for line in dict.fromkeys(line for line in lines if _MASKED.search(line)):
            self._by_length.setdefault(len(line), []).append(line)

    def find(self, line: bytes) -> bytes | None:
        return next((kept for kept in self._by_length.get(len(line), ()) if hides(kept, line)), None)


def dark(raw: bytes) -> bytes:
    """As long, with its blanks, and nothing else of it."""
    marked = False

    def run(match: re.Match[bytes]) -> bytes:
        nonlocal marked
        if match[1]:
            return match[0]
        size = len(match[0])
        if marked or size < len(_MARK):
            return b"*" * size
        marked = True
        return _MARK + b"*" * (size - len(_MARK))

    return _DARK.sub(run, raw)


# -- where they are


def _found(sites: Sequence[_Site], every: bool = False) -> Iterator[tuple[_Site, list[tuple[int, int]]]]:
    """The sites that hold something (`every`: all), each with its stretches, in order and apart from each other."""
    texts = [site.text for site in sites]
    spans = [secrets_in(text) for text in texts]
    told = {site.text for site in sites if site.name and telling_for_sure(site.name) and named_secret(site.name, site.text)}
    pattern = everywhere(texts, spans, told)
    for site, own in zip(sites, spans, strict=True):
        if site.text in told and telling_for_sure(site.name):
            own = [(0, len(site.text))]  # a short one is not masked everywhere, but it is here, where its name tells what it is
        elif pattern is not None and not _STRUCTURE.match(site.name):
            own = own + [match.span() for match in pattern.finditer(site.text)]
        if own or every:
            yield site, list(joined(own)) if own else []


def _is_json(line: bytes) -> bool:
    import json

    if line.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _strings(n: int, line: bytes) -> Iterator[_Site]:
    name = ""
    for match in _STRING.finditer(line):
        raw = match[1]
        text, escaped = (raw.decode("ascii"), False) if _ASCII.match(raw) else _read(raw)
        if match[2]:
            name = text
        else:
            yield _Site(n, match.start(1), raw, text, escaped, name)


def _read(raw: bytes) -> tuple[str, bool]:
    import json

    if b"\\" not in raw:
        return _decoded(raw), False
    return str(json.loads(b'"%b"' % raw, strict=False)), True


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


# -- and in bytes


def _bytes(site: _Site, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Stretches of a text as those of the bytes that it was read from."""
    if len(site.raw) == len(site.text):
        yield from spans
        return
    if not site.escaped:
        for start, end in spans:
            before = len(site.text[:start].encode("utf-8", "surrogateescape"))
            yield before, before + len(site.text[start:end].encode("utf-8", "surrogateescape"))
        return
    places = [0]
    for sign in _SIGN.finditer(site.raw):
        if sign[0][0] & 0xC0 == 0x80:
            places[-1] = sign.end()  # a later byte of the same character
        else:
            places.append(sign.end())
    yield from ((places[start], places[end]) for start, end in spans)


def _with(line: bytes, masked: list[tuple[int, bytes]]) -> bytes:
    changed = bytearray(line)
    for at, instead in masked:
        changed[at : at + len(instead)] = instead
    return bytes(changed)


# -- data


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text with its name, in order."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(str(key), one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(name, one)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _changed(one, change) for key, one in value.items()}
    return [_changed(one, change) for one in value] if isinstance(value, (list, tuple)) else value


def _darkened(text: str, spans: list[tuple[int, int]]) -> str:
    pieces, at = [], 0
    for start, end in spans:
        signs = "".join(sign if sign in "\n\r\t " else "x" for sign in text[start:end])
        pieces += [text[at:start], dark(signs.encode()).decode()]
        at = end
    return "".join(pieces) + text[at:]
