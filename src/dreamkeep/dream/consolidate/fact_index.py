"""Insights by what they say: one *fact* for each project and meaning, with all who said it. Pure.

    Fact = (project, drawer, key)    key: what it says (memory/alike.py); drawer: statements, fixes and open loops lie apart

Which insights belong to which fact depends on nothing but their words: not on the order in which they came, nor on what else is
there. What an agent suggests is not here until the user confirms it. A hand on a note (retracted, superseded, closed or edited by
the user) is a *bar*: what was said before it does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from dreamkeep.memory import alike, note
from dreamkeep.memory import insight as i
from dreamkeep.memory.form import Term, form
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import Note
from dreamkeep.memory.score import epoch_seconds
from dreamkeep.memory.tables import INSIGHTS, NOTES

SAID, FIX, LOOP = "said", "fix", "loop"
#: How a user tells something outright.
BY_HAND = ("hand", "cli")
#: What a note was edited to, as if it had been said: such an insight is nowhere but here.
_EDITED = "edited:"
_DAY = "on day "


class Fact(NamedTuple):
    project: str
    drawer: str
    key: frozenset[Term]


class Bar(NamedTuple):
    """`hard`: only the user's own hand brings it back; else the user's newer word does, and for a loop anybody's."""

    at: float
    hard: bool
    anybody: bool = False


def category(type: str) -> str:
    return FIX if type == i.FAILURE_FIX else LOOP if type == i.OPEN_LOOP else SAID


def fact(found: Insight) -> Fact:
    return Fact(found.project, category(found.type), meaning(found.text, (found.said_at or "")[:10]))


@lru_cache(maxsize=1 << 15)
def meaning(text: str, day: str) -> frozenset[Term]:
    """`today` means another thing on another day."""
    return alike.key(text) | {(_DAY + day, 0)} if alike.dated(text) else alike.key(text)


def _day(key: frozenset[Term]) -> frozenset[Term]:
    return frozenset(term for term in key if term[0].startswith(_DAY))


def place(found: Insight) -> tuple[str, tuple[int, ...]]:
    """Where it was said, for two that were said at the same time."""
    if not found.evidence:
        return "", ()
    first = found.evidence[0]
    return first.session, tuple(int(part) for part in first.seq.split(".") if part.isdecimal())


def when(found: Insight) -> float:
    """What has no time was said before anything that has one."""
    at = epoch_seconds(found.said_at)
    return at if at is not None else -1.0


def order(one: Insight, other: Insight) -> int:
    """1: `one` was said later; -1: earlier; 0: nobody can tell."""
    if when(one) != when(other):
        return 1 if when(one) > when(other) else -1
    (session, at), (its_session, its_at) = place(one), place(other)
    return (at > its_at) - (at < its_at) if session == its_session else 0


def newer(some: Sequence[Insight], others: Sequence[Insight]) -> int:
    """The same of two groups, by the last that each said; 0 also where sessions do not agree on it."""
    a, b = _last(some), _last(others)
    if when(a[0]) != when(b[0]):
        return order(a[0], b[0])
    signs = {order(one, other) for one in a for other in b if place(one)[0] == place(other)[0]}
    return signs.pop() if len(signs) == 1 else 0


def _last(some: Sequence[Insight]) -> list[Insight]:
    """The last word of each session at the latest time."""
    latest = max(map(when, some))
    found: dict[str, Insight] = {}
    for one in some:
        session, at = place(one)
        if when(one) == latest and (session not in found or at > place(found[session])[1]):
            found[session] = one
    return list(found.values())


class FactIndex:
    """All facts of a memory; a project's when they are asked for. `follow` brings it up to date: with what changed in that memory
    since, or with another one, from the beginning."""

    def __init__(self, memory: Memory, more: Iterable[Insight] = ()) -> None:
        self._begin(memory)
        self.follow(memory, more)

    def _begin(self, memory: Memory) -> None:
        self.memory = memory
        self._at = len(memory.change_log)
        #: What is told of before the memory has it; and who was seen last under each id.
        self._more: dict[str, Insight] = {}
        self._insights: dict[str, Insight] = dict(memory.insights.items())
        self._notes: dict[str, Note] = dict(memory.notes.items())
        self._projects: dict[str, _Project] = {}
        #: Preferences of users that could hold anywhere → the projects in which they were said.
        self.general: dict[frozenset[Term], set[str]] = defaultdict(set)
        self.waiting = _Waiting()
        for one in memory.insights.values():
            if not one.waits:
                self._note_in(one)

    def follow(self, memory: Memory, more: Iterable[Insight] = ()) -> None:
        told = {one.id: one for one in more if one.id not in memory.insights}
        if memory is not self.memory or self._more.keys() - memory.insights.keys() - told.keys():
            self._begin(memory)  # another memory; or what we were told never came to be: all may be otherwise
        self._more = told
        changed = dict.fromkeys(memory.change_log[self._at :])
        self._at = len(memory.change_log)
        # Frozen values: what is the same object has not changed.
        for now in (*(memory.insights[id] for table, id in changed if table == INSIGHTS), *told.values()):
            was = self._insights.get(now.id)
            self._insights[now.id] = now
            was = None if was is not None and was.waits else was
            if was is not now and not now.waits:
                self._note_in(now)
                project = self._projects.get(now.project)
                if project and not project.hear(was, now):
                    del self._projects[now.project]
        for noted in (memory.notes[id] for table, id in changed if table == NOTES):
            before = self._notes.get(noted.id)
            self._notes[noted.id] = noted
            before = None if before is not None and before.is_aside else before
            project = self._projects.get(noted.project)
            if before is not noted and project and not noted.is_aside and not project.see(before, noted):
                del self._projects[noted.project]

    def _note_in(self, one: Insight) -> None:
        self.waiting.take(one)
        if one.type == i.PREFERENCE and one.author == i.USER and one.project and alike.general(one.text):
            self.general[fact(one).key].add(one.project)

    def find_insight(self, id: str) -> Insight | None:
        return self._insights.get(id)

    def of(self, project: str) -> _Project:
        if project not in self._projects:
            insights = [one for one in self._insights.values() if one.project == project and not one.waits]
            notes = [one for one in self._notes.values() if one.project == project and not one.is_aside]
            self._projects[project] = _Project(self, insights, notes)
        return self._projects[project]


