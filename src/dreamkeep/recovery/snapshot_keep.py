"""Another keep's own journal, as ours may take it over. Pure but for reading.

Its events speak of sessions by places in *their* journals. Where a session's journal here is another (both went on, or it was
captured in other steps), a quote gets the place where the same frame or line stands here; how far their dreams had read it, and
that it was finished, says nothing here: a dream reads it again, and finds the same insights, which are known by what they say.

What was deleted here stays so: of what was learned in such a session nothing is taken over (capture/forget.py: what that is).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from dreamkeep.capture import forget
from dreamkeep.event import Event, Kind, Verbatim
from dreamkeep.host import Host
from dreamkeep.journal.reader import Reading, bodies, events
from dreamkeep.session.raw import unpack

#: Whose lines are told apart by what they are: their frames are made anew when they are taken over.
_SOURCE = frozenset((Kind.SOURCE_READ, Kind.SOURCE_ROWS))


#: What stands between quotes, backslashes and escapes.
_PLAIN = re.compile(rb'[^"\\\x80-\xff]+')


class Places(NamedTuple):
    """Of a session whose journal here is another than theirs: up to which seq both are the same, and where what they have behind
    that stands here: frames (`15` → `9`) and lines of sources (`15.1` → `9.3`)."""

    same: int
    here: Mapping[str, str]

    def of(self, seq: str) -> str | None:
        number, dot, n = seq.partition(".")
        if number.isdigit() and int(number) <= self.same:
            return seq
        frame = self.here.get(number)
        return f"{frame}{dot}{n}" if frame else self.here.get(seq)


def places(host: Host, ours: str, theirs: str, same: int) -> Places:
    """`ours`, `theirs`: the folders of the two journals."""
    ids: dict[str, int] = {}
    lines: dict[bytes, str] = {}
    for frame, raw in _said(host, ours):
        ids.setdefault(frame["id"], frame["seq"])
        for n, line in _lines(frame, raw):
            lines.setdefault(line, f"{frame['seq']}.{n}")
    here: dict[str, str] = {}
    for frame, raw in _said(host, theirs):
        seq = frame["seq"]
        if seq <= same:
            continue
        if frame["kind"] in _SOURCE:
            here.update((f"{seq}.{n}", lines[line]) for n, line in _lines(frame, raw) if line in lines)
        elif frame["id"] in ids:
            here[str(seq)] = str(ids[frame["id"]])
    return Places(same, here)


def _said(host: Host, folder: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    kinds = frozenset(value for name, value in vars(Kind).items() if name.isupper())
    return bodies(Reading(host, folder, raw=True), kinds)


def _lines(frame: Mapping[str, Any], raw: bytes) -> Iterator[tuple[int, bytes]]:
    if frame["kind"] in _SOURCE:
        yield from ((n, blake2b(line, digest_size=12).digest()) for n, line in enumerate(unpack(raw), 1))


class Theirs:
    """Their journal (`folder`), looked through once before anything of it is taken over. `dead`: sessions that are deleted here,
    each with the taps through which it was seen; `moved`: those whose journal here is another."""

    def __init__(self, host: Host, folder: str, dead: Mapping[str, Collection[str]], moved: Mapping[str, Places]) -> None:
        self._moved = moved
        self._read: dict[tuple[str, str], int] = {}
        named = self._named(host, folder, dead)
        self._dead = [(forget.Learned(one), one, dead[one]) for one in named]
        for _, event in events(Reading(host, folder)):
            for learned, *_ in self._dead:
                learned.see(event)
            if event.kind == Kind.DREAM_READ:
                self._read[str(event.body.get("run")), str(event.body.get("session"))] = _number(event.body.get("upto"))

    @staticmethod
    def _named(host: Host, folder: str, dead: Collection[str]) -> list[str]:
        """Those of which something is told at all: there may be many tombs, and most of them are nobody's business."""
        names: dict[bytes, set[str]] = {}
        for session in dead:
            for name in (session, session.partition(":")[2]):
                # As it stands between quotes, at whatever depth; of an odd one its longest plain piece must do.
                names.setdefault(max(_PLAIN.findall(name.encode("utf-8", "surrogatepass")), key=len), set()).add(session)
        found: set[str] = set()
        for frame in Reading(host, folder, raw=True) if names else ():
            found.update(*(names[word] for word in names.keys() & set(_PLAIN.findall(frame["raw"]))))
        return sorted(found)

    def told(self, event: Event) -> Event | None:
        """As it may be appended here; None when nothing of it may."""
        for learned, session, taps in self._dead:
            left = forget.left_of(event, learned, session, taps)
            if left is None:
                return None
            event = left
        return self._placed(event) if self._moved else event

    def _placed(self, event: Event) -> Event | None:
        act = _PLACED.get(event.kind)
        if act is None:
            return event
        body = json.loads(event.body.raw) if isinstance(event.body, Verbatim) else event.body
        try:
            placed = act(self, body)
        except (KeyError, TypeError, ValueError, AttributeError):
            return event  # nothing that we could have written: whoever reads it passes over it
        return None if placed is None else event if placed is body else event._replace(body=placed)

    def _insight(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """With the quotes that stand here; one that has none any more is not shown by anything."""
        evidence = body["evidence"]
        found = [self._quote(one) for one in evidence]
        placed = [one for one in found if one is not None]
        if placed == evidence:
            return body
        return {**body, "evidence": placed} if placed else None

    def _quote(self, one: Mapping[str, Any]) -> Mapping[str, Any] | None:
        moved = self._moved.get(str(one["session"]))
        if moved is None:
            return one
        seq = moved.of(str(one["seq"]))
        return None if seq is None else {**one, "seq": seq}

    def _finished(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return body if self._holds(str(body["session"]), _number(body["seq"])) else None

    def _was_read(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return body if self._holds(str(body["session"]), _number(body["upto"])) else None

    def _started(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without sessions of which it will not be told that they were read: they would wait for that."""
        run = str(body["run"])
        holds = [one for one in body["sessions"] if self._begins(run, str(one["session"]))]
        return body if len(holds) == len(body["sessions"]) else {**body, "sessions": holds}

    def _begins(self, run: str, session: str) -> bool:
        return session not in self._moved or self._holds(session, self._read.get((run, session), 1 << 63))

    def _holds(self, session: str, seq: int) -> bool:
        moved = self._moved.get(session)
        return moved is None or seq <= moved.same


_PLACED: Mapping[str, Callable[[Theirs, Mapping[str, Any]], Mapping[str, Any] | None]] = {
    Kind.INSIGHT_ADDED: Theirs._insight,
    Kind.SESSION_COMPLETED: Theirs._finished,
    Kind.DREAM_READ: Theirs._was_read,
    Kind.DREAM_STARTED: Theirs._started,
}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 1 << 63


# -- who was deleted, and whose deletion was lifted


class Tombs(NamedTuple):
    """By session: when it was deleted, and it still is; when that was lifted last."""

    dead: Mapping[str, str]
    lifted: Mapping[str, str]


def tombs(host: Host, folder: str, is_session: Callable[[str], bool]) -> Tombs:
    dead: dict[str, str] = {}
    lifted: dict[str, str] = {}
    for _, event in events(Reading(host, folder)):
        session = str(event.body.get("session"))
        if event.kind == Kind.SESSION_DELETED and is_session(session):
            dead[session] = event.at
        elif event.kind == Kind.SESSION_UNDELETED and is_session(session):
            dead.pop(session, None)
            lifted[session] = event.at
    return Tombs(dead, lifted)
