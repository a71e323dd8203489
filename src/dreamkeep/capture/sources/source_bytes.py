"""Reads a captured source back from its journal, byte for byte.

A source has generations. While it only grows it stays in one. When it was rewritten the next one begins, whose frames tell by
`ops` what they take over from the one before: `[first, count]` copies lines, a number inserts that many of the frame's own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from dreamkeep.agents.contract import BESIDE
from dreamkeep.capture.sources.content import SourceCursor
from dreamkeep.event import RAW, Kind
from dreamkeep.host import Host
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_bodies
from dreamkeep.session.raw import unpack

#: What happened to a file whose next generation begins.
REWRITTEN = frozenset(("shrank", "rewritten", "replaced", "mended"))


def name_of(host: Host, role: str, path: str) -> str:
    """The key of a source in its session's journal: short, and the same for each way to write the file's path."""
    return _named(role, host.real_path(os.path.abspath(path)))


def names_of(host: Host, role: str, path: str) -> list[str]:
    """Its name; then the names that it had if the file, or a folder above it, has been replaced by a link since: what was
    captured is still of this file, wherever the link leads."""
    above, below = os.path.abspath(path), ""
    found = [_named(role, host.real_path(above))]
    while above != os.path.dirname(above):
        above, name = os.path.split(above)
        below = f"/{name}{below}"
        found.append(_named(role, host.real_path(above).rstrip("/") + below))
    return list(dict.fromkeys(found))


def _named(role: str, real: str) -> str:
    return f"{role}-{sha256(real.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"


def sources(host: Host, folder: str) -> dict[str, dict[str, Any]]:
    """What the journal says of each source: name → path, role, form, …; the newest event counts. A moved source has its new
    name."""
    found: dict[str, dict[str, Any]] = {}
    for frame, _ in read_bodies(host, folder, (Kind.SOURCE_OPENED, Kind.SOURCE_CHANGED)):
        body = frame["body"]
        if not isinstance(body.get("source"), str):
            continue  # invalid: it names no source
        if body.get("what") == "moved":
            found.pop(str(body.get("was")), None)
        found.setdefault(body["source"], {}).update(body)
    return found


def captured(host: Host, folder: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Every line, payload and frame of a session in the order of capture, with its line feed if it had one; without the files
    beside its transcripts, which may be anything. `masked` is set for rows of which at least one is masked."""
    for frame, raw in read_bodies(host, folder, RAW):
        body = frame["body"] if "chunked" not in frame else _about(raw)
        if "sizes" not in body or body.get("role") in BESIDE:
            continue
        found = unpack(raw)
        for n, line in enumerate(found, 1):
            ended = not body.get("pieces") and not (body.get("more") and n == len(found))
            about = {"seq": f"{frame['seq']}.{n}", "kind": frame["kind"], "source": body.get("source")}
            yield {**about, "masked": True} if "versions" in body else about, line + b"\n" * ended


def lines(host: Host, folder: str, name: str, generation: int | None = None) -> list[bytes]:
    """The lines (or pieces) of a source's newest generation, or of an earlier one, with their line feeds."""
    found: list[bytes] = []
    for number, held in generations(host, folder, name):
        if generation is not None and number > generation:
            break
        found = held
    return found


class Before(NamedTuple):
    """The lines of a source's newest generation and of another one, and how many the journal holds in all."""

    now: list[bytes]
    other: list[bytes]
    held: int


def before(host: Host, folder: str, name: str, generation: int) -> Before:
    held = 0

    def counted() -> Iterator[tuple[str, dict[str, Any], list[bytes]]]:
        nonlocal held
        for frame in _frames(host, folder, _owners(host, folder, (name,))):
            held += len(frame[2])
            yield frame

    now: list[bytes] = []
    other: list[bytes] = []
    for _, number, lines in _rejoined(counted()):
        now, other = lines, lines if number == generation else other
    return Before(now, other, held)


def generations(host: Host, folder: str, name: str) -> Iterator[tuple[int, list[bytes]]]:
    """Every generation of a source, in order: its number, and its last lines (or pieces)."""
    for _, number, held in all_generations(host, folder, (name,)):
        yield number, held


def all_generations(host: Host, folder: str, names: Collection[str]) -> Iterator[tuple[str, int, list[bytes]]]:
    """The same of several sources, in one pass."""
    yield from _rejoined(_frames(host, folder, _owners(host, folder, names)))


def _rejoined(frames: Iterable[tuple[str, dict[str, Any], list[bytes]]]) -> Iterator[tuple[str, int, list[bytes]]]:
    known: dict[str, tuple[int, list[bytes], list[bytes]]] = {}
    for name, body, found in frames:
        at, before, now = known.get(name, (0, [], []))
        if body["gen"] != at:
            if at:
                yield name, at, now
            at, before, now = body["gen"], now, []
        if body.get("joins") and found and now:
            now[-1] += found.pop(0)
        now += _applied(body, found, before)
        known[name] = at, before, now
    for name, (at, _, now) in known.items():
        yield name, at, now


def words(host: Host, folder: str, names: Collection[str]) -> dict[str, dict[int, SourceCursor]]:
    """The cursor that was journaled last with each generation of these sources."""
    owners = {f"src:{name}": own for name, own in _owners(host, folder, names).items()}
    found: dict[str, dict[int, SourceCursor]] = {name: {} for name in names}
    for frame in Reading(host, folder, heads=True):
        carried = (frame.get("carry") or {}) if frame["kind"] != Kind.PART_OPENED else {}
        for key in owners.keys() & carried.keys():
            word = SourceCursor.parse(carried[key])
            if word is not None:
                found[owners[key]][word.generation] = word
    return found


def grown(host: Host, folder: str, name: str, generation: int) -> Iterator[bytes]:
    """The bytes of a generation that takes nothing over from the one before, such as the first; in bounded memory."""
    for _, body, found in _frames(host, folder, _owners(host, folder, (name,))):
        if body["gen"] == generation:
            yield from found


def _frames(host: Host, folder: str, owners: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any], list[bytes]]]:
    """Each frame of some sources, with its lines and their line feeds; where a generation begins, a frame without lines.

    `owners`: all names that a source has had → its present one."""
    for frame, raw in read_bodies(host, folder, (Kind.SOURCE_READ, Kind.SOURCE_CHANGED)):
        body = frame["body"] if "chunked" not in frame else _about(raw)
        name = owners.get(body["source"])
        if name is None:
            continue
        if frame["kind"] == Kind.SOURCE_CHANGED:
            if body["what"] in REWRITTEN:
                yield name, body, []
            continue
        found = unpack(raw)
        if not body.get("pieces"):
            last = len(found) - 1
            found = [line if n == last and body.get("more") else line + b"\n" for n, line in enumerate(found)]
        yield name, body, found


def _owners(host: Host, folder: str, names: Collection[str]) -> dict[str, str]:
    was: dict[str, str] = {}
    for frame, _ in read_bodies(host, folder, (Kind.SOURCE_CHANGED,)):
        body = frame["body"]
        if body.get("what") == "moved" and isinstance(body.get("source"), str) and isinstance(body.get("was"), str):
            was[body["source"]] = body["was"]
    found: dict[str, str] = {}
    for name in names:
        former: str | None = name
        while former is not None and former not in found:
            found[former] = name
            former = was.get(former)
    return found


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
