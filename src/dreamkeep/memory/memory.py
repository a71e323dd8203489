"""The fold: events of the keep's own journal → insights, notes, tasks, projects, pages, and what dreams did. Pure.

    memory = Memory()            or Memory.load(rows): what an index has kept of an earlier fold
    memory.apply(event)          in the order of the journal
    memory.changed()             rows that differ from before: (table, id) → JSON, or None for what is gone

**Why was this note superseded?** The fold does not decide that; it records it. Three places decide, and journal `note.superseded`
with the note that replaces it (`by`) and the words for it (`reason`):

    dream/consolidate/consolidate.py   a newer statement excludes the note, or says the same
    dream/consolidate/inbox.py         an active note says by now what a suggestion says
    dream/backends/model/merging.py    a model was asked, and its checked answer says that a suggestion is an active note again

Mostly a model's answer only becomes a link between two insights (`insight.linked`), which consolidate.py follows.

`_note_ended` below puts the reason into the note's history (`Note.history`, `NoteStep.why`). The user sees it with
`dreamkeep dream why NOTE`. What becomes of a note whose insights are rejected is decided here (`_update_after_judgement`).

Events name things by ids, and the same event again changes nothing. A run that was undone counts for nothing. An undoing can't be
applied to what was folded before, so then `needs_refold` says that the fold must begin again, with the run in `undone` from the
start. A malformed event (of another program, or a newer version) is skipped, and counted in `malformed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Self

from dreamkeep.event import Event, Kind
from dreamkeep.memory import dreams, note, project, task
from dreamkeep.memory import insight as i
from dreamkeep.memory.dreams import DreamProgress, DreamRun
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.note import Note
from dreamkeep.memory.tables import (
    APART,
    DREAMED,
    INSIGHTS,
    MARKS,
    NOTES,
    PAGES,
    PROJECTS,
    RUNS,
    TABLES,
    TASKS,
    TASKS_BY_PROJECT,
    MemoryTables,
)
from dreamkeep.memory.task import Task

#: In a reason, as a plan words it (dream/consolidate/support.py).
_SESSION_COUNT = re.compile(r", said in (\d{1,9}) sessions\b")
#: A page is recognised by this many of its earlier versions.
_MOST_REGIONS = 1000
#: These stay true of an undone run: that it was, what it has read, and what it wrote to a page.
_EVEN_IF_UNDONE = frozenset((Kind.DREAM_UNDONE, Kind.DREAM_STARTED, Kind.DREAM_READ, Kind.DREAM_FINISHED, Kind.PAGE_PUBLISHED))
_NOTE_ENDS = {
    Kind.NOTE_SUPERSEDED: note.SUPERSEDED,
    Kind.NOTE_CLOSED: note.CLOSED,
    Kind.NOTE_EXPIRED: note.EXPIRED,
    Kind.NOTE_RETRACTED: note.RETRACTED,
}

Body = Mapping[str, Any]
Handler = Callable[["Memory", Event, Body], None]
_HANDLERS: dict[str, Handler] = {}


def _handles(*kinds: str) -> Callable[[Handler], Handler]:
    """Calls the method for events of these kinds, with the event and its body."""

    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def fold(events: Iterable[Event], undone: Iterable[str] = ()) -> Memory:
    """From zero. If something was undone, the events are gone through once more, without it."""
    listed = list(events)
    memory = Memory(undone)
    for event in listed:
        memory.apply(event)
    return fold(listed, memory.undone) if memory.needs_refold else memory


class Memory(MemoryTables):
    def __init__(self, undone: Iterable[str] = ()) -> None:
        """`undone`: ids of runs and of renamings that count for nothing."""
        super().__init__()
        self.undone = set(undone)
        self.needs_refold = False
        self.malformed = 0

    @classmethod
    def load(cls, rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Self:
        memory = super().load(rows)
        memory.undone = {run.id for run in memory.runs.values() if run.undone}
        return memory

    def copy(self) -> Memory:
        """To try something on. The rows are frozen, so only the tables are copied."""
        other = Memory(self.undone)
        for table in TABLES:
            other._table(table).update(self._table(table))
        return other

    def apply(self, event: Event) -> None:
        handler = _HANDLERS.get(event.kind)
        if handler is None:
            return
        try:
            if event.kind in _EVEN_IF_UNDONE or not self._is_undone(event.body.get("run")):
                handler(self, event, event.body)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self.malformed += 1

    def _is_undone(self, run: Any) -> bool:
        known = self.runs.get(run) if isinstance(run, str) and run else None
        return run in self.undone or (known is not None and known.undone)

    # -- notes: how they begin, and what happens to them

    @_handles(Kind.NOTE_ADDED)
    def _note_added(self, event: Event, body: Body) -> None:
        rests = self._standing(body["insights"])
        if not rests:
            return  # all that it rested on was undone
        known = self.notes.get(str(body["id"]))
        if known is None:
            self._create_note(event, body, rests)
        else:
            # A journal that was merged into ours came to the same note in another way.
            self._add_support(event, body, known, rests)

    @_handles(Kind.NOTE_STRENGTHENED)
    def _note_strengthened(self, event: Event, body: Body) -> None:
        id = str(body["id"])
        rests = self._standing(body["insights"])
        if id not in self.notes and rests:
            # The run that added it was undone, or the session that it came from is deleted; but others say it too.
            self._create_note(event, body, rests)
            return
        # The same fact may have been said better: in the user's own words, or as a rule and not as a guess. But never better than
        # in words that the user wrote for it: another keep's dream, merged into ours, did not know these.
        was = self.notes[id]
        is_edited = any(step.what == "edited" for step in was.history)
        wording = {} if is_edited else {key: str(body[key]) for key in ("text", "kind") if body.get(key)}
        self._add_support(event, body, was, rests, wording)

    @_handles(*_NOTE_ENDS)
    def _note_ended(self, event: Event, body: Body) -> None:
        if event.kind == Kind.NOTE_EXPIRED and self._lost_its_reason_to_expire(body):
            return
        was = self._find_or_restore_note(event, body)
        state = _NOTE_ENDS[event.kind]
        if was.state == note.SUGGESTED and body.get("rejected") is True:
            state = note.REJECTED
        if was.state not in (state, note.REJECTED):
            by = str(body.get("by", "")) or was.by
            now = was.with_step(event.at, state, str(body.get("reason", "")), str(body.get("run", "")), state=state, by=by)
            self._put(NOTES, was.id, now)

    @_handles(Kind.NOTE_EDITED)
    def _note_edited(self, event: Event, body: Body) -> None:
        was = self._find_or_restore_note(event, body)
        words = {"was": str(body.get("was") or was.text), "text": str(body["text"])}
        # The file that it was promoted to has the old words.
        now = was.with_step(event.at, "edited", str(body.get("reason", "")), **words, author=i.USER, promoted="")
        self._put(NOTES, was.id, now)

    @_handles(Kind.NOTE_PINNED, Kind.NOTE_UNPINNED)
    def _note_pinned(self, event: Event, body: Body) -> None:
        was = self._find_or_restore_note(event, body)
        pinned = event.kind == Kind.NOTE_PINNED
        if was.pinned != pinned:
            what = "pinned" if pinned else "unpinned"
            self._put(NOTES, was.id, was.with_step(event.at, what, str(body.get("reason", "")), pinned=pinned))

    @_handles(Kind.NOTE_PROMOTED)
    def _note_promoted(self, event: Event, body: Body) -> None:
        """The user put it into a file of his own."""
        was, file = self._find_or_restore_note(event, body), str(body["file"])
        if was.promoted != file:
            self._put(NOTES, was.id, was.with_step(event.at, "promoted", str(body.get("reason", "")), promoted=file))

    @_handles(Kind.NOTE_DOUBTED)
    def _note_doubted(self, event: Event, body: Body) -> None:
        """An agent's word, which changes nothing by itself."""
        was = self.notes[str(body["id"])]
        why = str(body.get("reason", ""))
        if was.state == note.ACTIVE and not any(step.what == note.DOUBTED and step.why == why for step in was.history):
            self._put(NOTES, was.id, was.with_step(event.at, note.DOUBTED, why, str(body.get("run", ""))))

    def _create_note(self, event: Event, body: Body, rests: list[str]) -> None:
        """What the event lacks (its words were taken out of it, with a session) comes from the insights below the note."""
        id, first = str(body["id"]), self.insights[rests[0]]
        kind, text = str(body.get("kind") or first.type), str(body.get("text") or first.text)
        where = self.current_project(str(body["project"] or "")) if "project" in body else first.project
        state = note.SUGGESTED if body.get("state") == note.SUGGESTED else note.ACTIVE
        made = self._resting_on(Note(id, kind, text, where, state), rests)
        self._put(NOTES, id, made.with_step(event.at, "added", _recount(body, made), str(body.get("run", ""))))

    def _add_support(self, event: Event, body: Body, was: Note, rests: list[str], wording: Mapping[str, str] = {}) -> None:
        more = [id for id in rests if id not in was.insights]
        if more or any(getattr(was, key) != words for key, words in wording.items()):
            now = self._resting_on(was, [*was.insights, *more])
            now = now.with_step(event.at, "strengthened", _recount(body, now), str(body.get("run", "")), **wording)
            self._put(NOTES, was.id, now)

    def _resting_on(self, was: Note, ids: list[str]) -> Note:
        """The note with these insights, and with what follows from them."""
        rests = [self.insights[id] for id in ids]
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

    def _standing(self, ids: Iterable[Any]) -> list[str]:
        """Those of the insights that are neither gone nor rejected nor expired."""
        return [id for id in map(str, ids) if id in self.insights and self.insights[id].state not in (i.REJECTED, i.EXPIRED)]

    def _find_or_restore_note(self, event: Event, body: Body) -> Note:
        """The note that something is done to. If the run that gave it was undone, a user's hand on it has made it the user's own.
        What a run did to it fell with it (KeyError: the event of a run does not say what the note was)."""
        id = str(body["id"])
        if id not in self.notes:
            kind, text, where = str(body["kind"]), str(body["text"]), self.current_project(str(body["project"]))
            # Words that the user rejected are nobody's: they only keep themselves out, and overrule nothing.
            state = i.REJECTED if body.get("rejected") is True else i.CONFIRMED
            insight_id = i.insight_id(f"hand:{id}", kind, text)
            self._put(INSIGHTS, insight_id, Insight(insight_id, kind, text, where, (), event.at, 1.0, state, i.USER, "hand"))
            made = Note(id, kind, text, where).with_step(event.at, "added", "a user's hand was on it")
            self._put(NOTES, id, self._resting_on(made, [insight_id]))
        return self.notes[id]

    # -- insights

    @_handles(Kind.INSIGHT_ADDED)
    def _insight_added(self, event: Event, body: Body) -> None:
        added = Insight.of(body)
        if added.id not in self.insights:
            self._put(INSIGHTS, added.id, added._replace(project=self.current_project(added.project)))

    @_handles(Kind.INSIGHT_CONFIRMED)
    def _insight_confirmed(self, event: Event, body: Body) -> None:
        if "note" in body and str(body["id"]) not in self.insights:
            # It fell with its run; the note that the user named is the user's own now.
            self._confirm_note(event, body, self._find_or_restore_note(event, {**body, "id": body["note"]}))
            return
        was = self.insights[str(body["id"])]
        if "on" in body and not self._is_borne_out(map(str, body["on"])):
            return
        self._put_judgement(event, body, was._replace(state=i.CONFIRMED))
        if body.get("note") in self.notes:
            self._confirm_note(event, body, self.notes[body["note"]])

    @_handles(Kind.INSIGHT_REJECTED)
    def _insight_rejected(self, event: Event, body: Body) -> None:
        self._put_judgement(event, body, self.insights[str(body["id"])]._replace(state=i.REJECTED))

    @_handles(Kind.INSIGHT_EXPIRED)
    def _insight_expired(self, event: Event, body: Body) -> None:
        was = self.insights[str(body["id"])]
        if not self._lost_its_reason_to_expire(body):
            self._put_judgement(event, body, was._replace(state=i.EXPIRED, known=str(body.get("known") or "")))

    def _put_judgement(self, event: Event, body: Body, now: Insight) -> None:
        self._put(INSIGHTS, now.id, now)
        resting = self.rests.get(now.id, {}).get("notes", ())
        for was in [self.notes[id] for id in resting if now.id in self.notes[id].insights]:
            self._update_after_judgement(event, body, was)

    def _update_after_judgement(self, event: Event, body: Body, was: Note) -> None:
        """A note after one of its insights was judged: it ends when nothing is left that it rests on."""
        left = self._standing(was.insights)
        now = self._resting_on(was, left or list(was.insights))
        if not left and was.state in (note.ACTIVE, note.SUGGESTED):
            is_rejected = any(self.insights[id].state == i.REJECTED for id in was.insights)
            of_suggestion = note.REJECTED if is_rejected else note.EXPIRED
            state = note.RETRACTED if was.state == note.ACTIVE else of_suggestion
            why = str(body.get("reason", "")) or "nothing it rested on is left"
            now = now.with_step(event.at, state, why, str(body.get("run", "")), state=state)
        self._put(NOTES, was.id, now)

    def _confirm_note(self, event: Event, body: Body, was: Note) -> None:
        """By the user, who named the note: it holds, also where it was retracted or had expired before."""
        if not any(step.what == i.CONFIRMED and step.at == event.at for step in was.history):
            now = was.with_step(event.at, i.CONFIRMED, str(body.get("reason", "")), state=note.ACTIVE)
            self._put(NOTES, was.id, now)

    def _is_borne_out(self, ids: Iterable[str]) -> bool:
        """Whether those of these that are left still confirm an insight: a user's word, a confirmed one, or two sessions."""
        left = [self.insights[id] for id in ids if id in self.insights]
        sure = any(one.author == i.USER or one.state == i.CONFIRMED for one in left)
        return sure or len({quote.session for one in left for quote in one.evidence}) > 1

    def _lost_its_reason_to_expire(self, body: Body) -> bool:
        """Whether the record that made it old fell with a run that was undone."""
        return "on" in body and not any(str(id) in self.insights for id in body["on"])

    @_handles(Kind.INSIGHT_LINKED)
    def _insights_linked(self, event: Event, body: Body) -> None:
        """Each of the two knows the other; dream/consolidate/ decides what becomes of their notes."""
        this, other, what = self.insights[str(body["id"])], self.insights[str(body["other"])], str(body["op"])
        back = {i.SAME: i.SAME, i.SUPERSEDES: i.SUPERSEDED_BY}[what]
        for insight, link in ((this, (what, other.id)), (other, (back, this.id))):
            if link not in insight.links and this.id != other.id:
                self._put(INSIGHTS, insight.id, insight._replace(links=(*insight.links, link)))

    @_handles(Kind.DREAM_MERGED)
    def _insights_compared(self, event: Event, body: Body) -> None:
        for insight in self._present(body):
            if not insight.merged:
                self._put(INSIGHTS, insight.id, insight._replace(merged=True))

    @_handles(Kind.DREAM_SHELVED)
    def _insights_shelved(self, event: Event, body: Body) -> None:
        """These insights wait for the user from here on, and so do the notes that rest on nothing else."""
        why, run = str(body.get("reason", "")), str(body.get("run", ""))
        shelved = self._present(body)
        for insight in shelved:
            if insight.state != i.REJECTED:
                # `merged`: nobody need be asked what it has to do with others.
                now = insight._replace(shelf=i.INBOX, state=i.SUGGESTED, merged=True, why=why)
                self._put(INSIGHTS, insight.id, now)
        for id in dict.fromkeys(id for insight in shelved for id in self.rests.get(insight.id, {}).get("notes", ())):
            was = self.notes[id]
            rests = [self.insights[insight_id] for insight_id in was.insights]
            if was.state == note.ACTIVE and not was.pinned and all(insight.waits for insight in rests):
                self._put(NOTES, id, was.with_step(event.at, note.SUGGESTED, why, run, state=note.SUGGESTED))

    def _present(self, body: Body) -> list[Insight]:
        return [self.insights[id] for id in map(str, body["insights"]) if id in self.insights]

    # -- tasks

    @_handles(Kind.TASK_OPENED)
    def _task_opened(self, event: Event, body: Body) -> None:
        id = str(body["id"])
        session = body.get("session")
        if id not in self.tasks:
            sessions = (str(session),) if session else ()
            title = str(body.get("title") or id)  # it may have been taken out, with the session that gave it
            where = self.current_project(str(body.get("project") or ""))
            self._put(TASKS, id, Task(id, title, where, task.OPEN, sessions, event.at))

    @_handles(Kind.TASK_CLOSED, Kind.TASK_RENAMED, Kind.TASK_JOINED)
    def _task_changed(self, event: Event, body: Body) -> None:
        was = self._find_or_restore_task(body)
        if event.kind == Kind.TASK_CLOSED and body["state"] in task.STATES:
            was = was._replace(state=str(body["state"]), closed_at=event.at)
        elif event.kind == Kind.TASK_RENAMED:
            was = was._replace(title=str(body["title"]))
        elif event.kind == Kind.TASK_JOINED and body["session"] not in was.sessions:
            was = was._replace(sessions=(*was.sessions, str(body["session"])))
        self._put(TASKS, was.id, was)

    def _find_or_restore_task(self, body: Body) -> Task:
        """As `_find_or_restore_note`: a user's hand on a task whose run was undone makes it the user's own. (KeyError: an event
        of an older version does not say what the task was.)"""
        id = str(body["id"])
        if id not in self.tasks:
            where, sessions = self.current_project(str(body["project"])), tuple(map(str, body["sessions"]))
            opened_at = str(body["opened_at"]) if body.get("opened_at") else None
            self._put(TASKS, id, Task(id, str(body.get("title") or id), where, task.OPEN, sessions, opened_at))
        return self.tasks[id]

    # -- dreams: how far sessions were read, and runs

    @_handles(Kind.SESSION_COMPLETED)
    def _session_completed(self, event: Event, body: Body) -> None:
        session, seq = str(body["session"]), int(body["seq"])
        was = self.dreamed.get(session, DreamProgress(session))
        if seq <= was.finished:
            return
        if seq >= 1 << 63:
            raise ValueError(f"{seq} is no place in a journal")
        now = was._replace(finished=seq, completion_at=event.at)
        if body.get("subagent") is True:
            now = now._replace(read=seq, also=())  # there is nothing in it that a dream would read
        if was.status != dreams.RUNNING:
            now = now._replace(status=dreams.COMPLETED if now.read >= seq else dreams.PENDING)
        self._put(DREAMED, session, now)

    @_handles(Kind.SESSION_DELETED)
    def _session_deleted(self, event: Event, body: Body) -> None:
        """If the session comes back, it is another journal, of which nothing was read."""
        self._drop(DREAMED, str(body["session"]))

    @_handles(Kind.DREAM_STARTED)
    def _dream_started(self, event: Event, body: Body) -> None:
        run, trigger = str(body["run"]), str(body["trigger"])
        if run not in self.runs:
            begun = self._run_row(run)._replace(trigger=trigger, started_at=event.at, shelves=body.get("shelves") is True)
            self._put(RUNS, run, begun._replace(undone=run in self.undone))
        for n, listed in enumerate(body["sessions"]):
            was = self.dreamed.get(str(listed["session"]))
            if was and was.taken_back is not None and listed.get("again") is True:
                was = was._replace(read=was.taken_back, taken_back=None)
            if was and was.run != run and listed.get("again") == dreams.START:
                was = was._replace(read=0, also=(), taken_back=None)
            if was and was.run != run and was.read < was.finished:  # another keep's run, merged into ours, begins nothing
                backend = str(body.get("backend", ""))
                now = was._replace(status=dreams.RUNNING, trigger=trigger, run=run, backend=backend)
                self._put(DREAMED, was.session, now)
                if n == 0:
                    self._count_attempt(was.session, run, event.at)

    def _count_attempt(self, session: str, run: str, at: str) -> None:
        """When the session's turn comes, not when the run starts: a run that dies has tried one session, not all of them."""
        was = self.dreamed.get(session)
        if was and was.run == run and was.status == dreams.RUNNING:
            self._put(DREAMED, session, was._replace(last_attempt_at=at, attempts=was.attempts + 1))

    @_handles(Kind.DREAM_READ)
    def _session_read(self, event: Event, body: Body) -> None:
        """`upto`: the session was read so far, also where the rest failed or was put off. `also`: what was read of the rest.
        `next`: the session that comes then. What an undone run read stays read, until somebody asks for it."""
        if "next" in body:
            self._count_attempt(str(body["next"]), str(body["run"]), event.at)
        session, upto = str(body["session"]), int(body["upto"])
        was = self.dreamed.get(session)
        if was is None or was.run != body["run"]:
            return  # of a run that died and was taken over
        undone = self._is_undone(body["run"])
        artifacts = body.get("artifacts", ())
        if not undone and any(str(id).startswith("i-") and id not in self.insights for id in artifacts):
            # Power failed while it was written, and the disk lost the insights: so nothing of it was read.
            self._put(DREAMED, session, was._replace(status=dreams.PENDING))
            return
        read = max(was.read, upto)
        more = () if undone else ((int(first), int(last)) for first, last in body.get("also", ()))
        now = was._replace(read=read, also=tuple(sorted(stretch for stretch in {*was.also, *more} if stretch[1] > read)))
        if undone and upto > was.read:
            now = now._replace(taken_back=was.read if was.taken_back is None else min(was.read, was.taken_back))
        if body["status"] == dreams.COMPLETED:
            made = () if undone else map(str, artifacts)
            now = now._replace(
                status=dreams.PENDING if was.finished > now.read else dreams.COMPLETED,
                completed_at=event.at,
                attempts=0,
                artifacts=tuple(dict.fromkeys((*was.artifacts, *made))),
                failure="",
            )
        elif body["status"] == dreams.PENDING:
            now = now._replace(status=dreams.PENDING, attempts=max(0, was.attempts - 1))
        else:
            now = now._replace(status=dreams.FAILED, failure=str(body.get("reason", "")))
        self._put(DREAMED, session, now)

    @_handles(Kind.DREAM_FINISHED)
    def _dream_finished(self, event: Event, body: Body) -> None:
        run = str(body["run"])
        report = dict(body["report"])
        if not isinstance(report.get("sessions", []), list) or not isinstance(report.get("notes", {}), dict):
            raise TypeError("that is no report")
        self._put(RUNS, run, self._run_row(run)._replace(finished_at=event.at, report=report))

    @_handles(Kind.DREAM_UNDONE)
    def _dream_undone(self, event: Event, body: Body) -> None:
        run = str(body["run"])
        if not self._is_undone(run):
            self.undone.add(run)
            self.needs_refold = True
        self._put(RUNS, run, self._run_row(run)._replace(undone=True))

    def _run_row(self, id: str) -> DreamRun:
        return self.runs.get(id) or DreamRun(id, number=len(self.runs) + 1)

    # -- projects: their names

    @_handles(Kind.PROJECT_RENAMED)
    def _project_renamed(self, event: Event, body: Body) -> None:
        """All that is known of the project goes with it. So does what comes later under the old name (`current_project`)."""
        names = {old: str(row["now"]) for old, row in self.projects.items()}
        was, now = str(body["was"]), str(body["now"])
        auto = body.get("by") == project.BY_INGEST
        key = project.pair_key(was, now)
        if event.id in self.undone or event.id in self.apart.get(key, {}).get("undone", ()):
            return
        if auto and (was in names or key in self.apart or key in self.undone):
            return
        after = project.add_renaming(names, was, now)
        for old in names.keys() - after.keys():
            self._drop(PROJECTS, old)
        about = {"by": event.id, "auto": auto, "why": str(body.get("why", ""))}
        for old, new in after.items():
            if old not in names:
                self._put(PROJECTS, old, {"now": new, **about})
            elif names[old] != new:
                self._put(PROJECTS, old, {**self.projects[old], "now": new})
        for table in (INSIGHTS, NOTES, TASKS):
            # Sorted: rows that are fetched one by one and rows that were folded just now must give the same.
            for id, row in sorted(self._table(table).items(), key=itemgetter(0)):
                if row.project in after:
                    self._put(table, id, row._replace(project=after[row.project]))
        self._lookups.pop(TASKS_BY_PROJECT, None)
        for old in after.keys() - names.keys():
            self._drop(MARKS, old)
            self._move_pages(old, after[old])

    def _move_pages(self, was: str, now: str) -> None:
        """A file elsewhere shows the project under its new name. A page in the keep is a view that nobody asks for any more."""
        for key, row in list(self.pages.items()):
            if row["project"] == was:
                self._drop(PAGES, key)
                if str(row["path"]).startswith("/"):
                    self._put(PAGES, f"{now}\0{row['path']}", {**row, "project": now})

    @_handles(Kind.PROJECT_UNDONE)
    def _renaming_undone(self, event: Event, body: Body) -> None:
        """As if that renaming had never been: the fold begins again."""
        by, was, now = str(body["renaming"]), str(body["was"]), str(body["now"])
        key = project.pair_key(was, now)
        known = self.apart.get(key, {"was": was, "now": now, "undone": []})
        if by not in known["undone"]:
            self._put(APART, key, {**known, "undone": [*known["undone"], by]})
        if by not in self.undone:
            # A correction that nobody asked for is undone for its pair, whichever keep made it.
            self.undone |= {by, key}
            self.needs_refold = True

    @_handles(Kind.PROJECT_APART)
    def _projects_kept_apart(self, event: Event, body: Body) -> None:
        was, now = str(body["was"]), str(body["now"])
        if not self.is_apart(was, now):
            self._put(APART, project.pair_key(was, now), {"was": was, "now": now, "undone": []})

    def is_apart(self, was: str, now: str) -> bool:
        return project.pair_key(was, now) in self.apart

    # -- pages

    @_handles(Kind.PAGE_PUBLISHED)
    def _page_published(self, event: Event, body: Body) -> None:
        if not all(isinstance(text, str) for text in (body["project"], body["path"], body.get("region", ""))):
            raise TypeError("a page's place and words are texts")
        key = f"{body['project']}\0{body['path']}"
        # A file has one owner: what was known of it by another name, or as another project's page, is this one's history now.
        others = [other for other in map(str, body.get("instead", ())) if other in self.pages and other != key]
        earlier = sorted((self.pages[id] for id in (key, *others) if id in self.pages), key=lambda row: str(row.get("at", "")))
        was = earlier[-1] if earlier else {}
        # Their digests tell all that we ever wrote there from a hand's work.
        regions = [digest for row in earlier for digest in row.get("regions", ())]
        regions += [i.digest(str(body["region"]))[:16]] if body.get("region") else []
        # A region that was not written may never have been in the file.
        before = was.get("region", "") if was.get("written") else was.get("before") or was.get("region", "")
        about = {name: value for name, value in body.items() if name != "instead"}
        # Until this page is written, the file may have what was erased with a session.
        about = {"erased": True, **about} if "erased" in was else about
        regions = list(dict.fromkeys(regions))[-_MOST_REGIONS:]
        self._put(PAGES, key, {**about, "at": event.at, "before": before, "regions": regions})
        for other in others:
            self._drop(PAGES, other)

    @_handles(Kind.PAGE_WRITTEN)
    def _page_written(self, event: Event, body: Body) -> None:
        key = f"{body['project']}\0{body['path']}"
        was = self.pages[key]
        # Writing an erased page does not overwrite what it left in the file; only a page that comes after it does.
        rest = was if was.get("erased") is not True else {name: value for name, value in was.items() if name != "erased"}
        self._put(PAGES, key, {**rest, "written": True})


def _recount(body: Body, now: Note) -> str:
    """The reason, without sessions that fell with a run since: it counts those that there were when it was given."""
    left = f", said in {now.sessions} sessions" if now.sessions > 1 else ""
    return _SESSION_COUNT.sub(
        lambda said: said[0] if int(said[1]) <= now.sessions else left, str(body.get("reason", "")), count=1
    )
