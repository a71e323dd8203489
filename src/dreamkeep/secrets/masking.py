"""Secrets masked in an agent's own bytes, which stay what they were in all else (`capture.redact_raw`). Pure, deterministic.

    {"type":"user","text":"the key is sk-live-4242424242"}
    {"type":"user","text":"the key is [redacted]********"}

Every line keeps its length, and JSON stays JSON, also JSON in a string of JSON: only inside of strings something is masked. So
places, sizes and line feeds hold. To find the kept form of a line, mask that line and compare.

Each line is masked by itself, so that the same words are masked alike whichever way they come in. What one text of a line betrays
is masked in all its texts, but not where records are recognised by it (ids, kinds, times): there only a secret's form counts.
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

#: A string of JSON, and whether it is a name; what stands between two in a list.
_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*)"(\s*+:)?', re.DOTALL)
_NEXT = re.compile(r"\s*+,\s*+")
#: The characters of such a string: a pair of surrogates or an escape is one; the others (a group) stand for themselves.
_SIGNS = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|([^\\]+)", re.DOTALL)
#: Line feeds stay, also written as escapes: a key's lines stay lines.
_LINE = re.compile(rb"(\\[nr])|(?:\\[^nr\n]|\\(?![nr])|[^\r\n\\])+")
#: The mark of a short secret, a character that hardly anybody uses. Fewer bytes than the least are left alone.
_SHORT, _LEAST = "\u2042".encode(), 3
#: A masked stretch; a name's may have a number at its end.
_MASKED = re.compile(rb"(?:\[redacted\]|\xe2\x81\x82)\**+(?:\xe2\x81\x82[0-9]++)?")
#: How a row holds what JSON can't (agents/shared/database.py). In a blob that is no text, only stretches that read like text are
#: masked: the rest is compressed.
_ENCODED = re.compile(rb'\{"\$(text|blob)": ?"([A-Za-z0-9+/]{8,}={0,2})"\}')
_READABLE = re.compile(rb"[\t\n\r -~]{16,}+")
#: Records are recognised by the values of these.
_STRUCTURE = re.compile(
    r"(?:.*(?:id|Id|ID|uuid|Uuid|At|_at)|type|subtype|kind|role|status|state|method|jsonrpc|model|version|name|table|\$.*"
    r"|timestamp|time|ts|date|created|updated)\Z"
)
_DEEPEST = 4
#: What a line may have at its ends that is no part of a record; and its characters without NULs.
_AROUND = " \t\r\n\v\f\ufeff"
_NO_NULS = re.compile("\0+|([^\0]+)")
_DIGITS = re.compile(r"\d{300,}+")
#: As a reader looks for a retry.
_SAME_HEAD, _RETRIES = 6, 16
#: So many characters of a secret show that it begins there.
_LEAST_BEGUN = 4


class _Site(NamedTuple):
    """A text: from `start` to `end` of the text that it is `inside` of; `signs` matches its characters there (None: they stand as
    they are). Its places in the line are computed only if there is something to mask. Texts of one `group` are one list's."""

    text: str
    inside: _Site | None = None
    start: int = 0
    end: int = 0
    signs: re.Pattern[str] | None = None
    depth: int = 0
    name: str = ""
    group: object = None
    is_name: bool = False
    #: It breaks off, maybe inside a secret that a later text has whole.
    is_torn: bool = False


def mask_line(line: bytes) -> bytes:
    """A JSON text or any other; the same object where nothing was masked."""
    return _mask_sites(line, list(_read_records(_Site(_decoded(line)))))


def mask_text(text: bytes) -> bytes:
    """As one text, whatever it looks like, and of however many lines."""
    return _mask_sites(text, [_Site(_decoded(text))])


def mask_row(line: bytes) -> bytes:
    """A row of a database as JSON: also in what stands there as base64, because it is no UTF-8."""
    decoded = _ENCODED.sub(_masked_base64, line) if b'{"$' in line else line
    return mask_line(line if decoded == line else decoded)


def _masked_base64(match: re.Match[bytes]) -> bytes:
    import base64
    import binascii

    try:
        raw = base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return match[0]  # none of ours
    kept = mask_line(raw) if match[1] == b"text" or _is_utf8(raw) else _READABLE.sub(lambda run: mask_text(run[0]), raw)
    return match[0] if kept == raw else match[0].replace(match[2], base64.b64encode(kept))


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def mask_data(value: Any) -> Any:
    """JSON data, each text and name of it."""
    if isinstance(value, str):
        return _decoded(mask_line(value.encode("utf-8", "surrogatepass")), "surrogatepass")
    import json

    if not isinstance(value, (Mapping, list, tuple)):
        return value
    try:
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        return value  # no JSON data: whoever takes it says so
    kept = mask_line(line)
    return value if kept is line else json.loads(_decoded(kept, "surrogatepass"))


def is_masked(line: bytes) -> bool:
    return _MASKED.search(line) is not None


