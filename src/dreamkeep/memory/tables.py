"""What is remembered, as tables of rows that an index can keep, with the lookups that follow from them. Pure.

The fold in memory.py fills them from the journal's events; it alone calls `_put` and `_drop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from dreamkeep.memory import note
from dreamkeep.memory.dreams import DreamProgress, DreamRun
from dreamkeep.memory.insight import Insight, digest
from dreamkeep.memory.note import Note
from dreamkeep.memory.on_demand import FetchAll, FetchOne, OnDemand
from dreamkeep.memory.task import Task

INSIGHTS, NOTES, TASKS, DREAMED, RUNS, PAGES = "insights", "notes", "tasks", "dreamed", "runs", "pages"
#: These two follow from the notes, so that nobody goes through all: the notes that rest on an insight; a project's active notes.
RESTS, MARKS = "rests", "marks"
#: A project's old name → `{"now": its name now, "by": the event that said so, "auto": whether nobody asked for it, "why"}`.
PROJECTS = "projects"
#: Two projects that somebody keeps apart: both names → `{"was", "now", "undone": renamings that count no more}`.
APART = "apart"

_LOADERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    INSIGHTS: Insight.of,
    NOTES: Note.of,
    TASKS: Task.of,
    DREAMED: DreamProgress.of,
    RUNS: DreamRun.of,
    PAGES: dict,
    RESTS: dict,
    MARKS: dict,
    PROJECTS: dict,
    APART: dict,
}
TABLES = tuple(_LOADERS)

_INSIGHTS_BY_SESSION, _INSIGHTS_BY_TASK, TASKS_BY_PROJECT = "insights by session", "insights by task", "tasks by project"
#: Lookups that are made when they are first asked for: the table, and under which keys each of its rows is found.
_LOOKUPS: dict[str, tuple[str, Callable[[Any], Iterable[str]]]] = {
    _INSIGHTS_BY_SESSION: (INSIGHTS, lambda insight: (quote.session for quote in insight.evidence)),
    _INSIGHTS_BY_TASK: (INSIGHTS, lambda insight: (insight.task,)),
    TASKS_BY_PROJECT: (TASKS, lambda task: (task.project,)),
}


class MemoryTables:
    """One dict for each table, named as the table is stored."""

    def __init__(self) -> None:
        self.insights: dict[str, Insight] = {}
        self.notes: dict[str, Note] = {}
        self.tasks: dict[str, Task] = {}
        self.dreamed: dict[str, DreamProgress] = {}
        self.runs: dict[str, DreamRun] = {}
        #: What of each page was last published: (project, path) as one text → its body.
        self.pages: dict[str, dict[str, Any]] = {}
        self.rests: dict[str, dict[str, Any]] = {}
        #: By project: `active`, the ids of its active notes; `mark`, a fingerprint of how they look.
        self.marks: dict[str, dict[str, Any]] = {}
        self.projects: dict[str, dict[str, Any]] = {}
        self.apart: dict[str, dict[str, Any]] = {}
        #: Insights and notes in the order in which they changed, so that a follower can go on from where it was.
        self.change_log: list[tuple[str, str]] = []
        self._dirty: set[tuple[str, str]] = set()
        self._lookups: dict[str, dict[str, list[str]]] = {}

    # -- questions

    def page_fingerprint(self, project: str) -> str:
        """Tells a page that its notes are those it was made of. Cheap, for every dream that finds nothing new asks."""
        marks = [str(self.marks.get(name, {}).get("mark", "")) for name in dict.fromkeys(("", project))]
        return digest(*marks)[:16]

    def active_notes(self, project: str) -> list[Note]:
        """Those of the project, and those that hold everywhere."""
        ids = [id for name in dict.fromkeys(("", project)) for id in self.marks.get(name, {}).get("active", ())]
        return [self.notes[id] for id in ids]

    def insights_of_session(self, session: str) -> list[Insight]:
        """Insights that quote that session."""
        return [self.insights[id] for id in self._lookup(_INSIGHTS_BY_SESSION).get(session, ())]

    def insights_of_task(self, task: str) -> list[Insight]:
        return [self.insights[id] for id in self._lookup(_INSIGHTS_BY_TASK).get(task, ())]

    def tasks_of_project(self, project: str) -> list[Task]:
        return [self.tasks[id] for id in self._lookup(TASKS_BY_PROJECT).get(project, ())]

    def current_project(self, name: str) -> str:
        """What a project is called now."""
        found = self.projects.get(name) if name else None
        return str(found["now"]) if found else name

    def _lookup(self, name: str) -> dict[str, list[str]]:
        if name not in self._lookups:
            lookup = self._lookups[name] = {}
            table, keys = _LOOKUPS[name]
            for id, row in self._table(table).items():
                _add_to_lookup(lookup, id, keys(row))
        return self._lookups[name]

    # -- rows

    @classmethod
    def load(cls, rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Self:
        """From (table, id, JSON), as `changed` gave them."""
        memory = cls()
        for table, id, body in rows:
            memory._table(table)[id] = _LOADERS[table](body)
        return memory

    @classmethod
    def on_demand(cls, fetch_one: FetchOne, fetch_all: FetchAll) -> Self:
        """As `load`, but a row is fetched when it is first asked for: a few events cost a few rows, whatever is remembered."""
        memory = cls()
        for table in TABLES:
            setattr(memory, table, OnDemand(table, fetch_one, fetch_all, _LOADERS[table]))
        return memory

    def changed(self) -> dict[tuple[str, str], dict[str, Any] | None]:
        """(table, id) → JSON of what changed since the last call; None for what is gone."""
        dirty, self._dirty = self._dirty, set()
        return {(table, id): _as_json(self._table(table).get(id)) for table, id in sorted(dirty)}

    def _table(self, table: str) -> dict[str, Any]:
        if table not in TABLES:
            raise KeyError(table)
        rows: dict[str, Any] = getattr(self, table)
        return rows

    def _put(self, table: str, id: str, value: Any) -> None:
        if table == NOTES:
            self._update_derived(self.notes.get(id), value)
        if table in (INSIGHTS, NOTES):
            self.change_log.append((table, id))
        for name, lookup in self._lookups.items():
            of, keys = _LOOKUPS[name]
            if of == table and id not in self._table(table):
                _add_to_lookup(lookup, id, keys(value))
        self._table(table)[id] = value
        self._dirty.add((table, id))

    def _drop(self, table: str, id: str) -> None:
        if self._table(table).pop(id, None) is not None:
            self._dirty.add((table, id))

    # -- what follows from the notes

    def _update_derived(self, was: Note | None, now: Note) -> None:
        only_more = was is not None and now.insights[: len(was.insights)] == was.insights
        for id in now.insights[len(was.insights) :] if was is not None and only_more else now.insights:
            resting = self.rests.get(id, {}).get("notes", [])
            if now.id not in resting:
                self._put(RESTS, id, {"notes": [*resting, now.id]})
        before, after = _look(was), _look(now)
        if was is not None and was.project != now.project:
            self._put_mark(was.project, now.id, before, 0)
            self._put_mark(now.project, now.id, 0, after)
        else:
            self._put_mark(now.project, now.id, before, after)

    def _put_mark(self, project: str, note_id: str, before: int, after: int) -> None:
        if before == after:
            return
        known = self.marks.get(project, {"mark": "0", "active": []})
        mark = f"{int(known['mark'], 16) ^ before ^ after:x}"
        active = known["active"]
        if before and not after:
            active = [id for id in active if id != note_id]
        elif after and not before:
            active = [*active, note_id]
        self._put(MARKS, project, {"mark": mark, "active": active})


def _look(one: Note | None) -> int:
    """What a page shows of a note, as a number; 0 for nothing. A project's numbers are combined by XOR, so that one can be taken
    out again."""
    if one is None or one.state != note.ACTIVE:
        return 0
    looks = (*one[:3], one.pinned, one.author, one.sessions, one.confidence, one.first_at, one.last_at)
    return int(digest(repr(looks if one.is_on_page else (*looks, one.promoted)))[:32], 16)


def _as_json(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    return dict(row) if isinstance(row, dict) else row.as_json()


def _add_to_lookup(lookup: dict[str, list[str]], id: str, keys: Iterable[str]) -> None:
    for key in dict.fromkeys(keys):
        lookup.setdefault(key, []).append(id)
