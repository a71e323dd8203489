"""Merge one journal into another: find the events that theirs has and ours lacks. Nothing is replaced. Pure except for reading.

As long as ours is the beginning of theirs, the rest is appended as it is, including cursors. Where they differ (both went on,
or ours has a hole), events are compared by id, and what describes the present (a title, a state) counts only if it is newer
than ours. Where a session runs never changes, so theirs only fills in what ours lacks.
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

#: Events that set a property of a session. The last one counts, so an older one must not be appended after it.
_NOW = {
    Kind.SESSION_OPENED: "state",
    Kind.SESSION_ENDED: "state",
    Kind.SESSION_SUSPENDED: "state",
    Kind.SESSION_RESUMED: "state",
    Kind.SESSION_TITLED: "title",
}
#: The same for notes, insights and tasks in the keep's own journal, as a user sets them.
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
#: Carried values that may be set again.
_LAST = ("state", "title")
#: A source's frames build on each other, so a source is merged as a whole.
_SOURCE = frozenset((Kind.SOURCE_OPENED, Kind.SOURCE_READ, Kind.SOURCE_CHANGED, Kind.SOURCE_ROWS))


class MissingEvent(NamedTuple):
    """An event of theirs that ours lacks. `follows`: up to here, ours is the beginning of theirs. `erased`: ours had it, and its
    content was deleted."""

    event: Event
    follows: bool
    erased: bool = False


class OurJournal:
    """Our journal, read alongside theirs. As long as the two are the same, almost nothing is kept in memory."""

    def __init__(self, host: Host, folder: str) -> None:
        self._reading = Reading(host, folder, raw=True)
        self._frames = iter(self._reading)
        #: Our frames that are not at the same place in theirs; theirs may have them later.
        self._ids: set[str] = set()
        self.apart = False
        #: What our journal carried where reading stopped: cursors and last values.
        self.carry: Carried = {}
        #: When ours last set a property ("state", "title", …), in frames that are not at the same place in theirs.
        self.newest: dict[str, str] = {}
        #: Up to this seq both are the same.
        self.same = 0
        #: Hook calls that are journaled here, by their names in the spool (each drain gives their frame another id).
        self.calls: set[str] = set()
        #: Our erased frames that were not appended again since: their ids, and what is left in each.
        self.erased: dict[str, set[str]] = {}
        #: Sources of which theirs has frames that ours lacks; and what theirs carries.
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
        """Those of these sources that differ here, by length and checksum; all of them if ours has lost something."""
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
        body = frame.get("body") or {}  # an erased body: it is still the user's decision
        if frame["kind"] == Kind.HOOK_FIRED:
            self.calls.update(journaled(body))
        if not body.get("run"):
            for about in about_now(frame["kind"], body):
                self.newest[about] = max(self.newest.get(about, ""), frame["at"])


def find_missing(ours: OurJournal, host: Host, folder: str) -> Iterator[MissingEvent]:
    """Events in their journal (`folder`) that ours lacks, or has only in part."""
    incomplete: set[str] = set()

    def watched() -> Iterator[Frame]:
        for frame in Reading(host, folder, raw=True):
            merge(ours.theirs, frame)
            if not ours.has(frame):
                # A long event is complete only with all its chunks; it is appended again as a whole.
                incomplete.add(frame["body"]["of"] if frame["kind"] == Kind.CHUNK else frame["id"])
            yield frame

    for frame, chunked in join_chunks(watched()):
        if frame["id"] in incomplete:
            yield MissingEvent(_event(frame, chunked), not ours.apart, frame["id"] in ours.erased)
        incomplete.clear()


def _is_erased(frame: Frame) -> bool:
    """An erased frame keeps its length and checksum (journal/erase.py), so only its body shows it."""
    return isinstance(frame.get("body"), dict) and "erased" in frame["body"]


def _left(frame: Frame) -> str:
    """What is left of an erased body, to compare copies: without the filling, in one spelling."""
    return json.dumps({key: value for key, value in frame["body"].items() if key != "erased"}, sort_keys=True)


def _lost(mine: Frame, theirs: Frame) -> bool:
    return _is_erased(mine) and not _is_erased(theirs)


def about_now(kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    """The properties that an event sets."""
    if kind in _NOW:
        yield _NOW[kind]
    elif kind in _OF_RECORDS:
        yield f"{_OF_RECORDS[kind]} {body.get('id')}"
        if kind == Kind.INSIGHT_CONFIRMED and body.get("note"):
            yield f"life {body['note']}"
    elif kind == Kind.PROJECT_RENAMED and body.get("by") != BY_INGEST:
        names = sorted((str(body.get("was")), str(body.get("now"))))
        yield from (f"project {body.get('was')}", f"project {names}")


def is_older(event: Event, ours: OurJournal) -> bool:
    """Whether a user here has set the same property later. What a dream did without knowing that never counts more."""
    body = json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body
    said = [ours.newest[about] for about in about_now(event.kind, body) if about in ours.newest]
    return bool(said) and (bool(body.get("run")) or event.at <= max(said))


def has_all_calls(event: Event, ours: OurJournal) -> bool:
    """Whether all hook calls of an event are here, in whatever frames."""
    if event.kind != Kind.HOOK_FIRED:
        return False
    calls = journaled(json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body)
    return bool(calls) and calls <= ours.calls


class JournaledCalls:
    """The hook calls in a journal (`folder`), by their names in the spool. After the first time only what is new is read,
    because a snapshot may have thousands of waiting calls."""

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


def event_to_append(found: MissingEvent, ours: OurJournal) -> Event | None:
    """What to append for it: the event as it is where it simply follows; otherwise without what would turn ours back."""
    event = found.event
    if found.follows:
        return event
    if event.kind in _SOURCE:
        ours.sources.add(_source(event))
        return None
    if has_all_calls(event, ours):
        return None
    about = _NOW.get(event.kind)
    if event.kind == Kind.SESSION_OPENED and ("state" in ours.newest or "state" in ours.carry):
        # The state is ours, but damage may have taken where the session runs. It keeps its id, so it counts as known.
        carry = {key: value for key, value in (event.carry or {}).items() if key != "state"}
        event = event._replace(kind=Kind.SESSION_PLACED, carry=carry)
    elif about and event.at <= ours.newest.get(about, ""):
        return None
    carry = _words(event.carry, ours.carry)
    ours.carry.update(carry)
    return event._replace(carry=carry or None)


def _words(theirs: Carry | None, known: Carried) -> Carried:
    """Their values without the cursors of sources and spool, which mean nothing here, and without what ours carries already,
    which would look like a replay."""
    words = {key: value for key, value in (theirs or {}).items() if key != "drain" and not key.startswith("src:")}
    return {key: value for key, value in words.items() if key not in known or (key in _LAST and known[key] != value)}


def batches(events: Iterable[Event], *, most: int, size: int) -> Iterator[list[Event]]:
    """At most `most` events and little more than `size` bytes at once, so that memory stays bounded."""
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
    """For comparing. A source without a cursor equals nothing, so it counts as different."""
    word = SourceCursor.parse(carried.get(f"src:{source}"))
    return (word.generation, word.offset, word.crc) if word else object()


def _source(event: Event) -> str:
    body = json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body
    return str(body.get("source", ""))


def _event(frame: Frame, chunked: bytes | None) -> Event:
    """The event with the exact bytes of its body. Armoured bodies are encoded anew, which gives the same bytes."""
    if "arm" in frame and chunked is None:
        return event_of(frame)
    if "arm" in frame and chunked is not None:
        return event_of({**frame, "body": json.loads(chunked)})
    raw = body_of(frame["raw"], frame) if chunked is None else chunked
    return event_of({**frame, "body": RawChunk(raw)})
