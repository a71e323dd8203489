"""Which signals speak of the same compaction. A pure fold; the reasons are in docs/decisions/006-compaction.md.

Identity decides, never time:
  1. the same id, or the same native session made by a split, is the same compaction, whoever says it;
  2. otherwise a *voice* tells of each compaction once: its next "completed" belongs to one that it has not told of yet, and to a
     new one when it has told of all. So the count is the largest that any voice gives, in whatever order they speak.
Session ids and turns only choose between several that a signal may belong to: they make labels better, never the count wrong.

A session's own ids are its root id and those that accepted signals lead to (old_scope → scope). A signal about any other waits:
it counts, from the place where it was said, once its id turns out to be this session's; a subagent's never does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dreamkeep.agents.facts import Signal
from dreamkeep.session.compactions import compaction as c
from dreamkeep.session.compactions.compaction import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, VOICES, Entity, Moment, Place

#: Hermes goes on in a new session at a turn's end: a boundary, no compaction.
_ROLLOVER = "turn_boundary_rollover"
# What an agent claims must not fill the memory: so many compactions at once that nobody saw, so many signals of unknown sessions.
_MOST_AT_ONCE = 64
_MOST_WAITING = 256


class BoundaryMark(NamedTuple):
    """A boundary that is no compaction."""

    id: str
    reason: str
    moment: Moment


class Pairing:
    """`hear` one signal after the other. `saved()` is JSON data; a new Pairing made from it goes on with the same results."""

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
        # These only find faster what `entities` says.
        self._named: dict[str, int] = {}
        self._open: dict[int, None] = {}
        self._unbound: dict[int, None] = {}
        self._nameless: dict[int, None] = {}  # counted by a report's depth, and named by nobody's split: it clashes with none
        self._untold: dict[str, dict[int, None]] = {voice: {} for voice in VOICES}
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

    def hear(self, signal: Signal, moment: Moment) -> None:
        if not self._is_ours(signal):
            self._waiting = [*self._waiting, (signal, moment)][-_MOST_WAITING:]
            return
        learned = {signal.scope, signal.old_scope} - self._ours.keys() - {""}
        self._ours.update(dict.fromkeys(sorted(learned)))
        self._structured = self._structured or signal.source == c.SOURCE[c.REPORT]
        self._apply(c.voice_of(signal), signal, moment)
        if learned:
            waiting, self._waiting = self._waiting, []
            for said, then in waiting:
                self.hear(said, then)

    def settled(self, turn: str, at: str | None) -> None:
        """A turn is over: what was opened in it cannot go on."""
        if turn:
            self._close(lambda entity: entity.turn == turn, CANCELLED, c.TURN_SETTLED, at)

    def died(self, owner: str, at: str | None) -> None:
        self._close(lambda entity: entity.owner == owner, FAILED, c.AGENT_DIED, at)

    def given_up(self, opened_at: str | None, closing: str, at: str | None) -> None:
        """Nothing will end it any more. What is told of it later still counts."""
        self._close(lambda entity: entity.opened_at == opened_at, FAILED, closing, at)

    def changed(self, reason: str, id: str, moment: Moment) -> None:
        """The context changed without a compaction."""
        self._replayed = {}  # a load may tell the history once more, from its beginning
        self._mark(reason, id, moment)

    def bound(self, high: Place) -> None:
        """The first place after the last log lines: what they told of had happened by then."""
        for n in list(self._unbound):
            entity = self.entities[n]
            if entity.spot:
                self._put(entity._replace(spot=entity.spot._replace(high=high)))
        if self._waiting and self._waiting[-1][1].high is None:
            self._waiting = [(said, then if then.high else then._replace(high=high)) for said, then in self._waiting]

    # -- one signal

    def _apply(self, voice: str, signal: Signal, moment: Moment) -> None:
        if signal.phase in ("started", "progress"):
            if not signal.historic:
                self._started(voice, signal, moment)
        elif c.changed_nothing(signal):
            self._over(voice, signal, moment, COMPLETED)
        elif signal.phase in (FAILED, CANCELLED):
            self._over(voice, signal, moment, signal.phase)
        elif signal.phase == COMPLETED:
            self._completed(voice, signal, moment)
        if voice == c.REPORT and signal.depth is not None:
            self._pass_over()

    def _started(self, voice: str, signal: Signal, moment: Moment) -> None:
        entity = self._find(signal)
        if entity is not None and entity.state != IN_PROGRESS:
            return  # told too late: what is over is not opened again
        if entity is None:
            entity = self._going_on(voice, signal, moment)
        if entity is None:
            if signal.phase == "progress" and not signal.id:
                return  # a last breath of something that is over
            entity = self._new(voice, signal, moment, IN_PROGRESS)
        self._put(c.alive_at(c.with_word(entity, voice, signal, "started"), signal, moment))

    def _going_on(self, voice: str, signal: Signal, moment: Moment) -> Entity | None:
        """The open one that a start, or a heartbeat, without a known id belongs to."""
        own = next((one for one in self._open_ones() if voice in one.told), None)
        if own is None:
            return next(self._open_ones(), None)
        if not c.clash(own, voice, signal):
            return own
        if not c.misfit(own, signal)[0]:
            self._put(own._replace(state=CANCELLED, closing=c.SUPERSEDED, closed_at=signal.at or moment.at or None))
        return None

    def _completed(self, voice: str, signal: Signal, moment: Moment) -> None:
        known = self._find(signal)
        fresh = 1 if known is None else 0
        if signal.depth is not None:
            deepest = self._depths.get(voice, 0)
            fresh = min(signal.depth - deepest, _MOST_AT_ONCE)
            self._depths[voice] = max(signal.depth, deepest)
        if known is not None:
            fresh -= c.untold(known, voice)
            self._told_again(known, voice, signal, moment)
        else:
            fresh -= 1
        for _ in range(fresh):
            # It is deeper by several, and names the last of them at most.
            self._claim(voice, _unnamed(signal), moment)
        if known is None and fresh >= 0:
            self._claim(voice, signal, moment)

    def _told_again(self, known: Entity, voice: str, signal: Signal, moment: Moment) -> None:
        if not c.untold(known, voice) or (signal.historic and known.state == COMPLETED):
            self._put(c.with_word(known, voice, signal, COMPLETED))  # no more than perhaps a reason, or numbers
        elif signal.historic or known.state == COMPLETED:
            self._complete(known, voice, signal, moment)
        else:
            self._claim(voice, signal, moment, known)

    def _claim(self, voice: str, signal: Signal, moment: Moment, own: Entity | None = None) -> None:
        """The compaction of a "completed" that names none of those that are. `own`: the one that this voice saw starting."""
        if signal.reason.startswith(_ROLLOVER):
            name = c.made_by(signal) or signal.scope or (f"depth {signal.depth}" if signal.depth is not None else "")
            if not signal.historic:
                self._mark(signal.reason, name and f"rollover:{name}", moment)
        elif signal.historic:
            self._replay(voice, signal, moment)
        else:
            started = (one for one in self._open_ones() if voice in one.told and not c.clash(one, voice, signal))
            own = own or next(started, None)
            entity = self._choose(voice, signal, moment, own) or self._new(voice, signal, moment, COMPLETED)
            if own is not None and own.n != entity.n:
                entity = self._joined(entity, own, voice)
            self._complete(entity, voice, signal, moment)

    def _joined(self, entity: Entity, own: Entity, voice: str) -> Entity:
        """What this voice saw starting is what others had told of before. If not all of it can be, its word alone moves over."""
        if both := c.same(entity, own):
            self._drop(own)
            return both
        self._put(_without(own, voice))
        return entity._replace(told={**entity.told, voice: own.told[voice]})

    def _choose(self, voice: str, signal: Signal, moment: Moment, own: Entity | None) -> Entity | None:
        """The oldest that this voice has not told of, the best fit first; what was given up for dead comes last, newest first."""
        untold = [e for n in self._untold[voice] if c.may_tell(e := self.entities[n], voice, moment)]
        may = [e for e in untold if not c.clash(e, voice, signal)]
        if done := [e for e in may if e.state == COMPLETED]:
            return min(done, key=lambda e: (e.passed, *c.misfit(e, signal), e.n))
        if voice == c.REPORT and (entity := self._exchanged(untold, signal, moment)):
            return entity
        for entity in untold:
            # Others completed what this voice saw starting under another name: so that was not what they spoke of.
            if entity.state == COMPLETED and voice in entity.told and not c.clash(_without(entity, voice), voice, signal):
                return self._part(entity, voice)
        if goes_on := [own] if own else [e for e in may if e.state == IN_PROGRESS]:
            return min(goes_on, key=lambda e: (*c.misfit(e, signal), e.n))
        dead = [e for e in may if e.state in (FAILED, CANCELLED)]
        return min(dead, key=lambda e: (voice not in e.told, *c.misfit(e, signal), -e.n), default=None)

    def _exchanged(self, untold: list[Entity], signal: Signal, moment: Moment) -> Entity | None:
        """One that the reports counted without a name, for what they name now. What it was taken for is one that they left out.

        A depth counts, and points at nothing: which one it was taken for was a guess. Without this, such a guess would make one
        too many when all that is left made other sessions.
        """
        left_out = [e for e in untold if e.state == COMPLETED]
        if not left_out or not self._nameless:
            return None
        nameless = [self.entities[n] for n in self._nameless]
        counted = _unnamed(signal)
        self._complete(min(left_out, key=lambda e: (e.passed, *c.misfit(e, counted), e.n)), c.REPORT, counted, moment)
        return min(nameless, key=lambda e: (*c.misfit(e, signal), -e.n))

    def _part(self, entity: Entity, voice: str) -> Entity:
        """What this voice saw starting becomes one of its own, of which nobody has said how it ended."""
        self._last += 1
        word = entity.told[voice]
        own = Entity(self._last, CANCELLED, c.SUPERSEDED, {voice: word}, word.at, None, word.at, entity.turn, entity.owner, [])
        rest = _without(entity, voice)
        self._put(rest)
        self._put(own)
        return rest

    def _complete(self, entity: Entity, voice: str, signal: Signal, moment: Moment) -> None:
        """A completion stands, whatever was said or guessed before it."""
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
        self._put(c.placed(c.with_word(entity, voice, signal, COMPLETED), voice, moment))

    def _over(self, voice: str, signal: Signal, moment: Moment, state: str) -> None:
        """It failed, was cancelled, or (state completed) changed nothing."""
        noop = state == COMPLETED
        if signal.historic:
            return
        entity = self._find(signal) or self._ended_too(voice, signal, noop) or self._new(voice, signal, moment, FAILED)
        if not c.untold(entity, voice):
            return  # what is done is done
        if c.counts(entity):
            if voice not in entity.told:
                return
            self._part(entity, voice)
            entity = self._find(signal) or self.entities[self._last]
        if entity.closing not in (COMPLETED, FAILED, CANCELLED):  # a guess gives way to a word
            entity = entity._replace(state=state, closing=state, closed_at=signal.at or moment.at or None, noop=noop)
        self._put(c.with_word(entity, voice, signal, state))

    def _ended_too(self, voice: str, signal: Signal, noop: bool) -> Entity | None:
        """What goes on, its own first; else one of which others told the same end."""
        goes_on = sorted(self._open_ones(), key=lambda e: voice not in e.told)
        if noop:
            # What changed nothing for one voice is no news of what others saw starting.
            goes_on = [e for e in goes_on if e.told.keys() == {voice}]
        over = [self.entities[n] for n in sorted(self._untold[voice], reverse=True)]
        same = [e for e in over if e.noop == noop and e.state != IN_PROGRESS and (noop or e.state != COMPLETED)]
        may = [*goes_on, *(e for e in same if voice not in e.told or e.told[voice].phase == "started")]
        return next((e for e in may if not c.clash(e, voice, signal)), None)

    def _replay(self, voice: str, signal: Signal, moment: Moment) -> None:
        """History told again: the next that this voice has not told of; where nothing names it, the next since the load."""
        done = [e for e in self.entities.values() if e.state == COMPLETED and not e.noop]
        if signal.id or signal.depth is not None or c.made_by(signal):
            entity = next((e for e in done if c.untold(e, voice) and not c.clash(e, voice, signal)), None)
        else:
            at = self._replayed.get(voice, 0)
            self._replayed[voice] = at + 1
            entity = done[at] if at < len(done) else None
        entity = entity or self._new(voice, signal, moment, COMPLETED)._replace(historic=True, closing=COMPLETED)
        self._put(c.with_word(entity, voice, signal, COMPLETED))

    # -- finding and keeping

    def _is_ours(self, signal: Signal) -> bool:
        return not signal.scope or signal.scope in self._ours or signal.old_scope in self._ours

    def _find(self, signal: Signal) -> Entity | None:
        n = self._named.get(f"id:{c.name_of(signal)}") or self._named.get(f"made:{c.made_by(signal)}")
        return self.entities[n] if n else None

    def _open_ones(self) -> Iterator[Entity]:
        return (self.entities[n] for n in list(self._open))

    def _close(self, which: Callable[[Entity], bool], state: str, closing: str, at: str | None) -> None:
        for entity in self._open_ones():
            if which(entity):
                self._put(entity._replace(state=state, closing=closing, closed_at=at))

    def _mark(self, reason: str, id: str, moment: Moment) -> None:
        if not id or all(mark.id != id for mark in self.marks):
            self.marks.append(BoundaryMark(id, reason, moment))

    def _pass_over(self) -> None:
        """The agent has told its own count: what only log lines know by now is not in it. (If it is, that costs a label.)"""
        for n in self._untold[c.REPORT]:
            entity = self.entities[n]
            if entity.told.keys() == {c.SCRAPED} and entity.state == COMPLETED:
                self.entities[n] = entity._replace(passed=True)

    def _new(self, voice: str, signal: Signal, moment: Moment, state: str) -> Entity:
        self._last += 1
        at = signal.at or moment.at or None
        fallback = voice == c.SCRAPED and self._structured
        return Entity(self._last, state, "", {}, at, None, None, signal.turn or moment.turn, moment.owner, [], fallback=fallback)

    def _put(self, entity: Entity) -> None:
        n = entity.n
        self.entities[n] = entity
        for name in _names(entity):
            self._named[name] = n
        _keep(self._open, n, entity.state == IN_PROGRESS)
        _keep(self._unbound, n, entity.spot is not None and entity.spot.high is None)
        _keep(self._nameless, n, c.counts(entity) and not entity.made and c.is_nameless(entity, c.REPORT))
        for voice in VOICES:
            _keep(self._untold[voice], n, c.untold(entity, voice))

    def _drop(self, entity: Entity) -> None:
        n = entity.n
        del self.entities[n]
        for name in _names(entity):
            del self._named[name]
        for numbers in (self._open, self._unbound, self._nameless, *self._untold.values()):
            _keep(numbers, n, False)


def _unnamed(signal: Signal) -> Signal:
    """No more than that there was one."""
    return signal._replace(id="", scope="", old_scope="", before=None, after=None, reason="", turn="")


def _without(entity: Entity, voice: str) -> Entity:
    return entity._replace(told={other: word for other, word in entity.told.items() if other != voice})


def _names(entity: Entity) -> list[str]:
    names = [f"id:{told.id}" for told in entity.told.values() if told.id]
    return [*dict.fromkeys(names), f"made:{entity.made}"] if entity.made else list(dict.fromkeys(names))


def _keep(numbers: dict[int, None], n: int, wanted: bool) -> None:
    if wanted:
        numbers[n] = None
    else:
        numbers.pop(n, None)
