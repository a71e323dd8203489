"""Part of app: dreaming and what is remembered. The verbs of `Keep` for that; wiring, no rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, DreamkeepError, NotDurable, NotFound, from_os
from dreamkeep.event import rfc3339

if TYPE_CHECKING:
    from dreamkeep.dream.publish import Publishing
    from dreamkeep.dream.run import Dreaming, Parts, Scope
    from dreamkeep.dream.told import Ground, Told
    from dreamkeep.event import Event
    from dreamkeep.index.store import Store
    from dreamkeep.memory.insight import Insight
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.note import Note
    from dreamkeep.memory.page import Budget
    from dreamkeep.recall.embed import Embedder

T = TypeVar("T")


class Remembering(Part):
    """What `Keep` can do with dreams, notes and tasks."""

    if TYPE_CHECKING:

        def _forget(self, name: str) -> None: ...

        @staticmethod
        def _embedder() -> Embedder | None: ...

        def render_packs(self, squeezed: Sequence[str] = ()) -> None: ...

    # -- dreams

    def dream(
        self,
        *,
        if_due: bool = False,
        dry_run: bool = False,
        preview: bool = False,
        backend: Any = None,
        with_model: bool = False,
        sessions: Sequence[str] = (),
        limit: int | None = None,
    ) -> dict[str, Any]:
        """Read finished sessions and remember what matters of them; the report. `backend`: a name, or anything with `backfill`.

        `with_model`: with the model that the settings name. `dry_run`: only what would be read. `preview`: with the backend, and
        what would change; neither of the two writes anything.
        """
        from dreamkeep.app_asked import at_least_one
        from dreamkeep.dream import run

        if dry_run and preview:
            raise BadUsage("either a dry run or a preview", where="--dry-run --preview", next="Leave one of them out.")
        if limit is not None:
            at_least_one(limit, "limit")
        if not self.exists():
            return run.report(run.Scope((), "", "there is no keep yet", 0), why="there is no keep yet")
        chosen = [self.resolve(one) for one in sessions]
        if dry_run:
            return self._dry(self._dreaming(look=True).scope(if_due=if_due, sessions=chosen, limit=limit))
        from dreamkeep.dream.parts import assemble, named

        asked = backend if backend is not None or not with_model else self._model_named()
        name = named(asked, self.config)

        def parts() -> Parts:
            return assemble(asked, self.config, self._host, self._environment, self.root, self._similar)

        if preview:
            made, before, after = self._dreaming(look=True).preview(parts, if_due=if_due, sessions=chosen, limit=limit, name=name)
            return {**made, "run": None, "preview": True, "diff": self._diff(before, after)}
        if self._pages_differ():
            self._publish("")  # what was edited by hand comes before what is concluded now
        made = self._dreaming().run(parts, if_due=if_due, sessions=chosen, limit=limit, name=name)
        if made["run"]:
            made["pages"] = self._publish(made["run"])
        return made

    def _similar(self, one: str, other: str) -> float:
        """How alike two statements are, by an embedder if one is installed; it is loaded when it is first asked."""
        embedder = self._embedder()
        if embedder is None:
            return 0.0
        first, second = embedder.embed([one, other])
        return float(first @ second)

    def start_dream(self) -> bool:
        """In a process of its own, of low priority, if it is due: completion is recorded first. Whether one was started."""
        if not self.config["dream.auto"] or self.is_off() or not self.exists():
            return False
        if self._environment.get("DREAMKEEP_DREAMING"):
            return False  # we are in a dream's own command
        words = [sys.executable, "-P", "-m", "dreamkeep", "--keep", self.root, "dream", "--if-due"]
        try:
            dreaming = self._dreaming()
            recorded = dreaming.complete()
            if dreaming.busy() or not dreaming.scope(if_due=True, recorded=recorded.life).sessions:
                return False
            self._host.start(words, f"{self.root}/state/dream.log", gentle=True)
        except (DreamkeepError, OSError) as problem:
            # Whoever called ended a session, or journaled what hooks left: that was done.
            self.warn(f"A dream can't be started: {problem}")
            return False
        return True

    def _dreaming(self, *, look: bool = False) -> Dreaming:
        from dreamkeep.dream.run import Dreaming, Settings

        config = self.config
        settings = Settings(
            config["dream.session_count"],
            config["dream.time_hours"],
            config["dream.max_attempts"],
            config["dream.loss_guard"],
            chunk_tokens=config["dream.model.chunk_tokens"],
        )
        ask = self._look if look else self._ask

        def append(events: Sequence[Event]) -> None:
            self._journals().append("", events)

        def forget(session: str) -> None:
            from dreamkeep.capture.forget import erase_in_keep
            from dreamkeep.journal.places import folder_of

            erase_in_keep(self._host, self.root, self._journals(), session, ())
            self._forget(folder_of(session))

        def end(run: str) -> None:
            from dreamkeep.recovery.mend_dream import bury

            bury(self._host, self.root, self._journals(), self._ids, run)

        return Dreaming(self._host, self.root, append, self._ids, ask, settings, forget, None if look else self._glance, end)

    def _glance(self, act: Callable[[Store], T]) -> T:
        """Ask the index as it is, without following the journal: for who knows that what he asks for is there."""
        if not self.exists():
            return self._ask(act)
        try:
            return self._with_index(act, follow=False)
        except (NotDurable, OSError):
            return self._ask(act)

    def _dry(self, scope: Scope) -> dict[str, Any]:
        """Scope and estimate: no backend, nothing written."""
        from dreamkeep.dream.each import estimate
        from dreamkeep.dream.run import report

        found = self._look(lambda store: estimate(store, scope))
        sessions = [{"id": one.session, "status": one.status} for one in scope.sessions]
        return report(scope, dry_run=True, processed=len(scope.sessions), sessions=sessions, estimate=found, why=scope.why)

    def _model_named(self) -> str:
        """Which backend the settings of a model mean, where `dream.backend` is none."""
        if self.config["dream.backend"] != "rules":
            return str(self.config["dream.backend"])
        if self.config["dream.model.command"]:
            return "command"
        if self.config["dream.model.url"] or self.config["dream.model.model"]:
            model = str(self.config["dream.model.model"] or "")
            return "anthropic" if "anthropic" in str(self.config["dream.model.url"]) or model.startswith("claude") else "openai"
        raise BadUsage(
            "no model is named in the settings",
            where="--with-model",
            next="Set `dream.model.url` and `dream.model.model`, or `dream.model.command`: docs/models.md.",
        )

    def _diff(self, before: Memory, after: Memory) -> dict[str, Any]:
        """What a run would change: notes by their id, and the pages line by line."""
        from difflib import unified_diff

        from dreamkeep.memory.page import render

        changed = [one for id, one in sorted(after.notes.items()) if before.notes.get(id) != one]
        notes = [{"id": one.id, "kind": one.kind, "state": one.state, "text": one.text} for one in changed]
        pages = []
        for project in sorted({one.project for one in changed}):
            old, new = (render(memory.notes.values(), project).text.splitlines() for memory in (before, after))
            pages.append({"project": project, "diff": "\n".join(unified_diff(old, new, "before", "after", lineterm="", n=1))})
        return {"notes": notes, "pages": pages}

    def _publish(self, run: str) -> list[dict[str, Any]]:
        """Pages that are not as they should be, anew: of every project that something is remembered of, and every file that was
        ever one."""
        from dreamkeep.dream.publish import alone

        try:
            with alone(self._host, self.root):
                return self._remembering(lambda memory: self._publish_all(memory, run))
        except (DreamkeepError, OSError) as problem:
            self.warn(f"The pages can't be written now; the next dream does: {problem}")
            return []
        finally:
            self.render_packs()  # whoever comes here changed what is remembered

    def _publish_all(self, memory: Memory, run: str) -> list[dict[str, Any]]:
        publishing = self._publishing(memory)
        done = []
        for project, path in self._differing(memory):
            try:
                told = publishing.publish(project, path, run, asked=False)
                done.append(told._asdict())
                if told.problem:
                    self.warn(f"The page {path} is left alone: {told.problem}")
            except (DreamkeepError, OSError) as problem:
                # One page that can't be written is told; what is remembered is safe, and the others are written.
                self.warn(f"The page {path} can't be written: {problem}")
                done.append({"project": project, "path": path, "changed": False, "problem": str(problem)})
        return done

    def _publishing(self, memory: Memory) -> Publishing:
        from dreamkeep.dream.publish import Publishing

        append = self._journals().append
        ours = (self._ids, self._budget(), self._similar)
        return Publishing(self._host, self.root, memory, lambda events: append("", events), *ours)

    def _budget(self) -> Budget:
        from dreamkeep.memory.page import Budget

        config = self.config
        return Budget(config["page.max_lines"], config["page.max_bytes"], config["page.max_tokens"])

    def _differing(self, memory: Memory) -> list[tuple[str, str]]:
        from dreamkeep.dream.publish import differing

        return differing(self._host, self.root, memory, self.config["page.target"], self._budget())

    def _pages_differ(self) -> bool:
        return bool(self._remembering(self._differing))

    def page(self, *, project: str = "", write: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """A project's page: as it would be, or (`write`) into the fenced region of that file, taking in what was edited there."""
        from dreamkeep.memory.page import render

        if write is not None:
            from dreamkeep.dream.publish import alone

            path = os.path.abspath(os.fspath(write))
            try:
                with alone(self._host, self.root):
                    return self._remembering(lambda memory: self._publishing(memory).publish(project, path)._asdict())
            except OSError as problem:
                raise from_os(problem, "writing the page", path) from problem
        made = self._remembering(lambda memory: render(memory.shown(project), project, self._budget()))
        left = [one._asdict() for one in made.left_out]
        return {"project": project, "text": made.text, "notes": list(made.notes), "left_out": left}

    def dream_status(self) -> dict[str, Any]:
        """Each session that has a completion record, whether a dream is due, and the last report."""
        from dreamkeep.dream import when
        from dreamkeep.dream.run import LOCK, last_success
        from dreamkeep.held import is_held

        memory = self._memory("dreamed", "runs")
        config = self.config
        now = rfc3339(self._host.now())
        running = is_held(self._host, f"{self.root}/{LOCK}")
        attempts = config["dream.max_attempts"]
        waiting = when.waiting(memory.dreamed.values(), max_attempts=attempts, now=now)
        last = last_success(memory)
        due = when.due(
            waiting,
            now=now,
            last_success_at=last,
            session_count=config["dream.session_count"],
            time_hours=config["dream.time_hours"],
        )
        ended = sorted(memory.dreamed.values(), key=lambda one: (one.completion_at or "", one.session))
        finished = [one for one in memory.runs.values() if one.report]
        report = max(finished, key=lambda one: one.number).report if finished else None
        return {
            "sessions": [
                {
                    "id": one.session,
                    "eligibility": when.eligibility(one, max_attempts=attempts, running=running),
                    "status": one.status,
                    "trigger_reason": one.trigger or None,
                    "completion_recorded_at": one.completion_at,
                    "last_attempt_at": one.last_attempt_at,
                    "completed_at": one.completed_at,
                    "attempts": one.attempts,
                    "artifact_refs": list(one.artifacts),
                    "failure_reason": one.failure or None,
                }
                for one in ended
            ],
            "trigger": {"due": due.due, "why": due.why, "waiting": due.waiting},
            "running": running,
            "last_successful_run_at": last,
            "last_report": report,
        }

    def dream_history(self) -> list[dict[str, Any]]:
        """All runs, newest first."""
        runs = sorted(self._memory("runs").runs.values(), key=lambda one: one.number, reverse=True)
        return [one.as_json() for one in runs]

    def dream_why(self, note: str) -> dict[str, Any]:
        """A note with what it rests on and what happened to it, step by step."""
        memory = self._memory("notes", "insights")
        found = self._note(memory, note)
        rests = [memory.insights[one].as_json() for one in found.insights if one in memory.insights]
        return {
            "note": self._as_note(found, _newest(memory)),
            "insights": rests,
            "history": [step._asdict() for step in found.history],
        }

    def dream_undo(self, run: str) -> dict[str, Any]:
        """Nothing of that run counts any more; later ones stay where they do not rest on it, and what follows from them now."""
        from dreamkeep.dream.undo import rethought
        from dreamkeep.event import Event, Kind

        before = self._memory()
        found = [one for one in before.runs if one == run] or [one for one in before.runs if run and one.startswith(run)]
        if len(found) != 1:
            what = "there is no run" if not found else f"{len(found)} runs begin with"
            raise NotFound(f"{what} {run!r}", where="dream undo", next="`dreamkeep dream history` lists them.")
        if not before.runs[found[0]].undone:
            self._journals().say("", Kind.DREAM_UNDONE, {"run": found[0]})
            now = rfc3339(self._host.now())
            decisions = rethought(before, self._memory(), found[0], now, self._similar)
            if decisions:
                self._journals().append("", [Event(self._ids.new(), one.kind, now, one.body) for one in decisions])
            self._publish("")
        return {"run": found[0], "undone": True}

    def hygiene(self) -> dict[str, Any]:
        """End what has been quiet for long, record what ended, compress what is cold."""
        from dreamkeep.dream import hygiene

        if not self.exists():
            return {"closed": [], "failed": [], "reconverged": 0, "compressed": 0}
        now = rfc3339(self._host.now())
        hours = self.config["hygiene.stale_hours"]

        def quiet(store: Store) -> list[str]:
            busy = hygiene.working(store.unsettled(owned=True), self._alive)
            return hygiene.stale(store.sessions(), busy, now=now, hours=hours)

        done = hygiene.close(self._ask(quiet), self._end_stale)
        reconverged = len(set(self._dreaming().complete().sessions) - set(done.closed))
        failed = [{"session": session, "reason": why} for session, why in done.failed]
        return {"closed": list(done.closed), "failed": failed, "reconverged": reconverged, "compressed": self.compress()}

    def _end_stale(self, session: str) -> None:
        from dreamkeep.event import Kind
        from dreamkeep.session.summary import ENDED

        self._journals().say(session, Kind.SESSION_ENDED, {"reason": "stale"}, {"state": ENDED})

    # -- notes and tasks

    def _memory(self, *tables: str) -> Memory:
        """What is remembered; only these tables of it, if some are named."""
        from dreamkeep.index import build
        from dreamkeep.memory.memory import Memory

        def rows(store: Store) -> list[tuple[str, str, dict[str, Any]]]:
            build.follow_keep(self._host, self.root, store)
            return [(table, *row) for table in tables for row in store.memory_table(table)] if tables else store.memory()

        return Memory.load(self._glance(rows))

    def _remembering(self, act: Callable[[Memory], T]) -> T:
        """Ask what is remembered: only what is asked for is read. What fails in `act` itself is no failure of the index."""
        from dreamkeep.index import build
        from dreamkeep.index.sqlite import Unusable
        from dreamkeep.memory.memory import Memory

        def asked(store: Store) -> tuple[list[T], Exception | None]:
            build.follow_keep(self._host, self.root, store)
            with store.reading():
                try:
                    return [act(Memory.on_demand(store.memory_row, store.memory_table))], None
                except Unusable:
                    raise
                except (DreamkeepError, OSError) as problem:
                    return [], problem

        done, problem = self._glance(asked)
        if problem:
            raise problem
        return done[0]

    def notes(self, *, kind: str | None = None, state: str | None = "active", project: str | None = None) -> list[dict[str, Any]]:
        """What is remembered, best first. `state` None: whatever became of it."""
        from dreamkeep.memory.insight import TYPES
        from dreamkeep.memory.note import STATES

        _known(kind, TYPES, "kind")
        _known(state, STATES, "state")
        memory = self._memory("notes")
        newest = _newest(memory)
        found = [
            self._as_note(one, newest)
            for one in memory.notes.values()
            if kind in (None, one.kind) and state in (None, one.state) and project in (None, one.project)
        ]
        return sorted(found, key=lambda one: (not one["pinned"], -one["score"], one["id"]))

    def _as_note(self, note: Note, newest: str | None) -> dict[str, Any]:
        from dreamkeep.memory.score import score

        shown = note.as_json()
        del shown["history"]
        return {**shown, "score": round(score(note, newest), 4)}

    def _note(self, memory: Memory, text: str) -> Note:
        found = [one for one in memory.notes.values() if one.id == text] or [
            one for one in memory.notes.values() if text and (one.id.startswith(text) or one.id.startswith(f"n-{text}"))
        ]
        if len(found) != 1:
            what = "there is no note" if not found else f"{len(found)} notes begin with"
            raise NotFound(f"{what} {text!r}", where="note", next="`dreamkeep notes` lists them.")
        return found[0]

    def note_add(self, text: str, *, kind: str = "preference", project: str = "") -> dict[str, Any]:
        """The user's own word: it counts more than what an agent said. What it contradicts is superseded at once, and what says
        the same already is strengthened: the note that stands for it now, with `changed`: what became of which note, and why."""
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        now = rfc3339(self._host.now())
        said = told.by_user(redacted(" ".join(text.split())), kind, project, now)
        done = self._tell(said, now, keep=True)
        memory = self._memory("notes")
        return {**self._as_note(memory.notes[done.note], _newest(memory)), "changed": told.as_json(done)}

    def add_insight(
        self,
        type: str,
        text: str,
        *,
        session: str | None = None,
        quote: str | None = None,
        task: str | None = None,
        project: str | None = None,
        author: str = "agent",
    ) -> dict[str, Any]:
        """An agent tags its own work: `{insight, note, changed}`; found at once by `search` and `notes`, and `dream why` tells.

        `type`: one of memory/insight.py's TYPES. `session`: the one it works in (an id, or a unique beginning): the insight then
        belongs to that session, its project and its task, and goes when that is deleted. `quote`: words of one of its messages,
        word for word, as evidence. `author="user"`: these are the user's words; believed only if `quote` stands in a message of
        the user. Without a quote it is the agent's own word: `insight["source"]` is "agent", a quote is empty or missing, and it
        expires as all do that nobody confirms. `project`: where there is no session. `task`: an id, or a unique beginning.

        `note`: the note that stands for it now; None where it is no memory by itself (a hypothesis, a piece of evidence that no
        second session bears out). `changed`: `[{what, id, reason}]`, what became of notes. The same again changes nothing.
        """
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        words, now = redacted(" ".join(text.split())), rfc3339(self._host.now())
        if quote and not session:
            raise BadUsage("a quote stands in a session", where="quote", next="Name the session, or leave the quote out.")
        where = self._ground(session, quote or "") if session else told.Ground(project or "")
        if task:
            where = where._replace(task=self.task_show(task)["id"])
        said = told.by_agent(type, words, where, now=now, author=author)
        done = self._tell(said, now, keep=False)
        memory = self._memory("notes", "insights")
        note = memory.notes.get(done.note)
        return {
            "insight": memory.insights.get(said.id, said).as_json(),
            "note": self._as_note(note, _newest(memory)) if note else None,
            "changed": told.as_json(done),
        }

    def _ground(self, session: str, quote: str) -> Ground:
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        id = self.resolve(session)
        summary, messages = self._ask(lambda store: (store.session(id), store.messages(id)))
        if summary is None:
            raise NotFound(f"there is no session {id!r}", where="session", next="`dreamkeep sessions` lists them.")
        return told.ground(summary, messages, quote, redacted)

    def _tell(self, said: Insight, now: str, *, keep: bool) -> Told:
        """Journaled together with what follows from it; then the pages."""
        from dreamkeep.dream import told
        from dreamkeep.event import Event, Kind

        memory = self._memory("notes", "insights")
        if said.id in memory.insights:
            return told.again(memory, said)
        done = told.concluded(memory, said, now, keep=keep, similar=self._similar)
        events = [(Kind.INSIGHT_ADDED, said.as_json()), *((one.kind, one.body) for one in done.decisions)]
        self._journals().append("", [Event(self._ids.new(), kind, now, body) for kind, body in events])
        dead = self._ask(lambda store: store.tombstones())
        for session in {one.session for one in said.evidence} & dead.keys():
            # Deleted meanwhile: what was said of it came after what the deletion took away.
            self._dreaming().forget(session)
        self._publish("")
        return done

    def note_change(self, note: str, act: str, *, text: str = "", reason: str = "") -> dict[str, Any]:
        """`act`: edit, pin, unpin, retract, confirm, reject."""
        from dreamkeep.dream.parts import redacted
        from dreamkeep.event import Kind
        from dreamkeep.memory.insight import SUGGESTED

        memory = self._memory("notes", "insights")
        found = self._note(memory, note)
        kinds = {"pin": Kind.NOTE_PINNED, "unpin": Kind.NOTE_UNPINNED, "retract": Kind.NOTE_RETRACTED, "edit": Kind.NOTE_EDITED}
        why = reason or "by the user"
        text = redacted(text)
        if act == "edit" and not text.strip():
            raise BadUsage("what shall it say?", where="note edit", next="Give the new text.")
        if act in kinds:
            body = {"id": found.id, "reason": why, **({"text": " ".join(text.split())} if act == "edit" else {})}
            self._journals().say("", kinds[act], body)
            if act == "edit":
                self._conclude_edit(found.id)
        elif act in ("confirm", "reject"):
            kind = Kind.INSIGHT_CONFIRMED if act == "confirm" else Kind.INSIGHT_REJECTED
            for one in found.insights:
                if act == "reject" or memory.insights[one].state == SUGGESTED:
                    self._journals().say("", kind, {"id": one, "reason": why})
        else:
            raise BadUsage(f"a note can't be told to {act!r}", where="note", next="edit, pin, unpin, retract, confirm or reject.")
        self._publish("")
        memory = self._memory("notes")
        return self._as_note(memory.notes[found.id], _newest(memory))

    def _conclude_edit(self, note: str) -> None:
        from dreamkeep.dream import told
        from dreamkeep.event import Event

        now = rfc3339(self._host.now())
        follows = told.edited(self._memory("notes", "insights"), note, now, similar=self._similar)
        if follows:
            self._journals().append("", [Event(self._ids.new(), one.kind, now, one.body) for one in follows])

    def tasks(self, *, project: str | None = None) -> list[dict[str, Any]]:
        """Pieces of work, newest first, with how many insights belong to each."""
        memory = self._memory("tasks", "insights")
        counts: dict[str, int] = {}
        for one in memory.insights.values():
            counts[one.task] = counts.get(one.task, 0) + 1
        found = [one for one in memory.tasks.values() if project in (None, one.project)]
        found.sort(key=lambda one: (one.opened_at or "", one.id), reverse=True)
        return [{**one.as_json(), "insights": counts.get(one.id, 0)} for one in found]

    def task_open(self, title: str, *, project: str = "") -> dict[str, Any]:
        from dreamkeep.dream.parts import redacted
        from dreamkeep.event import Kind
        from dreamkeep.memory.insight import task_id

        words = redacted(" ".join(title.split()))
        if not words:
            raise BadUsage("what is the task?", where="task open", next="Give it a title.")
        id = task_id(self._ids.new())
        self._journals().say("", Kind.TASK_OPENED, {"id": id, "title": words, "project": project})
        return self.task_show(id)

    def task_close(self, task: str, *, state: str = "done") -> dict[str, Any]:
        from dreamkeep.event import Kind
        from dreamkeep.memory.task import OPEN, STATES

        id = self.task_show(task)["id"]
        if state not in STATES or state == OPEN:
            ways = ", ".join(one for one in STATES if one != OPEN)
            raise BadUsage(f"a task can't be closed as {state!r}", where="--state", next=f"Use one of {ways}.")
        self._journals().say("", Kind.TASK_CLOSED, {"id": id, "state": state, "reason": "by the user"})
        return self.task_show(id)

    def task_rename(self, task: str, title: str) -> dict[str, Any]:
        from dreamkeep.dream.parts import redacted
        from dreamkeep.event import Kind

        id = self.task_show(task)["id"]
        words = redacted(" ".join(title.split()))
        if not words:
            raise BadUsage("what is the task?", where="task rename", next="Give it a title.")
        self._journals().say("", Kind.TASK_RENAMED, {"id": id, "title": words})
        return self.task_show(id)

    def task_show(self, task: str) -> dict[str, Any]:
        """One task with its insights."""
        memory = self._memory("tasks", "insights")
        found = [one for one in memory.tasks if one == task] or [one for one in memory.tasks if task and one.startswith(task)]
        if len(found) != 1:
            what = "there is no task" if not found else f"{len(found)} tasks begin with"
            raise NotFound(f"{what} {task!r}", where="task", next="`dreamkeep tasks` lists them.")
        rests = [one.as_json() for one in memory.insights.values() if one.task == found[0]]
        return {**memory.tasks[found[0]].as_json(), "insights": rests}


def _newest(memory: Memory) -> str | None:
    return max((one.last_at for one in memory.notes.values() if one.last_at), default=None)


def _known(word: str | None, words: Sequence[str], name: str) -> None:
    if word is not None and word not in words:
        raise BadUsage(f"there is no {name} {word!r} of notes", where=f"--{name}", next=f"Use one of {', '.join(words)}.")
