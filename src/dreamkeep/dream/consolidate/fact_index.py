"""Insights by what they say: one *fact* for each project and meaning, with all insights that say it. Pure.

    Fact = (project, category, key)    key: the meaning of the words (memory/alike.py)
                                       category: statements, fixes and open loops are kept apart

Only its words decide to which fact an insight belongs: not the order in which insights came, nor what else is there. What an
agent suggests is left out until the user confirms it. If a user retracted, closed or edited a note, that is a *veto*: what was
said before it does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from dreamkeep.memory import alike, note
from dreamkeep.memory.form import Term, form
from dreamkeep.memory.insight import CONFIRMED, CORRECTION, FAILURE_FIX, OPEN_LOOP, REJECTED, SUGGESTED, USER, Insight
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import Note
from dreamkeep.memory.score import epoch_seconds
from dreamkeep.memory.tables import INSIGHTS, NOTES

SAID, FIX, LOOP = "said", "fix", "loop"
#: Sources of what a user said outright, and not in a session.
BY_HAND = ("hand", "cli")
#: Begins the id of an insight that stands for the edit of a note. Such an insight exists only here.
_EDITED = "edited:"
_DAY = "on day "


class Fact(NamedTuple):
    project: str
    category: str
    key: frozenset[Term]


class Veto(NamedTuple):
    """`hard`: only what the user says outright lifts it; else a newer word of the user's does, and with `anybody` a newer
    word of anybody's."""

    at: float
    hard: bool
    anybody: bool = False


def category_of(type: str) -> str:
    return FIX if type == FAILURE_FIX else LOOP if type == OPEN_LOOP else SAID


def fact_of(found: Insight) -> Fact:
    return Fact(found.project, category_of(found.type), meaning(found.text, (found.said_at or "")[:10]))


@lru_cache(maxsize=1 << 15)
def meaning(text: str, day: str) -> frozenset[Term]:
    """Words such as `today` mean something else on another day."""
    return alike.key(text) | {(_DAY + day, 0)} if alike.dated(text) else alike.key(text)


def _find_day(key: frozenset[Term]) -> frozenset[Term]:
    return frozenset(term for term in key if term[0].startswith(_DAY))


def place_of(found: Insight) -> tuple[str, tuple[int, ...]]:
    """Where it was said: tells which of two came first that have the same time."""
    if not found.evidence:
        return "", ()
    first = found.evidence[0]
    return first.session, tuple(int(part) for part in first.seq.split(".") if part.isdecimal())


def seconds_of(found: Insight) -> float:
    """What has no time counts as said before anything that has one."""
    at = epoch_seconds(found.said_at)
    return at if at is not None else -1.0


def compare(one: Insight, other: Insight) -> int:
    """1: `one` was said later; -1: earlier; 0: it can't be told."""
    if seconds_of(one) != seconds_of(other):
        return 1 if seconds_of(one) > seconds_of(other) else -1
    (session, at), (its_session, its_at) = place_of(one), place_of(other)
    return (at > its_at) - (at < its_at) if session == its_session else 0


def compare_last(some: Sequence[Insight], others: Sequence[Insight]) -> int:
    """The same for two groups, by the last insight of each; 0 also where their sessions do not agree."""
    a, b = _find_last_words(some), _find_last_words(others)
    if seconds_of(a[0]) != seconds_of(b[0]):
        return compare(a[0], b[0])
    signs = {compare(one, other) for one in a for other in b if place_of(one)[0] == place_of(other)[0]}
    return signs.pop() if len(signs) == 1 else 0


def _find_last_words(some: Sequence[Insight]) -> list[Insight]:
    """Of those with the latest time, the last one of each session."""
    latest = max(map(seconds_of, some))
    found: dict[str, Insight] = {}
    for one in some:
        session, at = place_of(one)
        if seconds_of(one) == latest and (session not in found or at > place_of(found[session])[1]):
            found[session] = one
    return list(found.values())


