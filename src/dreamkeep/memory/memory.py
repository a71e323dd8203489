"""The fold: events of the keep's own journal → insights, notes, tasks, and what dreams did. Pure.

    memory = Memory()            or Memory.load(rows): what an index has kept of an earlier fold
    memory.apply(event)          in the order of the journal
    memory.changed()             rows that are other than before: (table, id) → JSON, or None for what is gone

Events say what they are about by ids, and the same event again changes nothing. Of a run that was undone nothing counts; so an
undoing can't be applied to what was folded already: `stale` says that the fold must begin again, with `undone` told beforehand.
What an event says wrongly (another program, a newer version) is passed over, and counted in `strange`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from dreamkeep.event import Event, Kind
from dreamkeep.memory import insight as i
from dreamkeep.memory import life, note, project, task
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.life import Dreamed, DreamRun
from dreamkeep.memory.note import Note
from dreamkeep.memory.on_demand import FetchAll, FetchOne, OnDemand
from dreamkeep.memory.task import Task

INSIGHTS, NOTES, TASKS, DREAMED, RUNS, PAGES = "insights", "notes", "tasks", "dreamed", "runs", "pages"
#: What follows from the others, so that nobody goes through all of them: notes that rest on an insight; a project's active notes.
RESTS, MARKS = "rests", "marks"
#: A project's name that was given up → `{"now": the name that stands for it, "by": the event that said so, "auto": whether
#: nobody asked for it, "why"}`.
PROJECTS = "projects"
#: Two projects that somebody keeps apart: both names → `{"was", "now"}`, and `undone`: renamings that count no more.
APART = "apart"
TABLES = (INSIGHTS, NOTES, TASKS, DREAMED, RUNS, PAGES, RESTS, MARKS, PROJECTS, APART)

#: As a plan gives it (dream/consolidate/support.py).
_SAID_IN = re.compile(r", said in (\d{1,9}) sessions\b")
#: So many of its earlier versions a page is known by.
_REGIONS = 1000


_ENDS = {
    Kind.NOTE_SUPERSEDED: note.SUPERSEDED,
    Kind.NOTE_CLOSED: note.CLOSED,
    Kind.NOTE_EXPIRED: note.EXPIRED,
    Kind.NOTE_RETRACTED: note.RETRACTED,
}
_JUDGED = {
    Kind.INSIGHT_CONFIRMED: i.CONFIRMED,
    Kind.INSIGHT_REJECTED: i.REJECTED,
    Kind.INSIGHT_EXPIRED: i.EXPIRED,
}


class Memory:
    def __init__(self, undone: Iterable[str] = ()) -> None:
        self.insights: dict[str, Insight] = {}
        self.notes: dict[str, Note] = {}
        self.tasks: dict[str, Task] = {}
        self.dreamed: dict[str, Dreamed] = {}
        self.runs: dict[str, DreamRun] = {}
        #: What of each page was last published: (project, path) as one text → its body.
        self.pages: dict[str, dict[str, Any]] = {}
        self.rests: dict[str, dict[str, Any]] = {}
        #: By project: `active`, the ids of its active notes; `mark`, how they look.
        self.marks: dict[str, dict[str, Any]] = {}
        self.projects: dict[str, dict[str, Any]] = {}
        self.apart: dict[str, dict[str, Any]] = {}
        #: Insights and notes in the order in which they changed: whoever follows this memory goes on from where he was.
        self.log: list[tuple[str, str]] = []
        self.undone = set(undone)
        self.stale = False
        self.strange = 0
        self._dirty: set[tuple[str, str]] = set()
        self._said_in: dict[str, list[str]] | None = None
        self._of_task: dict[str, list[str]] | None = None
        self._tasks_of: dict[str, list[str]] | None = None

    def copy(self) -> Memory:
        """To try something on: what it holds is frozen, so only the tables are copied."""
        other = Memory(self.undone)
        for table in TABLES:
            other._table(table).update(self._table(table))
        return other

    def mark(self, project: str) -> str:
        """By what a page knows that the notes are those it was made of. Cheap: every dream that finds nothing new asks."""
        found = [str(self.marks.get(one, {}).get("mark", "")) for one in dict.fromkeys(("", project))]
        return i.digest(*found)[:16]

    def shown(self, project: str) -> list[Note]:
        """Active notes of the project, and those that hold everywhere."""
        ids = [id for one in dict.fromkeys(("", project)) for id in self.marks.get(one, {}).get("active", ())]
        return [self.notes[id] for id in ids]

    def said_in(self, session: str) -> list[Insight]:
        """Insights that quote that session."""
        if self._said_in is None:
            self._said_in = {}
            for one in self.insights.values():
                _file(self._said_in, one.id, (quote.session for quote in one.evidence))
        return [self.insights[id] for id in self._said_in.get(session, ())]

    def of_task(self, task: str) -> list[Insight]:
        if self._of_task is None:
            self._of_task = {}
            for one in self.insights.values():
                _file(self._of_task, one.id, (one.task,))
        return [self.insights[id] for id in self._of_task.get(task, ())]

    def tasks_of(self, project: str) -> list[Task]:
        if self._tasks_of is None:
            self._tasks_of = {}
            for one in self.tasks.values():
                _file(self._tasks_of, one.id, (one.project,))
        return [self.tasks[id] for id in self._tasks_of.get(project, ())]

    # -- rows

    @classmethod
    def load(cls, rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Memory:
        """From (table, id, JSON), as `changed` gave them."""
        memory = cls()
        for table, id, body in rows:
            memory._table(table)[id] = _LOADERS[table](body)
        memory.undone = {run.id for run in memory.runs.values() if run.undone}
        return memory

    @classmethod
    def on_demand(cls, one: FetchOne, all_: FetchAll) -> Memory:
        """As `load`, but a row is fetched when it is first asked for: a few events cost a few rows, whatever is remembered."""
        memory = cls()
        for table in TABLES:
            setattr(memory, table, OnDemand(table, one, all_, _LOADERS[table]))
        return memory

    def changed(self) -> dict[tuple[str, str], dict[str, Any] | None]:
        """Since the last time it was asked."""
        dirty, self._dirty = self._dirty, set()
        return {key: self._row(*key) for key in sorted(dirty)}

    def _row(self, table: str, id: str) -> dict[str, Any] | None:
        found = self._table(table).get(id)
        if found is None:
            return None
        return dict(found) if isinstance(found, dict) else found.as_json()

    def _table(self, table: str) -> dict[str, Any]:
        """Each is called as it is stored."""
        if table not in TABLES:
            raise KeyError(table)
        found: dict[str, Any] = getattr(self, table)
        return found

    def _put(self, table: str, id: str, value: Any) -> None:
        if table == NOTES:
            self._keep_up(self.notes.get(id), value)
        if table in (INSIGHTS, NOTES):
            self.log.append((table, id))
        if table == INSIGHTS and id not in self.insights:
            for found, keys in ((self._said_in, (q.session for q in value.evidence)), (self._of_task, (value.task,))):
                if found is not None:
                    _file(found, id, keys)
        if table == TASKS and id not in self.tasks and self._tasks_of is not None:
            _file(self._tasks_of, id, (value.project,))
        self._table(table)[id] = value
        self._dirty.add((table, id))

    def _keep_up(self, was: Note | None, now: Note) -> None:
        """What follows from notes, without going through all of them."""
        for id in now.insights if was is None or not _longer(was, now) else now.insights[len(was.insights) :]:
            resting = self.rests.get(id, {}).get("notes", [])
            if now.id not in resting:
                self._put(RESTS, id, {"notes": [*resting, now.id]})
        before, after = _mark(was), _mark(now)
        if was is not None and was.project != now.project:
            self._put_mark(was.project, now.id, before, 0)
            self._put_mark(now.project, now.id, 0, after)
        else:
            self._put_mark(now.project, now.id, before, after)

    def _put_mark(self, name: str, id: str, before: int, after: int) -> None:
        if before == after:
            return
        known = self.marks.get(name, {"mark": "0", "active": []})
        mark = f"{int(known['mark'], 16) ^ before ^ after:x}"
        others = [one for one in known["active"] if one != id] if before and not after else known["active"]
        active = [*others, id] if after and not before else others
        self._put(MARKS, name, {"mark": mark, "active": active})

    # -- events

    def apply(self, event: Event) -> None:
        act = _ACTS.get(event.kind)
        if act is None:
            return
        try:
            if event.kind in _EVEN_IF_UNDONE or not self._is_undone(event.body.get("run")):
                act(self, event, event.body)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self.strange += 1

    def _is_undone(self, run: Any) -> bool:
        found = self.runs.get(run) if isinstance(run, str) and run else None
        return run in self.undone or (found is not None and found.undone)

    def _deleted(self, event: Event, body: Mapping[str, Any]) -> None:
        """Nothing of it waits any more; should it come back, it is another journal, and none of that was read."""
        if self.dreamed.pop(str(body["session"]), None):
            self._dirty.add((DREAMED, str(body["session"])))

    def _completed(self, event: Event, body: Mapping[str, Any]) -> None:
        session, seq = str(body["session"]), int(body["seq"])
        was = self.dreamed.get(session, Dreamed(session))
        if seq <= was.finished:
            return
        if seq >= 1 << 63:
            raise ValueError(f"{seq} is no place in a journal")
        now = was._replace(finished=seq, completion_at=event.at)
        if body.get("subagent") is True:
            now = now._replace(read=seq, also=())  # there is nothing in it that a dream would read
        if was.status != life.RUNNING:
            now = now._replace(status=life.COMPLETED if now.read >= seq else life.PENDING)
        self._put(DREAMED, session, now)

    def _started(self, event: Event, body: Mapping[str, Any]) -> None:
        run, trigger = str(body["run"]), str(body["trigger"])
        if run not in self.runs:
            shelves, undone = body.get("shelves") is True, run in self.undone
            began = self._run(run)._replace(trigger=trigger, started_at=event.at, undone=undone, shelves=shelves)
            self._put(RUNS, run, began)
        for n, one in enumerate(body["sessions"]):
            was = self.dreamed.get(str(one["session"]))
            if was and was.taken_back is not None and one.get("again") is True:
                was = was._replace(read=was.taken_back, taken_back=None)
            if was and was.run != run and one.get("again") == life.START:
                was = was._replace(read=0, also=(), taken_back=None)
            if was and was.run != run and was.read < was.finished:  # another keep's run, merged into ours, begins nothing
                asked = str(body.get("backend", ""))
                self._put(DREAMED, was.session, was._replace(status=life.RUNNING, trigger=trigger, run=run, backend=asked))
                if n == 0:
                    self._in_hand(was.session, run, event.at)

    def _in_hand(self, session: str, run: str, at: str) -> None:
        """An attempt is counted when its turn comes, not when the run starts: a run that dies has tried one, not all of them."""
        was = self.dreamed.get(session)
        if was and was.run == run and was.status == life.RUNNING:
            self._put(DREAMED, session, was._replace(last_attempt_at=at, attempts=was.attempts + 1))

    def _read(self, event: Event, body: Mapping[str, Any]) -> None:
        """`upto`: so far it was read, also where the rest failed or was put off; `also`: what was read of the rest; `next`: which
        session comes then. What was undone stays read: nobody wants the same again by itself."""
        if "next" in body:
            self._in_hand(str(body["next"]), str(body["run"]), event.at)
        session, upto = str(body["session"]), int(body["upto"])
        was = self.dreamed.get(session)
        if was is None or was.run != body["run"]:
            return  # of a run that died and was taken over
        undone = self._is_undone(body["run"])
        if not undone and any(str(one).startswith("i-") and one not in self.insights for one in body.get("artifacts", ())):
            # Power failed while it was written, and the disk lost what it gave: so nothing of it was read.
            self._put(DREAMED, session, was._replace(status=life.PENDING))
            return
        new = () if undone else ((int(first), int(last)) for first, last in body.get("also", ()))
        read = max(was.read, upto)
        now = was._replace(read=read, also=tuple(sorted(one for one in {*was.also, *new} if one[1] > read)))
        if undone and upto > was.read:
            now = now._replace(taken_back=was.read if was.taken_back is None else min(was.read, was.taken_back))
        if body["status"] == life.COMPLETED:
            made = () if self._is_undone(body["run"]) else map(str, body.get("artifacts", ()))
            status = life.PENDING if was.finished > now.read else life.COMPLETED
            artifacts = tuple(dict.fromkeys((*was.artifacts, *made)))
            now = now._replace(status=status, completed_at=event.at, attempts=0, artifacts=artifacts, failure="")
        elif body["status"] == life.PENDING:
            now = now._replace(status=life.PENDING, attempts=max(0, was.attempts - 1))
        else:
            now = now._replace(status=life.FAILED, failure=str(body.get("reason", "")))
        self._put(DREAMED, session, now)

    def _finished(self, event: Event, body: Mapping[str, Any]) -> None:
        run = str(body["run"])
        report = dict(body["report"])
        if not isinstance(report.get("sessions", []), list) or not isinstance(report.get("notes", {}), dict):
            raise TypeError("that is no report")
        self._put(RUNS, run, self._run(run)._replace(finished_at=event.at, report=report))

    def _run(self, id: str) -> DreamRun:
        return self.runs.get(id) or DreamRun(id, number=len(self.runs) + 1)

    def _undone(self, event: Event, body: Mapping[str, Any]) -> None:
        run = str(body["run"])
        if not self._is_undone(run):
            self.undone.add(run)
            self.stale = True
        self._put(RUNS, run, self._run(run)._replace(undone=True))

    def _insight(self, event: Event, body: Mapping[str, Any]) -> None:
        found = Insight.of(body)
        if found.id not in self.insights:
            self._put(INSIGHTS, found.id, found._replace(project=self.called(found.project)))

    def _judged(self, event: Event, body: Mapping[str, Any]) -> None:
        if event.kind == Kind.INSIGHT_CONFIRMED and "note" in body and str(body["id"]) not in self.insights:
            # It fell with its run; the note that the user named is the user's own now.
            was = self._note_for(event, {**body, "id": body["note"]})
            self._confirmed(event.at, was, str(body.get("reason", "")))
            return
        found = self.insights[str(body["id"])]
        if event.kind == Kind.INSIGHT_CONFIRMED and "on" in body and not self._borne_out(map(str, body["on"])):
            return
        if event.kind == Kind.INSIGHT_EXPIRED and self._is_young(body):
            return
        known = str(body.get("known") or "") if event.kind == Kind.INSIGHT_EXPIRED else found.known
        self._put(INSIGHTS, found.id, found._replace(state=_JUDGED[event.kind], known=known))
        resting = self.rests.get(found.id, {}).get("notes", ())
        for one in [self.notes[id] for id in resting if found.id in self.notes[id].insights]:
            self._rest(one, event.at, str(body.get("reason", "")), str(body.get("run", "")))
        if event.kind == Kind.INSIGHT_CONFIRMED and body.get("note") in self.notes:
            self._confirmed(event.at, self.notes[body["note"]], str(body.get("reason", "")))

    def _linked(self, event: Event, body: Mapping[str, Any]) -> None:
        """Each of the two knows of the other; what becomes of their notes is decided elsewhere."""
        one, other, what = self.insights[str(body["id"])], self.insights[str(body["other"])], str(body["op"])
        back = {i.SAME: i.SAME, i.SUPERSEDES: i.SUPERSEDED_BY}[what]
        for found, link in ((one, (what, other.id)), (other, (back, one.id))):
            if link not in found.links and one.id != other.id:
                self._put(INSIGHTS, found.id, found._replace(links=(*found.links, link)))

    def _compared(self, event: Event, body: Mapping[str, Any]) -> None:
        for found in [self.insights[id] for id in map(str, body["insights"]) if id in self.insights]:
            if not found.merged:
                self._put(INSIGHTS, found.id, found._replace(merged=True))

    def _shelved(self, event: Event, body: Mapping[str, Any]) -> None:
        """These insights wait for the user from here on, and so do the notes that rest on nothing else."""
        why, run = str(body.get("reason", "")), str(body.get("run", ""))
        found = [self.insights[id] for id in map(str, body["insights"]) if id in self.insights]
        for one in [one for one in found if one.state != i.REJECTED]:
            # Nobody need be asked again what it has to do with others.
            self._put(INSIGHTS, one.id, one._replace(shelf=i.INBOX, state=i.SUGGESTED, merged=True, why=why))
        for id in dict.fromkeys(id for one in found for id in self.rests.get(one.id, {}).get("notes", ())):
            was = self.notes[id]
            rests = [self.insights[one] for one in was.insights]
            if was.state == note.ACTIVE and not was.pinned and all(one.waits for one in rests):
                self._put(NOTES, id, was.after(event.at, note.SUGGESTED, why, run, state=note.SUGGESTED))

    def _borne_out(self, ids: Iterable[str]) -> bool:
        """Whether what is left of these still confirms each of them: a user's word, one that was confirmed, or two sessions."""
        left = [self.insights[one] for one in ids if one in self.insights]
        sure = any(one.author == i.USER or one.state == i.CONFIRMED for one in left)
        return sure or len({quote.session for one in left for quote in one.evidence}) > 1

    def _is_young(self, body: Mapping[str, Any]) -> bool:
        """Whether the record by which it was old fell with a run that was undone."""
        return "on" in body and not any(str(one) in self.insights for one in body["on"])

    def _confirmed(self, at: str, was: Note, why: str) -> None:
        """By the user, who named the note: it holds, also where it was taken back or given up before."""
        if not any(step.what == i.CONFIRMED and step.at == at for step in was.history):
            self._put(NOTES, was.id, was.after(at, i.CONFIRMED, why, state=note.ACTIVE))

    def _note(self, event: Event, body: Mapping[str, Any]) -> None:
        id = str(body["id"])
        rests = self._alive(body["insights"])
        if not rests:
            return  # all that it rested on was undone
        if id in self.notes:
            # Known; but a journal that was merged into ours came to it by other ways.
            self._more(event, body, self.notes[id], rests)
            return
        self._new(event, body, id, rests)

    def _new(self, event: Event, body: Mapping[str, Any], id: str, rests: list[str]) -> None:
        """What the event does not say (its words were taken out of it, with a session), what it rests on says."""
        first = self.insights[rests[0]]
        kind, text = str(body.get("kind") or first.type), str(body.get("text") or first.text)
        made = Note(id, kind, text, self.called(str(body["project"] or "")) if "project" in body else first.project)
        if body.get("state") == note.SUGGESTED:
            made = made._replace(state=note.SUGGESTED)
        made = self._resting(made, rests)
        self._put(NOTES, id, made.after(event.at, "added", _counted(body, made), str(body.get("run", ""))))

    def _strengthened(self, event: Event, body: Mapping[str, Any]) -> None:
        id = str(body["id"])
        rests = self._alive(body["insights"])
        if id not in self.notes and rests:
            # The run that added it was undone, or the session that it came from is deleted: others say it, too.
            self._new(event, body, id, rests)
            return
        # The same fact may have been said better: in the user's own words, or as a rule and not as a guess.
        # But not than the user's own words for it: another keep's dream, merged into ours, did not know of these.
        known = [] if any(step.what == "edited" for step in self.notes[id].history) else ["text", "kind"]
        better = {key: str(body[key]) for key in known if body.get(key)}
        self._more(event, body, self.notes[id], rests, **better)

    def _more(self, event: Event, body: Mapping[str, Any], was: Note, rests: list[str], **said: str) -> None:
        more = [one for one in rests if one not in was.insights]
        better = {"text": was.text, "kind": was.kind, **said}
        if more or better != {"text": was.text, "kind": was.kind}:
            now = self._resting(was, [*was.insights, *more])
            now = now.after(event.at, "strengthened", _counted(body, now), str(body.get("run", "")), **better)
            self._put(NOTES, was.id, now)

    def _rest(self, was: Note, at: str, why: str, run: str) -> None:
        """After one of its insights was judged."""
        left = self._alive(was.insights)
        now = self._resting(was, left or list(was.insights))
        if not left and was.state in (note.ACTIVE, note.SUGGESTED):
            state = self._without_ground(was)
            now = now.after(at, state, why or "nothing it rested on is left", run, state=state)
        self._put(NOTES, was.id, now)

    def _without_ground(self, was: Note) -> str:
        """What becomes of a note when all that it rests on was rejected or has expired."""
        if was.state == note.ACTIVE:
            return note.RETRACTED
        rejected = any(self.insights[one].state == i.REJECTED for one in was.insights)
        return note.REJECTED if rejected else note.EXPIRED

    def _alive(self, ids: Iterable[Any]) -> list[str]:
        return [one for one in map(str, ids) if one in self.insights and self.insights[one].state not in (i.REJECTED, i.EXPIRED)]

    def _resting(self, was: Note, ids: list[str]) -> Note:
        rests = [self.insights[one] for one in ids]
        times = sorted(one.said_at for one in rests if one.said_at)
        quotes = tuple(dict.fromkeys(quote for one in rests for quote in one.evidence))
        return was._replace(
            insights=tuple(ids),
            evidence=quotes,
            sessions=len({quote.session for quote in quotes}),
            author=i.USER if was.author == i.USER or any(one.author == i.USER for one in rests) else i.AGENT,
            confidence=max((one.confidence for one in rests), default=was.confidence),
            first_at=times[0] if times else was.first_at,
            last_at=times[-1] if times else was.last_at,
        )

    def _note_for(self, event: Event, body: Mapping[str, Any]) -> Note:
        """The note that something is done to. Where the run that gave it was undone, a user's hand on it has made it the user's
        own; what a run did to it fell with it (KeyError: its event does not say what it was)."""
        id = str(body["id"])
        if id not in self.notes:
            kind, text, project = str(body["kind"]), str(body["text"]), self.called(str(body["project"]))
            # Words that the user rejected are nobody's: they bar themselves, and overrule nothing.
            state = i.REJECTED if body.get("rejected") is True else i.CONFIRMED
            said = Insight(i.insight_id(f"hand:{id}", kind, text), kind, text, project, (), event.at, 1.0, state, i.USER, "hand")
            self._put(INSIGHTS, said.id, said)
            made = Note(id, kind, text, project).after(event.at, "added", "a user's hand was on it")
            self._put(NOTES, id, self._resting(made, [said.id]))
        return self.notes[id]

    def _ended(self, event: Event, body: Mapping[str, Any]) -> None:
        if event.kind == Kind.NOTE_EXPIRED and self._is_young(body):
            return
        was = self._note_for(event, body)
        state = _ENDS[event.kind]
        if was.state == note.SUGGESTED and body.get("rejected") is True:
            state = note.REJECTED
        if was.state not in (state, note.REJECTED):
            by = str(body.get("by", "")) or was.by
            run = str(body.get("run", ""))
            self._put(NOTES, was.id, was.after(event.at, state, str(body.get("reason", "")), run, state=state, by=by))

    def _edited(self, event: Event, body: Mapping[str, Any]) -> None:
        was = self._note_for(event, body)
        words = {"was": str(body.get("was") or was.text), "text": str(body["text"])}
        # The file that it was promoted to has the old words.
        now = was.after(event.at, "edited", str(body.get("reason", "")), **words, author=i.USER, promoted="")
        self._put(NOTES, was.id, now)

    def _pinned(self, event: Event, body: Mapping[str, Any]) -> None:
        was = self._note_for(event, body)
        pinned = event.kind == Kind.NOTE_PINNED
        if was.pinned != pinned:
            why = str(body.get("reason", ""))
            self._put(NOTES, was.id, was.after(event.at, "pinned" if pinned else "unpinned", why, pinned=pinned))

    def _promoted(self, event: Event, body: Mapping[str, Any]) -> None:
        """The user put it into a file of his own: that is a hand on it."""
        was, file = self._note_for(event, body), str(body["file"])
        if was.promoted != file:
            self._put(NOTES, was.id, was.after(event.at, "promoted", str(body.get("reason", "")), promoted=file))

    def _doubted(self, event: Event, body: Mapping[str, Any]) -> None:
        """An agent's word, which changes nothing by itself."""
        was = self.notes[str(body["id"])]
        why = str(body.get("reason", ""))
        if was.state == note.ACTIVE and not any(step.what == note.DOUBTED and step.why == why for step in was.history):
            self._put(NOTES, was.id, was.after(event.at, note.DOUBTED, why, str(body.get("run", ""))))

    def _task(self, event: Event, body: Mapping[str, Any]) -> None:
        id = str(body["id"])
        session = body.get("session")
        if id not in self.tasks:
            sessions = (str(session),) if session else ()
            title = str(body.get("title") or id)  # it may have been taken out, with the session that gave it
            made = Task(id, title, self.called(str(body.get("project") or "")), task.OPEN, sessions, event.at)
            self._put(TASKS, id, made)

    def _held_task(self, body: Mapping[str, Any]) -> Task:
        """As `_note_for`: a task whose run was undone is the user's own by the user's hand on it. (KeyError: an event of an older
        version does not say what the task was.)"""
        id = str(body["id"])
        if id not in self.tasks:
            project, sessions = self.called(str(body["project"])), tuple(map(str, body["sessions"]))
            opened_at = str(body["opened_at"]) if body.get("opened_at") else None
            self._put(TASKS, id, Task(id, str(body.get("title") or id), project, task.OPEN, sessions, opened_at))
        return self.tasks[id]

    def _task_changed(self, event: Event, body: Mapping[str, Any]) -> None:
        was = self._held_task(body)
        if event.kind == Kind.TASK_CLOSED and body["state"] in task.STATES:
            was = was._replace(state=str(body["state"]), closed_at=event.at)
        elif event.kind == Kind.TASK_RENAMED:
            was = was._replace(title=str(body["title"]))
        elif event.kind == Kind.TASK_JOINED and body["session"] not in was.sessions:
            was = was._replace(sessions=(*was.sessions, str(body["session"])))
        self._put(TASKS, was.id, was)

    def called(self, name: str) -> str:
        """What a project is called now."""
        found = self.projects.get(name) if name else None
        return str(found["now"]) if found else name

    def _project_renamed(self, event: Event, body: Mapping[str, Any]) -> None:
        """All that is known of it goes with it; what comes later under the old name does, too (`called`)."""
        names = {old: str(found["now"]) for old, found in self.projects.items()}
        was, now = str(body["was"]), str(body["now"])
        auto = body.get("by") == project.BY_INGEST
        if self._is_undone_renaming(event.id, was, now) or (auto and was in names):
            return
        if auto and (self.is_apart(was, now) or project.pair(was, now) in self.undone):
            return
        after = project.renamed(names, was, now)
        for old in names.keys() - after.keys():
            self._drop(PROJECTS, old)
        by = {"by": event.id, "auto": auto, "why": str(body.get("why", ""))}
        for old, new in after.items():
            if old not in names:
                self._put(PROJECTS, old, {"now": new, **by})
            elif names[old] != new:
                self._put(PROJECTS, old, {**self.projects[old], "now": new})
        for table in (INSIGHTS, NOTES, TASKS):
            # In an order of their own: what is fetched row by row and what was folded just now must give the same.
            for id, one in sorted(self._table(table).items(), key=itemgetter(0)):
                if one.project in after:
                    self._put(table, id, one._replace(project=after[one.project]))
        self._tasks_of = None
        for old in after.keys() - names.keys():
            self._drop(MARKS, old)
            self._move_pages(old, after[old])

    def _project_undone(self, event: Event, body: Mapping[str, Any]) -> None:
        """As if that renaming had never been: the fold begins again."""
        by, was, now = str(body["renaming"]), str(body["was"]), str(body["now"])
        known = self.apart.get(project.pair(was, now), {"was": was, "now": now, "undone": []})
        if by not in known["undone"]:
            self._put(APART, project.pair(was, now), {**known, "undone": [*known["undone"], by]})
        if by not in self.undone:
            # A correction that nobody asked for is undone with its pair, whichever keep made it.
            self.undone |= {by, project.pair(was, now)}
            self.stale = True

    def _project_apart(self, event: Event, body: Mapping[str, Any]) -> None:
        was, now = str(body["was"]), str(body["now"])
        if not self.is_apart(was, now):
            self._put(APART, project.pair(was, now), {"was": was, "now": now, "undone": []})

    def is_apart(self, was: str, now: str) -> bool:
        return project.pair(was, now) in self.apart

    def _is_undone_renaming(self, id: str, was: str, now: str) -> bool:
        return id in self.undone or id in self.apart.get(project.pair(was, now), {}).get("undone", ())

    def _move_pages(self, was: str, now: str) -> None:
        """A file elsewhere shows the project under its new name; a page in the keep is a view that nobody asks for any more."""
        for key, one in list(self.pages.items()):
            if one["project"] == was:
                self._drop(PAGES, key)
                if str(one["path"]).startswith("/"):
                    self._put(PAGES, f"{now}\0{one['path']}", {**one, "project": now})

    def _drop(self, table: str, id: str) -> None:
        if self._table(table).pop(id, None) is not None:
            self._dirty.add((table, id))

    def _written(self, event: Event, body: Mapping[str, Any]) -> None:
        key = f"{body['project']}\0{body['path']}"
        was = self.pages[key]
        # What an erased one left in the file is overwritten by one that came after it (`_page`), not by the erased one itself.
        left = was if was.get("erased") is not True else {name: value for name, value in was.items() if name != "erased"}
        self._put(PAGES, key, {**left, "written": True})

    def _page(self, event: Event, body: Mapping[str, Any]) -> None:
        texts = (body["project"], body["path"], body.get("region", ""))
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a page's place and words are texts")
        key = f"{body['project']}\0{body['path']}"
        # A file has one owner: what was known of it by another name, or as another project's page, is this one's history now.
        others = [one for one in map(str, body.get("instead", ())) if one in self.pages and one != key]
        earlier = sorted((self.pages[one] for one in (key, *others) if one in self.pages), key=lambda one: str(one.get("at", "")))
        was = earlier[-1] if earlier else {}
        # By their digests all that we ever wrote there can be told from a hand's work.
        regions = [digest for one in earlier for digest in one.get("regions", ())]
        regions += [i.digest(str(body["region"]))[:16]] if body.get("region") else []
        # What was not written may never have been in the file.
        before = was.get("region", "") if was.get("written") else was.get("before") or was.get("region", "")
        about = {name: value for name, value in body.items() if name != "instead"}
        # Until this one is written, the file may have what was erased with a session.
        about = {"erased": True, **about} if "erased" in was else about
        self._put(PAGES, key, {**about, "at": event.at, "before": before, "regions": list(dict.fromkeys(regions))[-_REGIONS:]})
        for one in others:
            self._drop(PAGES, one)