class _Waiting:
    """When the newest record was said, and which suggestions of agents nobody has judged yet, oldest first."""

    def __init__(self) -> None:
        self._newest: tuple[float, str, str] | None = None
        self._ahead: list[tuple[float, str, str]] = []
        self._suggested: list[tuple[float, str]] = []
        self._late: list[str] = []

    def take(self, one: Insight) -> None:
        at = epoch_seconds(one.said_at)
        if at is None:
            return
        heappush(self._ahead, (at, one.said_at or "", one.id))
        if one.state == i.SUGGESTED and one.author != i.USER:
            heappush(self._suggested, (at, one.id))

    def newest(self, now: str) -> tuple[str, str] | None:
        """(when, the insight's id). Not in the future: one record with a wrong clock does not make all others old."""
        limit = epoch_seconds(now)
        while self._ahead and (limit is None or self._ahead[0][0] <= limit):
            found = heappop(self._ahead)
            self._newest = max(self._newest or found, found)
        return self._newest[1:] if self._newest else None

    def late(self, before: float, known: Callable[[str], Insight | None]) -> list[Insight]:
        """Suggested before that time, and not judged."""
        while self._suggested and self._suggested[0][0] < before:
            self._late.append(heappop(self._suggested)[1])
        found = {id: one for id in self._late if (one := known(id)) and one.state == i.SUGGESTED}
        self._late = list(found)
        return list(found.values())