class FactIndex:
    """All facts of a memory, built project by project when they are asked for. `follow` brings the index up to date with what
    changed in that memory; for another memory it begins anew."""

    def __init__(self, memory: Memory, more: Iterable[Insight] = ()) -> None:
        self._reset(memory)
        self.follow(memory, more)

    def _reset(self, memory: Memory) -> None:
        self.memory = memory
        self._at = len(memory.change_log)
        #: Insights that the memory does not have yet; and the last one seen under each id.
        self._unjournaled: dict[str, Insight] = {}
        self._insights: dict[str, Insight] = dict(memory.insights.items())
        self._notes: dict[str, Note] = dict(memory.notes.items())
        self._projects: dict[str, _Project] = {}
        self.suggestions = _Suggestions()
        for one in memory.insights.values():
            if not one.waits:
                self.suggestions.add(one)

    def follow(self, memory: Memory, more: Iterable[Insight] = ()) -> None:
        unjournaled = {one.id: one for one in more if one.id not in memory.insights}
        if memory is not self.memory or self._unjournaled.keys() - memory.insights.keys() - unjournaled.keys():
            self._reset(memory)  # another memory, or an insight that was announced was never journaled: anything may differ
        self._unjournaled = unjournaled
        changed = dict.fromkeys(memory.change_log[self._at :])
        self._at = len(memory.change_log)
        for insight in (*(memory.insights[id] for table, id in changed if table == INSIGHTS), *unjournaled.values()):
            self._update_insight(insight)
        for changed_note in (memory.notes[id] for table, id in changed if table == NOTES):
            self._update_note(changed_note)

    def _update_insight(self, now: Insight) -> None:
        was = self._insights.get(now.id)
        self._insights[now.id] = now
        if was is now or now.waits:  # values are frozen: the same object has not changed
            return
        self.suggestions.add(now)
        project = self._projects.get(now.project)
        if project and not project.update_insight(None if was is None or was.waits else was, now):
            del self._projects[now.project]

    def _update_note(self, now: Note) -> None:
        was = self._notes.get(now.id)
        self._notes[now.id] = now
        if was is now or now.is_aside:
            return
        project = self._projects.get(now.project)
        if project and not project.update_note(None if was is None or was.is_aside else was, now):
            del self._projects[now.project]

    def find_insight(self, id: str) -> Insight | None:
        return self._insights.get(id)

    def of(self, project: str) -> _Project:
        if project not in self._projects:
            insights = [one for one in self._insights.values() if one.project == project and not one.waits]
            notes = [one for one in self._notes.values() if one.project == project and not one.is_aside]
            self._projects[project] = _Project(self, insights, notes)
        return self._projects[project]


class _Suggestions:
    """How old the suggestions of agents are that nobody has judged yet, compared with the newest record."""

    def __init__(self) -> None:
        self._newest: tuple[float, str, str] | None = None
        self._ahead: list[tuple[float, str, str]] = []
        self._suggested: list[tuple[float, str]] = []
        self._late: list[str] = []

    def add(self, one: Insight) -> None:
        at = epoch_seconds(one.said_at)
        if at is None:
            return
        heappush(self._ahead, (at, one.said_at or "", one.id))
        if one.state == SUGGESTED and one.author != USER:
            heappush(self._suggested, (at, one.id))

    def newest(self, now: str) -> tuple[str, str] | None:
        """The newest record, as (time, id). None in the future: one record with a wrong clock does not make all others old."""
        limit = epoch_seconds(now)
        while self._ahead and (limit is None or self._ahead[0][0] <= limit):
            found = heappop(self._ahead)
            self._newest = max(self._newest or found, found)
        return self._newest[1:] if self._newest else None

    def find_older(self, before: float, known: Callable[[str], Insight | None]) -> list[Insight]:
        """Those that were suggested before that time and not judged, oldest first."""
        while self._suggested and self._suggested[0][0] < before:
            self._late.append(heappop(self._suggested)[1])
        found = {id: one for id in self._late if (one := known(id)) and one.state == SUGGESTED}
        self._late = list(found)
        return list(found.values())


