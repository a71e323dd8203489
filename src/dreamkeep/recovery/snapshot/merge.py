"""One journal into another: what they have and we lack is appended; nothing here is replaced. Pure but for reading.

As long as ours is the beginning of theirs, the rest is appended as it is, cursors included. Where they differ (both went on, or
ours has a hole), events are told apart by their ids, and what is about now counts only if it is newer: a title than our title, a
state than our state. Where a session runs is said once, so theirs only fills in what we do not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from dreamkeep.capture.hooks.spool import journaled
from dreamkeep.capture.sources.content import SourceCursor
from dreamkeep.event import Carry, Event, Kind, RawChunk
from dreamkeep.host import Host
from dreamkeep.journal.frame import Frame, body_of, event_of
from dreamkeep.journal.open_state import Carried, merge
from dreamkeep.journal.reader import Position, Reading
from dreamkeep.journal.scan import events, join_chunks
from dreamkeep.memory.project import BY_INGEST

#: What says how a session is now, and of what it speaks: the last word counts, so an older one must not come last.
_NOW = {
    Kind.SESSION_OPENED: "state",
    Kind.SESSION_ENDED: "state",
    Kind.SESSION_SUSPENDED: "state",
    Kind.SESSION_RESUMED: "state",
    Kind.SESSION_TITLED: "title",
}
#: The same of the keep's own records, by a user's words: notes, insights, tasks.
_OF_RECORDS = {
    Kind.NOTE_EDITED: "text",
    Kind.NOTE_PINNED: "pin",
    Kind.NOTE_UNPINNED: "pin",
    Kind.NOTE_SUPERSEDED: "life",
    Kind.NOTE_CLOSED: "life",
    Kind.NOTE_EXPIRED: "life",
    Kind.NOTE_RETRACTED: "life",
    Kind.INSIGHT_CONFIRMED: "judged",
    Kind.INSIGHT_REJECTED: "judged",
    Kind.INSIGHT_EXPIRED: "judged",
    Kind.TASK_RENAMED: "title",
    Kind.TASK_CLOSED: "state",
}
#: Words of which the last one counts.
_LAST = ("state", "title")
#: A source's frames build on each other: they are not taken one by one, but as the source whole.
_SOURCE = frozenset((Kind.SOURCE_OPENED, Kind.SOURCE_READ, Kind.SOURCE_CHANGED, Kind.SOURCE_ROWS))


class Lacking(NamedTuple):
    """One event of theirs that we lack. `follows`: ours is the beginning of theirs up to here. `erased`: we had it, and what was
    in it was deleted."""

    event: Event
    follows: bool
    erased: bool = False


class Ours:
    """Our journal, as far as it must be known: almost nothing is held while it goes along with theirs."""

    def __init__(self, host: Host, folder: str) -> None:
        self._reading = Reading(host, folder, raw=True)
        self._frames = iter(self._reading)
        #: Frames that we have and they lost: they may tell them again later.
        self._ids: set[str] = set()
        self.apart = False
        #: What was carried where we stopped reading: cursors and last words.
        self.carry: Carried = {}
        #: When we last said how something is now ("state", "title", …), among frames that they do not have at the same place.
        self.newest: dict[str, str] = {}
        #: Up to this seq both are the same.
        self.same = 0
        #: Hook calls that were journaled here, by their names in the spool: whoever drains one gives its frame another id.
        self.calls: set[str] = set()
        #: Ids of frames in which something was erased, and that were not told again since; and what is left in each of them.
        self.erased: dict[str, set[str]] = {}
        #: Sources of which they have frames that we lack; and what they carry.
        self.sources: set[str] = set()
        self.theirs: Carried = {}
        self._mine = self._next()

    def has(self, frame: Frame) -> bool:
        while not self.apart and self._mine and self._mine["seq"] < frame["seq"]:
            self._remember(self._mine)
            self._mine = self._next()
        if not self.apart and self._mine:
            if self._mine["seq"] == frame["seq"] and self._mine["crc"] == frame["crc"] and not _lost(self._mine, frame):
                self.same = frame["seq"]
                self._mine = self._next()
                return True
            self.apart = True
            for mine in chain([self._mine], iter(self._next, None)):
                self._remember(mine)
        return frame["id"] in self._ids or (_is_erased(frame) and _left(frame) in self.erased.get(frame["id"], ()))

    def differing(self) -> list[str]:
        """Of these sources, those that are not the same here, by length and checksum; all, if something of ours is lost."""
        whole = not self._reading.defects
        return sorted(one for one in self.sources if not whole or _content(self.carry, one) != _content(self.theirs, one))

    def _next(self) -> Frame | None:
        frame = next(self._frames, None)
        if frame is not None:
            merge(self.carry, frame)
        return frame

    def _remember(self, frame: Frame) -> None:
        if _is_erased(frame):
            self.erased.setdefault(frame["id"], set()).add(_left(frame))
        else:
            self._ids.add(frame["id"])
            self.erased.pop(frame["id"], None)
        body = frame.get("body") or {}  # a user's word without its reason is still the user's word
        if frame["kind"] == Kind.HOOK_FIRED:
            self.calls.update(journaled(body))
        if not body.get("run"):
            for about in about_now(frame["kind"], body):
                self.newest[about] = max(self.newest.get(about, ""), frame["at"])


def lacking(ours: Ours, host: Host, folder: str) -> Iterator[Lacking]:
    """Events in their journal (`folder`) that ours has not, or not whole."""
    incomplete: set[str] = set()

    def watched() -> Iterator[Frame]:
        for frame in Reading(host, folder, raw=True):
            merge(ours.theirs, frame)
            if not ours.has(frame):
                # A long event is there only if all its pieces are: told again, it is told whole.
                incomplete.add(frame["body"]["of"] if frame["kind"] == Kind.CHUNK else frame["id"])
            yield frame

    for frame, chunked in join_chunks(watched()):
        if frame["id"] in incomplete:
            yield Lacking(_event(frame, chunked), not ours.apart, frame["id"] in ours.erased)
        incomplete.clear()


def _is_erased(frame: Frame) -> bool:
    """At its own length and checksum (journal/erase.py), so that these do not tell it."""
    return isinstance(frame.get("body"), dict) and "erased" in frame["body"]


def _left(frame: Frame) -> str:
    """By what it is known that no more is left in another copy: whatever was filled in, and however it is written."""
    return json.dumps({key: value for key, value in frame["body"].items() if key != "erased"}, sort_keys=True)


def _lost(mine: Frame, theirs: Frame) -> bool:
    return _is_erased(mine) and not _is_erased(theirs)


def about_now(kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Of what an event is the last word, until the next one."""
    if kind in _NOW:
        yield _NOW[kind]
    elif kind in _OF_RECORDS:
        yield f"{_OF_RECORDS[kind]} {body.get('id')}"
        if kind == Kind.INSIGHT_CONFIRMED and body.get("note"):
            yield f"life {body['note']}"
    elif kind == Kind.PROJECT_RENAMED and body.get("by") != BY_INGEST:
        names = sorted((str(body.get("was")), str(body.get("now"))))
        yield from (f"project {body.get('was')}", f"project {names}")


