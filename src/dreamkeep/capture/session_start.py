"""Opening a captured session: where it runs and which project that is, found once and journaled; and going on after its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dreamkeep.agents.contract import DOCUMENT, FolderList, Source
from dreamkeep.agents.facts import Fact, MessageSaid, Record, SessionPlaced, SessionTitled, TurnBegan
from dreamkeep.agents.registry import find, load, reader_for
from dreamkeep.capture.exclude import Excluded
from dreamkeep.capture.projects.project import project_of
from dreamkeep.capture.sources.content import Content, cuts
from dreamkeep.event import Carry, Event, Ids, Kind, rfc3339
from dreamkeep.host import Host
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.scan import read_bodies
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session.records import loads
from dreamkeep.session.summary import ACTIVE, ENDED, title_of

#: So far into a source it is looked for where it runs. (Most say so in their first lines.)
_LOOKED_THROUGH = 64 << 20


class Openings:
    def __init__(self, host: Host, root: str, journals: JournalWriters, ids: Ids, excluded: Excluded) -> None:
        self._host = host
        self._root = root
        self._journals = journals
        self._ids = ids
        self._excluded = excluded

    def of(self, session: str, facts: Callable[[], Iterable[Fact]], path: str = "") -> list[Event] | None:
        """The event that opens it, to be appended together with what was captured first (nothing when it is open already);
        None when this session is not to be captured. `path`: where its source is, which may tell what is not told in it."""
        known = self._journals.writer(session).all_carried()
        if known.get("opened") is not None and known.get("cwd") and not self._excluded.patterns:
            return []
        cwd = str(known.get("cwd") or "") or cwd_in(facts()) or self._folder(session, path)
        project = str(known.get("project") or "") or self.project(cwd)
        if self._excluded.session(cwd, project):
            return None
        if known.get("opened") is not None:
            return self._placed(cwd, project) if cwd and not known.get("cwd") else []
        if not cwd and self._excluded.patterns and not any(isinstance(fact, MessageSaid) for fact in facts()):
            return None  # nothing was said yet, and where it runs is not known: it may be one that must not be captured
        body = {"session": session, "cwd": cwd, "project": project, "captured": 1}
        # The cursor makes it once only, also when two processes capture the same session at the same time.
        where: Carry = {"cwd": cwd, "project": project} if cwd else {}
        return [self._event(Kind.SESSION_OPENED, body, {"state": ACTIVE, "opened": 1, **where})]

    def repeat_opening(self, session: str, facts: Iterable[Fact]) -> list[Event]:
        """The same, said by what the journal still carries. It carries nothing itself, else it would be a replay."""
        known = self._journals.writer(session).all_carried()
        cwd, project = str(known.get("cwd") or ""), str(known.get("project") or "")
        if known.get("state") == ACTIVE:
            body = {"session": session, "cwd": cwd, "project": project, "captured": 1}
            # Else it would be called by the first prompt that can still be read.
            title = _title_in(facts)
            return [self._event(Kind.SESSION_OPENED, {**body, "title": title} if title else body)]
        # It ended since: who reads that it is opened now would take it for going on.
        return [placed._replace(carry=None) for placed in self._placed(cwd, project)]

    def _folder(self, session: str, path: str) -> str:
        """By what its agent keeps elsewhere: some do."""
        agent = find(session.partition(":")[0]) if path else None
        if agent is None or not agent.has_folder_list:
            return ""
        listing: FolderList = load(agent, "discovery")
        found = listing.folder(self._host, path)
        return found if found.isprintable() else ""

    def project(self, cwd: str) -> str:
        return project_of(self._host, cwd, os.uname().nodename) if os.path.isabs(cwd) else ""

    def _placed(self, cwd: str, project: str) -> list[Event]:
        """Found out later: another channel opened the session, or its beginning did not say."""
        return [self._event(Kind.SESSION_PLACED, {"cwd": cwd, "project": project}, {"cwd": cwd, "project": project})]

    def _event(self, kind: str, body: dict[str, Any], carry: Carry | None = None) -> Event:
        return Event(self._ids.new(), kind, rfc3339(self._host.now()), body, carry)

    def resume_if(self, session: str, facts: Callable[[], Iterable[Fact]]) -> None:
        """An ended session goes on when a turn begins after its end; what was only read late is no reason, nor are a client's
        last lines."""
        if self._journals.writer(session).carried("state") != ENDED:
            return
        ended = self._ended_at(session)
        if any(isinstance(fact, TurnBegan) and (fact.at or "") > ended for fact in facts()):
            self._journals.say(session, Kind.SESSION_RESUMED, {"captured": 1}, {"state": ACTIVE})

    def _ended_at(self, session: str) -> str:
        ended = read_bodies(self._host, f"{self._root}/{folder_of(session)}", (Kind.SESSION_ENDED,))
        return max((frame["at"] for frame, _ in ended), default="")


def cwd_in(facts: Iterable[Fact]) -> str:
    """The first folder that is told."""
    for fact in facts:
        if isinstance(fact, SessionPlaced) and fact.cwd and fact.cwd.isprintable():
            return fact.cwd
    return ""


def _title_in(facts: Iterable[Fact]) -> str:
    """By its first prompt; "" where one of its lines gives a title, which is read anyway."""
    first = ""
    for fact in facts:
        if isinstance(fact, SessionTitled):
            return ""
        if isinstance(fact, TurnBegan) and not first:
            first = title_of(fact.prompt)
    return first


def facts_in(source: Source, content: Content, offset: int = 0) -> Iterator[Fact]:
    """What the readers make of a source: only to find out about it, nothing of this is journaled."""
    channel = "piece" if source.form == DOCUMENT else "file"
    reader = reader_for(source.agent, channel, {})
    for record in _records(source, content, offset):
        yield from reader.read(record)


def _records(source: Source, content: Content, offset: int) -> Iterator[Record]:
    if source.form == DOCUMENT:
        from dreamkeep.capture.sources import document

        for piece in document.split(content.read(_LOOKED_THROUGH, 0)):
            yield Record("piece", None, piece.decode("utf-8", "replace"), "", source.role)
        return
    for cut in cuts(content, offset, False):
        for line in cut.lines:
            data = loads(line) if line.strip() else None
            if data is not None:
                yield Record("file", data, "", "", source.role)
        offset += cut.size
        if offset > _LOOKED_THROUGH:
            return