def _counted(body: Mapping[str, Any], now: Note) -> str:
    """A reason counts the sessions that there were when it was given; those that fell with a run since say nothing any more."""
    left = f", said in {now.sessions} sessions" if now.sessions > 1 else ""
    return _SAID_IN.sub(lambda said: said[0] if int(said[1]) <= now.sessions else left, str(body.get("reason", "")), count=1)


def _longer(was: Note, now: Note) -> bool:
    return now.insights[: len(was.insights)] == was.insights


def _mark(one: Note | None) -> int:
    """What a page shows of a note, as a number. All of a project's are combined in no order, so one can be taken out again."""
    if one is None or one.state != note.ACTIVE:
        return 0
    looks = (*one[:3], one.pinned, one.author, one.sessions, one.confidence, one.first_at, one.last_at)
    return int(i.digest(repr(looks if one.is_on_page else (*looks, one.promoted)))[:32], 16)


def _file(found: dict[str, list[str]], id: str, keys: Iterable[str]) -> None:
    for key in dict.fromkeys(keys):
        found.setdefault(key, []).append(id)


_LOADERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    INSIGHTS: Insight.of,
    NOTES: Note.of,
    TASKS: Task.of,
    DREAMED: Dreamed.of,
    RUNS: DreamRun.of,
    PAGES: dict,
    RESTS: dict,
    MARKS: dict,
    PROJECTS: dict,
    APART: dict,
}
_ACTS: dict[str, Callable[[Memory, Event, Mapping[str, Any]], None]] = {
    Kind.SESSION_COMPLETED: Memory._completed,
    Kind.SESSION_DELETED: Memory._deleted,
    Kind.DREAM_STARTED: Memory._started,
    Kind.DREAM_READ: Memory._read,
    Kind.DREAM_FINISHED: Memory._finished,
    Kind.DREAM_UNDONE: Memory._undone,
    Kind.INSIGHT_ADDED: Memory._insight,
    **dict.fromkeys(_JUDGED, Memory._judged),
    Kind.INSIGHT_LINKED: Memory._linked,
    Kind.DREAM_MERGED: Memory._compared,
    Kind.DREAM_SHELVED: Memory._shelved,
    Kind.NOTE_ADDED: Memory._note,
    Kind.NOTE_STRENGTHENED: Memory._strengthened,
    **dict.fromkeys(_ENDS, Memory._ended),
    Kind.NOTE_EDITED: Memory._edited,
    Kind.NOTE_PINNED: Memory._pinned,
    Kind.NOTE_UNPINNED: Memory._pinned,
    Kind.NOTE_DOUBTED: Memory._doubted,
    Kind.NOTE_PROMOTED: Memory._promoted,
    Kind.TASK_OPENED: Memory._task,
    Kind.TASK_CLOSED: Memory._task_changed,
    Kind.TASK_RENAMED: Memory._task_changed,
    Kind.TASK_JOINED: Memory._task_changed,
    Kind.PROJECT_RENAMED: Memory._project_renamed,
    Kind.PROJECT_UNDONE: Memory._project_undone,
    Kind.PROJECT_APART: Memory._project_apart,
    Kind.PAGE_PUBLISHED: Memory._page,
    Kind.PAGE_WRITTEN: Memory._written,
}
#: That a run was, what it has read, and what it wrote to a page, stays true.
_EVEN_IF_UNDONE = frozenset((Kind.DREAM_UNDONE, Kind.DREAM_STARTED, Kind.DREAM_READ, Kind.DREAM_FINISHED, Kind.PAGE_PUBLISHED))


def fold(events: Iterable[Event], undone: Iterable[str] = ()) -> Memory:
    """From zero. `undone` may be given when it is known; else the events are gone through twice if a run was undone."""
    listed = list(events)
    memory = Memory(undone)
    for event in listed:
        memory.apply(event)
    return fold(listed, memory.undone) if memory.stale else memory
