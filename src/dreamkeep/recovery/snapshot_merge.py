"""One journal into another: what they have and we lack is appended; nothing here is replaced. Pure but for reading.

As long as ours is the beginning of theirs, the rest is appended as it is. Where they differ (both went on, or ours has a hole),
events are told apart by their ids, and what is about now (a title, a state) counts only if it is newer than ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from dreamkeep.event import Event, Kind, Verbatim
from dreamkeep.host import Host
from dreamkeep.journal.frame import Frame, body_of, event_of
from dreamkeep.journal.reader import Reading, whole

#: What says how a session is now: the last word counts, so an older one must not come last.
_STATE = frozenset(
    (
        *(Kind.SESSION_OPENED, Kind.SESSION_ENDED, Kind.SESSION_SUSPENDED, Kind.SESSION_RESUMED),
        *(Kind.SESSION_TITLED, Kind.SESSION_PLACED),
    )
)
#: A source's frames build on each other: they are not taken one by one, but as the source whole.
_SOURCE = frozenset((Kind.SOURCE_OPENED, Kind.SOURCE_READ, Kind.SOURCE_CHANGED, Kind.SOURCE_ROWS))


class Lacking(NamedTuple):
    """One event of theirs that we lack. `follows`: ours is the beginning of theirs up to here."""

    event: Event
    follows: bool


class Ours:
    """Our journal, as far as it must be known: nothing is held while it goes along with theirs."""

    def __init__(self, host: Host, folder: str) -> None:
        self._frames = iter(Reading(host, folder, raw=True))
        self._mine = next(self._frames, None)
        self._ids: set[str] | None = None
        #: Of what says how a session is now: our newest, once the two went apart.
        self.state_at = ""
        self.sources: set[str] = set()

    @property
    def apart(self) -> bool:
        return self._ids is not None

    def has(self, frame: Frame) -> bool:
        if self._ids is None:
            while self._mine and self._mine["seq"] < frame["seq"]:
                self._mine = next(self._frames, None)
            if self._mine is None:
                return False
            if self._mine["seq"] == frame["seq"] and self._mine["crc"] == frame["crc"]:
                self._mine = next(self._frames, None)
                return True
            self._remember(chain([self._mine], self._frames))
        return frame["id"] in (self._ids or ())

    def _remember(self, frames: Iterable[Frame]) -> None:
        self._ids = set()
        for frame in frames:
            self._ids.add(frame["id"])
            if frame["kind"] in _STATE:
                self.state_at = max(self.state_at, frame["at"])


def lacking(ours: Ours, host: Host, folder: str) -> Iterator[Lacking]:
    """Events in their journal (`folder`) that ours has not."""

    def missing() -> Iterator[Frame]:
        for frame in Reading(host, folder, raw=True):
            if not ours.has(frame):
                yield frame

    for frame, chunked in whole(missing(), None):
        yield Lacking(_event(frame, chunked), not ours.apart)


def wanted(found: Lacking, ours: Ours) -> Event | None:
    """What to append for it: with its cursors where it simply follows; without where they would turn ours back."""
    event = found.event
    if found.follows:
        return event
    if event.kind in _STATE and event.at <= ours.state_at:
        return None
    if event.kind in _SOURCE:
        ours.sources.add(_source(event))
        return None
    return event._replace(carry={"state": event.carry["state"]} if event.carry and "state" in event.carry else None)


def _source(event: Event) -> str:
    import json

    body = json.loads(event.body.raw) if isinstance(event.body, Verbatim) else event.body
    return str(body.get("source", ""))


def _event(frame: Frame, chunked: bytes | None) -> Event:
    """With the exact bytes of its body; armoured ones are made anew, which gives the same."""
    if "arm" in frame and chunked is None:
        return event_of(frame)
    if "arm" in frame and chunked is not None:
        import json

        return event_of({**frame, "body": json.loads(chunked)})
    raw = body_of(frame["raw"], frame) if chunked is None else chunked
    return event_of({**frame, "body": Verbatim(raw)})
