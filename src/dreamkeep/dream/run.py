"""One dream: which sessions, what each gave, what is remembered of it; under a lock that dies with its process.

    lock ─► is it time? (asked again, under it) ─► dream.started ─► each session: chunks ─► backend ─► checked ─► consolidated
         ─► ONE append: insights, notes, and `dream.read` last ─► … ─► pages ─► dream.finished

What a session gave and that it was read are one append, and every id in it is an identity: whoever dies in between, the next run
ends with exactly one result. A session that fails keeps its reason and is tried again; what its other chunks gave stays. Nothing
waits here: a lock that somebody else holds is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dreamkeep.dream import schedule
from dreamkeep.dream.backends.api import Backend, TurnGiven, Usage
from dreamkeep.dream.leases import Leases
from dreamkeep.errors import from_os
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host, make_folders
from dreamkeep.memory.dreams import DreamProgress, DreamRun
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.tables import DREAMED, INSIGHTS, PAGES, RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dreamkeep.dream.backends.model.session import Asks
    from dreamkeep.dream.consolidate.known_files import Statement
    from dreamkeep.index.store import Store
    from dreamkeep.session.summary import Summary

LOCK = "state/dream.lock"
T = TypeVar("T")
#: Ask the index, brought up to date with the journal.
Ask = Callable[[Callable[["Store"], T]], T]
#: Of new insights and what is remembered: what becomes of it, as (kind, body).
Consolidate = Callable[[Memory, Sequence[Insight], str, str], Sequence[tuple[str, Mapping[str, Any]]]]
_NO_END = 1 << 62
#: What made the run that puts notes of an earlier version into the inbox; and what it says of itself.
UPGRADE = "upgrade"
_SHELVED = "notes that an earlier version made on its own are in the inbox"


class Settings(NamedTuple):
    session_count: int
    time_hours: float
    max_attempts: int
    loss_guard: float
    #: About so many tokens go to a backend at a time.
    chunk_tokens: int = 20_000


class Parts(NamedTuple):
    """What a run is made of; handed in, so that each can be another one."""

    backend: Backend
    consolidate: Consolidate
    #: Turns of a session → pieces that a backend takes at once.
    chunks: Callable[[Sequence[TurnGiven], int], Sequence[Sequence[TurnGiven]]]
    redact: Callable[[str], str]
    #: Which part of the active notes these decisions would take away.
    loss: Callable[[Memory, Sequence[tuple[str, Mapping[str, Any]]]], float]
    #: Which active notes that would be.
    lost: Callable[[Memory, Sequence[tuple[str, Mapping[str, Any]]]], Sequence[str]] = lambda memory, decisions: ()
    #: Whether the budget is used up, given what was used so far; a reason, or "".
    spent: Callable[[Usage], str] = lambda used: ""
    #: About so many tokens go to the backend at a time, if that is not what the settings say.
    chunk_tokens: int | None = None
    #: Our own: what it says of who said something may be believed.
    trusted: bool = False
    #: Whoever answers requests, where that is how sessions are read; then `backend` is nobody.
    model: Asks | None = None
    #: What the user's own files say to whoever works in a folder.
    known: Callable[[str], Sequence[Statement]] = lambda folder: ()


class Scope(NamedTuple):
    """What a run would read."""

    sessions: tuple[DreamProgress, ...]
    trigger: str
    why: str
    waiting: int
    #: Whether they are read from their beginning, though they were read before.
    again: bool = False


class Recorded(NamedTuple):
    """`sessions`: whose completion was recorded just now. `life`: how far all were dreamed, with that."""

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
        settings: Settings,
        forget: Callable[[str], object] = lambda session: None,
        glance: Ask[Any] | None = None,
        bury: Callable[[str], object] = lambda run: None,
    ) -> None:
        """`forget`: takes out of the keep's own journal what was learned in a session that is deleted. `glance`: as `ask`, but of
        the index as it is: cheap, however many sessions there are. `bury`: says of a run that it is over."""
        self.forget = forget
        self._bury = bury
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
    ) -> Scope:
        """`sessions`: only these, also such as failed too often, or were read by a run that was undone. A manual run takes all
        that waits, also what failed just now.

        `recorded`: what `complete` has just recorded; who only looks counts in what would be. `name`: of the backend. `holder`:
        who may read what is leased to him; sessions that others hold are left to them. `again`: these from their beginning.
        """
        if recorded is None:
            life, ended = self._ask(_life_and_ended)
            recorded = with_ended(life, ended, rfc3339(self._host.now()))
        held = self.leases.held_sessions(but=holder)
        chosen = self._chosen(recorded, if_due=if_due, sessions=sessions, limit=limit, name=name, held=held, again=again)
        return chosen._replace(again=again)

    def _chosen(
        self,
        memory: Memory,
        *,
        if_due: bool,
        sessions: Sequence[str],
        limit: int | None,
        name: str,
        held: frozenset[str],
        again: bool,
    ) -> Scope:
        now = rfc3339(self._host.now())
        dreamed = {id: one for id, one in memory.dreamed.items() if id not in held}
        attempts, later = self._settings.max_attempts, 0
        if sessions:
            found = _named(sessions, dreamed, again)
            if not found:
                told = [f"{one}: {_why_not(one, dreamed.get(one), held, attempts)}" for one in dict.fromkeys(sessions)]
                return Scope((), "" if if_due else schedule.MANUAL, f"no sessions are waiting ({', '.join(told)})", 0)
        else:
            failed_too = schedule.waiting(dreamed.values(), max_attempts=attempts, backend=name)
            found = schedule.waiting(failed_too, max_attempts=attempts, now=now, backend=name) if if_due else failed_too
            later = len(failed_too) - len(found)
        due = schedule.due(
            found,
            now=now,
            last_success_at=last_success(memory),
            session_count=self._settings.session_count,
            time_hours=self._settings.time_hours,
            later=later,
        )
        if not found and not sessions:
            due = self._told_of_leases(due, [one for id, one in memory.dreamed.items() if id in held], name)
        if if_due and not due.due:
            return Scope((), "", due.why, due.waiting)
        chosen = tuple(found if limit is None else found[:limit])
        return Scope(chosen, due.trigger if if_due else schedule.MANUAL, due.why, due.waiting)

    def _told_of_leases(self, due: schedule.Due, held: Sequence[DreamProgress], name: str) -> schedule.Due:
        """Where nothing is left to read: how many of those that wait somebody else is reading."""
        left = len(schedule.waiting(held, max_attempts=self._settings.max_attempts, backend=name))
        told = f"{left} waiting sessions are left to others: exported, or given to an agent that dreams"
        return due._replace(why=told, waiting=left) if left else due

    def complete(self) -> Recorded:
        """Sessions that ended and have no record of it, or ended again with more: their completion is journaled."""
        now = rfc3339(self._host.now())
        life, ended = self._ask(_life_and_ended)
        if ended:
            self._append([Event(self._ids.new(), Kind.SESSION_COMPLETED, now, one.body) for one in ended])
        return Recorded(tuple(one.session for one in ended), with_ended(life, ended, now))

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
        take_in: Callable[[], object] = lambda: None,
        holder: str = "",
        asks: bool = False,
        again: bool = False,
    ) -> dict[str, Any]:
        """`parts`: made only when there is something to do, if it is a function. `publish`: the pages, at the end of a run.
        `take_in`: what was edited on them meanwhile, before anything is concluded. `asks`: a model is asked, who may also compare
        what earlier runs found."""
        with self.lock() as mine:
            if not mine:
                busy = Scope((), "" if if_due else schedule.MANUAL, "", self._waiting())
                return report(busy, lock="busy", status="skipped", why="another dream is running")
            # Decided here and not before: whoever had the lock until now may have done it all.
            life = self.complete().life
            if self._end_dead_runs():
                life = self.complete().life
            scope = self.scope(
                if_due=if_due, sessions=sessions, limit=limit, recorded=life, name=name, holder=holder, again=again
            )
            idle = not scope.sessions and not (asks and not if_due and self._ask(_is_unmerged))
            shelved = None if idle and if_due else self._shelve_old_notes(name)
            told = {"shelved": shelved} if shelved else {}
            if idle:
                pages = {"pages": publish(shelved["run"])} if shelved and publish else {}
                return report(scope, status="skipped" if if_due else "completed", why=scope.why, **told, **pages)
            from dreamkeep.dream import session_run

            made = parts if isinstance(parts, Parts) else parts()
            run = session_run.SessionRun(self._host, self._append, self._ids, self._ask, self._settings, made, name)
            deletions = session_run.Deletions(self._host, self._root, self._ask, self.forget)
            return {**run.all(scope, deletions, self._glance, publish, take_in), **told}

    def _shelve_old_notes(self, name: str) -> dict[str, Any] | None:
        """Under the lock, before the first run of a version that has an inbox: notes that the rules of an earlier one made go
        there. A run of its own, in one append: it can be undone without what is read now. The loss guard has no say in it."""
        events = self._old_notes_shelved(name)
        if not events:
            return None
        self._append(events)
        body = events[-1].body
        return {"run": body["run"], "notes": body["report"]["notes"]["suggested"]}

    def _old_notes_shelved(self, name: str) -> list[Event]:
        from dreamkeep.dream.consolidate import inbox

        if not inbox.is_due(self._glance(_runs).values()):
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
        made = report(Scope((), UPGRADE, "", 0), run=run, why=_SHELVED, started_at=now, finished_at=now)
        made["notes"]["suggested"] = count
        began = {"run": run, "trigger": UPGRADE, "backend": name, "sessions": [], "shelves": True}
        finished = Event(self._ids.new(), Kind.DREAM_FINISHED, now, {"run": run, "report": made})
        return [Event(self._ids.new(), Kind.DREAM_STARTED, now, began), shelved, finished]

    def _end_dead_runs(self) -> bool:
        """Under the lock, so nobody is at them any more. Also when nothing waits: else they stay faults of the audit."""
        dead = self._glance(_unended)
        for run in dead:
            self._bury(run)
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
        from dreamkeep.dream.session_run import SessionRun

        scope = self.scope(if_due=if_due, sessions=sessions, limit=limit, name=name, holder=holder, again=again)
        before = self._ask(lambda store: Memory.load(store.memory()))
        run = SessionRun(self._host, lambda events: None, self._ids, self._ask, self._settings, parts(), name)
        shelved = self._old_notes_shelved(name)
        made = run.all(scope, first=shelved)
        if shelved:
            made["shelved"] = {"run": None, "notes": shelved[-1].body["report"]["notes"]["suggested"]}
        return made, before, run.memory

    def given_up(self, memory: Memory | None = None, name: str = "") -> list[DreamProgress]:
        """What that backend failed at too often (when.py). `memory`: how far sessions were dreamed, if that is known."""
        life = memory or self._ask(_life)
        return schedule.given_up(life.dreamed.values(), max_attempts=self._settings.max_attempts, backend=name)

    def _waiting(self) -> int:
        memory = self._ask(_life)
        return len(schedule.waiting(memory.dreamed.values(), max_attempts=self._settings.max_attempts))


def _named(sessions: Sequence[str], dreamed: Mapping[str, DreamProgress], again: bool) -> list[DreamProgress]:
    """Those of the sessions that a user named which can be read, whatever was tried before. `again`: from their beginning."""
    wanted = schedule.from_start if again else schedule.asked_for
    return schedule.waiting((wanted(dreamed[one]) for one in dict.fromkeys(sessions) if one in dreamed), max_attempts=_NO_END)


def _why_not(session: str, of: DreamProgress | None, held: frozenset[str], max_attempts: int) -> str:
    return "another process is reading it" if session in held else schedule.eligibility(of, max_attempts=max_attempts)


# -- asked of the index


class Ended(NamedTuple):
    """A session that ended with more than what is recorded as complete. `seq`: of its last message. `subagent`: its user is an
    agent, and what matters of it, its parent was told: so it waits for no dream, and makes none due."""

    session: str
    seq: int
    subagent: bool = False

    @property
    def body(self) -> dict[str, Any]:
        return {"session": self.session, "seq": self.seq, "reason": "ended", **({"subagent": True} if self.subagent else {})}


def _life_and_ended(store: Store) -> tuple[Memory, list[Ended]]:
    life = _life(store)
    return life, _ended(store, life)


def _ended(store: Store, life: Memory) -> list[Ended]:
    found = []
    for session, seq in store.ended():
        was = life.dreamed.get(session)
        summary = store.session(session) if seq > (was.finished if was else 0) else None
        if summary is not None and not _is_ours(summary):
            found.append(Ended(session, seq, any(kind == "subagent" for kind, _ in summary.lineage)))
    return found


def with_ended(memory: Memory, ended: Sequence[Ended], now: str) -> Memory:
    """As it will be once that is recorded."""
    for one in ended:
        memory.apply(Event("", Kind.SESSION_COMPLETED, now, one.body))
    return memory


def _life(store: Store) -> Memory:
    """How far sessions were dreamed, without what was found: that may be much, and most questions are not about it."""
    return Memory.load((DREAMED, id, body) for id, body in store.memory_table(DREAMED))


def runs_and_ended(store: Store) -> tuple[Memory, list[Ended]]:
    """How far sessions were dreamed, by which runs, which pages there are, and what ended without a record of it."""
    memory = Memory.load((table, id, body) for table in (DREAMED, RUNS, PAGES) for id, body in store.memory_table(table))
    return memory, _ended(store, memory)


def _is_unmerged(store: Store) -> bool:
    """Whether insights wait for being compared with what is remembered."""
    found = Memory.load((INSIGHTS, id, body) for id, body in store.memory_table(INSIGHTS))
    return any(one.is_unmerged for one in found.insights.values())


def _runs(store: Store) -> dict[str, DreamRun]:
    return Memory.load((RUNS, id, body) for id, body in store.memory_table(RUNS)).runs


def _unended(store: Store) -> list[str]:
    return [one.id for one in _runs(store).values() if not one.is_over]


def _is_ours(summary: Summary) -> bool:
    """What a dream itself asked of an agent's command line, which left a session: a dream never dreams of itself."""
    from dreamkeep.dream.backends.model.requests import OURS

    return summary.title.startswith(OURS)


def last_success(memory: Memory) -> str | None:
    """When a dream last read something to the end. Not by its start: one that runs long must not be due at once again."""
    return max((one.completed_at for one in memory.dreamed.values() if one.completed_at), default=None)


def report(scope: Scope, **more: Any) -> dict[str, Any]:
    """The contract's report, whatever became of the run."""
    found = {
        "run": None,
        "trigger": scope.trigger or None,
        "status": "completed",
        "lock": "acquired",
        "started_at": None,
        "finished_at": None,
        "considered": len(scope.sessions),
        "waiting": scope.waiting,
        "processed": 0,
        "failed": 0,
        "insights_added": 0,
        "notes": {"added": 0, "suggested": 0, "strengthened": 0, "superseded": 0, "retracted": 0, "expired": 0},
        "dropped": [],
        "usage": Usage()._asdict(),
        "phases": ["backfill", "consolidate", "page"],
        "sessions": [],
    }
    return {**found, **more}
