"""Masks secrets in an agent's own bytes and changes nothing else (`capture.redact_raw`). Pure, deterministic.

    {"type":"user","text":"the key is sk-live-4242424242"}
    {"type":"user","text":"the key is [redacted]********"}

Every line keeps its length, and JSON stays JSON, also JSON in a string of JSON: only the insides of strings are masked. So
offsets, sizes and line feeds stay the same. To find the stored form of a line, mask that line and compare.

Each line is masked by itself, so that the same words are masked alike on every channel. A secret that one text of a line shows is
masked in all texts of the line, except in values by which records are recognised (ids, kinds, times): there only the form counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from dreamkeep.secrets.redact import (
    MARK,
    Span,
    extend_open_blocks,
    find_secrets,
    merge_spans,
    named_secret,
    pattern_for_found,
)
from dreamkeep.secrets.words import names_secret

#: A string of JSON, and whether it is a name; the text between two strings in a list.
_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*)"(\s*+:)?', re.DOTALL)
_NEXT = re.compile(r"\s*+,\s*+")
#: The characters of such a string: a pair of surrogates or an escape is one character; a group is a run of plain ones.
_SIGNS = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|([^\\]+)", re.DOTALL)
#: Line feeds stay, also written as escapes: a key's lines stay lines.
_LINE = re.compile(rb"(\\[nr])|(?:\\[^nr\n]|\\(?![nr])|[^\r\n\\])+")
#: The mark of a short secret, a rare character. Fewer bytes than `_LEAST` stay.
_SHORT, _LEAST = "\u2042".encode(), 3
#: A masked stretch. In a name it may end with a number.
_MASKED = re.compile(rb"(?:\[redacted\]|\xe2\x81\x82)\**+(?:\xe2\x81\x82[0-9]++)?")
#: How a row contains values that JSON can't (agents/shared/database.py). In a binary blob only readable stretches are masked:
#: the rest is compressed.
_ENCODED = re.compile(rb'\{"\$(text|blob)": ?"([A-Za-z0-9+/]{8,}={0,2})"\}')
_READABLE = re.compile(rb"[\t\n\r -~]{16,}+")
#: Names of values by which records are recognised.
_STRUCTURE = re.compile(
    r"(?:.*(?:id|Id|ID|uuid|Uuid|At|_at)|type|subtype|kind|role|status|state|method|jsonrpc|model|version|name|table|\$.*"
    r"|timestamp|time|ts|date|created|updated)\Z"
)
_DEEPEST = 4
#: Characters around a record that are no part of it; and a line's characters without NULs.
_AROUND = " \t\r\n\v\f\ufeff"
_NO_NULS = re.compile("\0+|([^\0]+)")
_DIGITS = re.compile(r"\d{300,}+")
#: The same limits as in a reader that looks for a retry.
_SAME_HEAD, _RETRIES = 6, 16
#: A torn text must end with at least this many characters of a secret.
_LEAST_BEGUN = 4


class _Site(NamedTuple):
    """A text that goes from `start` to `end` of the text it is `inside`. `signs` matches its characters there; None if they are
    not escaped. Its places in the line are computed only if something must be masked. The texts of a `group` are in one list."""

    text: str
    inside: _Site | None = None
    start: int = 0
    end: int = 0
    signs: re.Pattern[str] | None = None
    depth: int = 0
    name: str = ""
    group: object = None
    is_name: bool = False
    #: Whether it breaks off, perhaps inside a secret that a later text contains completely.
    is_torn: bool = False


def mask_line(line: bytes) -> bytes:
    """Mask a line, JSON or not. Returns the same object if nothing was masked."""
    return _mask_sites(line, list(_read_records(_Site(_decoded(line)))))


def mask_text(text: bytes) -> bytes:
    """Mask the bytes as one text, even if they look like JSON or have several lines."""
    return _mask_sites(text, [_Site(_decoded(text))])


def mask_row(line: bytes) -> bytes:
    """Mask a database row as JSON, also inside values that are base64 because they are not UTF-8."""
    decoded = _ENCODED.sub(_masked_base64, line) if b'{"$' in line else line
    return mask_line(line if decoded == line else decoded)


def _masked_base64(match: re.Match[bytes]) -> bytes:
    import base64
    import binascii

    try:
        raw = base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return match[0]  # not written by dreamkeep
    kept = mask_line(raw) if match[1] == b"text" or _is_utf8(raw) else _READABLE.sub(lambda run: mask_text(run[0]), raw)
    return match[0] if kept == raw else match[0].replace(match[2], base64.b64encode(kept))


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def mask_data(value: Any) -> Any:
    """Mask each text and name of JSON data."""
    if isinstance(value, str):
        return _decoded(mask_line(value.encode("utf-8", "surrogatepass")), "surrogatepass")
    import json

    if not isinstance(value, (Mapping, list, tuple)):
        return value
    try:
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        return value  # not JSON data: the callee reports that
    kept = mask_line(line)
    return value if kept is line else json.loads(_decoded(kept, "surrogatepass"))


def is_masked(line: bytes) -> bool:
    return _MASKED.search(line) is not None


def masked_runs(line: bytes) -> tuple[Span, ...]:
    """The masked stretches, in order."""
    return tuple(run.span() for run in _MASKED.finditer(line))


def matches_masked(kept: bytes, line: bytes) -> bool:
    """Whether `kept` equals `line` except for its masked stretches. Only for lines that are known to belong together: a line that
    is nearly all masked fits any other of its length."""
    if len(kept) != len(line) or not (runs := masked_runs(kept)):
        return False
    places = [0, *(place for run in runs for place in run), len(kept)]
    return all(kept[a:b] == line[a:b] for a, b in zip(places[::2], places[1::2], strict=True))


# -- find secrets in the texts of a line


def _find_spans(sites: Sequence[_Site]) -> list[list[Span]]:
    """The secrets of each text, in order."""
    texts = [site.text for site in sites]
    spans = [_find_in_site(site) for site in sites]
    _find_keys_in_lists(sites, spans)
    for site, own in zip(sites, spans, strict=True):
        if site.name and names_secret(site.name) and named_secret(site.name, site.text):
            own[:] = [(0, len(site.text))]
    pattern = pattern_for_found(texts, spans, ())
    for site, own in zip(sites, spans, strict=True):
        if pattern is not None and not site.is_name and not _STRUCTURE.match(site.name):
            own += [match.span() for match in pattern.finditer(site.text)]
        if site.is_torn:
            own += _find_torn_secret(site.text, _cut_out(texts, spans))
        own[:] = list(merge_spans(own))
    return spans


def _find_in_site(site: _Site) -> list[Span]:
    """The secrets that this text alone shows. A name that is masked already stays: masked again, it would lose its number."""
    spans = find_secrets(site.text)
    if not site.is_name:
        return spans
    return [span for span in spans if not _MASKED.fullmatch(site.text[slice(*span)].encode("utf-8", "replace"))]


def _cut_out(texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> set[str]:
    return {text[start:end] for text, own in zip(texts, spans, strict=True) for start, end in own}


def _find_torn_secret(text: str, secrets: Collection[str]) -> list[Span]:
    """A text that ends with the beginning of a secret."""
    sizes = [n for secret in secrets for n in range(_LEAST_BEGUN, len(secret)) if text.endswith(secret[:n])]
    return [(len(text) - max(sizes), len(text))] if sizes else []


def _find_keys_in_lists(sites: Sequence[_Site], spans: list[list[Span]]) -> None:
    """Find private keys whose lines are the texts of a list."""
    groups: dict[object, list[int]] = {}
    for n, site in enumerate(sites):
        if site.group is not None:
            groups.setdefault(site.group, []).append(n)
    for own in groups.values():
        extend_open_blocks([sites[n].text for n in own], [spans[n] for n in own])


def _read_records(whole: _Site) -> Iterator[_Site]:
    """The texts of a line. It is read like a record (session/records.py): without NULs and a BOM. If a torn record is followed by
    its retry, from there on."""
    text = whole.text
    site = whole
    if "\0" in text:
        site = _Site(text.replace("\0", ""), whole, 0, len(text), _NO_NULS, 1)
    begin, end = len(site.text) - len(site.text.lstrip(_AROUND)), len(site.text.rstrip(_AROUND))
    begins = [begin] if _is_json(site.text[begin:end]) else _retries(site.text, begin, end)
    if not begins:
        yield whole
        return
    for start, following in pairwise(begins):
        yield _slice_site(site, start, following)._replace(is_torn=True)
    yield from _strings_of(_slice_site(site, begins[-1], end), 0)


def _slice_site(site: _Site, start: int, end: int) -> _Site:
    if (start, end) == (0, len(site.text)):
        return site
    return _Site(site.text[start:end], site, start, end, None, site.depth + 1)


def _retries(text: str, begin: int, end: int) -> list[int]:
    """The places where a record begins, and begins again, until it can be read; [] if it never can."""
    head = text[begin : begin + _SAME_HEAD]
    begins = [begin]
    while head[:1] == "{" and len(begins) <= _RETRIES and (at := text.find(head, begins[-1] + 1, end)) >= 0:
        begins.append(at)
        if _is_json(text[at:end]):
            return begins
    return []


def _texts_in(site: _Site, depth: int) -> Iterator[_Site]:
    """The text itself, or its strings if it is JSON."""
    if depth >= _DEEPEST or not _is_json(site.text):
        yield site
    else:
        yield from _strings_of(site, depth)


def _strings_of(site: _Site, depth: int) -> Iterator[_Site]:
    name, group, last, option = "", 0, 0, ""
    for match in _STRING.finditer(site.text):
        between = site.text[last : match.start()]
        last = match.end()
        if match[2]:
            name = _unescape(match[1])
            yield _string_site(site, match)._replace(is_name=True)
            continue
        if "{" in between or "}" in between:
            name = ""  # the last name belongs to another object
        if not _NEXT.fullmatch(between):
            group, option = match.start(), ""
        inner = _string_site(site, match)._replace(name=option or name, group=(id(site), group))
        # `["mysql", "--password", "…"]`: the words of a command.
        option = inner.text.lstrip("-") if inner.text.startswith("-") else ""
        yield from _texts_in(inner, depth + 1)


def _string_site(site: _Site, match: re.Match[str]) -> _Site:
    signs = _SIGNS if "\\" in match[1] else None
    return _Site(_unescape(match[1]), site, *match.span(1), signs, site.depth + 1)


def _is_json(text: str) -> bool:
    import json

    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return False
    except ValueError:
        return _is_json(_DIGITS.sub("0", text))  # Python refuses such long numbers; agents' readers may not
    return True


def _unescape(raw: str) -> str:
    import json

    return str(json.loads(f'"{raw}"', strict=False)) if "\\" in raw else raw


def _decoded(raw: bytes, errors: str = "surrogateescape") -> str:
    return raw.decode("utf-8", errors)


# -- find their places in the line


def _spans_in_line(line: bytes, sites: Sequence[_Site], found: Sequence[list[Span]]) -> list[Span]:
    """Map the spans of each text to spans of the line. The innermost texts come first: their spans become spans of the text
    around them, and so on. So each text is passed once, however many spans it has."""
    levels: dict[int, dict[int, tuple[_Site, list[Span]]]] = {}

    def add(site: _Site, spans: list[Span]) -> None:
        levels.setdefault(site.depth, {}).setdefault(id(site), (site, []))[1].extend(spans)

    for site, spans in zip(sites, found, strict=True):
        if spans:
            add(site, spans)
    for depth in range(max(levels, default=0), 0, -1):
        for site, spans in levels.get(depth, {}).values():
            if site.inside is not None:
                add(site.inside, _spans_in_outer(site, site.inside.text, list(merge_spans(spans))))
    return [
        span for site, spans in levels.get(0, {}).values() for span in _spans_in_bytes(line, site.text, list(merge_spans(spans)))
    ]


def _spans_in_outer(site: _Site, outer: str, spans: list[Span]) -> list[Span]:
    if site.signs is None:
        return [(site.start + start, site.start + end) for start, end in spans]
    wanted = [place for span in spans for place in span]
    places: list[int] = []
    before = 0
    for piece in site.signs.finditer(outer, site.start, site.end):
        size = len(piece[1]) if piece[1] else int(outer[piece.start()] != "\0")
        # Starts and ends take turns in `wanted`.
        while len(places) < len(wanted) and _is_in_piece(wanted[len(places)] - before, size, is_end=len(places) % 2 == 1):
            into = wanted[len(places)] - before
            places.append(piece.start() + into if size > 1 or not into else piece.end())
        if len(places) == len(wanted):
            break
        before += size
    return list(zip(places[::2], places[1::2], strict=True))


def _is_in_piece(into: int, size: int, *, is_end: bool) -> bool:
    """A stretch begins where its first character does, and ends where its last one ends."""
    return into < size or (into == size and is_end)


def _spans_in_bytes(line: bytes, text: str, spans: list[Span]) -> list[Span]:
    if len(line) == len(text):
        return spans
    found, at, size = [], 0, 0
    for start, end in spans:
        first = size + len(text[at:start].encode("utf-8", "surrogateescape"))
        size = first + len(text[start:end].encode("utf-8", "surrogateescape"))
        found.append((first, size))
        at = end
    return found


# -- mask


def _mask_sites(line: bytes, sites: Sequence[_Site]) -> bytes:
    found = _find_spans(sites)
    if not any(found):
        return line
    changed = bytearray(line)
    for start, end in _spans_in_line(line, sites, found):
        changed[start:end] = blacken(line[start:end])
    names = [site.is_name and bool(own) for site, own in zip(sites, found, strict=True)]
    if any(names):
        places = _spans_in_line(
            line, sites, [[(0, len(site.text))] if name else [] for site, name in zip(sites, names, strict=True)]
        )
        _number_equal_names(changed, [site.text for site, name in zip(sites, names, strict=True) if name], places)
    return bytes(changed)


def _number_equal_names(changed: bytearray, names: Sequence[str], places: Sequence[Span]) -> None:
    """Number masked names that became equal: of two values with the same name, only one would be read."""
    known: dict[bytes, dict[str, int]] = {}
    for name, (start, end) in zip(names, places, strict=True):
        masked = bytes(changed[start:end])
        alike = known.setdefault(masked, {})
        if (number := alike.setdefault(name, len(alike))) > 0:
            changed[start:end] = _add_number(masked, number + 1)


def _add_number(masked: bytes, number: int) -> bytes:
    """`[redacted]*******` → `[redacted]***⁂2`. A name that is too short for a number stays."""
    start, end = max(masked_runs(masked), key=lambda run: run[1] - run[0], default=(0, 0))
    suffix = _SHORT + b"%d" % number
    for mark in (MARK.encode(), _SHORT):
        if (stars := end - start - len(mark) - len(suffix)) >= 0:
            return masked[:start] + mark + b"*" * stars + suffix + masked[end:]
    return masked


def blacken(raw: bytes) -> bytes:
    """Stars instead of the text, in the same length. Only line feeds stay."""
    return _LINE.sub(_blacken_stretch, raw)


def _blacken_stretch(match: re.Match[bytes]) -> bytes:
    size = len(match[0])
    if match[1] or size < _LEAST:
        return match[0]
    mark = MARK.encode() if size >= len(MARK) else _SHORT
    return mark + b"*" * (size - len(mark))
