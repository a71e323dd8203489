"""One table in a TOML file, added at its end, changed in place, or taken away; every other byte stays as it is.

Only statements are told apart here (headers, `key = value`, the rest); what they mean is asked from `tomllib`, before and after:
an edit whose result is not exactly what was wanted is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.capture.setup.text import UnreadableFile, eol_of

_STRINGS = ('"""', "'''", '"', "'")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Statement(NamedTuple):
    """`path`: of a header the table's, of a key its own parts; empty for blank lines and comments. Whole lines."""

    kind: str
    path: tuple[str, ...]
    start: int
    end: int


def read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UnreadableFile(str(problem)) from problem


def lookup(tables: Mapping[str, Any], path: Sequence[str]) -> Any:
    """None when it is not there."""
    found: Any = tables
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def put(text: str, path: Sequence[str], entries: Mapping[str, Any]) -> str:
    """The table has these entries, and keeps those that it has beside."""
    before = read(text)
    there = lookup(before, path)
    if there is None or _is_implied(text, path, there):
        after = _appended(text, path, entries)
    elif not isinstance(there, dict):
        raise UnreadableFile(f"`{'.'.join(path)}` is not a table")
    elif all(there.get(key) == value for key, value in entries.items()):
        return text
    else:
        after = _changed(text, path, entries, there)
    wanted = _with(before, path, {**(there or {}), **entries})
    return _checked(after, wanted, path)


def unset(text: str, path: Sequence[str], keys: Collection[str]) -> str:
    """The table without these entries."""
    before, own, inside = read(text), tuple(path), False
    there = lookup(before, path)
    if not isinstance(there, dict) or not there.keys() & set(keys):
        return text
    cuts: list[tuple[int, int]] = []
    for statement in _statements(text):
        if statement.kind in ("table", "tables"):
            inside = statement.path == own
        elif statement.kind == "key" and inside and statement.path[0] in keys:
            cuts.append((statement.start, statement.end))
    after = text
    for start, end in reversed(cuts):
        after = after[:start] + after[end:]
    return _checked(after, _with(before, path, {key: value for key, value in there.items() if key not in keys}), path)


def _is_implied(text: str, path: Sequence[str], there: Any) -> bool:
    """Only tables below it are written: it has no header, and no key of its own."""
    headers = any(one.kind == "table" and one.path == tuple(path) for one in _statements(text))
    return isinstance(there, dict) and not headers and all(isinstance(one, dict) for one in there.values())


def remove(text: str, path: Sequence[str]) -> str:
    """The table and those below it."""
    before = read(text)
    if lookup(before, path) is None:
        return text
    after = text
    own = tuple(path)
    for start, end in reversed(_tables(text, own)):
        after = _cut(after, start, end)
    return _checked(after, _with(before, path, None), path)


def _checked(text: str, wanted: Mapping[str, Any], path: Sequence[str]) -> str:
    try:
        found: Mapping[str, Any] = read(text)
    except UnreadableFile:
        found = {}
    if _full(found) != _full(wanted):
        raise UnreadableFile(f"`{'.'.join(path)}` is an inline table or uses dotted keys, which dreamkeep doesn't edit")
    return text


def _full(tables: Any) -> Any:
    """Without empty tables: whether a table that holds nothing is there makes no difference."""
    if isinstance(tables, Mapping):
        return {key: kept for key, value in tables.items() if (kept := _full(value)) != {}}
    return tables


def _with(tables: Mapping[str, Any], path: Sequence[str], entries: Mapping[str, Any] | None) -> dict[str, Any]:
    if len(path) == 1:
        rest = {key: value for key, value in tables.items() if key != path[0]}
        return rest if entries is None else {**rest, path[0]: dict(entries)}
    below = tables.get(path[0], {})
    return {**tables, path[0]: _with(below if isinstance(below, Mapping) else {}, path[1:], entries)}


# -- splices


def _appended(text: str, path: Sequence[str], entries: Mapping[str, Any]) -> str:
    eol = eol_of(text)
    lines = [f"[{'.'.join(map(_key, path))}]", *(f"{_key(k)} = {_value(v)}" for k, v in entries.items())]
    table = eol.join(lines)
    if not text:
        return table + eol
    # A file that has no line end at its end has none afterwards: so `_cut` knows what was there before.
    return f"{text}{eol}{table}{eol}" if text.endswith("\n") else f"{text}{eol}{eol}{table}"


