"""A session byte for byte out of its journal: which files it had, which version of each is the richest, and where they go.

As long as a file only grows it has one generation. If the newest is poorer than an earlier one, because the file shrank, was
blanked or replaced, the richest is chosen (by the bytes that are no blanks and NULs), unless the agent itself says that it was
meant: Hermes WebUI notes clears, undos and compactions in its document. Bytes are checked against what was journaled with them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.capture import rejoin
from dreamkeep.capture.content import Word
from dreamkeep.capture.sources import DOCUMENT, LINES_ZST, ROWS, SHARED, discovery
from dreamkeep.errors import Failed, NotFound, Unsupported
from dreamkeep.host import Host
from dreamkeep.recovery.back import claude, codex
from dreamkeep.recovery.put import Pieces
from dreamkeep.session.summary import Summary

_NOTHING = b" \t\r\n\0"
_ZST = ".zst"
#: Folders by which an agent's own place is known when it was somewhere else than in a home.
_ANCHORS = {"codex": ("/archived_sessions/", "/sessions/"), "copilot": ("/session-state/",), "kimi": ("/sessions/",)}
_STATE_DB = "state.db"
#: In a document of Hermes WebUI: what changes when less is meant.
_MEANT = ("clear_generation", "intentional_shrink_generation", "truncation_watermark", "compression_anchor_message_key")


class File(NamedTuple):
    """One file to be there again. `generation` of `generations`; `newest` is how many bytes the newest one has."""

    path: str
    role: str
    form: str
    pieces: Pieces
    size: int
    generation: int
    generations: int
    newest: int


class Database(NamedTuple):
    """Rows to be in an SQLite file again: table → its rows, in the order of capture, each in its last version."""

    path: str
    rows: Mapping[str, tuple[Mapping[str, Any], ...]]


class Found(NamedTuple):
    files: tuple[File, ...]
    databases: tuple[Database, ...]


def sources(host: Host, folder: str, agent: str) -> dict[str, dict[str, Any]]:
    """The session's sources of that agent, the main one last: where it appears, all the rest is there."""
    found = rejoin.sources(host, folder)
    own = {name: about for name, about in found.items() if about.get("agent", agent) == agent and about.get("path")}
    return dict(sorted(own.items(), key=lambda pair: (pair[1].get("role") == "main", pair[1]["path"])))


def find(host: Host, folder: str, summary: Summary, home: str | None, generation: int | None) -> Found:
    files, databases = [], []
    for name, about in sources(host, folder, summary.agent).items():
        path = place(about["path"], about.get("role", "main"), summary, home)
        if about.get("form") == ROWS:
            databases.append(Database(path, _rows(host, folder, name)))
        elif (file := _file(host, folder, name, about, path, summary, generation)) is not None:
            files.append(file)
    return Found(tuple(files), tuple(databases))


# -- which version


def _file(
    host: Host, folder: str, name: str, about: Mapping[str, Any], path: str, summary: Summary, wanted: int | None
) -> File | None:
    words = {number: word for number, word in rejoin.words(host, folder, name).items() if word.offset}
    if not words:
        return None  # nothing was ever read of it
    newest = max(words)
    form = str(about.get("form") or "")
    role = str(about.get("role") or "main")
    path = path.removesuffix(_ZST) if form == LINES_ZST else path  # the client reads both; its own packing is not captured
    if len(words) == 1:
        chosen, pieces = newest, _whole(host, folder, name)
    else:
        chosen, held = _richest(host, folder, name, words, summary, form, wanted if role == "main" else None)
        pieces = partial(iter, held)
    _check(pieces, words[chosen], path)
    return File(path, role, form, pieces, words[chosen].offset, chosen, newest, words[newest].offset)


def _whole(host: Host, folder: str, name: str) -> Pieces:
    return lambda: rejoin.rejoined(host, folder, name)