class _Project:
    """The facts of one project, and which notes stand for them."""

    def __init__(self, shelf: FactIndex, insights: Iterable[Insight], notes: Iterable[Note]) -> None:
        self._shelf = shelf
        self.members: dict[Fact, list[Insight]] = defaultdict(list)
        self.notes: dict[Fact, list[Note]] = defaultdict(list)
        self._bars: dict[Fact, list[Bar]] = defaultdict(list)
        self._refused: set[Fact] = set()
        #: Where to look: by telling words, the same of those that speak of a change, and by what two have in common that don't.
        self.stems: dict[str, set[Fact]] = defaultdict(set)
        self._changing: dict[str, set[Fact]] = defaultdict(set)
        self._marks: dict[object, set[Fact]] = defaultdict(set)
        self.clauses: dict[frozenset[Term], set[Fact]] = defaultdict(set)
        self.nearly: dict[frozenset[Term], set[Fact]] = defaultdict(set)
        self.takers: list[Insight] = []
        self._homes: dict[str, Fact] = {}
        for one in insights:
            self._take(one)
        for one_note in notes:
            self._stand(one_note)

    def hear(self, was: Insight | None, now: Insight) -> bool:
        """A new insight, or one that was judged. False: this is more than can be changed here; build it anew."""
        if was is None:
            self._take(now)
            return now.state != i.REJECTED
        if was._replace(state=now.state, run=now.run) != now or i.REJECTED in (was.state, now.state):
            return False
        for members in (self.members[fact(now)], self.takers):
            members[:] = [now if one.id == now.id else one for one in members]
        return True

    def see(self, was: Note | None, now: Note) -> bool:
        """The same for a note. What a hand did to it can bar more than its own fact."""
        if any(one is not None and (edit(one) or _ended_by_hand(one)) for one in (was, now)):
            return False
        if was is not None:
            home = self._homes[was.id]
            self.notes[home] = [one for one in self.notes[home] if one.id != was.id]
        self._stand(now)
        return True

    def _take(self, one: Insight) -> None:
        about = fact(one)
        if one.state == i.REJECTED:
            self._refused.add(about)
            return
        found = form(one.text)
        if about not in self.members:
            for stem in alike.telling(one.text):
                self.stems[stem].add(about)
            self.nearly[alike.nearly(about.key)].add(about)
            for clause in found.clauses:
                self.clauses[clause].add(about)
            for mark in alike.marks(one.text):
                self._marks[mark].add(about)
        if _changes(one):
            for stem in alike.telling(one.text):
                self._changing[stem].add(about)
        self.members[about].append(one)
        if found.takes_back and one.author == i.USER:
            self.takers.append(one)

    def _stand(self, one: Note) -> None:
        about = self._home(one)
        self._homes[one.id] = about
        self.notes[about].append(one)
        ended = _ended_by_hand(one)
        if ended:
            hard = one.state == note.RETRACTED
            self._bars[about].append(Bar(epoch_seconds(ended.at) or 0.0, hard, one.state == note.CLOSED))

    def _home(self, one: Note) -> Fact:
        """What the note says; if none of its insights says that (somebody worded it anew), what its first one says."""
        own = Fact(one.project, category(one.kind), alike.key(one.text))
        rests = [fact(found) for id in one.insights if (found := self._shelf.find_insight(id))]
        edited = edit(one)
        if edited:
            # The words that it had before are gone by the user's hand; also those of a run that was undone since.
            for was in {about for about in rests if about.key != own.key}:
                self._bars[was].append(Bar(epoch_seconds(edited.at) or 0.0, False))
            for step in one.history:
                if step.what == "edited" and step.was and (key := alike.key(step.was)) != own.key:
                    self._bars[own._replace(key=key)].append(Bar(epoch_seconds(step.at) or 0.0, False))
            if one.state == note.ACTIVE:
                self._take(as_said(one, edited))
            return own
        said = [about for about in rests if about.key in (own.key, own.key | _day(about.key))]
        return next(iter((*said, *rests)), own)._replace(project=one.project)

    def find_veto(self, about: Fact) -> Bar | None:
        bars = self._bars.get(about, [])
        if about in self._refused and not self.active(about):
            bars = [*bars, Bar(0.0, True)]
        return max(bars, key=lambda bar: (bar.hard, bar.at), default=None)

    def live(self, about: Fact) -> list[Insight]:
        """Those that count."""
        members = self.members.get(about, [])
        bar = self.find_veto(about)
        return [one for one in members if _passes(one, bar)] if bar else list(members)

    def rejected(self, about: Fact) -> bool:
        """It never held, by a user's hand that was not taken back: so it excludes nothing, whoever says it again."""
        return about in self._refused and not self.live(about)

    def active(self, about: Fact) -> list[Note]:
        return [one for one in self.notes.get(about, []) if one.state == note.ACTIVE]

    def linked(self, about: Fact, *what: str) -> list[Fact]:
        """Facts that a model has linked with this one."""
        ids = dict.fromkeys(other for one in self.members.get(about, ()) for link, other in one.links if link in what)
        found = [fact(one) for id in ids if (one := self._shelf.find_insight(id)) is not None and not one.waits]
        return [
            other for other in dict.fromkeys(found) if other != about and other.project == about.project and other in self.members
        ]

    def sharing(self, about: Fact) -> set[Fact]:
        """Facts that may be about the same: they share a telling word."""
        return self._facts_like(about, self.stems)

    def rivals(self, about: Fact) -> set[Fact]:
        """Facts that may exclude this one."""
        members = self.members.get(about, [])
        changes = any(map(_changes, members))
        found = self._facts_like(about, self.stems if changes else self._changing)
        for mark in alike.marks(members[0].text) if members else ():
            found |= self._marks[mark]
        return found - {about}

    def _facts_like(self, about: Fact, shelf: dict[str, set[Fact]]) -> set[Fact]:
        members = self.members.get(about, [])
        stems = alike.telling(members[0].text) if members else frozenset()
        return set().union(*(shelf[stem] for stem in stems if stem in shelf)) - {about}


def _changes(one: Insight) -> bool:
    return one.type == i.CORRECTION or alike.speaks_of_change(one.text)


def _passes(one: Insight, bar: Bar) -> bool:
    if one.author != i.USER and not bar.anybody:
        return False
    if bar.hard and one.source not in BY_HAND:
        return False
    at = epoch_seconds(one.said_at)
    return at is not None and at > bar.at


def _ended_by_hand(one: Note) -> note.NoteStep | None:
    """What a dream concluded by itself is no hand: that is concluded again from what was said."""
    if one.state == note.ACTIVE:
        return None
    last = next((step for step in reversed(one.history) if step.what == one.state), None)
    return last if last is not None and not last.run else None


def edit(one: Note) -> note.NoteStep | None:
    return next((step for step in reversed(one.history) if step.what == "edited"), None)


def as_said(one: Note, step: note.NoteStep) -> Insight:
    """What a hand made of a note, as if it had been said."""
    return Insight(_EDITED + one.id, one.kind, one.text, one.project, (), step.at, 1.0, i.CONFIRMED, i.USER, "hand")


def real(members: Iterable[Insight]) -> list[Insight]:
    """Without what stands for a hand on a note."""
    return [one for one in members if not one.id.startswith(_EDITED)]