def masked_runs(line: bytes) -> tuple[Span, ...]:
    """Where something is masked, in order."""
    return tuple(run.span() for run in _MASKED.finditer(line))


def matches_masked(kept: bytes, line: bytes) -> bool:
    """Whether `kept` is `line`, but for what is masked in it. For two that are known to speak of the same: one that is nearly
    all mask fits any other of its length."""
    if len(kept) != len(line) or not (runs := masked_runs(kept)):
        return False
    places = [0, *(place for run in runs for place in run), len(kept)]
    return all(kept[a:b] == line[a:b] for a, b in zip(places[::2], places[1::2], strict=True))


# -- where they are


def _find_spans(sites: Sequence[_Site]) -> list[list[Span]]:
    """Stretches of each text, in order."""
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
    """By this text alone. A name that is masked already stays: masked again, it would lose its number."""
    spans = find_secrets(site.text)
    if not site.is_name:
        return spans
    return [span for span in spans if not _MASKED.fullmatch(site.text[slice(*span)].encode("utf-8", "replace"))]


def _cut_out(texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> set[str]:
    return {text[start:end] for text, own in zip(texts, spans, strict=True) for start, end in own}


def _find_torn_secret(text: str, secrets: Collection[str]) -> list[Span]:
    """The beginning of a secret at the end of a text."""
    sizes = [n for secret in secrets for n in range(_LEAST_BEGUN, len(secret)) if text.endswith(secret[:n])]
    return [(len(text) - max(sizes), len(text))] if sizes else []


def _find_keys_in_lists(sites: Sequence[_Site], spans: list[list[Span]]) -> None:
    """A key whose lines are the texts of a list."""
    groups: dict[object, list[int]] = {}
    for n, site in enumerate(sites):
        if site.group is not None:
            groups.setdefault(site.group, []).append(n)
    for own in groups.values():
        extend_open_blocks([sites[n].text for n in own], [spans[n] for n in own])


def _read_records(whole: _Site) -> Iterator[_Site]:
    """The texts of a line, which is read as records are (session/records.py): around NULs and a BOM, and, where a record that was
    torn has its retry behind it, from there on."""
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
    """Where a record was begun, and begun again, until it could be read; [] where it never can."""
    head = text[begin : begin + _SAME_HEAD]
    begins = [begin]
    while head[:1] == "{" and len(begins) <= _RETRIES and (at := text.find(head, begins[-1] + 1, end)) >= 0:
        begins.append(at)
        if _is_json(text[at:end]):
            return begins
    return []


def _texts_in(site: _Site, depth: int) -> Iterator[_Site]:
    """The texts in a text: itself, or, if it is JSON, its strings."""
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
            name = ""  # of something else
        if not _NEXT.fullmatch(between):
            group, option = match.start(), ""
        inner = _string_site(site, match)._replace(name=option or name, group=(id(site), group))
        # `["mysql", "--password", "…"]`: as a command's words.
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
        return _is_json(_DIGITS.sub("0", text))  # of so many digits only other readers take a number
    return True


def _unescape(raw: str) -> str:
    import json

    return str(json.loads(f'"{raw}"', strict=False)) if "\\" in raw else raw


def _decoded(raw: bytes, errors: str = "surrogateescape") -> str:
    return raw.decode("utf-8", errors)


# -- and where that is in the line


def _spans_in_line(line: bytes, sites: Sequence[_Site], found: Sequence[list[Span]]) -> list[Span]:
    """Stretches of the line, in order: those of the innermost texts first, as stretches of what they are inside of, and so on. So
    each text is gone through once, however much was found in it."""
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


# -- and masked


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
    """Two names with different secrets must not become one: then only one of the two values would be read."""
    known: dict[bytes, dict[str, int]] = {}
    for name, (start, end) in zip(names, places, strict=True):
        masked = bytes(changed[start:end])
        alike = known.setdefault(masked, {})
        if (number := alike.setdefault(name, len(alike))) > 0:
            changed[start:end] = _add_number(masked, number + 1)


def _add_number(masked: bytes, number: int) -> bytes:
    """`[redacted]*******` → `[redacted]***⁂2`; one that is too short for it stays."""
    start, end = max(masked_runs(masked), key=lambda run: run[1] - run[0], default=(0, 0))
    suffix = _SHORT + b"%d" % number
    for mark in (MARK.encode(), _SHORT):
        if (stars := end - start - len(mark) - len(suffix)) >= 0:
            return masked[:start] + mark + b"*" * stars + suffix + masked[end:]
    return masked


def blacken(raw: bytes) -> bytes:
    """As long, with its line feeds, and nothing else of it."""
    return _LINE.sub(_blacken_stretch, raw)


def _blacken_stretch(match: re.Match[bytes]) -> bytes:
    size = len(match[0])
    if match[1] or size < _LEAST:
        return match[0]
    mark = MARK.encode() if size >= len(MARK) else _SHORT
    return mark + b"*" * (size - len(mark))