def _richest(
    host: Host, folder: str, name: str, words: Mapping[int, Word], summary: Summary, form: str, wanted: int | None
) -> tuple[int, list[bytes]]:
    if wanted is not None and wanted not in words:
        known = ", ".join(map(str, sorted(words)))
        raise NotFound(f"there is no generation {wanted} of it", where=summary.id, next=f"There are: {known}.")
    best, best_size, held, last = 0, -1, [b""], [b""]
    for number, lines in rejoin.generations(host, folder, name):
        if number not in words:
            continue
        size = sum(len(line.strip(_NOTHING)) for line in lines)
        last = lines
        if number == wanted or (wanted is None and size >= best_size):
            best, best_size, held = number, size, lines
    if wanted is None and best != max(words) and form == DOCUMENT and _meant(b"".join(held), b"".join(last)):
        return max(words), last
    return best, held


def _meant(before: bytes, after: bytes) -> bool:
    """Whether the newer document itself says that less was wanted."""
    old, new = _members(before), _members(after)
    return any(new.get(key) not in (None, old.get(key)) for key in _MEANT)


def _members(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _check(pieces: Pieces, word: Word, path: str) -> None:
    size = crc = 0
    for piece in pieces():
        size += len(piece)
        crc = crc32(piece, crc)
    if (size, crc) != (word.offset, word.crc):
        raise Failed(
            f"the journal does not hold all of it any more ({size} of {word.offset} bytes)",
            where=path,
            next="`dreamkeep audit` tells what is damaged; --convert restores the messages that can be read.",
        )


# -- where to


def place(path: str, role: str, summary: Summary, home: str | None) -> str:
    """Without `home` where it was; else at the same place of the agent's folders there."""
    if home is None:
        if "\ufffd" in path:
            raise Unsupported("its path was no UTF-8, and can't be made again", where=path, next="Restore into --home DIR.")
        return path
    found = _moved(summary.agent, path, home) or (_named(summary, home) if role == "main" else None)
    if found is None or ".." in found.split("/"):
        raise Unsupported(
            "it was in none of its agent's own places, so none can be told for it below --home",
            where=path,
            next="Restore it without --home, to where it was.",
        )
    return found


def _moved(agent: str, path: str, home: str) -> str | None:
    homes = discovery(agent).homes(home, {})
    for known in homes:
        at = path.rfind(f"{known[len(home) :]}/")
        if at >= 0:
            return known + path[at + len(known) - len(home) :]
    for known in homes:
        last = f"/{os.path.basename(known)}/"
        if last in path:
            return known + path[path.rfind(last) + len(last) - 1 :]
    for anchor in _ANCHORS.get(agent, ()):
        if anchor in path:
            return homes[0] + path[path.rfind(anchor) :]
    if os.path.basename(path) == _STATE_DB:
        return f"{homes[0]}/{_STATE_DB}"
    return None


def _named(summary: Summary, home: str) -> str | None:
    """A transcript that lay anywhere: where its agent would have put it."""
    place = discovery(summary.agent).homes(home, {})[0]
    started = summary.started_at or "1970-01-01T00:00:00.000000Z"
    if summary.agent == "claude":
        return f"{place}/{claude.folder(summary.cwd)}/{summary.native_id}.jsonl"
    if summary.agent == "codex":
        return f"{place}/{codex.path(started, summary.native_id)}"
    if summary.agent == "hermes-webui":
        return f"{place}/{summary.native_id}.json"
    return None


# -- rows


def _rows(host: Host, folder: str, name: str) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """Each row once, in its last version, at the place of its first."""
    found: dict[str, dict[object, Mapping[str, Any]]] = {}
    for about, line in rejoin.captured(host, folder):
        if about["source"] != name:
            continue
        held = json.loads(line)
        row: Mapping[str, Any] = held["row"]
        found.setdefault(str(held["table"]), {})[row.get("id")] = row
    return {table: tuple(rows.values()) for table, rows in found.items()}


def union(there: bytes, ours: Iterable[bytes]) -> bytes | None:
    """A file of many sessions' lines with ours in it; None when they are. (`form` is then SHARED.)"""
    known = set(there.split(b"\n"))
    new = [line for line in ours if line.rstrip(b"\n") not in known]
    if not new:
        return None
    gap = b"\n" if there and not there.endswith(b"\n") else b""
    return there + gap + b"".join(line if line.endswith(b"\n") else line + b"\n" for line in new)


__all__ = ["SHARED", "Database", "File", "Found", "find", "place", "sources", "union"]
