"""Dreams of a keep: which sessions wait, and one run over them, under a lock that dies with its process.

    lock ─► is it time? (asked again, under it) ─► dream.started ─► each session: chunks ─► backend ─► checked ─► consolidated
         ─► ONE append: insights, notes, and `dream.read` last ─► … ─► pages ─► dream.finished

What a session gave and that it was read are one append, and every id in it is an identity: after a crash in between, the next run
ends with exactly one result. A session that fails keeps its reason and is tried again; what its other chunks gave stays. Nothing
waits here: a lock that somebody else holds is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.dream import queries, schedule
from dreamkeep.dream.leases import Leases
from dreamkeep.dream.parts import Ask, Parts, report
from dreamkeep.errors import from_os
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host, make_folders
from dreamkeep.memory.dreams import DreamProgress
from dreamkeep.memory.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dreamkeep.dream.deletions import Deletions
    from dreamkeep.dream.session_run import SessionRun

LOCK = "state/dream.lock"
#: The trigger of the run that puts notes of an earlier version into the inbox, and its reason.
UPGRADE = "upgrade"
_SHELVED = "notes that an earlier version made on its own are in the inbox"


class Recorded(NamedTuple):
    """`sessions`: their completion was recorded just now. `life`: how far all sessions were dreamed, with that."""

    sessions: tuple[str, ...]
    life: Memory


class Dreaming:
    def __init__(
        self,
        host: Host,
        root: str,
        append: Callable[[Sequence[Event]], object],
        ids: Ids,
        ask: Ask[Any],
        settings: schedule.Settings,
        forget: Callable[[str], object] = lambda session: None,
        glance: Ask[Any] | None = None,
        mark_over: Callable[[str], object] = lambda run: None,
    ) -> None:
        """`forget`: removes what was learned in a deleted session from the keep's own journal. `glance`: as `ask`, but of the
        index as it is: cheap, however many sessions there are. `mark_over`: journals that a run is over."""
        self.forget = forget
        self._mark_over = mark_over
        self._glance = glance or ask
        self._host = host
        self._root = root
        self._append = append
        self._ids = ids
        self._ask = ask
        self._settings = settings
        self.leases = Leases(host, root)

    # -- what waits

    def scope(
        self,
        *,
        if_due: bool,
        sessions: Sequence[str] = (),
        limit: int | None = None,
        recorded: Memory | None = None,
        name: str = "",
        holder: str = "",
        again: bool = False,
    ) -> schedule.Scope:
        """What a run would read now (`schedule.select`). `recorded`: what `complete` has just recorded; a mere look counts in
        what it would record. `name`: of the backend. `holder`: who may read what is leased to him; what others hold is left."""
        if recorded is None:
            life, ended = self._ask(queries.load_life_and_ended)
            recorded = queries.with_ended(life, ended, rfc3339(self._host.now()))
        return schedule.select(
            recorded.dreamed,
            self._settings,
            now=rfc3339(self._host.now()),
            if_due=if_due,
            sessions=sessions,
            limit=limit,
            backend=name,
            leased=self.leases.held_sessions(but=holder),
            again=again,
        )

    def complete(self) -> Recorded:
        """Journals the completion of sessions that ended without a record of it, or ended again with more."""
        now = rfc3339(self._host.now())
        life, ended = self._ask(queries.load_life_and_ended)
        if ended:
            self._append([Event(self._ids.new(), Kind.SESSION_COMPLETED, now, one.body) for one in ended])
        return Recorded(tuple(one.session for one in ended), queries.with_ended(life, ended, now))

    # -- a run

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether we have it."""
        path = f"{self._root}/{LOCK}"
        try:
            make_folders(self._host, f"{self._root}/state")
            handle = self._host.open_lock(path)
        except OSError as problem:
            raise from_os(problem, "starting a dream", path) from problem
        try:
            yield self._host.try_lock(handle)
        finally:
            self._host.close(handle)

    def busy(self) -> bool:
        """Whether somebody dreams now. Changes nothing."""
        from dreamkeep.host.liveness import is_held

        return is_held(self._host, f"{self._root}/{LOCK}")

    def run(
        self,
        parts: Parts | Callable[[], Parts],
        *,
        if_due: bool = False,
        sessions: Sequence[str] = (),
        limit: int | None = None,
        name: str = "",
        publish: Callable[[str], list[dict[str, Any]]] | None = None,
        journal_edits: Callable[[], object] = lambda: None,
        holder: str = "",
        asks: bool = False,
        again: bool = False,
    ) -> dict[str, Any]:
        """`parts`: a function is called only when there is something to do. `publish`: writes the pages, at the end of a run.
        `journal_edits`: journals what was edited on them meanwhile, before anything is concluded. `asks`: a model is asked, which
        may also compare what earlier runs found."""
        with self.lock() as mine:
            if not mine:
                busy = schedule.Scope((), "" if if_due else schedule.MANUAL, "", self._waiting())
                return report(busy, lock="busy", status="skipped", why="another dream is running")
            # Decided here and not before: whoever had the lock until now may have done it all.
            life = self.complete().life
            if self._end_dead_runs():
                life = self.complete().life
            scope = self.scope(
                if_due=if_due, sessions=sessions, limit=limit, recorded=life, name=name, holder=holder, again=again
            )
            idle = not scope.sessions and not (asks and not if_due and self._ask(queries.has_unmerged))
            shelved = None if idle and if_due else self._shelve_old_notes(name)
            also = {"shelved": shelved} if shelved else {}
            if idle:
                pages = {"pages": publish(shelved["run"])} if shelved and publish else {}
                return report(scope, status="skipped" if if_due else "completed", why=scope.why, **also, **pages)
            from dreamkeep.dream.deletions import Deletions

            deletions = Deletions(self._host, self._root, self._ask, self.forget)
            run = self._make_run(parts if isinstance(parts, Parts) else parts(), name, self._append, deletions)
            return {**run.run(scope, publish=publish, journal_edits=journal_edits), **also}

    def _make_run(
        self, parts: Parts, name: str, append: Callable[[Sequence[Event]], object], deletions: Deletions | None = None
    ) -> SessionRun:
        from dreamkeep.dream.session_run import SessionRun

        glance = self._glance if deletions else None
        return SessionRun(
            self._host, append, self._ids, self._ask, self._settings, parts, name, glance=glance, deletions=deletions
        )

    def _shelve_old_notes(self, name: str) -> dict[str, Any] | None:
        """Under the lock, before the first run of a version that has an inbox: notes that the rules of an earlier one made go
        there. It is a run of its own, in one append, so it can be undone without what is read now. No loss guard applies."""
        events = self._old_notes_shelved(name)
        if not events:
            return None
        self._append(events)
        body = events[-1].body
        return {"run": body["run"], "notes": body["report"]["notes"]["suggested"]}

    def _old_notes_shelved(self, name: str) -> list[Event]:
        from dreamkeep.dream.consolidate import inbox

        if not inbox.is_due(self._glance(queries.load_runs).values()):
            return []
        memory = self._ask(lambda store: Memory.load(store.memory()))
        old = inbox.old_insights(memory)
        now, run = rfc3339(self._host.now()), self._ids.new()
        shelved = Event(self._ids.new(), Kind.DREAM_SHELVED, now, {"run": run, "insights": old, "reason": inbox.OLD})
        before = len(inbox.suggestions(memory.notes.values()))
        memory.apply(shelved)
        count = len(inbox.suggestions(memory.notes.values())) - before
        if not count:
            return []
        made = report(schedule.Scope((), UPGRADE, "", 0), run=run, why=_SHELVED, started_at=now, finished_at=now)
        made["notes"]["suggested"] = count
        began = {"run": run, "trigger": UPGRADE, "backend": name, "sessions": [], "shelves": True}
        finished = Event(self._ids.new(), Kind.DREAM_FINISHED, now, {"run": run, "report": made})
        return [Event(self._ids.new(), Kind.DREAM_STARTED, now, began), shelved, finished]

    def _end_dead_runs(self) -> bool:
        """Under the lock, so nobody works on them any more. Also when nothing waits: else they stay faults of the audit."""
        dead = self._glance(queries.find_unended_runs)
        for run in dead:
            self._mark_over(run)
        return bool(dead)

    def preview(
        self,
        parts: Callable[[], Parts],
        *,
        if_due: bool = False,
        sessions: Sequence[str] = (),
        limit: int | None = None,
        name: str = "",
        holder: str = "",
        again: bool = False,
    ) -> tuple[dict[str, Any], Memory, Memory]:
        """The report of a run that is not written anywhere, and what is remembered before and after it."""
        scope = self.scope(if_due=if_due, sessions=sessions, limit=limit, name=name, holder=holder, again=again)
        before = self._ask(lambda store: Memory.load(store.memory()))
        run = self._make_run(parts(), name, append=lambda events: None)
        shelved = self._old_notes_shelved(name)
        made = run.run(scope, presumed=shelved)
        if shelved:
            made["shelved"] = {"run": None, "notes": shelved[-1].body["report"]["notes"]["suggested"]}
        return made, before, run.memory

    def given_up(self, memory: Memory | None = None, name: str = "") -> list[DreamProgress]:
        """What that backend failed at too often. `memory`: how far sessions were dreamed, if the caller knows."""
        life = memory or self._ask(queries.load_life)
        return schedule.given_up(life.dreamed.values(), max_attempts=self._settings.max_attempts, backend=name)

    def _waiting(self) -> int:
        memory = self._ask(queries.load_life)
        return len(schedule.waiting(memory.dreamed.values(), max_attempts=self._settings.max_attempts))