def _cut(text: str, start: int, end: int) -> str:
    """Lines from `start` to `end`, and the blank line before them."""
    at_end = end == len(text) and not text.endswith("\n")
    for blank in ("\r\n", "\n"):
        if text[:start].endswith(blank) and (start == len(blank) or text[: start - len(blank)].endswith("\n")):
            start -= len(blank)
            break
    if at_end and text[:start].endswith("\n"):
        start -= 2 if text[:start].endswith("\r\n") else 1
    return text[:start] + text[end:]


def _changed(text: str, path: Sequence[str], entries: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    own = tuple(path)
    statements = list(_statements(text))
    headers = [n for n, s in enumerate(statements) if s.kind == "table" and s.path == own]
    if len(headers) != 1:
        raise UnreadableFile(f"`[{'.'.join(path)}]` has no header of its own")
    eol = eol_of(text)
    edits: list[tuple[int, int, str]] = []
    missing = {key: value for key, value in entries.items() if key not in there}
    last = statements[headers[0]]
    for statement in statements[headers[0] + 1 :]:
        if statement.kind != "key":
            if statement.kind == "blank":
                continue
            break
        last = statement
        if len(statement.path) == 1 and statement.path[0] in entries and there[statement.path[0]] != entries[statement.path[0]]:
            key = statement.path[0]
            ending = re.search(r"\r?\n?\Z", text[statement.start : statement.end]).group()  # type: ignore[union-attr]
            edits.append((statement.start, statement.end, f"{_key(key)} = {_value(entries[key])}{ending}"))
    for key, value in missing.items():
        line = f"{_key(key)} = {_value(value)}"
        edits.append((last.end, last.end, f"{line}{eol}" if text[: last.end].endswith("\n") else f"{eol}{line}"))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _tables(text: str, own: tuple[str, ...]) -> list[tuple[int, int]]:
    """From each header to the last entry under it: comments behind that speak of what follows."""
    found: list[tuple[int, int]] = []
    inside = False
    for statement in _statements(text):
        if statement.kind in ("table", "tables"):
            inside = statement.path[: len(own)] == own
            if inside:
                found.append((statement.start, statement.end))
        elif statement.kind == "key" and inside:
            found[-1] = (found[-1][0], statement.end)
    return found


# -- statements


def _statements(text: str) -> Iterator[_Statement]:
    at = 0
    while at < len(text):
        line_end = _line_end(text, at)
        line = text[at:line_end].strip()
        if not line or line.startswith("#"):
            yield _Statement("blank", (), at, line_end)
        elif line.startswith("["):
            several = line.startswith("[[")
            path, _ = _key_path(text, text.index("[", at) + (2 if several else 1))
            yield _Statement("tables" if several else "table", path, at, line_end)
        else:
            start = at + len(text[at:line_end]) - len(text[at:line_end].lstrip())
            path, after = _key_path(text, start)
            line_end = _line_end(text, _value_end(text, after))
            yield _Statement("key", path, at, line_end)
        at = line_end


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _key_path(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """The parts of a (dotted) key, and where it ends."""
    parts: list[str] = []
    while True:
        while text[at : at + 1] in (" ", "\t", "."):
            at += 1
        if text[at : at + 1] in ('"', "'"):
            end = _string_end(text, at)
            parts.append(next(iter(tomllib.loads(f"{text[at:end]} = 0"))))
        else:
            bare = _BARE.match(text, at)
            if bare is None:
                return tuple(parts), at
            end = bare.end()
            parts.append(bare.group())
        at = end


def _string_end(text: str, at: int) -> int:
    quote = next(q for q in _STRINGS if text.startswith(q, at))
    end = at + len(quote)
    while not text.startswith(quote, end):
        end += 2 if text[end] == "\\" and quote[0] == '"' else 1
    end += len(quote)
    while len(quote) == 3 and text.startswith(quote[0], end):
        end += 1  # `""""` ends a string with a quote inside
    return end


def _value_end(text: str, at: int) -> int:
    """Where the value's last line goes on with nothing but a comment. The text is valid TOML: nothing else is looked at."""
    depth = 0
    while at < len(text):
        sign = text[at]
        if sign in "\"'":
            at = _string_end(text, at)
            continue
        if sign == "#" or (sign == "\n" and depth == 0):
            if depth == 0:
                return at
            at = _line_end(text, at)
            continue
        depth += (sign in "[{") - (sign in "]}")
        at += 1
    return at


def _key(part: str) -> str:
    return part if _BARE.fullmatch(part) else _value(part)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # What JSON writes for texts, numbers and truth values is TOML, too, but for one sign.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
