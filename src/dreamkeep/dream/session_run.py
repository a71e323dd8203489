"""One run over chosen sessions, under the lock: each session is read, and what it gave is journaled in one append.

Sessions were finished and indexed when they were chosen: for each only its own rows are asked for, and what is remembered is kept
up with what is appended. So a session costs the same however many were dreamed before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

from dreamkeep.dream import queries
from dreamkeep.dream.backends.api import Usage
from dreamkeep.dream.backends.model.session import ModelReader
from dreamkeep.dream.consolidate.consolidate import share
from dreamkeep.dream.consolidate.inbox import end_suggestions, suggestions
from dreamkeep.dream.deletions import Deletions
from dreamkeep.dream.parts import Ask, Parts, report
from dreamkeep.dream.read_session import BackendReading, ModelReading, RunState, SessionReading
from dreamkeep.dream.schedule import Scope, Settings
from dreamkeep.errors import DreamkeepError, Unanswered
from dreamkeep.event import Event, Ids, Kind
from dreamkeep.host import Host
from dreamkeep.memory import note
from dreamkeep.memory.dreams import COMPLETED, FAILED, PENDING, START, DreamProgress
from dreamkeep.memory.insight import REJECTED, Insight
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.score import earliest_time

_GONE = "the session no longer exists"
_STOPPED = "the dream was stopped"
_WAITING = "it is waiting for answers"
#: Why a note is suggested.
_FOUND = "a dream found it; the user decides"
#: After so many sessions the index is brought up to date: then neither it nor who asks it has much to catch up with.
_SESSIONS_BETWEEN_UPDATES = 50

Decisions = Sequence[tuple[str, Mapping[str, Any]]]


class SessionResult(NamedTuple):
    """What one session gave. `events`: to be appended together, `dream.read` last."""

    session: str
    status: str
    reason: str
    events: list[Event]
    usage: Usage = Usage()
    dropped: Mapping[str, int] = {}


class SessionRun:
    """It runs once, under the lock."""

    def __init__(
        self,
        host: Host,
        append: Callable[[Sequence[Event]], object],
        ids: Ids,
        ask: Ask[Any],
        settings: Settings,
        parts: Parts,
        name: str,
        *,
        glance: Ask[Any] | None = None,
        deletions: Deletions | None = None,
    ) -> None:
        """`name`: of the backend. `glance`: asks the index as it is. `deletions`: for a run that writes; a preview has none."""
        self._append = append
        self._ask = ask
        self._settings = settings
        self._parts = parts
        self._deletions = deletions
        self._name = name
        self._state = RunState(host, ids, ask, glance or ask, parts, deletions)
        self._started_at = self._state.now()
        self._model = ModelReader(parts.model, settings.chunk_tokens) if parts.model is not None else None
        self._reading = (
            ModelReading(self._state, self._model) if self._model else BackendReading(self._state, settings.chunk_tokens)
        )
        self._journal_edits: Callable[[], object] = lambda: None
        self._used = Usage()
        self._changes: Counter[str] = Counter()
        self._suggested = 0
        #: Suggestions that nobody decided on in time.
        self._expired = 0
        self._dropped: Counter[str] = Counter()
        self._sessions: list[dict[str, Any]] = []
        #: Notes that were active when the run began; and those of them that it removed.
        self._active_before: frozenset[str] = frozenset()
        self._removed: set[str] = set()

    @property
    def memory(self) -> Memory:
        return self._state.memory

    def run(
        self,
        scope: Scope,
        *,
        publish: Callable[[str], list[dict[str, Any]]] | None = None,
        journal_edits: Callable[[], object] = lambda: None,
        presumed: Sequence[Event] = (),
    ) -> dict[str, Any]:
        """The report. `publish`: writes the pages, given the run's id; the report says what became of them. `journal_edits`:
        journals what was edited on pages meanwhile. `presumed`: events that a preview takes for journaled."""
        self._journal_edits = journal_edits
        self._state.memory = self._ask(queries.load_remembered)
        for event in presumed:
            self.memory.apply(event)
        self._active_before = frozenset(one.id for one in self.memory.notes.values() if one.state == note.ACTIVE)
        listed = [_list_session(one, scope.again) for one in scope.sessions]
        began = {"trigger": scope.trigger, "backend": self._name, "sessions": listed, "shelves": True}
        self._journal([self._state.event(Kind.DREAM_STARTED, **began)])
        self._read_sessions(scope)
        self._journal(self._reconsider())
        self._journal(self._merge_all())
        ended = end_suggestions(self.memory, self._state.now(), self._state.id)
        self._journal([self._state.event(kind, **body) for kind, body in ended])
        pages = {"pages": publish(self._state.id)} if publish else {}
        self._sessions = [_hide_reason(one) if self._state.is_deleted(one["id"]) else one for one in self._sessions]
        made = {**self._report(scope, self._state.stop_reason), **pages}
        self._journal([self._state.event(Kind.DREAM_FINISHED, report=made)])
        for one in self._sessions:
            if one.get("reason", _GONE) != _GONE:
                self._forget_if_deleted(one["id"])
        return made

    # -- one session after the other

    def _read_sessions(self, scope: Scope) -> None:
        for n, (one, after) in enumerate(zip_longest(scope.sessions, scope.sessions[1:]), 1):
            stop = self._state.stop_reason
            try:
                done = self._put_off(one, stop) if stop else self._read_session(one, scope.sessions[n:])
            except KeyboardInterrupt:
                self._leave_off(scope, scope.sessions[n - 1 :])
                raise
            self._journal(_with_next(done.events, after))
            self._forget_if_deleted(one.session)
            self._used = self._used.plus(done.usage)
            self._dropped.update(done.dropped)
            self._sessions.append({"id": one.session, "status": done.status, **({"reason": done.reason} if done.reason else {})})
            if self._deletions and n % _SESSIONS_BETWEEN_UPDATES == 0:
                self._ask(lambda store: None)

    def _read_session(self, one: DreamProgress, following: Sequence[DreamProgress]) -> SessionResult:
        try:
            reading = self._reading.read(one, following)
            if reading is None:
                return self._fail(one, _GONE)
            return self._put_off(one, _WAITING) if reading.is_waiting else self._conclude(one, reading)
        except (DreamkeepError, OSError) as problem:
            return self._fail(one, str(problem))
        except Exception as problem:  # a backend is anybody's code, and a session's words are anything: it is this one's failure
            return self._fail(one, f"{type(problem).__name__}: {problem}")

    def _fail(self, one: DreamProgress, why: str) -> SessionResult:
        return self._leave_unread(one, FAILED, self._state.redact_reason(why))

    def _put_off(self, one: DreamProgress, why: str) -> SessionResult:
        return self._leave_unread(one, PENDING, why)

    def _leave_unread(self, one: DreamProgress, status: str, why: str) -> SessionResult:
        read = self._state.event(Kind.DREAM_READ, session=one.session, upto=one.read, status=status, reason=why)
        return SessionResult(one.session, status, why, [read])

    def _leave_off(self, scope: Scope, left: Sequence[DreamProgress]) -> None:
        """The user stopped the run: no session failed by that, nor was tried. What was read before is kept."""
        events: list[Event] = []
        for one, after in zip_longest(left, left[1:]):
            events += _with_next(self._put_off(one, _STOPPED).events, after)
            self._sessions.append({"id": one.session, "status": PENDING, "reason": _STOPPED})
        self._journal([*events, self._state.event(Kind.DREAM_FINISHED, report=self._report(scope, _STOPPED))])

    def _conclude(self, one: DreamProgress, reading: SessionReading) -> SessionResult:
        # Its completion was recorded after all that it holds was captured.
        limits = one.completion_at, self._state.now()
        insights = [found._replace(said_at=earliest_time(found.said_at, *limits)) for found in reading.insights]
        added = [self._state.event(Kind.INSIGHT_ADDED, **{**found.as_json(), "run": self._state.id}) for found in insights]
        from_others, now = self._learn_from_others(), self._state.now()
        if self._model is None and not any(found.waits for found in insights):
            decisions = self._parts.consolidate(self.memory, [*insights, *from_others], now, self._state.id)
        else:
            decisions = self._decide(insights, from_others, added, now)
        why = self._exceeds_loss_guard(one.session, decisions)
        if why:
            failed = self._fail(one, why)
            return SessionResult(one.session, FAILED, why, failed.events, reading.usage, reading.dropped)
        notes = [self._state.event(kind, **body) for kind, body in decisions]
        # What failed has failed, also where the budget ended after it: else nobody would ever count that, nor tell why.
        left = self._state.stop_reason if reading.upto < one.finished else ""
        status = FAILED if reading.failure else PENDING if left else COMPLETED
        why = " ".join(filter(None, (reading.failure, left)))
        artifacts = [*(found.id for found in insights), *(str(body["id"]) for kind, body in decisions if kind == Kind.NOTE_ADDED)]
        read = self._state.event(
            Kind.DREAM_READ,
            session=one.session,
            upto=reading.upto if why else one.finished,
            status=status,
            reason=why,
            artifacts=artifacts,
            **({"also": reading.also} if why and reading.also else {}),
        )
        return SessionResult(one.session, status, why, [*reading.opened, *added, *notes, read], reading.usage, reading.dropped)

    # -- what is journaled and remembered

    def _journal(self, events: Sequence[Event]) -> None:
        """First durable, then applied: what the run remembers is what whoever reads the journal has."""
        if not events:
            return
        if self._deletions:
            self._deletions.note_own(events)
        self._append(events)
        for event in events:
            before = len(suggestions(self.memory.notes.values())) if event.kind == Kind.DREAM_SHELVED else 0
            self._expired += event.kind == Kind.NOTE_EXPIRED and self._is_suggested(str(event.body["id"]))
            self.memory.apply(event)
            self._changes[event.kind] += 1
            self._suggested += event.kind == Kind.NOTE_ADDED and event.body.get("state") == note.SUGGESTED
            if event.kind == Kind.DREAM_SHELVED:
                self._suggested += len(suggestions(self.memory.notes.values())) - before

    def _is_suggested(self, id: str) -> bool:
        found = self.memory.notes.get(id)
        return found is not None and found.state == note.SUGGESTED

    def _forget_if_deleted(self, session: str) -> None:
        """A session was deleted while it was read. What the run journaled of it came after that deletion, so the run removes it.
        Asked after the append: a deletion that begins later than this finds it there."""
        if self._deletions and self._state.is_deleted(session):
            self._deletions.forget(session)
            self._state.memory = self._ask(queries.load_remembered)

    def _learn_from_others(self) -> list[Insight]:
        """What others journaled while a backend worked is remembered from here on; the insights that are new by that. A user may
        have said it by hand, on a page."""
        if not self._deletions:
            return []
        self._journal_edits()
        if not self._deletions.pop_changed():
            return []
        before, self._state.memory = self.memory.insights, self._ask(queries.load_remembered)
        return [one for id, one in self.memory.insights.items() if id not in before]

    def _reconsider(self) -> list[Event]:
        """What others said while this run wrote: neither knew of the other's words then."""
        said = self._learn_from_others()
        decisions = self._parts.consolidate(self.memory, said, self._state.now(), self._state.id) if said else ()
        return [] if self._exceeds_loss_guard("", decisions) else [self._state.event(kind, **body) for kind, body in decisions]

    def _exceeds_loss_guard(self, session: str, decisions: Decisions) -> str:
        """Why these decisions are refused; "" where they are allowed. Measured against what is remembered now; and, with what
        this run removed before, against what was active when it began."""
        allowed = self._settings.loss_guard
        alone = self._parts.loss(self.memory, decisions)
        gone = self._active_before & set(self._parts.lost(self.memory, decisions))
        together = share(len(self._removed | gone), len(self._active_before)) if gone else 0.0
        if max(alone, together) <= allowed:
            self._removed |= gone
            return ""
        if alone > allowed:
            what, way = f"it would remove {alone:.0%} of the notes", "DREAMKEEP_DREAM_LOSS_GUARD=1 dreamkeep dream"
        else:
            what, way = f"with it this run would remove {together:.0%} of the notes", "dreamkeep dream"
        return f"{what}; {allowed:.0%} is allowed (dream.loss_guard). If that is right, run `{way} --session {session}`"

    # -- what follows for the notes, with a model

    def _merge_all(self) -> list[Event]:
        """What the insights that nobody compared yet have to do with what is remembered. What can't be asked now is asked by the
        next run, or when no session waits for answers any more."""
        if self._model is None or self._state.stop_reason or any(one.get("reason") == _WAITING for one in self._sessions):
            return []  # with what the sessions that wait give, it would be another question
        unmerged = [one for one in self.memory.insights.values() if one.is_unmerged]
        unmerged.sort(key=lambda one: (one.project, one.said_at or "", one.id))
        events: list[Event] = []
        for _, new in groupby(unmerged, lambda one: one.project):
            try:
                events += self._merge(list(new), self._model)
            except Exception as problem:  # whoever is asked is anybody: the notes stay as they are
                if not isinstance(problem, Unanswered):
                    self._dropped[f"not merged: {type(problem).__name__}"] += 1
                if self._state.must_stop(problem):
                    break
        return events

    def _merge(self, new: list[Insight], reader: ModelReader) -> list[Event]:
        before = reader.model.spent
        try:
            links = reader.merge(self.memory, new, self._find_near_files)
        finally:
            self._used = self._used.plus(reader.model.spent.minus(before))
        self._dropped.update(f"known from {body['known'].rpartition(':')[0]}" for _, body in links if "known" in body)
        now = self._state.now()
        events = [self._state.event(kind, **body) for kind, body in links]
        events.append(self._state.event(Kind.DREAM_MERGED, insights=[one.id for one in new]))
        decisions = self._decide([], [], events, now)
        if self._exceeds_loss_guard("", decisions):
            return []
        return [*events, *(self._state.event(kind, **body) for kind, body in decisions)]

    def _find_near_files(self, one: Insight) -> dict[str, tuple[str, str]]:
        """What the user's own files say near it, by the name that a request gives it."""
        from dreamkeep.dream.consolidate.known_files import nearest_statements

        session = one.evidence[0].session if one.evidence else ""
        summary = self._state.glance(lambda store: store.session(session)) if session else None
        statements = self._parts.known(summary.cwd) if summary is not None else ()
        return {found.name: (found.place, found.text) for found in nearest_statements(one.text, statements)}

    def _decide(
        self, insights: Sequence[Insight], from_others: Sequence[Insight], events: Iterable[Event], now: str
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """What follows for the notes once these events are known: what is clear becomes a note, the rest waits in the inbox."""
        from dreamkeep.dream.consolidate.statements import suggest

        after, linked = self.memory.copy(), list[str]()
        for event in events:
            after.apply(event)
            if event.kind == Kind.INSIGHT_LINKED:
                linked += (str(event.body["id"]), str(event.body["other"]))
        new = {one.id for one in insights}
        known = [after.insights[id] for id in dict.fromkeys((*(one.id for one in insights), *linked)) if id in after.insights]
        counting = [one for one in known if not one.waits and one.state != REJECTED]
        decisions = list(self._parts.consolidate(after, [*counting, *from_others], now, self._state.id))
        for n, (kind, body) in enumerate(decisions):
            after.apply(Event(f"planned-{n}", kind, now, body))
        for one in known:
            if one.waits and one.id in new:
                for made in suggest(after, one, keep=True, reason=_FOUND, run=self._state.id).decisions:
                    after.apply(Event(f"suggested-{one.id}", made.kind, now, made.body))
                    decisions.append((made.kind, made.body))
        return decisions

    # -- the report

    def _report(self, scope: Scope, why: str) -> dict[str, Any]:
        statuses = Counter(one["status"] for one in self._sessions)
        good = statuses[COMPLETED]
        in_vain = bool(statuses[FAILED] or self._state.unanswered)
        status = "completed" if good == len(self._sessions) else "partial" if good or not in_vain else "failed"
        return report(
            scope,
            status=status,
            why=why,
            run=self._state.id,
            started_at=self._started_at,
            finished_at=self._state.now(),
            processed=good,
            failed=statuses[FAILED],
            insights_added=self._changes[Kind.INSIGHT_ADDED],
            notes={
                "added": max(0, self._changes[Kind.NOTE_ADDED] - self._suggested),
                "suggested": self._suggested,
                "strengthened": self._changes[Kind.NOTE_STRENGTHENED],
                "superseded": self._changes[Kind.NOTE_SUPERSEDED],
                "retracted": self._changes[Kind.NOTE_RETRACTED] + self._changes[Kind.NOTE_EXPIRED] - self._expired,
                "expired": self._expired,
            },
            dropped=[{"why": reason, "count": count} for reason, count in sorted(self._dropped.items())],
            usage=self._used._asdict(),
            sessions=self._sessions,
            **({"unanswered": self._state.unanswered} if self._state.unanswered else {}),
        )


def _list_session(one: DreamProgress, again: bool) -> dict[str, Any]:
    """`again`: it is read from its beginning, or from where on an undone run had read it (`schedule.asked_for`)."""
    taken_back = one.taken_back is not None and one.read <= one.taken_back
    told = {"again": START} if again else {"again": True} if taken_back else {}
    return {"session": one.session, "first": one.read + 1, "last": one.finished, **told}


def _hide_reason(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Why a session failed may quote it; not of one that was deleted since."""
    return {**listed, **({"reason": _GONE} if "reason" in listed else {})}


def _with_next(events: list[Event], after: DreamProgress | None) -> list[Event]:
    """The append also names the session that comes next: a run that dies now has tried that one."""
    *others, read = events
    return events if after is None else [*others, read._replace(body={**read.body, "next": after.session})]
