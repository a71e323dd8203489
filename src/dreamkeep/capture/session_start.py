"""Opens captured sessions, and resumes those that ended. Where a session runs and its project are found once, and journaled."""

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

#: How far into a source to look for the session's folder. (Most sources name it in their first lines.)
_LOOKED_THROUGH = 64 << 20


class Openings:
    def __init__(self, host: Host, root: str, journals: JournalWriters, ids: Ids, excluded: Excluded) -> None:
        self._host = host
        self._root = root
        self._journals = journals
        self._ids = ids
        self._excluded = excluded

    def of(self, session: str, facts: Callable[[], Iterable[Fact]], path: str = "") -> list[Event] | None:
        """The event that opens a session, to be appended together with what is captured first; [] if it is open already; None if
        the session must not be captured. `path`: of its source, which may tell a folder that its records don't."""
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
            return None  # no message yet, and no folder: it may turn out to be excluded
        body = {"session": session, "cwd": cwd, "project": project, "captured": 1}
        # Because `opened` is carried, it is journaled once only, also if two processes capture the session at the same time.
        where: Carry = {"cwd": cwd, "project": project} if cwd else {}
        return [self._event(Kind.SESSION_OPENED, body, {"state": ACTIVE, "opened": 1, **where})]

    def repeat_opening(self, session: str, facts: Iterable[Fact]) -> list[Event]:
        """The same, from what the journal still carries. The events carry nothing themselves: they would be taken for replays."""
        known = self._journals.writer(session).all_carried()
        cwd, project = str(known.get("cwd") or ""), str(known.get("project") or "")
        if known.get("state") == ACTIVE:
            body = {"session": session, "cwd": cwd, "project": project, "captured": 1}
            # Without it, the first prompt that can still be read would become the title.
            title = _title_in(facts)
            return [self._event(Kind.SESSION_OPENED, {**body, "title": title} if title else body)]
        # The session ended since, and an opening now would be read as if it went on.
        return [placed._replace(carry=None) for placed in self._placed(cwd, project)]

    def _folder(self, session: str, path: str) -> str:
        """The folder that its agent notes elsewhere; some do."""
        agent = find(session.partition(":")[0]) if path else None
        if agent is None or not agent.has_folder_list:
            return ""
        listing: FolderList = load(agent, "discovery")
        found = listing.folder(self._host, path)
        return found if found.isprintable() else ""

    def project(self, cwd: str) -> str:
        return project_of(self._host, cwd, os.uname().nodename) if os.path.isabs(cwd) else ""

    def _placed(self, cwd: str, project: str) -> list[Event]:
        """The folder is known later: another channel opened the session, or its beginning did not name one."""
        return [self._event(Kind.SESSION_PLACED, {"cwd": cwd, "project": project}, {"cwd": cwd, "project": project})]

    def _event(self, kind: str, body: dict[str, Any], carry: Carry | None = None) -> Event:
        return Event(self._ids.new(), kind, rfc3339(self._host.now()), body, carry)

    def resume_if(self, session: str, facts: Callable[[], Iterable[Fact]]) -> None:
        """An ended session goes on when a turn begins after its end. Records that were only read late don't count, nor do a
        client's last lines."""
        if self._journals.writer(session).carried("state") != ENDED:
            return
        ends = read_bodies(self._host, f"{self._root}/{folder_of(session)}", (Kind.SESSION_ENDED,))
        ended = max((frame["at"] for frame, _ in ends), default="")
        if any(isinstance(fact, TurnBegan) and (fact.at or "") > ended for fact in facts()):
            self._journals.say(session, Kind.SESSION_RESUMED, {"captured": 1}, {"state": ACTIVE})


def cwd_in(facts: Iterable[Fact]) -> str:
    """The first folder that is named."""
    for fact in facts:
        if isinstance(fact, SessionPlaced) and fact.cwd and fact.cwd.isprintable():
            return fact.cwd
    return ""


def _title_in(facts: Iterable[Fact]) -> str:
    """The title from the first prompt; "" if a line gives a title, which is read anyway."""
    first = ""
    for fact in facts:
        if isinstance(fact, SessionTitled):
            return ""
        if isinstance(fact, TurnBegan) and not first:
            first = title_of(fact.prompt)
    return first


def facts_in(source: Source, content: Content, offset: int = 0) -> Iterator[Fact]:
    """What the reader makes of a source: only to find out about it; none of this is journaled."""
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
