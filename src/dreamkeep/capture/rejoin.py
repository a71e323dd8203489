"""A captured source's bytes, back from the journal, byte for byte.

A source has generations: as long as it only grows it stays in one; when it was rewritten, the next one begins, whose frames say
by `ops` what they took over from the one before: `[first, count]` copies lines, a number inserts that many of the frame's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from dreamkeep.capture.content import Word
from dreamkeep.capture.sources import BESIDE
from dreamkeep.event import RAW, Kind
from dreamkeep.host import Host
from dreamkeep.journal.reader import Reading, bodies
from dreamkeep.session.raw import unpack

_REWRITTEN = frozenset(("shrank", "rewritten", "replaced", "mended"))


def name_of(host: Host, role: str, path: str) -> str:
    """Short, safe, and different for each file, however it is spelled: the key of a source in its session's journal."""
    real = host.real_path(os.path.abspath(path)).encode("utf-8", "surrogateescape")
    return f"{role}-{sha256(real).hexdigest()[:10]}"


def sources(host: Host, folder: str) -> dict[str, dict[str, Any]]:
    """What the journal says of each source: name → path, role, form, …; the newest word counts. What moved has its new name."""
    found: dict[str, dict[str, Any]] = {}
    for frame, _ in bodies(Reading(host, folder, raw=True), (Kind.SOURCE_OPENED, Kind.SOURCE_CHANGED)):
        body = frame["body"]
        if body.get("what") == "moved":
            found.pop(body["was"], None)
        found.setdefault(body["source"], {}).update(body)
    return found


def captured(host: Host, folder: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Every line, payload and frame of a session in the order of capture, with its line feed where it had one. Not what lies
    beside its transcripts, which may be anything."""
    for frame, raw in bodies(Reading(host, folder, raw=True), RAW):
        body = frame["body"] if "chunked" not in frame else _about(raw)
        if "sizes" not in body or body.get("role") in BESIDE:
            continue
        found = unpack(raw)
        for n, line in enumerate(found, 1):
            ended = not body.get("pieces") and not (body.get("more") and n == len(found))
            yield {"seq": f"{frame['seq']}.{n}", "kind": frame["kind"], "source": body.get("source")}, line + b"\n" * ended


def lines(host: Host, folder: str, name: str, generation: int | None = None) -> list[bytes]:
    """The lines (or pieces) of a source's newest generation, or of an earlier one, with their line feeds."""
    found: list[bytes] = []
    for number, held in generations(host, folder, name):
        if generation is not None and number > generation:
            break
        found = held
    return found


def generations(host: Host, folder: str, name: str) -> Iterator[tuple[int, list[bytes]]]:
    """Every generation of a source, in order: its number, and its lines (or pieces) when it was last read."""
    before: list[bytes] = []
    now: list[bytes] = []
    at = 0
    for body, found in _frames(host, folder, name):
        if body["gen"] != at:
            if at:
                yield at, now
            at = body["gen"]
            before, now = now, []
        if body.get("joins") and found and now:
            now[-1] += found.pop(0)
        now += _applied(body, found, before)
    if at:
        yield at, now


def words(host: Host, folder: str, name: str) -> dict[int, Word]:
    """What was journaled with the last frame of each generation: how long it is, and its checksum."""
    keys = {f"src:{one}" for one in _former_names(host, folder, name)}
    found: dict[int, Word] = {}
    for frame in Reading(host, folder, heads=True):
        for key in keys & (frame.get("carry") or {}).keys() if frame["kind"] != Kind.PART_OPENED else ():
            word = Word.parse(frame["carry"][key])
            if word is not None:
                found[word.generation] = word
    return found


def rejoined(host: Host, folder: str, name: str) -> Iterator[bytes]:
    """The bytes of a source as it was last read, in bounded memory while it was never rewritten."""
    newest = max((body["gen"] for body, _ in _frames(host, folder, name)), default=0)
    if newest > 1:
        yield from lines(host, folder, name)
        return
    for _, found in _frames(host, folder, name):
        yield from found


def _frames(host: Host, folder: str, name: str) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
    """Each frame of a source, with its own lines as bytes that end as they did; and where a generation begins, one without."""
    names = _former_names(host, folder, name)
    for frame, raw in bodies(Reading(host, folder, raw=True), (Kind.SOURCE_READ, Kind.SOURCE_CHANGED)):
        body = frame["body"] if "chunked" not in frame else _about(raw)
        if body["source"] not in names:
            continue
        if frame["kind"] == Kind.SOURCE_CHANGED:
            if body["what"] in _REWRITTEN:
                yield body, []
            continue
        found = unpack(raw)
        if not body.get("pieces"):
            last = len(found) - 1
            found = [line if n == last and body.get("more") else line + b"\n" for n, line in enumerate(found)]
        yield body, found


def _former_names(host: Host, folder: str, name: str) -> set[str]:
    was: dict[str, str] = {}
    for frame, _ in bodies(Reading(host, folder, raw=True), (Kind.SOURCE_CHANGED,)):
        if frame["body"]["what"] == "moved":
            was[frame["body"]["source"]] = frame["body"]["was"]
    names = {name}
    while name in was and was[name] not in names:
        name = was[name]
        names.add(name)
    return names


def _about(raw: bytes) -> dict[str, Any]:
    import orjson

    body: dict[str, Any] = orjson.loads(raw)
    return body


def _applied(body: dict[str, Any], found: list[bytes], before: list[bytes]) -> Iterator[bytes]:
    ops = body.get("ops")
    if ops is None:
        yield from found
        return
    own = iter(found)
    for op in ops:
        if isinstance(op, int):
            for _ in range(op):
                yield next(own)
        else:
            yield from before[op[0] : op[0] + op[1]]
