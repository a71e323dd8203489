"""Pass B: insights → notes. It decides and gives reasons; it writes nothing. Pure.

    insights ─► facts (fact_index.py) ─► the fate of each fact ─► what the notes lack for that: decisions

The fate of a fact follows from everything that was said, from how a model linked it to others (`insight.linked`), and from what
users did to its notes; from nothing else. So the order in which sessions are dreamed makes no difference, and planning twice
decides nothing twice. `insights` says where to look: at these, and at what they touch. With all insights, everything is decided
again.

    active      one note that rests on all who said it, in the words of the first user who said it, else of the agent
    superseded  something newer excludes it: a model linked the two, or, where no model read them, their words do
                (memory/alike.py). A user's word counts more than an agent's. Of two said at the same time both stay
    absorbed    another fact says all of it and more, or a model says that another fact says the same
    retracted   a user said later that it does not hold
    expired     an agent's suggestion that nobody confirmed in a month of records
    vetoed      a user ended or edited its note
    silent      a guess or a piece of evidence, which is no memory by itself
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dreamkeep.dream.consolidate.fact_index import (
    BY_HAND,
    SAID,
    Fact,
    FactIndex,
    compare_last,
    fact_of,
    find_edit,
    without_edits,
)
from dreamkeep.dream.consolidate.support import (
    describe_repetition,
    describe_speaker,
    find_exclusion,
    find_last_support,
    find_support,
    find_wording,
    form_of,
    group_by_wording,
    has_user,
    is_corroborated,
    is_worth_a_note,
    kind_of,
    order_by_time,
    order_of_notes,
    sessions_of,
    shorten,
)
from dreamkeep.event import Kind
from dreamkeep.memory import alike, insight, note
from dreamkeep.memory.insight import SAME, SUGGESTED, SUPERSEDED_BY, SUPERSEDES, USER, Insight, note_id
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import Note
from dreamkeep.memory.score import days_between, epoch_seconds

ACTIVE, SUPERSEDED, ABSORBED, RETRACTED = "active", "superseded", "absorbed", "retracted"
EXPIRED, VETOED, SILENT = "expired", "vetoed", "silent"

#: A suggestion expires after so many days of records if nobody confirmed it.
EXPIRE_DAYS = 30
#: So many notes may go at once, whatever share of the memory that is: people change their minds.
FEW = 2


class Decision(NamedTuple):
    kind: str
    body: dict[str, Any]


class Fate(NamedTuple):
    what: str
    why: str = ""
    #: What superseded or absorbed it.
    by: Fact | None = None


def plan(memory: Memory, insights: Sequence[Insight], *, now: str, run: str) -> list[Decision]:
    """`insights`: those that are new; whether `memory` has them already makes no difference."""
    return Consolidating().plan(memory, insights, now=now, run=run)


def near(memory: Memory, insights: Sequence[Insight], *, now: str) -> list[Insight]:
    """All insights on which these have an effect: those that say the same, exclude it, or are taken back by it."""
    index = FactIndex(memory)
    touched = _Planning(index, now, "").find_touched(insights)
    return [one for fact in touched for one in index.of(fact.project).members.get(fact, ())]


class Consolidating:
    """Plans repeatedly, as `plan` does, and keeps the index up to date in between: for a run over many sessions."""

    def __init__(self) -> None:
        self._index: FactIndex | None = None

    def plan(self, memory: Memory, insights: Sequence[Insight], *, now: str, run: str) -> list[Decision]:
        if self._index is None:
            self._index = FactIndex(memory, insights)
        else:
            self._index.follow(memory, insights)
        return _Planning(self._index, now, run).plan(insights)


def lost(memory: Memory, decisions: Iterable[tuple[str, Any]]) -> list[str]:
    """Active notes that would end though no other note says the same. What expires was never confirmed, and does not count."""
    decisions = list(decisions)
    texts = {str(body["id"]): str(body["text"]) for kind, body in decisions if kind == Kind.NOTE_ADDED}
    gone = []
    for kind, body in decisions:
        was = memory.notes.get(body["id"])
        if was is None or was.state != note.ACTIVE or kind not in (Kind.NOTE_RETRACTED, Kind.NOTE_SUPERSEDED):
            continue
        by = str(body.get("by", ""))
        by = texts.get(by) or (memory.notes[by].text if by in memory.notes else "")
        if alike.key(by) != alike.key(was.text) and not alike.fuller(by, was.text):
            gone.append(was.id)
    return gone


def loss(memory: Memory, decisions: Iterable[tuple[str, Any]]) -> float:
    """Which share of the active notes would be lost (D37); 0 for a few."""
    return share(len(lost(memory, decisions)), sum(one.state == note.ACTIVE for one in memory.notes.values()))


def share(gone: int, active: int) -> float:
    return gone / active if gone > FEW else 0.0


class _Planning:
    """One plan. Fates are worked out when they are needed, and then remembered."""

    def __init__(self, index: FactIndex, now: str, run: str) -> None:
        self._index = index
        self._run = run
        newest = index.suggestions.newest(now)
        self._newest = newest[0] if newest else None
        #: The record by whose time others are old. If the run that found it is undone, they no longer are.
        self._by = [newest[1]] if newest else []
        self._fates: dict[Fact, Fate] = {}
        self._fates_alone: dict[Fact, Fate] = {}
        self._opposition: dict[Fact, list[tuple[Fact, str]]] = {}
        #: The note that stands for each fact, and the ids that this plan gives.
        self._note_ids: dict[Fact, str] = {}
        self._ids: set[str] = set()
        self._decisions: list[Decision] = []

    def plan(self, insights: Sequence[Insight]) -> list[Decision]:
        touched = self.find_touched([*insights, *self._find_overdue()])
        # First those that stay: others refer to them.
        for fact in sorted(touched, key=lambda fact: (self.find_fate(fact).what != ACTIVE, self._sort_key(fact))):
            self._settle(fact)
        judged = {Kind.INSIGHT_CONFIRMED: 0, Kind.INSIGHT_EXPIRED: 2}
        return sorted(self._decisions, key=lambda one: judged.get(one.kind, 1))

    def _sort_key(self, fact: Fact) -> tuple[str, str, str]:
        first = min(self._find_members(fact), key=order_by_time, default=None)
        return fact.project, (first.said_at or "") if first else "", first.id if first else ""

    # -- where to look

    def find_touched(self, insights: Iterable[Insight]) -> set[Fact]:
        near: set[Fact] = set()
        for one in insights:
            fact = fact_of(one)
            if fact in near:
                continue
            near.add(fact)
            near.update(other for other, _ in self._list_opposed(fact))
            near.update(self._find_taken_back(fact))
        for _ in range(2):
            for fact in tuple(near):
                near.update(self._find_wider(fact), self._find_narrower(fact), self._find_twins(fact))
        return near

    def _find_taken_back(self, fact: Fact) -> Iterable[Fact]:
        """Facts that this one may take back."""
        project = self._index.of(fact.project)
        taking = [one for one in project.members.get(fact, []) if one.author == USER and alike.is_taking_back(one.text)]
        for other in project.find_sharing(fact) if taking else ():
            texts = {one.text for one in project.members[other]}
            if any(alike.takes_back(one.text, text) for one in taking for text in texts):
                yield other

    def _find_overdue(self) -> Iterable[Insight]:
        newest = epoch_seconds(self._newest)
        if newest is None:
            return []
        # A day too many is no harm: `_is_stale` decides.
        older = self._index.suggestions.find_older(newest - (EXPIRE_DAYS - 1) * 86_400, self._index.find_insight)
        return [one for one in older if self._is_stale(one)]

    def _is_stale(self, one: Insight) -> bool:
        return one.author != USER and days_between(one.said_at, self._newest) > EXPIRE_DAYS

    # -- a fact and its members

    def _find_members(self, fact: Fact) -> list[Insight]:
        """The insights that count. Of an agent's suggestions that nobody confirmed, only the fresh ones do."""
        live = self._index.of(fact.project).live(fact)
        return (
            live if is_corroborated(live) else [one for one in live if not self._is_stale(one) and one.state != insight.EXPIRED]
        )

    def _is_pinned(self, fact: Fact) -> bool:
        return any(one.pinned for one in self._index.of(fact.project).active(fact))

    # -- what becomes of it

    def find_fate(self, fact: Fact) -> Fate:
        if fact not in self._fates:
            alone = self._find_fate_alone(fact)
            free = alone.what == ACTIVE and not self._is_pinned(fact)
            by, twin = (self._find_absorber(fact), self._find_first_twin(fact)) if free else (None, None)
            why = "another note says this, and more" if by else "another note says this in other words"
            self._fates[fact] = Fate(ABSORBED, why, by or twin) if by or twin else alone
        return self._fates[fact]

    def _find_fate_alone(self, fact: Fact) -> Fate:
        """Without absorption, which depends on the fates of others."""
        if fact not in self._fates_alone:
            self._fates_alone[fact] = self._find_own_fate(fact)
        return self._fates_alone[fact]

    def _is_active_alone(self, fact: Fact) -> bool:
        return self._find_fate_alone(fact).what == ACTIVE

    def _find_own_fate(self, fact: Fact) -> Fate:
        project = self._index.of(fact.project)
        live = project.live(fact)
        if not live:
            return Fate(VETOED)
        members = self._find_members(fact)
        if not is_worth_a_note(live):
            return Fate(SILENT)
        if not members or not is_worth_a_note(members):
            return Fate(EXPIRED, f"suggested by an agent, and not confirmed in {EXPIRE_DAYS} days of records")
        if self._is_pinned(fact):
            return Fate(ACTIVE)
        return self._find_retraction(fact, members) or self._find_overruling(fact) or Fate(ACTIVE)

    def _find_retraction(self, fact: Fact, members: list[Insight]) -> Fate | None:
        says = find_support(members)
        project = self._index.of(fact.project)
        for one in sorted(project.taking_back, key=order_by_time):
            if fact_of(one) == fact or project.is_rejected(fact_of(one)):
                continue
            if compare_last([one], says) > 0 and alike.takes_back(one.text, find_last_support(says).text):
                return Fate(RETRACTED, f"{describe_speaker(one)}: “{shorten(one.text)}”")
        return None

    def _find_overruling(self, fact: Fact) -> Fate | None:
        stronger = [(other, why) for other, why in self._list_opposed(fact) if self._compare(other, fact) > 0]
        if not stronger:
            return None
        best, why = stronger[0]
        for other, its_why in stronger[1:]:
            if self._compare(other, best) > 0:
                best, why = other, its_why
        voice = find_last_support(self._find_all_members(best))
        return Fate(SUPERSEDED, f"{why}: {describe_speaker(voice)}: “{shorten(voice.text)}”", best)

    def _compare(self, one: Fact, other: Fact) -> int:
        """Which of two that exclude each other holds: a user's word before an agent's, then the later one."""
        a, b = find_support(self._find_all_members(one)), find_support(self._find_all_members(other))
        if (a[0].author == USER) != (b[0].author == USER):
            return 1 if a[0].author == USER else -1
        return compare_last(a, b)

    def _find_all_members(self, fact: Fact) -> list[Insight]:
        """Also those under a veto. What a user retracted still excludes what it excluded: that does not come back by itself."""
        return self._index.of(fact.project).members[fact]

    def _list_opposed(self, fact: Fact) -> list[tuple[Fact, str]]:
        """Facts that can't hold together with this one, and why; in a fixed order."""
        if fact not in self._opposition:
            self._opposition[fact] = sorted(self._find_opposed(fact), key=lambda one: self._sort_key(one[0]))
        return self._opposition[fact]

    def _find_opposed(self, fact: Fact) -> Iterable[tuple[Fact, str]]:
        project = self._index.of(fact.project)
        mine = project.members.get(fact, [])
        for other in project.find_linked(fact, SUPERSEDES, SUPERSEDED_BY):
            if not project.is_rejected(other):
                yield other, "a later note replaces it"
        if fact.category != SAID or not is_worth_a_note(mine):
            return
        if all(one.by_model for one in mine):
            return  # a model compared them and set links
        for other in project.find_rivals(fact):
            if all(one.by_model for one in project.members[other]):
                continue
            if other.category == SAID and is_worth_a_note(project.members[other]) and not project.is_rejected(other):
                why = find_exclusion(group_by_wording(mine), group_by_wording(project.members[other]))
                if why:
                    yield other, why

    # -- facts that say all of another, or the same

    def _find_absorber(self, fact: Fact) -> Fact | None:
        wider = (other for other in self._find_wider(fact) if self._is_active_alone(other))
        fit = [other for other in wider if self._may_absorb(other, fact)]
        return min(fit, key=lambda other: (-len(other.key), self._sort_key(other)), default=None)

    def _find_first_twin(self, fact: Fact) -> Fact | None:
        """Of several that say the same, the one that stays: the user's, then what was said first. None if that is this one."""
        twins = (other for other in self._find_twins(fact) if self._is_active_alone(other))
        fit = [other for other in twins if not self._find_absorber(other)]
        first = min((fact, *fit), key=self._twin_order)
        return None if first == fact else first

    def _twin_order(self, fact: Fact) -> tuple[bool, bool, tuple[str, str, str]]:
        return not self._is_pinned(fact), not has_user(self._find_members(fact)), self._sort_key(fact)

    def _find_twins(self, fact: Fact) -> list[Fact]:
        """Facts that say the same in other words: a model links them."""
        return [other for other in self._index.of(fact.project).find_linked(fact, SAME) if other.category == fact.category]

    def _may_absorb(self, wide: Fact, narrow: Fact) -> bool:
        """An agent does not speak for a user."""
        return has_user(self._find_members(wide)) or not has_user(self._find_members(narrow))

    def _find_wider(self, fact: Fact) -> list[Fact]:
        return [other for other in self._find_kin(fact) if alike.covers(form_of(self._index, other), form_of(self._index, fact))]

    def _find_narrower(self, fact: Fact) -> list[Fact]:
        return [other for other in self._find_kin(fact) if alike.covers(form_of(self._index, fact), form_of(self._index, other))]

    def _find_kin(self, fact: Fact) -> set[Fact]:
        project = self._index.of(fact.project)
        if not project.members.get(fact):
            return set()
        sharing = {other for clause in form_of(self._index, fact).clauses for other in project.clauses[clause]}
        return {other for other in sharing if other != fact and other.category == fact.category}

    # -- from fates to decisions

    def _settle(self, fact: Fact) -> None:
        fate = self.find_fate(fact)
        self._settle_suggested(fact, fate)
        if fate.what == ACTIVE:
            self._keep(fact)
        elif fate.what in (SUPERSEDED, ABSORBED):
            self._supersede(fact, fate)
        elif fate.what in (RETRACTED, EXPIRED):
            ends = {RETRACTED: Kind.NOTE_RETRACTED, EXPIRED: Kind.NOTE_EXPIRED}
            by = {"on": self._by} if fate.what == EXPIRED else {}
            for one in self._find_unpinned(fact):
                self._decide(ends[fate.what], id=one.id, reason=fate.why, **by)
        elif fate.what == SILENT:
            for one in self._find_unasked(fact):
                self._decide(Kind.NOTE_EXPIRED, id=one.id, reason="nothing is left that supports it")

    def _settle_suggested(self, fact: Fact, fate: Fate) -> None:
        """Suggested insights are confirmed by a user or a second session, or expire."""
        live = without_edits(self._index.of(fact.project).live(fact))
        if fate.what == VETOED:
            return
        if is_corroborated(live):
            by = "a user said it" if has_user(live) else f"{len(sessions_of(live))} sessions say it"
            on = sorted(one.id for one in live)  # if they fall with a run that is undone, so does this
            for one in sorted(live, key=order_by_time):
                if one.state in (SUGGESTED, insight.EXPIRED):
                    self._decide(Kind.INSIGHT_CONFIRMED, id=one.id, reason=by, on=on)
            return
        for one in sorted(live, key=order_by_time):
            if one.state == SUGGESTED and self._is_stale(one):
                why = f"not confirmed in {EXPIRE_DAYS} days of records"
                self._decide(Kind.INSIGHT_EXPIRED, id=one.id, reason=why, on=self._by)

    def _keep(self, fact: Fact) -> None:
        """One active note that rests on all insights that say it."""
        members = sorted(self._find_members(fact), key=order_by_time)
        rests = without_edits([*members, *sorted(self._find_supporters(fact, members), key=order_by_time)])
        kept = min(self._index.of(fact.project).active(fact), key=order_of_notes, default=None)
        if kept is None:
            self._add(fact, members, rests)
            return
        self._note_ids[fact] = kept.id
        self._strengthen(kept, members, rests)
        for one in self._find_unpinned(fact):
            if one.id != kept.id:
                self._decide(Kind.NOTE_SUPERSEDED, id=one.id, by=kept.id, reason="the same fact, kept once")

    def _find_supporters(self, fact: Fact, members: list[Insight]) -> list[Insight]:
        """Insights that say a part of it or the same support it, also where that part alone was overruled. A user's insight never
        supports what only an agent said."""
        mine = has_user(members)
        twins = [other for other in self._find_twins(fact) if self.find_fate(other).by == fact]
        return [
            one
            for other in (*self._find_narrower(fact), *twins)
            for one in self._find_members(other)
            if mine or one.author != USER
        ]

    def _add(self, fact: Fact, members: list[Insight], rests: list[Insight]) -> str:
        worded, kind = find_wording(members), kind_of(members)
        id = self._make_id(fact, kind, worded.text)
        if not rests:
            return id
        earlier = self._index.of(fact.project).notes.get(fact, [])
        again = ", again after an earlier note of it ended" if earlier else ""
        reason = f"{describe_speaker(find_last_support(members))}{describe_repetition(rests)}{again}"
        both = [other for other, _ in self._list_opposed(fact) if self._coexists(other, fact)]
        if both:
            other = shorten(find_last_support(self._find_all_members(both[0])).text)
            reason += f"; it excludes “{other}”, which is kept, too: {self._describe_coexistence(both[0])}"
        self._decide(
            Kind.NOTE_ADDED,
            id=id,
            kind=kind,
            text=worded.text,
            project=fact.project,
            insights=[one.id for one in rests],
            reason=reason,
        )
        return id

    def _coexists(self, other: Fact, fact: Fact) -> bool:
        return self.find_fate(other).what == ACTIVE and (self._compare(other, fact) == 0 or self._is_pinned(other))

    def _describe_coexistence(self, other: Fact) -> str:
        return "it is pinned" if self._is_pinned(other) else "both were said at the same time"

    def _make_id(self, fact: Fact, kind: str, text: str) -> str:
        """The id follows from the words. If such a note existed before, or another fact has these words (said of another day),
        it is numbered."""
        if fact in self._note_ids:
            return self._note_ids[fact]
        id = note_id(fact.project, kind, text)
        life = 1
        while id in self._index.memory.notes or id in self._ids:
            life += 1
            id = note_id(fact.project, kind, f"{text}\0{life}")
        self._ids.add(id)
        self._note_ids[fact] = id
        return id

    def _strengthen(self, kept: Note, members: list[Insight], rests: list[Insight]) -> None:
        missing = [one.id for one in rests if one.id not in kept.insights]
        better: dict[str, str] = {}
        if without_edits(members) and not find_edit(kept):
            worded, kind = find_wording(members), kind_of(members)
            better = {} if worded.text == kept.text else {"text": worded.text}
            better |= {} if kind == kept.kind else {"kind": kind}
        if not missing and not better:
            return
        reason = (
            f"the same fact{describe_repetition(rests)}" if missing else f"worded by {describe_speaker(find_wording(members))}"
        )
        # With its project: if the event that added the note is undone or deleted, the note is made of this one.
        self._decide(Kind.NOTE_STRENGTHENED, id=kept.id, project=kept.project, insights=missing, reason=reason, **better)

    def _supersede(self, fact: Fact, fate: Fate) -> None:
        assert fate.by is not None
        active = self._find_unpinned(fact)
        ended = [one.id for one in active]
        known = self._index.of(fact.project).notes.get(fact)
        if fate.what == SUPERSEDED and not known:
            # The history keeps both: what was thought before, and why no longer.
            members = sorted(self._find_members(fact), key=order_by_time)
            ended = [self._add(fact, members, without_edits(members))]
        for id in ended:
            self._decide(Kind.NOTE_SUPERSEDED, id=id, by=self._find_note_id(fate.by), reason=fate.why)

    def _find_note_id(self, fact: Fact) -> str:
        """The id of the note that stands for a fact, whatever its fate."""
        fate = self.find_fate(fact)
        if fate.what == ABSORBED and fate.by:
            return self._find_note_id(fate.by)
        notes = self._index.of(fact.project).notes.get(fact, [])
        if fact in self._note_ids:
            return self._note_ids[fact]
        if notes:
            return max(notes, key=lambda one: (one.state == note.ACTIVE, one.last_at or "", one.id)).id
        if fate.what not in (ACTIVE, SUPERSEDED):
            return ""  # it never had a note, and never will
        members = self._find_members(fact)
        return self._make_id(fact, kind_of(members), find_wording(members).text)

    def _find_unpinned(self, fact: Fact) -> list[Note]:
        """Only the user ends what the user has pinned."""
        found = [one for one in self._index.of(fact.project).active(fact) if not one.pinned]
        return sorted(found, key=lambda one: one.id)

    def _find_unasked(self, fact: Fact) -> list[Note]:
        """The notes of a fact that is no memory any more, unless a user asked for one."""
        if any(one.source in BY_HAND for one in self._index.of(fact.project).live(fact)):
            return []
        return [one for one in self._find_unpinned(fact) if all(step.run for step in one.history)]

    def _decide(self, event: str, /, **body: Any) -> None:
        self._decisions.append(Decision(event, {**body, "run": self._run}))
