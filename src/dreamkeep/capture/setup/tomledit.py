"""Adds a table at the end of a TOML file, changes it in place, or removes it. Every other byte stays as it is.

This module only splits the text into statements (headers, `key = value`, the rest). `tomllib` parses the text before and after an
edit: if the result is not exactly what was wanted, the edit is refused.
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
    """Whole lines. `path`: the parts of a header's table, or of a key; empty for blank lines and comments."""

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
    """The value at `path`; None if there is none."""
    found: Any = tables
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def put(text: str, path: Sequence[str], entries: Mapping[str, Any]) -> str:
    """Sets these entries of the table, and keeps its other entries."""
    before = read(text)
    current = lookup(before, path)
    if current is None or _is_implied(text, path, current):
        after = _append(text, path, entries)
    elif not isinstance(current, dict):
        raise UnreadableFile(f"`{'.'.join(path)}` is not a table")
    elif all(current.get(key) == value for key, value in entries.items()):
        return text
    else:
        after = _change(text, path, entries, current)
    wanted = _with_entries(before, path, {**(current or {}), **entries})
    return _check(after, wanted, path)


def unset(text: str, path: Sequence[str], keys: Collection[str]) -> str:
    """Removes these entries from the table."""
    before, own, inside = read(text), tuple(path), False
    current = lookup(before, path)
    if not isinstance(current, dict) or not current.keys() & set(keys):
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
    return _check(after, _with_entries(before, path, {key: value for key, value in current.items() if key not in keys}), path)


def _is_implied(text: str, path: Sequence[str], current: Any) -> bool:
    """Whether the table has no header and no key of its own, only tables below it."""
    headers = any(statement.kind == "table" and statement.path == tuple(path) for statement in _statements(text))
    return isinstance(current, dict) and not headers and all(isinstance(value, dict) for value in current.values())


def remove(text: str, path: Sequence[str]) -> str:
    """Removes the table and the tables below it."""
    before = read(text)
    if lookup(before, path) is None:
        return text
    after = text
    own = tuple(path)
    for start, end in reversed(_tables(text, own)):
        after = _cut(after, start, end)
    return _check(after, _with_entries(before, path, None), path)


def _check(text: str, wanted: Mapping[str, Any], path: Sequence[str]) -> str:
    try:
        found: Mapping[str, Any] = read(text)
    except UnreadableFile:
        found = {}
    if _without_empty_tables(found) != _without_empty_tables(wanted):
        raise UnreadableFile(f"`{'.'.join(path)}` is an inline table or uses dotted keys, which dreamkeep doesn't edit")
    return text


def _without_empty_tables(tables: Any) -> Any:
    """Without empty tables, which make no difference."""
    if isinstance(tables, Mapping):
        return {key: kept for key, value in tables.items() if (kept := _without_empty_tables(value)) != {}}
    return tables


def _with_entries(tables: Mapping[str, Any], path: Sequence[str], entries: Mapping[str, Any] | None) -> dict[str, Any]:
    if len(path) == 1:
        rest = {key: value for key, value in tables.items() if key != path[0]}
        return rest if entries is None else {**rest, path[0]: dict(entries)}
    below = tables.get(path[0], {})
    return {**tables, path[0]: _with_entries(below if isinstance(below, Mapping) else {}, path[1:], entries)}


# -- splices


def _append(text: str, path: Sequence[str], entries: Mapping[str, Any]) -> str:
    eol = eol_of(text)
    lines = [f"[{'.'.join(map(_key, path))}]", *(f"{_key(k)} = {_value(v)}" for k, v in entries.items())]
    table = eol.join(lines)
    if not text:
        return table + eol
    # A file without a line end at its end stays without: so `_cut` can restore it.
    return f"{text}{eol}{table}{eol}" if text.endswith("\n") else f"{text}{eol}{eol}{table}"


def _cut(text: str, start: int, end: int) -> str:
    """Removes the lines from `start` to `end`, and the blank line before them."""
    at_end = end == len(text) and not text.endswith("\n")
    for blank in ("\r\n", "\n"):
        if text[:start].endswith(blank) and (start == len(blank) or text[: start - len(blank)].endswith("\n")):
            start -= len(blank)
            break
    if at_end and text[:start].endswith("\n"):
        start -= 2 if text[:start].endswith("\r\n") else 1
    return text[:start] + text[end:]


def _change(text: str, path: Sequence[str], entries: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    own = tuple(path)
    statements = list(_statements(text))
    headers = [n for n, s in enumerate(statements) if s.kind == "table" and s.path == own]
    if len(headers) != 1:
        raise UnreadableFile(f"`[{'.'.join(path)}]` has no header of its own")
    eol = eol_of(text)
    edits: list[tuple[int, int, str]] = []
    missing = {key: value for key, value in entries.items() if key not in current}
    last = statements[headers[0]]
    for statement in statements[headers[0] + 1 :]:
        if statement.kind != "key":
            if statement.kind == "blank":
                continue
            break
        last = statement
        if len(statement.path) == 1 and statement.path[0] in entries and current[statement.path[0]] != entries[statement.path[0]]:
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
    """From each header to the last entry under it. Comments behind that entry belong to the next table."""
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
    """The parts of a (dotted) key, and the place where it ends."""
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
    """The end of a value; behind it, its line has nothing but a comment. The text is known to be valid TOML."""
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
    # JSON's strings, numbers and truth values are valid TOML, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
