"""Another keep's own journal, translated for ours. Pure except for reading.

Its events refer to sessions by places in *their* journals. Where a session's journal here is another (both went on, or it was
captured in other steps), a quote gets the place where its words are here. How far their dreams had read the session, and that it
was finished, means nothing here then: a dream reads it again and finds the same insights, which are recognised by what they say.

What was deleted here stays deleted: nothing that was learned in such a session is imported (see capture/forget.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from dreamkeep.capture import forget
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.host import Host
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_events

#: What is between quotes and backslashes.
_PLAIN = re.compile(rb'[^"\\]+')

#: For a session and one of its quotes: the quote with the place where its words are here; None if they are not.
FindQuote = Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]
#: Up to which seq a session's journal here equals theirs; None where all of it does, or there is none here.
Same = Callable[[str], int | None]


class TheirKeep:
    """Their journal (`folder`), read through once before anything of it is imported. `dead`: the sessions that are deleted
    here, each with the taps that saw it."""

    def __init__(self, host: Host, folder: str, dead: Mapping[str, Collection[str]], same: Same, placed: FindQuote) -> None:
        self._same = same
        self._placed = placed
        self._read: dict[tuple[str, str], int] = {}
        #: Insights whose words are not here.
        self._unshown: set[str] = set()
        named = self._named(host, folder, dead)
        self._dead = [(forget.Learned(one), one, dead[one]) for one in named]
        for _, event in read_events(host, folder):
            for learned, *_ in self._dead:
                learned.see(event)
            if event.kind == Kind.DREAM_READ:
                self._read[str(event.body.get("run")), str(event.body.get("session"))] = _number(event.body.get("upto"))

    @staticmethod
    def _named(host: Host, folder: str, dead: Collection[str]) -> list[str]:
        """Those that the journal mentions at all: there may be many deleted sessions, and most are not in it."""
        names: dict[bytes, set[str]] = {}
        for session in dead:
            for name in (session, session.partition(":")[2]):
                # As it is written in JSON, at any depth, also in ASCII; for an odd name its longest plain piece must do.
                for written in (name, json.dumps(name)[1:-1]):
                    pieces = _PLAIN.findall(written.encode("utf-8", "surrogatepass"))
                    names.setdefault(max(pieces, key=len, default=b""), set()).add(session)
        found: set[str] = set()
        for frame in Reading(host, folder, raw=True) if names else ():
            found.update(*(names[word] for word in names.keys() & set(_PLAIN.findall(frame["raw"]))))
        return sorted(found)

    def translate(self, event: Event) -> Event | None:
        """The event as it may be appended here; None when nothing of it may be."""
        for learned, session, taps in self._dead:
            left = forget.left_of(event, learned, session, taps)
            if left is None:
                return None
            event = left
        return self._moved(event)

    def _moved(self, event: Event) -> Event | None:
        act = _PLACED.get(event.kind)
        if act is None:
            return event
        body = json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body
        try:
            placed = act(self, body)
        except (KeyError, TypeError, ValueError, AttributeError):
            return event  # dreamkeep did not write it, so readers skip it
        return None if placed is None else event if placed is body else event._replace(body=placed)

    def _insight(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """With the quotes that are here; an insight without any is left out."""
        evidence = body["evidence"]
        found = [self._quote(one) for one in evidence]
        placed = [one for one in found if one is not None]
        if placed == evidence:
            return body
        if not placed:
            self._unshown.add(str(body["id"]))
            return None
        return {**body, "evidence": placed}

    def _note(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Left out with the insights it rests on; otherwise it would count as known when a dream finds them again."""
        return None if body["insights"] and self._unshown.issuperset(map(str, body["insights"])) else body

    def _quote(self, one: Mapping[str, Any]) -> Mapping[str, Any] | None:
        session, number = str(one["session"]), str(one["seq"]).partition(".")[0]
        holds = self._holds(session, int(number) if number.isdigit() else 1 << 63)
        return one if holds else self._placed(session, one)

    def _finished(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return body if self._holds(str(body["session"]), _number(body["seq"])) else None

    def _was_read(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What was read behind a failed stretch is given by places, too."""
        session = str(body["session"])
        if not self._holds(session, _number(body["upto"])):
            return None
        also = body.get("also") or []
        holds = [one for one in also if self._holds(session, _number(one[1]))]
        return body if len(holds) == len(also) else {**body, "also": holds}

    def _started(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without the sessions for which no event will say that they were read: the run would wait for them."""
        run = str(body["run"])
        holds = [one for one in body["sessions"] if self._begins(run, str(one["session"]))]
        return body if len(holds) == len(body["sessions"]) else {**body, "sessions": holds}

    def _begins(self, run: str, session: str) -> bool:
        return self._holds(session, self._read.get((run, session), 1 << 63))

    def _holds(self, session: str, seq: int) -> bool:
        same = self._same(session)
        return same is None or seq <= same


_PLACED: Mapping[str, Callable[[TheirKeep, Mapping[str, Any]], Mapping[str, Any] | None]] = {
    Kind.INSIGHT_ADDED: TheirKeep._insight,
    Kind.NOTE_ADDED: TheirKeep._note,
    Kind.NOTE_STRENGTHENED: TheirKeep._note,
    Kind.SESSION_COMPLETED: TheirKeep._finished,
    Kind.DREAM_READ: TheirKeep._was_read,
    Kind.DREAM_STARTED: TheirKeep._started,
}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 1 << 63


# -- who was deleted, and whose deletion was lifted


class Tombs(NamedTuple):
    """By session: when it was deleted, if it still is; when its deletion was last lifted."""

    dead: Mapping[str, str]
    lifted: Mapping[str, str]


def read_tombs(host: Host, folder: str, is_session: Callable[[str], bool]) -> Tombs:
    dead: dict[str, str] = {}
    lifted: dict[str, str] = {}
    for _, event in read_events(host, folder):
        session = str(event.body.get("session"))
        if event.kind == Kind.SESSION_DELETED and is_session(session):
            dead[session] = event.at
        elif event.kind == Kind.SESSION_UNDELETED and is_session(session):
            dead.pop(session, None)
            lifted[session] = event.at
    return Tombs(dead, lifted)


def published_regions(host: Host, folder: str) -> dict[str, str]:
    """What was last published on each page, by its path; "" where its words were erased. The journal may be foreign."""
    bodies = (event.body for _, event in read_events(host, folder) if event.kind == Kind.PAGE_PUBLISHED)
    return {str(body.get("path")): str(body.get("region") or "") for body in bodies if isinstance(body, dict)}
