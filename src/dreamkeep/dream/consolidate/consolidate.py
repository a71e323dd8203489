"""Pass B: insights → notes. Decides, and says why; writes nothing. Pure.

    insights ─► facts (shelf.py) ─► what becomes of each (fate) ─► what is missing in the notes for that: decisions

What becomes of a fact follows from all that was said, and from hands on its notes; from nothing else. So it makes no difference
in which order sessions are dreamed, one by one or together, and what was planned is planned only once. `insights` says where to
look: at these, and at what they touch. With all of them, everything is thought over.

    active      one note that rests on all who said it; worded by the user who said it first, else by the agent
    superseded  something newer excludes it; a user's word counts more than an agent's. Said at the same time: both are kept
    absorbed    another fact says all of it, and more; or the same with words that mostly mean the same, if `similar` agrees
    retracted   a user said later that it does not hold;   closed: an open loop that was done
    expired     an agent's suggestion that nobody confirmed in a month of records
    barred      a user's hand is on it;   silent: a guess or a piece of evidence, which is no memory by itself
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from dreamkeep.dream.consolidate import fact_index as s
from dreamkeep.dream.consolidate import support as v
from dreamkeep.dream.consolidate.fact_index import Fact, FactIndex
from dreamkeep.event import Kind
from dreamkeep.memory import alike, note
from dreamkeep.memory import insight as i
from dreamkeep.memory.form import Term
from dreamkeep.memory.insight import Insight, note_id
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import Note
from dreamkeep.memory.score import days_between, epoch_seconds

ACTIVE, SUPERSEDED, ABSORBED, RETRACTED = "active", "superseded", "absorbed", "retracted"
CLOSED, EXPIRED, BARRED, SILENT = "closed", "expired", "barred", "silent"

#: A suggestion that nobody took up in so many days of records.
EXPIRE_DAYS = 30
#: From here on two statements are taken for alike.
_AGREES = 0.8
#: Up to so many notes may go at once whatever part of the memory that is: people change their minds.
FEW = 2


#: (one statement, another) → how alike they are, from 0 to 1.
Similar = Callable[[str, str], float]


class Decision(NamedTuple):
    kind: str
    body: dict[str, Any]


class Fate(NamedTuple):
    what: str
    why: str = ""
    #: What superseded or absorbed it.
    by: Fact | None = None


def plan(memory: Memory, insights: Sequence[Insight], *, now: str, run: str, similar: Similar | None = None) -> list[Decision]:
    """`insights`: those that are new; whether `memory` has them already makes no difference."""
    return Consolidating(similar).plan(memory, insights, now=now, run=run)


def near(memory: Memory, insights: Sequence[Insight], *, now: str, similar: Similar | None = None) -> list[Insight]:
    """Whatever these have a say in: all who say the same, or what excludes it, or what they close or take back."""
    shelf = FactIndex(memory)
    touched = _Planning(shelf, now, "", similar).touched(insights)
    return [one for about in touched for one in shelf.of(about.project).members.get(about, ())]


class Consolidating:
    """Plans again and again, as `plan` does, and does not work out anew what has not changed: for a run over many sessions."""

    def __init__(self, similar: Similar | None = None) -> None:
        """`similar`: how alike two statements are, from 0 to 1, by somebody who knows what words mean; None: nobody is there. It
        is asked only of two that the rules take for one already, but for words of which they are not sure: so however little it
        knows, it never makes one fact of two."""
        self._similar = similar
        self._shelf: FactIndex | None = None

    def plan(self, memory: Memory, insights: Sequence[Insight], *, now: str, run: str) -> list[Decision]:
        if self._shelf is None:
            self._shelf = FactIndex(memory, insights)
        else:
            self._shelf.follow(memory, insights)
        return _Planning(self._shelf, now, run, self._similar).all(insights)


def lost(memory: Memory, decisions: Iterable[tuple[str, Any]]) -> list[str]:
    """Active notes that would be gone, and not just be said by another note, nor done, nor never confirmed."""
    decisions = list(decisions)
    texts = {str(body["id"]): str(body["text"]) for kind, body in decisions if kind == Kind.NOTE_ADDED}
    gone = []
    for kind, body in decisions:
        was = memory.notes.get(body["id"])
        if was is None or was.state != note.ACTIVE or kind not in (Kind.NOTE_RETRACTED, Kind.NOTE_SUPERSEDED):
            continue
        by = str(body.get("by", ""))
        by = texts.get(by) or (memory.notes[by].text if by in memory.notes else "")
        nearly = alike.nearly(alike.key(by)) == alike.nearly(alike.key(was.text))
        if not (nearly or alike.fuller(by, was.text)):
            gone.append(was.id)
    return gone


def loss(memory: Memory, decisions: Iterable[tuple[str, Any]]) -> float:
    """Which part of the active notes would be lost (D37); 0 for a few."""
    return share(len(lost(memory, decisions)), sum(one.state == note.ACTIVE for one in memory.notes.values()))


def share(gone: int, active: int) -> float:
    return gone / active if gone > FEW else 0.0


class _Planning:
    """One plan. Fates are found when they are asked for, and then known."""

    def __init__(self, shelf: FactIndex, now: str, run: str, similar: Similar | None = None) -> None:
        self._shelf = shelf
        self._similar = similar
        self._run = run
        newest = shelf.waiting.newest(now)
        self._newest = newest[0] if newest else None
        #: The record by which others are old. Should it fall with a run that is undone, they are not, by that.
        self._by = [newest[1]] if newest else []
        self._fates: dict[Fact, Fate] = {}
        self._bare: dict[Fact, Fate] = {}
        self._against: dict[Fact, list[tuple[Fact, str]]] = {}
        #: The note that stands for a fact, and ids that this plan gives.
        self._made: dict[Fact, str] = {}
        self._ids: set[str] = set()
        self._done: list[Decision] = []

    def all(self, insights: Sequence[Insight]) -> list[Decision]:
        touched = self.touched([*insights, *self._overdue()])
        # Those that stay first: others refer to them.
        for about in sorted(touched, key=lambda about: (self.fate(about).what != ACTIVE, self._sort_key(about))):
            self._settle(about)
        general = {about.key for about in touched if about.drawer == s.SAID and about.key in self._shelf.general}
        for key in sorted(general, key=sorted):
            self._everywhere(key)
        judged = {Kind.INSIGHT_CONFIRMED: 0, Kind.INSIGHT_EXPIRED: 2}
        return sorted(self._done, key=lambda one: judged.get(one.kind, 1))

    def _sort_key(self, about: Fact) -> tuple[str, str, str]:
        first = min(self._members(about), key=v.earliest, default=None)
        return about.project, (first.said_at or "") if first else "", first.id if first else ""

    # -- where to look

    def touched(self, insights: Iterable[Insight]) -> set[Fact]:
        near: set[Fact] = set()
        for one in insights:
            about = s.fact(one)
            if about in near:
                continue
            near.add(about)
            near.update(other for other, _ in self._opposed(about))
            near.update(self._shaken(about))
        for _ in range(2):
            near.update([other for about in near for other in (*self._wider(about), *self._narrower(about), *self._twins(about))])
        return near

    def _shaken(self, about: Fact) -> Iterable[Fact]:
        """Facts that this one may close or take back."""
        project = self._shelf.of(about.project)
        said = [one for one in project.members.get(about, []) if alike.shakes(one.text)]
        for other in project.sharing(about) if said else ():
            texts = {one.text for one in project.members[other]}
            closes = other.drawer == s.LOOP and any(alike.closes(one.text, text) for one in said for text in texts)
            if closes or any(alike.takes_back(one.text, text) for one in said if one.author == i.USER for text in texts):
                yield other

    def _overdue(self) -> Iterable[Insight]:
        newest = epoch_seconds(self._newest)
        if newest is None:
            return []
        # A little later than exactly: `_stale` decides.
        late = self._shelf.waiting.late(newest - (EXPIRE_DAYS - 1) * 86_400, self._shelf.find_insight)
        return [one for one in late if self._stale(one)]

    def _stale(self, one: Insight) -> bool:
        return one.author != i.USER and days_between(one.said_at, self._newest) > EXPIRE_DAYS

    # -- a fact and its members

    def _members(self, about: Fact) -> list[Insight]:
        """Who says it, and counts: of an agent's suggestions that nobody confirmed only the fresh ones."""
        live = self._shelf.of(about.project).live(about)
        return live if v.corroborated(live) else [one for one in live if not self._stale(one) and one.state != i.EXPIRED]

    def _pinned(self, about: Fact) -> bool:
        return any(one.pinned for one in self._shelf.of(about.project).active(about))

    # -- what becomes of it

    def fate(self, about: Fact) -> Fate:
        if about not in self._fates:
            bare = self._bare_fate(about)
            free = bare.what == ACTIVE and not self._pinned(about)
            by, twin = (self._absorber(about), self._first_twin(about)) if free else (None, None)
            why = "another note says this, and more" if by else "another note says this in other words"
            self._fates[about] = Fate(ABSORBED, why, by or twin) if by or twin else bare
        return self._fates[about]

    def _bare_fate(self, about: Fact) -> Fate:
        """But for absorption, which depends on the fates of others."""
        if about not in self._bare:
            self._bare[about] = self._decide(about)
        return self._bare[about]

    def _decide(self, about: Fact) -> Fate:
        project = self._shelf.of(about.project)
        live = project.live(about)
        if not live:
            return Fate(BARRED)
        members = self._members(about)
        if not v.worth(live):
            return Fate(SILENT)
        if not members or not v.worth(members):
            return Fate(EXPIRED, f"suggested by an agent, and not confirmed in {EXPIRE_DAYS} days of records")
        if self._pinned(about):
            return Fate(ACTIVE)
        return self._taken_back(about, members) or self._closed(about, members) or self._overruled(about) or Fate(ACTIVE)

    def _taken_back(self, about: Fact, members: list[Insight]) -> Fate | None:
        says = v.find_support(members)
        project = self._shelf.of(about.project)
        for one in sorted(project.takers, key=v.earliest):
            if s.fact(one) == about or project.rejected(s.fact(one)):
                continue
            if s.newer([one], says) > 0 and alike.takes_back(one.text, v.voice(says).text):
                return Fate(RETRACTED, f"{v.who(one)}: “{v.shortly(one.text)}”")
        return None

    def _closed(self, about: Fact, members: list[Insight]) -> Fate | None:
        if about.drawer != s.LOOP:
            return None
        project = self._shelf.of(about.project)
        shown = [one for other in project.sharing(about) if other.drawer != s.LOOP for one in project.live(other)]
        for one in sorted(shown, key=v.earliest):
            if s.newer([one], members) > 0 and alike.closes(one.text, v.voice(members).text):
                return Fate(CLOSED, f"done: {v.who(one)}: “{v.shortly(one.text)}”")
        return None

    def _overruled(self, about: Fact) -> Fate | None:
        stronger = [(other, why) for other, why in self._opposed(about) if self._compare(other, about) > 0]
        if not stronger:
            return None
        best, why = stronger[0]
        for other, its_why in stronger[1:]:
            if self._compare(other, best) > 0:
                best, why = other, its_why
        voice = v.voice(self._heard(best))
        return Fate(SUPERSEDED, f"{why}: {v.who(voice)}: “{v.shortly(voice.text)}”", best)

    def _compare(self, one: Fact, other: Fact) -> int:
        """Which of two that exclude each other holds: a user's word, then the later one."""
        a, b = v.find_support(self._heard(one)), v.find_support(self._heard(other))
        if (a[0].author == i.USER) != (b[0].author == i.USER):
            return 1 if a[0].author == i.USER else -1
        return s.newer(a, b)

    def _heard(self, about: Fact) -> list[Insight]:
        """Also what a hand has retracted still excludes what it excluded: that does not come back by itself."""
        return self._shelf.of(about.project).members[about]

    def _opposed(self, about: Fact) -> list[tuple[Fact, str]]:
        """Facts that can't hold together with this one, and why; in an order of their own."""
        if about not in self._against:
            self._against[about] = sorted(self._find_opposed(about), key=lambda one: self._sort_key(one[0]))
        return self._against[about]

    def _find_opposed(self, about: Fact) -> Iterable[tuple[Fact, str]]:
        project = self._shelf.of(about.project)
        mine = project.members.get(about, [])
        for other in project.linked(about, i.SUPERSEDES, i.SUPERSEDED_BY):
            if not project.rejected(other):
                yield other, "a later note replaces it"
        if about.drawer != s.SAID or not v.worth(mine):
            return
        if all(one.by_model for one in mine):
            return  # a model was asked: it tells by links
        for other in project.rivals(about):
            if all(one.by_model for one in project.members[other]):
                continue
            if other.drawer == s.SAID and v.worth(project.members[other]) and not project.rejected(other):
                why = v.excluding(v.spoken(mine), v.spoken(project.members[other]))
                if why:
                    yield other, why

    # -- one that says all of another, and more

    def _absorber(self, about: Fact) -> Fact | None:
        fit = [other for other in self._wider(about) if self._bare_fate(other).what == ACTIVE and self._may_absorb(other, about)]
        return min(fit, key=lambda other: (-len(other.key), self._sort_key(other)), default=None)

    def _first_twin(self, about: Fact) -> Fact | None:
        """Of several that say the same one stays: the user's, then what was said first."""
        fit = [other for other in self._twins(about) if self._bare_fate(other).what == ACTIVE and not self._absorber(other)]
        first = min((about, *fit), key=self._twin_order)
        return None if first == about else first

    def _twin_order(self, about: Fact) -> tuple[bool, bool, tuple[str, str, str]]:
        return not self._pinned(about), not v.said_by_user(self._members(about)), self._sort_key(about)

    def _twins(self, about: Fact) -> list[Fact]:
        """Facts that differ only in words that mostly mean the same, if somebody who knows says that here, too."""
        project = self._shelf.of(about.project)
        mine = project.members.get(about)
        same = [other for other in project.linked(about, i.SAME) if other.drawer == about.drawer]
        if same or self._similar is None or not mine:
            return same
        others = [other for other in project.nearly.get(alike.nearly(about.key), ()) if other.drawer == about.drawer]
        return [other for other in others if other != about and self._agrees(mine[0].text, project.members[other][0].text)]

    def _agrees(self, one: str, other: str) -> bool:
        assert self._similar is not None
        first, second = sorted((one, other))
        return self._similar(first, second) >= _AGREES

    def _may_absorb(self, wide: Fact, narrow: Fact) -> bool:
        """An agent does not speak for a user."""
        return v.said_by_user(self._members(wide)) or not v.said_by_user(self._members(narrow))

    def _wider(self, about: Fact) -> list[Fact]:
        return [other for other in self._kin(about) if alike.covers(v.form_of(self._shelf, other), v.form_of(self._shelf, about))]

    def _narrower(self, about: Fact) -> list[Fact]:
        return [other for other in self._kin(about) if alike.covers(v.form_of(self._shelf, about), v.form_of(self._shelf, other))]

    def _kin(self, about: Fact) -> set[Fact]:
        project = self._shelf.of(about.project)
        if not project.members.get(about):
            return set()
        sharing = {other for clause in v.form_of(self._shelf, about).clauses for other in project.clauses[clause]}
        return {other for other in sharing if other != about and other.drawer == about.drawer}

    # -- from fates to decisions

    def _settle(self, about: Fact) -> None:
        fate = self.fate(about)
        self._settle_suggested(about, fate)
        if fate.what == ACTIVE:
            self._keep(about)
        elif fate.what in (SUPERSEDED, ABSORBED):
            self._supersede(about, fate)
        elif fate.what in (RETRACTED, CLOSED, EXPIRED):
            ends = {RETRACTED: Kind.NOTE_RETRACTED, CLOSED: Kind.NOTE_CLOSED, EXPIRED: Kind.NOTE_EXPIRED}
            by = {"on": self._by} if fate.what == EXPIRED else {}
            for one in self._unpinned(about):
                self._say(ends[fate.what], id=one.id, reason=fate.why, **by)
        elif fate.what == SILENT:
            for one in self._unasked(about):
                self._say(Kind.NOTE_EXPIRED, id=one.id, reason="nothing is left that supports it")

    def _settle_suggested(self, about: Fact, fate: Fate) -> None:
        """Suggested insights are confirmed by a user or a second session, or expire."""
        live = s.real(self._shelf.of(about.project).live(about))
        if fate.what == BARRED:
            return
        if v.corroborated(live):
            by = "a user said it" if v.said_by_user(live) else f"{len(v.sessions(live))} sessions say it"
            on = sorted(one.id for one in live)  # should they fall with a run that is undone, so does this
            for one in sorted(live, key=v.earliest):
                if one.state in (i.SUGGESTED, i.EXPIRED):
                    self._say(Kind.INSIGHT_CONFIRMED, id=one.id, reason=by, on=on)
            return
        for one in sorted(live, key=v.earliest):
            if one.state == i.SUGGESTED and self._stale(one):
                why = f"not confirmed in {EXPIRE_DAYS} days of records"
                self._say(Kind.INSIGHT_EXPIRED, id=one.id, reason=why, on=self._by)

    def _keep(self, about: Fact) -> None:
        """One active note that rests on all who say it."""
        members = sorted(self._members(about), key=v.earliest)
        rests = s.real([*members, *sorted(self._borne_out(about, members), key=v.earliest)])
        kept = min(self._shelf.of(about.project).active(about), key=v.foremost, default=None)
        if kept is None:
            self._add(about, members, rests)
            return
        self._made[about] = kept.id
        self._strengthen(kept, members, rests)
        for one in self._unpinned(about):
            if one.id != kept.id:
                self._say(Kind.NOTE_SUPERSEDED, id=one.id, by=kept.id, reason="the same fact, kept once")

    def _borne_out(self, about: Fact, members: list[Insight]) -> list[Insight]:
        """Who says a part of it bears it out, also where that part alone was overruled; no user for what only an agent said."""
        mine = v.said_by_user(members)
        twins = [other for other in self._twins(about) if self.fate(other).by == about]
        return [one for other in (*self._narrower(about), *twins) for one in self._members(other) if mine or one.author != i.USER]

    def _add(self, about: Fact, members: list[Insight], rests: list[Insight]) -> str:
        worded, kind = v.wording(members), v.kind_of(members)
        id = self._new_id(about, kind, worded.text)
        if not rests:
            return id
        earlier = self._shelf.of(about.project).notes.get(about, [])
        again = ", again after an earlier note of it ended" if earlier else ""
        reason = f"{v.who(v.voice(members))}{v.also_said(rests)}{again}"
        both = [other for other, _ in self._opposed(about) if self._stands_beside(other, about)]
        if both:
            other = v.shortly(v.voice(self._heard(both[0])).text)
            reason += f"; it excludes “{other}”, which is kept, too: {self._beside(both[0])}"
        self._say(
            Kind.NOTE_ADDED,
            id=id,
            kind=kind,
            text=worded.text,
            project=about.project,
            insights=[one.id for one in rests],
            reason=reason,
        )
        return id

    def _stands_beside(self, other: Fact, about: Fact) -> bool:
        return self.fate(other).what == ACTIVE and (self._compare(other, about) == 0 or self._pinned(other))

    def _beside(self, other: Fact) -> str:
        return "it is pinned" if self._pinned(other) else "both were said at the same time"

    def _new_id(self, about: Fact, kind: str, text: str) -> str:
        """An identity. When it had its life already, or another fact has these words (said of another day), the next one."""
        if about in self._made:
            return self._made[about]
        id = note_id(about.project, kind, text)
        life = 1
        while id in self._shelf.memory.notes or id in self._ids:
            life += 1
            id = note_id(about.project, kind, f"{text}\0{life}")
        self._ids.add(id)
        self._made[about] = id
        return id

    def _strengthen(self, kept: Note, members: list[Insight], rests: list[Insight]) -> None:
        missing = [one.id for one in rests if one.id not in kept.insights]
        better: dict[str, str] = {}
        if s.real(members) and not s.edit(kept):
            worded, kind = v.wording(members), v.kind_of(members)
            better = {} if worded.text == kept.text else {"text": worded.text}
            better |= {} if kind == kept.kind else {"kind": kind}
        if not missing and not better:
            return
        reason = f"the same fact{v.also_said(rests)}" if missing else f"worded by {v.who(v.wording(members))}"
        # Its project, too: should what added it be undone or deleted, this is what it is made of.
        self._say(Kind.NOTE_STRENGTHENED, id=kept.id, project=kept.project, insights=missing, reason=reason, **better)

    def _supersede(self, about: Fact, fate: Fate) -> None:
        assert fate.by is not None
        active = self._unpinned(about)
        ended = [one.id for one in active]
        known = self._shelf.of(about.project).notes.get(about)
        if fate.what == SUPERSEDED and not known:
            # Both are kept in history: what was thought before, and why no longer.
            members = sorted(self._members(about), key=v.earliest)
            ended = [self._add(about, members, s.real(members))]
        for id in ended:
            self._say(Kind.NOTE_SUPERSEDED, id=id, by=self._note_of(fate.by), reason=fate.why)

    def _note_of(self, about: Fact) -> str:
        """The note that stands for a fact, whatever became of it."""
        fate = self.fate(about)
        if fate.what == ABSORBED and fate.by:
            return self._note_of(fate.by)
        notes = self._shelf.of(about.project).notes.get(about, [])
        if about in self._made:
            return self._made[about]
        if notes:
            return max(notes, key=lambda one: (one.state == note.ACTIVE, one.last_at or "", one.id)).id
        if fate.what not in (ACTIVE, SUPERSEDED):
            return ""  # it never had one, and never will
        members = self._members(about)
        return self._new_id(about, v.kind_of(members), v.wording(members).text)

    def _unpinned(self, about: Fact) -> list[Note]:
        """Only a hand takes away what a hand has pinned."""
        found = [one for one in self._shelf.of(about.project).active(about) if not one.pinned]
        return sorted(found, key=lambda one: one.id)

    def _unasked(self, about: Fact) -> list[Note]:
        """Of a fact that is no memory any more: its notes, unless a user wanted one of it."""
        if any(one.source in s.BY_HAND for one in self._shelf.of(about.project).live(about)):
            return []
        return [one for one in self._unpinned(about) if all(step.run for step in one.history)]

    def _everywhere(self, key: frozenset[Term]) -> None:
        """A user's preference that could hold anywhere and was said in two projects is kept for all of them."""
        facts = [Fact(project, s.SAID, key) for project in sorted(self._shelf.general[key])]
        holds = [about for about in facts if self.fate(about).what in (ACTIVE, ABSORBED)]
        about = Fact("", s.SAID, key)
        project = self._shelf.of("")
        kept = min(project.active(about), key=v.foremost, default=None)
        own = self._members(about)
        said = [one for held in holds for one in s.real(self._members(held))]
        rests = sorted([*s.real(own), *said], key=v.earliest)
        if len(holds) >= 2 and kept:
            self._strengthen(kept, own or said, rests)
        elif len(holds) >= 2 and project.find_veto(about) is None and about not in self._made:
            self._add(about, rests, rests)
        elif len(holds) < 2 and kept and not own and not kept.pinned:
            self._say(Kind.NOTE_EXPIRED, id=kept.id, reason="it no longer holds in two projects")

    def _say(self, event: str, /, **body: Any) -> None:
        self._done.append(Decision(event, {**body, "run": self._run}))
