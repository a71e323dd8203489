"""Which signals mean the same compaction. A pure fold; the reasons are in docs/decisions/006-compaction.md.

Identity decides, never time:

1. The same id, or the same native session made by a split, means the same compaction, whoever says it. 2. Otherwise a *speaker*
reports each compaction once. Its next "completed" belongs to a compaction that it has not reported yet; if it
   has reported all, to a new one. So the count is the largest that any speaker gives, in whatever order they speak.

Session ids and turns only choose between several compactions that a signal may mean. They make labels better, and never change
the count.

A session's own ids are its root id and those to which accepted signals lead (old_scope → scope). A signal about any other id
waits. It counts, from the place where it came, once its id turns out to be this session's. A subagent's never does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dreamkeep.agents.facts import Signal
from dreamkeep.session.compactions import compaction as c
from dreamkeep.session.compactions.compaction import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, SPEAKERS, Entity, Moment, Place

#: Hermes goes on in a new session at a turn's end: a boundary, no compaction.
_ROLLOVER = "turn_boundary_rollover"
# An agent's claims must not fill the memory: so many unseen compactions at once, so many signals about unknown sessions.
_MOST_AT_ONCE = 64
_MOST_WAITING = 256


class BoundaryMark(NamedTuple):
    """A boundary that is no compaction."""

    id: str
    reason: str
    moment: Moment


class Pairing:
    """Takes one signal after the other. `saved()` is JSON data, from which another Pairing continues with the same results."""

    def __init__(self, root: str, saved: Mapping[str, Any] | None = None) -> None:
        saved = saved or {}
        self.entities: dict[int, Entity] = {}
        self.marks = [BoundaryMark(id, reason, c.moment_from(moment)) for id, reason, moment in saved.get("marks", ())]
        self._last: int = saved.get("last", 0)
        self._ours: dict[str, None] = dict.fromkeys(saved.get("ours", [root]))
        self._depths: dict[str, int] = dict(saved.get("depths", {}))
        self._replayed: dict[str, int] = dict(saved.get("replayed", {}))
        self._structured: bool = saved.get("structured", False)
        self._waiting = [(Signal(*signal), c.moment_from(moment)) for signal, moment in saved.get("waiting", ())]
        # The following are indexes of `entities`.
        self._named: dict[str, int] = {}
        self._open: dict[int, None] = {}
        self._unbound: dict[int, None] = {}
        self._nameless: dict[int, None] = {}  # counted by a report without a name, and no split named it: it may be any
        self._awaiting: dict[str, dict[int, None]] = {speaker: {} for speaker in SPEAKERS}
        for entity in saved.get("entities", ()):
            self._put(c.entity_from(entity))

    def saved(self) -> dict[str, Any]:
        return {
            "entities": c.as_plain_data(list(self.entities.values())),
            "marks": c.as_plain_data(self.marks),
            "last": self._last,
            "ours": list(self._ours),
            "depths": dict(self._depths),
            "replayed": dict(self._replayed),
            "structured": self._structured,
            "waiting": c.as_plain_data(self._waiting),
        }

    # -- what happens

    def add_signal(self, signal: Signal, moment: Moment) -> None:
        if not self._is_about_us(signal):
            self._waiting = [*self._waiting, (signal, moment)][-_MOST_WAITING:]
            return
        learned = {signal.scope, signal.old_scope} - self._ours.keys() - {""}
        self._ours.update(dict.fromkeys(sorted(learned)))
        self._structured = self._structured or signal.source == c.SOURCE[c.REPORT]
        self._apply(c.speaker_of(signal), signal, moment)
        if learned:
            waiting, self._waiting = self._waiting, []
            for said, then in waiting:
                self.add_signal(said, then)

    def settle_turn(self, turn: str, at: str | None) -> None:
        """A turn is over: what was opened in it cannot go on."""
        if turn:
            self._close(lambda entity: entity.turn == turn, CANCELLED, c.TURN_SETTLED, at)

    def end_owner(self, owner: str, at: str | None) -> None:
        self._close(lambda entity: entity.owner == owner, FAILED, c.AGENT_DIED, at)

    def give_up(self, opened_at: str | None, closing: str, at: str | None) -> None:
        """Nothing will end it any more. What is reported later still counts."""
        self._close(lambda entity: entity.opened_at == opened_at, FAILED, closing, at)

    def add_boundary(self, reason: str, id: str, moment: Moment) -> None:
        """The context changed without a compaction."""
        self._replayed = {}  # a load may tell the history once more, from its beginning
        self._add_mark(reason, id, moment)

    def set_upper_bound(self, high: Place) -> None:
        """The first place after the last log lines. What they reported had happened by then."""
        for n in list(self._unbound):
            entity = self.entities[n]
            if entity.spot:
                self._put(entity._replace(spot=entity.spot._replace(high=high)))
        if self._waiting and self._waiting[-1][1].high is None:
            self._waiting = [(said, then if then.high else then._replace(high=high)) for said, then in self._waiting]

    # -- one signal

    def _apply(self, speaker: str, signal: Signal, moment: Moment) -> None:
        if signal.phase in ("started", "progress"):
            if not signal.historic:
                self._start(speaker, signal, moment)
        elif c.changed_nothing(signal):
            self._end(speaker, signal, moment, COMPLETED)
        elif signal.phase in (FAILED, CANCELLED):
            self._end(speaker, signal, moment, signal.phase)
        elif signal.phase == COMPLETED:
            self._complete_signal(speaker, signal, moment)
        if speaker == c.REPORT and signal.depth is not None:
            self._mark_passed()

    def _start(self, speaker: str, signal: Signal, moment: Moment) -> None:
        entity = self._find(signal)
        if entity is not None and entity.state != IN_PROGRESS:
            return  # too late: a finished compaction does not start again
        if entity is None:
            entity = self._find_open(speaker, signal, moment)
        if entity is None:
            if signal.phase == "progress" and not signal.id:
                return  # a late heartbeat of a finished one
            entity = self._new(speaker, signal, moment, IN_PROGRESS)
        self._put(c.note_sign_of_life(c.add_statement(entity, speaker, signal, "started"), signal, moment))

    def _find_open(self, speaker: str, signal: Signal, moment: Moment) -> Entity | None:
        """The open compaction for a start, or a heartbeat, without a known id."""
        own = next((entity for entity in self._open_entities() if speaker in entity.statements), None)
        if own is None:
            return next(self._open_entities(), None)
        if not c.is_other(own, speaker, signal):
            return own
        if not c.misfit(own, signal)[0]:
            self._put(own._replace(state=CANCELLED, closing=c.SUPERSEDED, closed_at=signal.at or moment.at or None))
        return None

    def _complete_signal(self, speaker: str, signal: Signal, moment: Moment) -> None:
        known = self._find(signal)
        fresh = 1 if known is None else 0
        if signal.depth is not None:
            deepest = self._depths.get(speaker, 0)
            fresh = min(signal.depth - deepest, _MOST_AT_ONCE)
            self._depths[speaker] = max(signal.depth, deepest)
        if known is not None:
            fresh -= c.awaits_completion(known, speaker)
            self._complete_known(known, speaker, signal, moment)
        else:
            fresh -= 1
        for _ in range(fresh):
            # Several happened since; the signal can only name the last.
            self._match_completed(speaker, _unnamed(signal), moment)
        if known is None and fresh >= 0:
            self._match_completed(speaker, signal, moment)

    def _complete_known(self, known: Entity, speaker: str, signal: Signal, moment: Moment) -> None:
        if not c.awaits_completion(known, speaker) or (signal.historic and known.state == COMPLETED):
            self._put(c.add_statement(known, speaker, signal, COMPLETED))  # at most, it adds a reason or numbers
        elif signal.historic or known.state == COMPLETED:
            self._complete(known, speaker, signal, moment)
        else:
            self._match_completed(speaker, signal, moment, known)

    def _match_completed(self, speaker: str, signal: Signal, moment: Moment, own: Entity | None = None) -> None:
        """Find or make the compaction of a "completed" without a known name. `own`: the one whose start this speaker reported."""
        if signal.reason.startswith(_ROLLOVER):
            name = c.made_by(signal) or signal.scope or (f"depth {signal.depth}" if signal.depth is not None else "")
            if not signal.historic:
                self._add_mark(signal.reason, name and f"rollover:{name}", moment)
        elif signal.historic:
            self._repeat(speaker, signal, moment)
        else:
            started = (
                entity
                for entity in self._open_entities()
                if speaker in entity.statements and not c.is_other(entity, speaker, signal)
            )
            own = own or next(started, None)
            entity = self._choose_match(speaker, signal, moment, own) or self._new(speaker, signal, moment, COMPLETED)
            if own is not None and own.n != entity.n:
                entity = self._join_started(entity, own, speaker)
            self._complete(entity, speaker, signal, moment)

    def _join_started(self, entity: Entity, own: Entity, speaker: str) -> Entity:
        """Others had already reported what this speaker saw starting: join the two, or move its word over."""
        if merged := c.merge(entity, own):
            self._drop(own)
            return merged
        self._put(_without(own, speaker))
        return entity._replace(statements={**entity.statements, speaker: own.statements[speaker]})

    def _choose_match(self, speaker: str, signal: Signal, moment: Moment, own: Entity | None) -> Entity | None:
        """The oldest that this speaker has not reported, the best fit first. Those given up for dead come last, newest first."""
        awaiting = [e for n in self._awaiting[speaker] if c.may_speak_of(e := self.entities[n], speaker, moment)]
        may = [e for e in awaiting if not c.is_other(e, speaker, signal)]
        if done := [e for e in may if e.state == COMPLETED]:
            return min(done, key=lambda e: (e.passed, *c.misfit(e, signal), e.n))
        if speaker == c.REPORT and (entity := self._swap_nameless(awaiting, signal, moment)):
            return entity
        for entity in awaiting:
            # This speaker reported its start under another name, and others its end: so they meant another one.
            if (
                entity.state == COMPLETED
                and speaker in entity.statements
                and not c.is_other(_without(entity, speaker), speaker, signal)
            ):
                return self._split_off(entity, speaker)
        if goes_on := [own] if own else [e for e in may if e.state == IN_PROGRESS]:
            return min(goes_on, key=lambda e: (*c.misfit(e, signal), e.n))
        dead = [e for e in may if e.state in (FAILED, CANCELLED)]
        return min(dead, key=lambda e: (speaker not in e.statements, *c.misfit(e, signal), -e.n), default=None)

    def _swap_nameless(self, awaiting: list[Entity], signal: Signal, moment: Moment) -> Entity | None:
        """One that the reports counted without a name, for the one that they name now. Their count then goes to one left out.

        A count points at no compaction, so the choice was a guess. Without this swap, a wrong guess would make one too many
        when all the others made other sessions.
        """
        left_out = [e for e in awaiting if e.state == COMPLETED]
        if not left_out or not self._nameless:
            return None
        nameless = [self.entities[n] for n in self._nameless]
        counted = _unnamed(signal)
        self._complete(min(left_out, key=lambda e: (e.passed, *c.misfit(e, counted), e.n)), c.REPORT, counted, moment)
        return min(nameless, key=lambda e: (*c.misfit(e, signal), -e.n))

    def _split_off(self, entity: Entity, speaker: str) -> Entity:
        """Move this speaker's word to a compaction of its own, whose end nobody has reported."""
        self._last += 1
        word = entity.statements[speaker]
        own = Entity(self._last, CANCELLED, c.SUPERSEDED, {speaker: word}, word.at, None, word.at, entity.turn, entity.owner, [])
        rest = _without(entity, speaker)
        self._put(rest)
        self._put(own)
        return rest

    def _complete(self, entity: Entity, speaker: str, signal: Signal, moment: Moment) -> None:
        """A completion counts, whatever was said or guessed before."""
        opened = entity.state == IN_PROGRESS
        ended_at = c.earliest(signal.at, moment.at)
        overdue = opened and None not in (entity.heard_at, ended_at) and not c.in_time(entity.heard_at, ended_at)
        orphaned = opened and entity.owner not in ("", moment.owner)
        entity = entity._replace(
            state=COMPLETED,
            closing=COMPLETED,
            closed_at=entity.closed_at if entity.state == COMPLETED else signal.at or moment.at or None,
            late=entity.late or overdue or orphaned or entity.state in (FAILED, CANCELLED),
            noop=False,
            historic=False,
            done=entity.done or moment.place,
        )
        self._put(c.place_boundary(c.add_statement(entity, speaker, signal, COMPLETED), speaker, moment))

    def _end(self, speaker: str, signal: Signal, moment: Moment, state: str) -> None:
        """It failed, was cancelled, or (state completed) changed nothing."""
        noop = state == COMPLETED
        if signal.historic:
            return
        entity = self._find(signal) or self._find_ended(speaker, signal, noop) or self._new(speaker, signal, moment, FAILED)
        if not c.awaits_completion(entity, speaker):
            return  # this speaker has reported its completion
        if c.is_counted(entity):
            if speaker not in entity.statements:
                return
            self._split_off(entity, speaker)
            entity = self._find(signal) or self.entities[self._last]
        if entity.closing not in (COMPLETED, FAILED, CANCELLED):  # a report replaces a guess
            entity = entity._replace(state=state, closing=state, closed_at=signal.at or moment.at or None, noop=noop)
        self._put(c.add_statement(entity, speaker, signal, state))

    def _find_ended(self, speaker: str, signal: Signal, noop: bool) -> Entity | None:
        """An open one, its own first; else one whose end others reported in the same way."""
        goes_on = sorted(self._open_entities(), key=lambda e: speaker not in e.statements)
        if noop:
            # "It changed nothing" from one speaker says nothing about a start that others reported.
            goes_on = [e for e in goes_on if e.statements.keys() == {speaker}]
        over = [self.entities[n] for n in sorted(self._awaiting[speaker], reverse=True)]
        same = [e for e in over if e.noop == noop and e.state != IN_PROGRESS and (noop or e.state != COMPLETED)]
        may = [*goes_on, *(e for e in same if speaker not in e.statements or e.statements[speaker].phase == "started")]
        return next((e for e in may if not c.is_other(e, speaker, signal)), None)

    def _repeat(self, speaker: str, signal: Signal, moment: Moment) -> None:
        """Repeated history: the next that this speaker has not reported; without a name, the next since the load."""
        done = [e for e in self.entities.values() if e.state == COMPLETED and not e.noop]
        if signal.id or signal.depth is not None or c.made_by(signal):
            entity = next((e for e in done if c.awaits_completion(e, speaker) and not c.is_other(e, speaker, signal)), None)
        else:
            at = self._replayed.get(speaker, 0)
            self._replayed[speaker] = at + 1
            entity = done[at] if at < len(done) else None
        entity = entity or self._new(speaker, signal, moment, COMPLETED)._replace(historic=True, closing=COMPLETED)
        self._put(c.add_statement(entity, speaker, signal, COMPLETED))

    # -- finding and keeping

    def _is_about_us(self, signal: Signal) -> bool:
        return not signal.scope or signal.scope in self._ours or signal.old_scope in self._ours

    def _find(self, signal: Signal) -> Entity | None:
        n = self._named.get(f"id:{c.name_of(signal)}") or self._named.get(f"made:{c.made_by(signal)}")
        return self.entities[n] if n else None

    def _open_entities(self) -> Iterator[Entity]:
        return (self.entities[n] for n in list(self._open))

    def _close(self, which: Callable[[Entity], bool], state: str, closing: str, at: str | None) -> None:
        for entity in self._open_entities():
            if which(entity):
                self._put(entity._replace(state=state, closing=closing, closed_at=at))

    def _add_mark(self, reason: str, id: str, moment: Moment) -> None:
        if not id or all(mark.id != id for mark in self.marks):
            self.marks.append(BoundaryMark(id, reason, moment))

    def _mark_passed(self) -> None:
        """The agent reported its own count. It lacks those that only log lines know by now. (If not, only a label is wrong.)"""
        for n in self._awaiting[c.REPORT]:
            entity = self.entities[n]
            if entity.statements.keys() == {c.SCRAPED} and entity.state == COMPLETED:
                self.entities[n] = entity._replace(passed=True)

    def _new(self, speaker: str, signal: Signal, moment: Moment, state: str) -> Entity:
        self._last += 1
        at = signal.at or moment.at or None
        fallback = speaker == c.SCRAPED and self._structured
        return Entity(self._last, state, "", {}, at, None, None, signal.turn or moment.turn, moment.owner, [], fallback=fallback)

    def _put(self, entity: Entity) -> None:
        n = entity.n
        self.entities[n] = entity
        for name in _names(entity):
            self._named[name] = n
        _keep(self._open, n, entity.state == IN_PROGRESS)
        _keep(self._unbound, n, entity.spot is not None and entity.spot.high is None)
        _keep(self._nameless, n, c.is_counted(entity) and not entity.made and c.is_nameless(entity, c.REPORT))
        for speaker in SPEAKERS:
            _keep(self._awaiting[speaker], n, c.awaits_completion(entity, speaker))

    def _drop(self, entity: Entity) -> None:
        n = entity.n
        del self.entities[n]
        for name in _names(entity):
            del self._named[name]
        for numbers in (self._open, self._unbound, self._nameless, *self._awaiting.values()):
            _keep(numbers, n, False)


def _unnamed(signal: Signal) -> Signal:
    """The signal, reduced to the fact that there was one."""
    return signal._replace(id="", scope="", old_scope="", before=None, after=None, reason="", turn="")


def _without(entity: Entity, speaker: str) -> Entity:
    return entity._replace(statements={other: word for other, word in entity.statements.items() if other != speaker})


def _names(entity: Entity) -> list[str]:
    names = [f"id:{word.id}" for word in entity.statements.values() if word.id]
    return [*dict.fromkeys(names), f"made:{entity.made}"] if entity.made else list(dict.fromkeys(names))


def _keep(numbers: dict[int, None], n: int, wanted: bool) -> None:
    if wanted:
        numbers[n] = None
    else:
        numbers.pop(n, None)