class _Project:
    """The facts of one project, and the notes that stand for them."""

    def __init__(self, index: FactIndex, insights: Iterable[Insight], notes: Iterable[Note]) -> None:
        self._index = index
        self.members: dict[Fact, list[Insight]] = defaultdict(list)
        self.notes: dict[Fact, list[Note]] = defaultdict(list)
        self._vetoes: dict[Fact, list[Veto]] = defaultdict(list)
        self._rejected: set[Fact] = set()
        #: Where to look for related facts: by telling words, all facts and those that speak of a change; and by marks, for
        #: facts that exclude each other without speaking of one.
        self._by_stem: dict[str, set[Fact]] = defaultdict(set)
        self._changing_by_stem: dict[str, set[Fact]] = defaultdict(set)
        self._by_mark: dict[object, set[Fact]] = defaultdict(set)
        self.clauses: dict[frozenset[Term], set[Fact]] = defaultdict(set)
        self.taking_back: list[Insight] = []
        self._fact_of_note: dict[str, Fact] = {}
        for one in insights:
            self._add_insight(one)
        for one_note in notes:
            self._add_note(one_note)

    def update_insight(self, was: Insight | None, now: Insight) -> bool:
        """For a new insight, or one that was judged. False: the project has to be built anew."""
        if was is None:
            self._add_insight(now)
            return now.state != REJECTED
        if was._replace(state=now.state, run=now.run) != now or REJECTED in (was.state, now.state):
            return False
        for members in (self.members[fact_of(now)], self.taking_back):
            members[:] = [now if one.id == now.id else one for one in members]
        return True

    def update_note(self, was: Note | None, now: Note) -> bool:
        """The same for a note. What a user did to it can be a veto on more than its own fact."""
        if any(one is not None and (find_edit(one) or _find_end_by_hand(one)) for one in (was, now)):
            return False
        if was is not None:
            home = self._fact_of_note[was.id]
            self.notes[home] = [one for one in self.notes[home] if one.id != was.id]
        self._add_note(now)
        return True

    def _add_insight(self, one: Insight) -> None:
        fact = fact_of(one)
        if one.state == REJECTED:
            self._rejected.add(fact)
            return
        found = form(one.text)
        if fact not in self.members:
            for stem in alike.telling(one.text):
                self._by_stem[stem].add(fact)
            for clause in found.clauses:
                self.clauses[clause].add(fact)
            for mark in alike.marks(one.text):
                self._by_mark[mark].add(fact)
        if _speaks_of_change(one):
            for stem in alike.telling(one.text):
                self._changing_by_stem[stem].add(fact)
        self.members[fact].append(one)
        if found.takes_back and one.author == USER:
            self.taking_back.append(one)

    def _add_note(self, one: Note) -> None:
        fact = self._find_fact(one)
        self._fact_of_note[one.id] = fact
        self.notes[fact].append(one)
        ended = _find_end_by_hand(one)
        if ended:
            hard = one.state == note.RETRACTED
            self._vetoes[fact].append(Veto(epoch_seconds(ended.at) or 0.0, hard, one.state == note.CLOSED))

    def _find_fact(self, one: Note) -> Fact:
        """What the note says. If none of its insights says that, because somebody worded it anew: what its first one says."""
        own = Fact(one.project, category_of(one.kind), alike.key(one.text))
        rests = [fact_of(found) for id in one.insights if (found := self._index.find_insight(id))]
        edited = find_edit(one)
        if edited:
            # The user removed the words that it had before; also those of a run that was undone since.
            for was in {fact for fact in rests if fact.key != own.key}:
                self._vetoes[was].append(Veto(epoch_seconds(edited.at) or 0.0, False))
            for step in one.history:
                if step.what == "edited" and step.was and (key := alike.key(step.was)) != own.key:
                    self._vetoes[own._replace(key=key)].append(Veto(epoch_seconds(step.at) or 0.0, False))
            if one.state == note.ACTIVE:
                self._add_insight(edit_as_insight(one, edited))
            return own
        said = [fact for fact in rests if fact.key in (own.key, own.key | _find_day(fact.key))]
        return next(iter((*said, *rests)), own)._replace(project=one.project)

    def find_veto(self, fact: Fact) -> Veto | None:
        vetoes = self._vetoes.get(fact, [])
        if fact in self._rejected and not self.active(fact):
            vetoes = [*vetoes, Veto(0.0, True)]
        return max(vetoes, key=lambda veto: (veto.hard, veto.at), default=None)

    def live(self, fact: Fact) -> list[Insight]:
        """The insights of a fact that count: those after the veto, if there is one."""
        members = self.members.get(fact, [])
        veto = self.find_veto(fact)
        return [one for one in members if _counts(one, veto)] if veto else list(members)

    def is_rejected(self, fact: Fact) -> bool:
        """A user said that it never held, and did not take that back: so it excludes nothing, whoever says it again."""
        return fact in self._rejected and not self.live(fact)

    def active(self, fact: Fact) -> list[Note]:
        return [one for one in self.notes.get(fact, []) if one.state == note.ACTIVE]

    def find_linked(self, fact: Fact, *what: str) -> list[Fact]:
        """Facts that a model has linked with this one."""
        ids = dict.fromkeys(other for one in self.members.get(fact, ()) for link, other in one.links if link in what)
        found = [fact_of(one) for id in ids if (one := self._index.find_insight(id)) is not None and not one.waits]
        return [
            other for other in dict.fromkeys(found) if other != fact and other.project == fact.project and other in self.members
        ]

    def find_sharing(self, fact: Fact, changing_only: bool = False) -> set[Fact]:
        """Facts that may be about the same: they share a telling word. `changing_only`: only those that speak of a change."""
        members, by_stem = self.members.get(fact), self._changing_by_stem if changing_only else self._by_stem
        stems = alike.telling(members[0].text) if members else frozenset()
        return set().union(*(by_stem[stem] for stem in stems if stem in by_stem)) - {fact}

    def find_rivals(self, fact: Fact) -> set[Fact]:
        """Facts that may exclude this one."""
        members = self.members.get(fact, [])
        found = self.find_sharing(fact, changing_only=not any(map(_speaks_of_change, members)))
        for mark in alike.marks(members[0].text) if members else ():
            found |= self._by_mark[mark]
        return found - {fact}