def is_older(event: Event, ours: Ours) -> bool:
    """Whether a user has said something newer of what it is about. What a run did without knowing that word never counts more."""
    body = json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body
    said = [ours.newest[about] for about in about_now(event.kind, body) if about in ours.newest]
    return bool(said) and (bool(body.get("run")) or event.at <= max(said))


def is_journaled(event: Event, ours: Ours) -> bool:
    """Whether all hook calls of a frame are here, though in other frames."""
    if event.kind != Kind.HOOK_FIRED:
        return False
    calls = journaled(json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body)
    return bool(calls) and calls <= ours.calls


class Journaled:
    """Hook calls that were journaled in a journal (`folder`), by their names in the spool. Read once, then only what is new: a
    snapshot may have thousands that wait."""

    def __init__(self, host: Host, folder: str) -> None:
        self._host = host
        self._folder = folder
        self._position: Position | None = None
        self._calls: set[str] = set()

    def has(self, call: str) -> bool:
        reading = Reading(self._host, self._folder, self._position)
        for _, event in events(reading):
            if event.kind == Kind.HOOK_FIRED:
                self._calls |= journaled(event.body)
        if reading.position.seq:
            self._position = reading.position
        return call in self._calls


def wanted(found: Lacking, ours: Ours) -> Event | None:
    """What to append for it: as it is where it simply follows; else without what would turn ours back."""
    event = found.event
    if found.follows:
        return event
    if event.kind in _SOURCE:
        ours.sources.add(_source(event))
        return None
    if is_journaled(event, ours):
        return None
    about = _NOW.get(event.kind)
    if event.kind == Kind.SESSION_OPENED and ("state" in ours.newest or "state" in ours.carry):
        # The state is ours to say; but where it runs may be what damage took. The same id: it was told.
        carry = {key: value for key, value in (event.carry or {}).items() if key != "state"}
        event = event._replace(kind=Kind.SESSION_PLACED, carry=carry)
    elif about and event.at <= ours.newest.get(about, ""):
        return None
    carry = _words(event.carry, ours.carry)
    ours.carry.update(carry)
    return event._replace(carry=carry or None)


def _words(theirs: Carry | None, known: Carried) -> Carried:
    """How far their sources and their spool were read says nothing here. A word that stands already would look like a replay."""
    words = {key: value for key, value in (theirs or {}).items() if key != "drain" and not key.startswith("src:")}
    return {key: value for key, value in words.items() if key not in known or (key in _LAST and known[key] != value)}


def batches(events: Iterable[Event], *, most: int, size: int) -> Iterator[list[Event]]:
    """At most so many together, and not many more bytes than `size`: memory stays bounded."""
    batch: list[Event] = []
    held = 0
    for event in events:
        batch.append(event)
        held += len(event.body.raw) if isinstance(event.body, RawChunk) else len(str(event.body))
        if len(batch) >= most or held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _content(carried: Carried, source: str) -> object:
    """None is like nothing else: a source without a word is looked at."""
    word = SourceCursor.parse(carried.get(f"src:{source}"))
    return (word.generation, word.offset, word.crc) if word else object()


def _source(event: Event) -> str:
    body = json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body
    return str(body.get("source", ""))


def _event(frame: Frame, chunked: bytes | None) -> Event:
    """With the exact bytes of its body; armoured ones are made anew, which gives the same."""
    if "arm" in frame and chunked is None:
        return event_of(frame)
    if "arm" in frame and chunked is not None:
        return event_of({**frame, "body": json.loads(chunked)})
    raw = body_of(frame["raw"], frame) if chunked is None else chunked
    return event_of({**frame, "body": RawChunk(raw)})
