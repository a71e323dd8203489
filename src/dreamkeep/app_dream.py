"""Part of app: dreaming, and the pages that come of it. The verbs of `Keep` for that; wiring, no rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, Busy, DreamkeepError, NotFound, from_os
from dreamkeep.event import rfc3339

if TYPE_CHECKING:
    from dreamkeep.dream.given import Usage
    from dreamkeep.dream.known_files import Statement
    from dreamkeep.dream.publish import Publishing
    from dreamkeep.dream.run import Dreaming, Parts, Scope
    from dreamkeep.event import Event
    from dreamkeep.index.store import Store
    from dreamkeep.memory.life import Dreamed
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.page import Budget
    from dreamkeep.recall.embed import Embedder

T = TypeVar("T")
#: Backends that answer requests.
_MODELS = ("openai", "anthropic", "command", "files", "agent")
_BY_HYGIENE = "hygiene"


class Dreams(Part):
    """What `Keep` can do with dreams and pages."""

    if TYPE_CHECKING:

        def _forget(self, name: str, pages: Collection[str] | None = None) -> None: ...

        def _finish_first(self) -> None: ...

        @staticmethod
        def _embedder() -> Embedder | None: ...

        def render_packs(self, squeezed: Sequence[str] = ()) -> None: ...

        def _memory(self, *tables: str) -> Memory: ...

        def _remembering(self, act: Callable[[Memory], T]) -> T: ...

        def _spent_today(self) -> Usage: ...

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
        again: bool = False,
        since: str | None = None,
    ) -> dict[str, Any]:
        """Read finished sessions and remember what matters of them; the report. `backend`: a name, or anything with `backfill`.

        `with_model`: with the model that the settings name. `dry_run`: only what would be read. `preview`: with the backend, and
        what would change; neither of the two writes anything. `again`: sessions that were read before (those named, or since a
        time, or all) once more from their beginning, with a model.
        """
        from dreamkeep.app_asked import at_least_one
        from dreamkeep.dream import run

        if dry_run and preview:
            raise BadUsage("choose a dry run or a preview", where="--dry-run --preview", next="Leave one of them out.")
        if limit is not None:
            at_least_one(limit, "limit")
        from dreamkeep.dream.parts import assemble, named

        asked = backend if backend is not None or not with_model else self._model_named()
        name = named(asked, self.config)
        if not self.exists():
            return run.report(run.Scope((), "", "there is no keep yet", 0), why="there is no keep yet")
        chosen = [self.resolve(one) for one in sessions]
        if again:
            chosen = self._read_before(name, chosen, since)
            if not chosen:
                return run.report(run.Scope((), "", "no session was read before", 0), why="no session was read before")
        elif since is not None:
            raise BadUsage("`since` works only with --again", where="--since", next="Add --again, or leave it out.")
        if dry_run:
            dreaming = self._dreaming(look=True)
            scope = dreaming.scope(if_due=if_due, sessions=chosen, limit=limit, name=name, again=again)
            return _with_given_up(self._dry(scope), dreaming.given_up(name=name))

        def parts() -> Parts:
            config, known = self.config, self._known_files()
            return assemble(asked, config, self._host, self._environment, self.root, self._similar, known, self._spent_today)

        if preview:
            dreaming = self._dreaming(look=True)
            made, before, after = dreaming.preview(parts, if_due=if_due, sessions=chosen, limit=limit, name=name, again=again)
            told = {**made, "run": None, "preview": True, "diff": self._diff(before, after)}
            return _with_given_up(told, dreaming.given_up(name=name))
        return self._dream_now(parts, if_due=if_due, sessions=chosen, limit=limit, name=name, again=again)

    def _read_before(self, name: str, chosen: Sequence[str], since: str | None, *, by: str = "") -> list[str]:
        """Which sessions to read again, oldest first: of those named, or of all, those that were read to their end. `by`: only
        those that this backend read."""
        from dreamkeep.app_recall import moment
        from dreamkeep.dream import when
        from dreamkeep.dream.parts import RULES

        if name == RULES:
            way = "Choose one with `dreamkeep model use`, or name it with --backend."
            raise BadUsage("only a model can reread sessions", where="--again", next=way)
        first = moment(since, "since") or ""

        def read(store: Store) -> list[str]:
            told = [one for one in self._memory("dreamed").dreamed.values() if not chosen or one.session in chosen]
            done = [one for one in told if when.eligibility(one, max_attempts=1) == when.CONSOLIDATED]
            done = [one for one in done if not by or one.backend == by]
            found = ((store.session(one.session), one) for one in done)
            return [one.session for summary, one in found if summary is not None and (summary.last_at or "") >= first]

        return self._ask(read)

    def _known_files(self) -> Callable[[str], Sequence[Statement]]:
        """What the user's own files say to whoever works in a folder; each is read once for a run."""
        from dreamkeep.dream.known_files import KnownFiles

        return KnownFiles(self._host, self._home(None)[0]).of

    def _dream_now(
        self,
        parts: Callable[[], Parts],
        *,
        if_due: bool,
        sessions: Sequence[str],
        limit: int | None,
        name: str,
        holder: str = "",
        part_tokens: int | None = None,
        again: bool = False,
    ) -> dict[str, Any]:
        """The run itself, with the pages before and after it."""
        self._finish_first()
        # What was edited by hand comes before what is concluded now.
        first = self._publish("") if self._pages_differ() else []
        hands = self._hands()

        def take_in() -> None:
            first.extend(one for one in hands() if not one["problem"])

        def publish(run: str) -> list[dict[str, Any]]:
            told: dict[tuple[str, str], dict[str, Any]] = {}
            for one in (*first, *self._publish(run)):
                place = one["project"], one["path"]
                told[place] = _with_earlier(told.get(place), one)
            return list(told.values())

        dreaming = self._dreaming(part_tokens=part_tokens)
        made = dreaming.run(
            parts,
            if_due=if_due,
            sessions=sessions,
            limit=limit,
            name=name,
            publish=publish,
            take_in=take_in,
            holder=holder,
            asks=name in _MODELS,
            again=again,
        )
        if made["run"] or "shelved" in made:
            self._follow_end()
        return _with_given_up({"pages": first, **made}, dreaming.given_up(self._memory("dreamed"), name))

    def _follow_end(self) -> None:
        """The index with the end of a run, too: else whoever only looks next has to make one for that."""
        try:
            self._remembering(lambda memory: None)
        except (DreamkeepError, OSError) as problem:
            self.warn(f"Everything is safe, but the index can't be updated: {problem}")

    def _given_up(self) -> tuple[str, str]:
        """What is given up with the backend of the settings, in words, and the way out; "" for nothing."""
        from dreamkeep.dream import when
        from dreamkeep.dream.parts import named

        return when.told(self._dreaming().given_up(name=named(None, self.config))), when.TRY_AGAIN

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
            name = str(self.config["dream.backend"])
            if dreaming.busy() or not dreaming.scope(if_due=True, recorded=recorded.life, name=name).sessions:
                return False
            self._host.start(words, f"{self.root}/state/dream.log", gentle=True)
        except (DreamkeepError, OSError) as problem:
            # Whoever called ended a session, or journaled what hooks left: that was done.
            self.warn(f"A dream can't be started: {problem}")
            return False
        return True

    def _dreaming(self, *, look: bool = False, part_tokens: int | None = None) -> Dreaming:
        """`part_tokens`: how much of a session goes into a request, if that is not what the settings say."""
        from dreamkeep.dream.run import Dreaming, Settings

        config = self.config
        settings = Settings(
            config["dream.session_count"],
            config["dream.time_hours"],
            config["dream.max_attempts"],
            config["dream.loss_guard"],
            chunk_tokens=part_tokens or config["dream.model.chunk_tokens"],
        )
        ask = self._look if look else self._ask

        def append(events: Sequence[Event]) -> None:
            self._journals().append("", events)

        def forget(session: str) -> None:
            from dreamkeep.capture.forget import erase_in_keep
            from dreamkeep.journal.places import folder_of
            from dreamkeep.recovery.showing import showing

            pages = showing(self._host, self.root, session)
            erase_in_keep(self._host, self.root, self._journals(), session, ())
            self._forget(folder_of(session), pages)

        def end(run: str) -> None:
            from dreamkeep.recovery.mend_dream import bury

            bury(self._host, self.root, self._journals(), self._ids, run)

        return Dreaming(self._host, self.root, append, self._ids, ask, settings, forget, None if look else self._glance, end)

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
            "the settings name no model",
            where="--with-model",
            next="Set `dream.model.url` and `dream.model.model`, or `dream.model.command`: docs/models.md.",
        )

    def _diff(self, before: Memory, after: Memory) -> dict[str, Any]:
        """What a run would change: notes by their id, and the pages line by line."""
        from dreamkeep.dream.preview import previewed

        changed = [one for id, one in sorted(after.notes.items()) if before.notes.get(id) != one]
        notes = [{"id": one.id, "kind": one.kind, "state": one.state, "text": one.text} for one in changed]
        # Also those that a hand has changed since: they are taken in first.
        projects = {one.project for one in changed} | {project for project, _ in self._differing(before)}
        pages = previewed(self._host, self.root, before, after, projects, self.config["page.target"], self._budget())
        return {"notes": notes, "pages": [one._asdict() for one in pages]}

    # -- pages

    def _take_in(self) -> list[dict[str, Any]]:
        """What was edited by hand comes before what is said now. Of a page that can't be written nothing is told here: whoever
        calls this publishes afterwards."""
        from dreamkeep.dream.publish import touched

        if not self.exists() or not self._remembering(lambda memory: touched(self._host, self.root, memory)):
            return []
        return self._published("", lambda what: None)

    def _hands(self) -> Callable[[], list[dict[str, Any]]]:
        """Takes in what was edited by hand since it was asked last: before each session that a dream concludes, so pages are
        looked at from outside first. What comes of it is told as a publication is."""
        from dreamkeep.dream.publish import stamps
        from dreamkeep.memory.page import located

        seen: dict[str, int] | None = None

        def paths(memory: Memory) -> list[str]:
            return [path for one in memory.pages.values() if (path := located(self.root, str(one["path"])))]

        def taken_in() -> list[dict[str, Any]]:
            nonlocal seen
            try:
                now = stamps(self._host, self._remembering(paths) if seen is None else seen)
                if now == seen:
                    return []
                seen = now  # and not as they are afterwards: somebody may come in between
                return self._take_in()
            except (DreamkeepError, OSError) as problem:
                self.warn(f"Hand edits on the pages will be applied later: {problem}")
                return []

        return taken_in

    def _publish(self, run: str) -> list[dict[str, Any]]:
        """Pages that are not as they should be, anew: of every project that something is remembered of, and every file that was
        ever one."""
        return self._published(run, self.warn)

    def _published(self, run: str, warn: Callable[[str], object]) -> list[dict[str, Any]]:
        from dreamkeep.dream.publish import alone
        from dreamkeep.memory.page import FOLDER

        self._finish_first()  # it writes pages itself, and would wait for the lock that is held here
        try:
            with alone(self._host, self.root):
                return self._remembering(lambda memory: self._publish_all(memory, run, warn))
        except (DreamkeepError, OSError) as problem:
            warn(f"The pages can't be written now; the next dream writes them: {problem}")
            return [_unwritten("", f"{self.root}/{FOLDER}", str(problem))]
        finally:
            self.render_packs()  # whoever comes here changed what is remembered

    def _publish_before(self, sessions: Collection[str]) -> None:
        """What was written by hand, before these are deleted: afterwards nobody knows any more what of a page was ours."""
        from dreamkeep.dream.publish import alone
        from dreamkeep.memory.page import in_keep

        left = [one for one in self._publish("") if one["problem"] and in_keep(self.root, one["path"])]

        def take(memory: Memory) -> None:
            for one, session in ((one, session) for one in left for session in sessions):
                self._publishing(memory).take_reworded(one["project"], one["path"], session)

        if left:
            with alone(self._host, self.root):
                self._remembering(take)

    def _publish_without(self) -> list[tuple[str, str]]:
        """Without what was learned in a session that was deleted. (path, why) of the keep's own pages that may still have lines
        of it; of files elsewhere, which are their users', it is told."""
        from dreamkeep.dream.publish import still_holding
        from dreamkeep.memory.page import in_keep

        why = {one["path"]: one["problem"] for one in self._publish("") if one["problem"]}
        holding = self._remembering(lambda memory: still_holding(self._host, self.root, memory))
        for path in (one for one in holding if not in_keep(self.root, one)):
            self.warn(
                f"The file {path} is outside the keep and has lines of the deleted session. "
                "Once it is writable and its fence is intact, the next dream removes them."
            )
        held = [(one, why.get(one, "the pages can't be written")) for one in holding if in_keep(self.root, one)]
        return held + self._retire_pages()

    def _retire_pages(self) -> list[tuple[str, str]]:
        """(path, why) of files among the pages that are nobody's any more, and may have lines of a session that was deleted."""
        from dreamkeep.dream.publish import alone
        from dreamkeep.dream.retired import left_over

        def retired(memory: Memory) -> list[tuple[str, str]]:
            return [(path, why) for path in left_over(self._host, self.root, memory) if (why := self._retire(memory, path))]

        with alone(self._host, self.root):
            return self._remembering(retired)

    def _retire(self, memory: Memory, path: str) -> str:
        try:
            return self._publishing(memory).retire(path)
        except (DreamkeepError, OSError) as problem:
            return str(problem)

    def _publish_all(self, memory: Memory, run: str, warn: Callable[[str], object]) -> list[dict[str, Any]]:
        from dreamkeep.dream.retired import given_up

        for path in given_up(self._host, self.root, memory):
            if why := self._retire(memory, path):
                warn(f"The page {path} of an old project name was not changed: {why}")
        publishing = self._publishing(memory)
        done: dict[tuple[str, str], dict[str, Any]] = {}
        for _ in range(2):  # what a hand did on one page holds for the project's others, too
            left_alone = {one for one, told in done.items() if told["problem"]}
            edits = 0
            for project, path in [one for one in self._differing(memory) if one not in left_alone]:
                try:
                    told = publishing.publish(project, path, run, asked=False)._asdict()
                    if told["problem"]:
                        warn(f"The page {path} was not written: {told['problem']}")
                except (DreamkeepError, OSError) as problem:
                    # One page that can't be written is told; what is remembered is safe, and the others are written.
                    why = self._blocked(path) or str(problem)
                    warn(f"The page {path} can't be written: {why}")
                    told = _unwritten(project, path, why)
                edits += told["edits"]
                done[project, path] = _with_earlier(done.get((project, path)), told)
            if not edits:
                break
        return [done[one] for one in sorted(done)]

    def _blocked(self, path: str) -> str:
        """Why no page in the keep can be written, where the reason is no single page's."""
        from dreamkeep.memory.page import FOLDER, in_keep

        folder = f"{self.root}/{FOLDER}"
        at = self._host.stat(folder) if in_keep(self.root, path) else None
        if at is None or not at.is_file:
            return ""
        return f"a file is in the place of the pages' folder ({folder}). Move it away; the next dream creates the folder."

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
        """Whether one is not as it should be, or is there and should not be."""
        from dreamkeep.dream.retired import given_up

        return self._remembering(lambda memory: bool(self._differing(memory) or given_up(self._host, self.root, memory)))

    def page(self, *, project: str = "", write: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """A project's page: as it would be, or (`write`) into the fenced region of that file, taking in what was edited there. A
        new file is made, and no folder."""
        from dreamkeep.memory.page import in_keep, render

        if write is not None:
            from dreamkeep.app_asked import in_a_folder
            from dreamkeep.dream.publish import Published, alone

            path = os.path.abspath(os.fspath(write))
            if not self.exists():
                return Published(project, path)._asdict()  # nothing is remembered, and no keep is made for that
            try:
                if not in_keep(self.root, path):
                    in_a_folder(self._host, path)
                with alone(self._host, self.root):
                    return self._remembering(lambda memory: self._publishing(memory).publish(project, path)._asdict())
            except OSError as problem:
                raise from_os(problem, "writing the page", path) from problem
        made = self._remembering(lambda memory: render(memory.shown(project), project, self._budget()))
        left = [one._asdict() for one in made.left_out]
        return {"project": project, "text": made.text, "notes": list(made.notes), "left_out": left}

    # -- runs

    def dream_status(self) -> dict[str, Any]:
        """Each session that has ended, whether a dream is due, and the last report. What ended and has no completion record yet
        is as it will be: the next dream records it first."""
        from dreamkeep.dream import when
        from dreamkeep.dream.run import LOCK, last_success, runs_and_ended, with_ended
        from dreamkeep.held import is_held
        from dreamkeep.recovery.audit_dream import left_alone

        memory, unrecorded = self._ask(runs_and_ended)
        recorded_at = {one.session: one.completion_at for one in memory.dreamed.values()}
        config = self.config
        now = rfc3339(self._host.now())
        memory = with_ended(memory, unrecorded, now)
        running = is_held(self._host, f"{self.root}/{LOCK}")
        attempts = config["dream.max_attempts"]
        name = str(config["dream.backend"])
        failed_too = when.waiting(memory.dreamed.values(), max_attempts=attempts, backend=name)
        waiting = when.waiting(failed_too, max_attempts=attempts, now=now, backend=name)
        last = last_success(memory)
        due = when.due(
            waiting,
            now=now,
            last_success_at=last,
            session_count=config["dream.session_count"],
            time_hours=config["dream.time_hours"],
            later=len(failed_too) - len(waiting),
        )
        poisoned = when.told(when.given_up(memory.dreamed.values(), max_attempts=attempts, backend=name))
        ended = sorted(memory.dreamed.values(), key=lambda one: (one.completion_at or "", one.session))
        finished = [one for one in memory.runs.values() if one.report]
        report = max(finished, key=lambda one: one.number).report if finished else None
        return {
            "sessions": [
                {
                    "id": one.session,
                    "eligibility": when.eligibility(one, max_attempts=attempts, running=running, backend=name),
                    "status": one.status,
                    "trigger_reason": one.trigger or None,
                    "completion_recorded_at": recorded_at.get(one.session),
                    "last_attempt_at": one.last_attempt_at,
                    "completed_at": one.completed_at,
                    "attempts": one.attempts,
                    "artifact_refs": list(one.artifacts),
                    "failure_reason": one.failure or None,
                }
                for one in ended
            ],
            "trigger": {"due": due.due, "why": f"{due.why}; {poisoned}" if poisoned else due.why, "waiting": due.waiting},
            "running": running,
            "last_successful_run_at": last,
            "last_report": report,
            "pages": [{"path": path, "problem": why} for path, why in left_alone(self._host, self.root, memory.pages.values())],
        }

    def dream_history(self) -> list[dict[str, Any]]:
        """All runs, newest first. `running`: its report comes when it has ended."""
        runs = sorted(self._memory("runs").runs.values(), key=lambda one: one.number, reverse=True)
        running = next((one.id for one in runs if not one.is_over), "") if self._dreaming(look=True).busy() else ""
        return [{**one.as_json(), "running": one.id == running} for one in runs]

    def dream_undo(self, run: str) -> dict[str, Any]:
        """Nothing of that run counts any more; later ones stay where they do not rest on it, and what follows from them now."""
        runs = self._memory("runs").runs
        found = [one for one in runs if one == run] or [one for one in runs if run and one.startswith(run)]
        if len(found) != 1:
            what = "no run" if not found else f"{len(found)} runs begin with"
            raise NotFound(f"{what} {run!r}", where="dream undo", next="`dreamkeep dream history` lists them.")
        again = runs[found[0]].undone
        if not again:
            with self._dreaming().lock() as ours:
                if not ours:
                    raise Busy("a dream is running", where="dream undo", next="Wait until it has finished, or stop it.")
                if self._pages_differ():
                    self._publish("")  # what was edited by hand stands by itself: it is taken in before anything is taken back
                self._take_back(found[0])
            self._publish("")
        return {"run": found[0], "undone": True, "before": again}

    def _take_back(self, run: str) -> None:
        """In one append with what follows: whoever dies here has undone it, or not."""
        from dreamkeep.dream.undo import rethought
        from dreamkeep.event import Event, Kind
        from dreamkeep.journal.places import KEEP
        from dreamkeep.journal.reader import Reading, events
        from dreamkeep.memory.memory import fold

        before = self._memory()
        now = rfc3339(self._host.now())
        undone = Event(self._ids.new(), Kind.DREAM_UNDONE, now, {"run": run})
        said = [event for _, event in events(Reading(self._host, f"{self.root}/{KEEP}"))]
        decisions = rethought(before, fold([*said, undone]), run, now, self._similar)
        self._journals().append("", [undone, *(Event(self._ids.new(), one.kind, now, one.body) for one in decisions)])

    def hygiene(self) -> dict[str, Any]:
        """End what has been quiet for long, record what ended, compress what is cold."""
        from dreamkeep.dream import hygiene

        if not self.exists():
            return {"closed": [], "failed": [], "reconverged": 0, "expired": 0, "compressed": 0}
        self._finish_first()
        now = rfc3339(self._host.now())
        hours = self.config["hygiene.stale_hours"]

        def quiet(store: Store) -> list[str]:
            busy = hygiene.working(store.unsettled(owned=True), self._alive)
            return hygiene.stale(store.sessions(), busy, now=now, hours=hours)

        done = hygiene.close(self._ask(quiet), self._end_stale)
        reconverged = len(set(self._dreaming().complete().sessions) - set(done.closed))
        failed = [{"session": session, "reason": why} for session, why in done.failed]
        told = {"closed": list(done.closed), "failed": failed, "reconverged": reconverged}
        return {**told, "expired": self._end_suggestions(), "compressed": self.compress()}

    def _end_suggestions(self) -> int:
        """Those that waited too long in the inbox; how many. While a dream runs, that dream does it."""
        from dreamkeep.dream.inbox import end_suggestions
        from dreamkeep.event import Event, Kind

        with self._dreaming().lock() as ours:
            if not ours:
                return 0
            now = rfc3339(self._host.now())
            # It names a run, so that it is no hand on the note.
            ended = end_suggestions(self._memory("notes"), now, _BY_HYGIENE)
            if ended:
                self._journals().append("", [Event(self._ids.new(), one.kind, now, one.body) for one in ended])
        return sum(one.kind == Kind.NOTE_EXPIRED for one in ended)

    def _end_stale(self, session: str) -> None:
        from dreamkeep.event import Kind
        from dreamkeep.session.summary import ENDED

        self._journals().say(session, Kind.SESSION_ENDED, {"reason": "stale"}, {"state": ENDED})


def _with_given_up(made: dict[str, Any], found: Sequence[Dreamed]) -> dict[str, Any]:
    """A report is never silent about what nobody tries any more. Not journaled: reasons may quote a session."""
    from dreamkeep.dream import when

    told = [{"id": one.session, "attempts": one.attempts, "reason": when.reason(one)} for one in found]
    why = made.get("why", "")
    if found and not made["considered"]:
        why = f"{why or 'no sessions are waiting'}; {when.told(found)}"
    return {**made, "why": why, "given_up": told}


def _unwritten(project: str, path: str, problem: str) -> dict[str, Any]:
    from dreamkeep.dream.publish import Published

    return Published(project, path, problem=problem)._asdict()


def _with_earlier(before: dict[str, Any] | None, told: dict[str, Any]) -> dict[str, Any]:
    """A page that was written twice, told once."""
    if before is None:
        return told
    return {**told, "changed": before["changed"] or told["changed"], "edits": before["edits"] + told["edits"]}