def _speaks_of_change(one: Insight) -> bool:
    return one.type == CORRECTION or alike.speaks_of_change(one.text)


def _counts(one: Insight, veto: Veto) -> bool:
    if one.author != USER and not veto.anybody:
        return False
    if veto.hard and one.source not in BY_HAND:
        return False
    at = epoch_seconds(one.said_at)
    return at is not None and at > veto.at


def _find_end_by_hand(one: Note) -> note.NoteStep | None:
    """How a user ended it. What a dream concluded is concluded again from what was said, so that does not count; but earlier
    versions closed loops, which nothing does any more: those stay closed."""
    if one.state == note.ACTIVE:
        return None
    last = next((step for step in reversed(one.history) if step.what == one.state), None)
    return last if last is not None and (one.state == note.CLOSED or not last.run) else None


def find_edit(one: Note) -> note.NoteStep | None:
    return next((step for step in reversed(one.history) if step.what == "edited"), None)


def edit_as_insight(one: Note, step: note.NoteStep) -> Insight:
    """The words to which a user edited a note, as if he had said them."""
    return Insight(_EDITED + one.id, one.kind, one.text, one.project, (), step.at, 1.0, CONFIRMED, USER, "hand")


def without_edits(members: Iterable[Insight]) -> list[Insight]:
    """Without those that stand for the edit of a note."""
    return [one for one in members if not one.id.startswith(_EDITED)]
