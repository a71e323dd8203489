"""Keep: opens a keep and offers its verbs. The verbs are implemented in `dreamkeep.verbs`; their docstrings are here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dreamkeep import config as settings
from dreamkeep import verbs
from dreamkeep.context import KeepContext
from dreamkeep.host import Host, RealHost

if TYPE_CHECKING:
    from dreamkeep.capture.context import IngestOutcome
    from dreamkeep.capture.items import Items
    from dreamkeep.capture.python import Session
    from dreamkeep.index.build import Built, Progress
    from dreamkeep.recall.hits import Hit
    from dreamkeep.session.summary import Summary

    #: Where a caller may name a file or a folder.
    AnyPath = str | os.PathLike[str]


class Keep:
    """A folder that holds sessions and what was learned in them. Reading creates nothing; the first write makes the folder."""

    def __init__(self, root: str, host: Host, environment: Mapping[str, str], *, anyway: bool = False) -> None:
        self.context = KeepContext(root, host, environment, anyway=anyway)
        self.context.finish_deletions = lambda: verbs.forget.finish_deletions(self.context)

    @property
    def root(self) -> str:
        return self.context.root

    @property
    def config(self) -> settings.Config:
        return self.context.config

    @property
    def progress(self) -> Progress | None:
        """Called while the index is built. A surface may set this and `warn`, to show that work takes time or that something is
        wrong."""
        return self.context.progress

    @progress.setter
    def progress(self, progress: Progress | None) -> None:
        self.context.progress = progress

    @property
    def warn(self) -> Callable[[str], None]:
        return self.context.warn

    @warn.setter
    def warn(self, warn: Callable[[str], None]) -> None:
        self.context.warn = warn

    @classmethod
    def open(
        cls,
        where: AnyPath | None = None,
        *,
        host: Host | None = None,
        environment: Mapping[str, str] | None = None,
        anyway: bool = False,
    ) -> Keep:
        """`where`: the keep's folder (default: DREAMKEEP_KEEP, or else the user's data folder). `anyway`: open it with the
        default settings even if keep.toml can't be used, to find out what is wrong; an audit reports it."""
        environment = os.environ if environment is None else environment
        root = settings.keep_path(os.fspath(where) if where is not None else None, environment, sys.platform)
        return cls(root, host or RealHost(), environment, anyway=anyway)

    def __enter__(self) -> Keep:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """From now on, turns that were not settled count as interrupted."""
        self.context.close()

    def exists(self) -> bool:
        return self.context.exists()

    def is_off(self) -> bool:
        return self.context.is_off()

    # -- recording

    def session(self, native_id: str, *, agent: str = "python", cwd: AnyPath | None = None, title: str = "") -> Session:
        """Open or resume a session. What it records is durable when the call returns."""
        return verbs.sessions.session(self.context, native_id, agent=agent, cwd=cwd, title=title)

    def items(self, native_id: str, *, agent: str = "python", cwd: AnyPath | None = None, title: str = "") -> Items:
        """A session as a framework sees it (`dreamkeep.integrations`): a list of items, stored exactly as they were handed
        over."""
        return verbs.sessions.items(self.context, native_id, agent=agent, cwd=cwd, title=title)

    def end(self, session: str) -> Summary:
        """End a session by hand. This does not count as activity: the session does not become the newest one."""
        return verbs.sessions.end(self.context, session)

    def suspend(self, session: str) -> Summary:
        return verbs.sessions.suspend(self.context, session)

    def resume(self, session: str) -> Summary:
        return verbs.sessions.resume(self.context, session)

    def new_id(self) -> str:
        """A new unique id. It sorts after all earlier ones."""
        return self.context.ids.new()

    # -- sessions

    def resolve(self, text: str) -> str:
        """A session's full id, from that id, the agent's own id, or a unique prefix of either."""
        return verbs.arguments.resolve_session(self.context, text)

    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        return verbs.sessions.sessions(self.context, project=project, agent=agent, limit=limit)

    def summary(self, session: str) -> Summary:
        return verbs.sessions.summary(self.context, session)

    def show(self, text: str, *, live: bool = False) -> dict[str, Any]:
        """A whole session as JSON data (docs/SPEC.md). `live` adds what is going on now."""
        return verbs.sessions.show(self.context, text, live=live)

    def digest(self, text: str) -> dict[str, Any]:
        """The short copy of a session that a model reads: without secrets, each line with its place."""
        return verbs.sessions.digest(self.context, text)

    def lineage(self, session: str) -> dict[str, Any]:
        """The sessions it descends from (`ancestors`, nearest first) and those that descend from it (`descendants`)."""
        return verbs.sessions.lineage(self.context, session)

    def raw(self, text: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Everything that was captured of a session, in the order of capture: a description and the exact bytes."""
        return verbs.sessions.raw(self.context, text)

    @staticmethod
    def as_json(summary: Summary) -> dict[str, Any]:
        """A session as JSON data (docs/SPEC.md)."""
        return verbs.views.show_session(summary)

    @staticmethod
    def markdown(data: dict[str, Any]) -> str:
        """The answer of `show` as a Markdown page."""
        from dreamkeep.session.reading.markdown import markdown

        return markdown(data)

    def outward(self, answer: Mapping[str, Any], *, longest: int = 20_000) -> dict[str, Any]:
        """An answer as a model may get it: marked as ours, so that no dream learns it again; texts cut to `longest` characters;
        and without secrets, unless `recall.redact` is off."""
        from dreamkeep.secrets.outward import outward
        from dreamkeep.session.reading.own_answers import MARKED

        return {**MARKED, **outward(answer, longest=longest, mask=self.config["recall.redact"])}

    def masked(self, answer: Any) -> Any:
        """An answer as it may be printed: without secrets, unless `recall.redact` is off."""
        from dreamkeep.secrets.outward import outward

        return outward(answer) if self.config["recall.redact"] else answer

    # -- capture

    def ingest(
        self,
        *,
        agents: Sequence[str] = (),
        home: AnyPath | None = None,
        paths: Sequence[AnyPath] = (),
        again: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[IngestOutcome]:
        """Find and import sessions of all agents on this machine, below `home`, or at `paths`. Yields one outcome for each
        source, then brings the index up to date."""
        return verbs.capture.ingest(self.context, agents=agents, home=home, paths=paths, again=again, progress=progress)

    def watch(
        self,
        *,
        agents: Sequence[str] = (),
        home: AnyPath | None = None,
        polling: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[IngestOutcome | None]:
        """Import sessions as they are written, until `stopped`. Yields outcomes as they come, and None now and then."""
        return verbs.capture.watch(self.context, agents=agents, home=home, polling=polling, stopped=stopped)

    def drain(self, *, also_off: bool = False) -> dict[str, Any]:
        """Move the hook calls in the spool into the journals, and import the transcripts they name. Not while capture is off."""
        return verbs.capture.drain(self.context, also_off=also_off)

    def take_in(self) -> None:
        """Drain the spool if hook calls are waiting, so that the next answer includes them. A failure is only a warning."""
        verbs.capture.take_in(self.context)

    def tap(self, command: Sequence[str], *, agent: str | None = None) -> int:
        """Run an ACP agent and record what it and its client say. Returns its exit code."""
        return verbs.capture.tap(self.context, command, agent=agent)

    def init(
        self,
        *,
        agents: Sequence[str] = (),
        home: AnyPath | None = None,
        dry_run: bool = False,
        uninstall: bool = False,
        mcp: bool = True,
    ) -> list[dict[str, str]]:
        """Install hooks and the MCP server in the settings of the agents that are found, or remove them."""
        return verbs.capture.init(self.context, agents=agents, home=home, dry_run=dry_run, uninstall=uninstall, mcp=mcp)

    def start_drainer(self) -> None:
        """Start `drain` in another process if hook calls are waiting."""
        verbs.capture.start_drainer(self.context)

    @property
    def corrected(self) -> Sequence[dict[str, str]]:
        """The sessions that the last `ingest` moved to their right project."""
        return self.context.corrected

    # -- recall

    def search(
        self,
        query: str,
        *,
        kinds: Sequence[str] = (),
        project: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        since: str | None = None,
        as_of: str | None = None,
        limit: int = 10,
    ) -> list[Hit]:
        """What was said and learned, best first. Any query is valid. `kinds`: message, insight, note (default: all).
        `as_of`: only what was known at that time."""
        return verbs.search.search(
            self.context, query, kinds=kinds, project=project, agent=agent, session=session, since=since, as_of=as_of, limit=limit
        )

    def pack(
        self, query: str | None = None, project: str | None = None, task: str | None = None, budget: int | None = None
    ) -> dict[str, Any]:
        """What a new session should read first, as `{text, tokens, sources, …}`: pinned notes, rules, open items, where the last
        session left off, what works here; and what matches `query` or the task (its id, or words that describe it).

        `project`: its name or the path of a folder in it (default: the current folder's); "": only what holds everywhere.
        `budget`: in tokens, as `page.Size` counts them (default: `recall.budget`)."""
        return verbs.packs.pack(self.context, query, project, task, budget)

    def render_packs(self, squeezed: Sequence[str] = ()) -> None:
        """Render the packs that hooks hand to agents again where something changed. `squeezed`: sessions whose context was just
        compacted. A pack is never worth failing for: a failure is a warning, and the next call tries again."""
        verbs.packs.render_packs(self.context, squeezed)

    def embed(self, *, most: int = 1 << 60, progress: Callable[[int, int], None] | None = None) -> int:
        """Bring the vectors up to date if an embedder is installed. Returns how many texts were embedded."""
        return verbs.similarity.embed(self.context, most=most, progress=progress)

    @staticmethod
    def places_of(query: str, text: str) -> list[tuple[int, int]]:
        """Where words of the query occur in the text, as (start, end)."""
        from dreamkeep.index.words import terms
        from dreamkeep.recall.snippet import find_words

        return find_words(text, [form for term in terms(query) for form in term.forms])

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
        """Read finished sessions and write notes about what matters in them. Returns a report.

        `backend`: a name, or any object with `backfill`. `with_model`: use the model from the settings. `dry_run`: only report
        what would be read. `preview`: ask the backend and report what would change. Neither of the two writes anything.
        `again`: use a model to reread sessions that were read before (those named, those since a time, or all).
        """
        return verbs.dreams.dream(
            self.context,
            if_due=if_due,
            dry_run=dry_run,
            preview=preview,
            backend=backend,
            with_model=with_model,
            sessions=sessions,
            limit=limit,
            again=again,
            since=since,
        )

    def dream_status(self) -> dict[str, Any]:
        """Each session that has ended, whether a dream is due, and the last report. Sessions that have no completion record yet
        are shown as if they had one: the next dream adds it first."""
        return verbs.dreams.dream_status(self.context)

    def dream_history(self) -> list[dict[str, Any]]:
        """All runs, newest first. A `running` one has no report yet."""
        return verbs.dreams.dream_history(self.context)

    def dream_undo(self, run: str) -> dict[str, Any]:
        """Undo a run: nothing of it counts any more. Later runs stay, as far as they do not rest on it."""
        return verbs.dreams.dream_undo(self.context, run)

    def start_dream(self) -> bool:
        """Add missing completion records, then start a dream in a process of low priority if one is due. Whether it was
        started."""
        return verbs.dreams.start_dream(self.context)

    def hygiene(self) -> dict[str, Any]:
        """End idle sessions, add missing completion records, expire old suggestions, and compress cold journals."""
        return verbs.hygiene.hygiene(self.context)

    def page(self, *, project: str = "", write: AnyPath | None = None) -> dict[str, Any]:
        """A project's page as text, or (`write`) written into the fenced region of that file, after hand edits there were
        applied. A missing file is created, a missing folder is not."""
        return verbs.pages.page(self.context, project=project, write=write)

    # -- dreams whose requests somebody else answers

    def dream_export(
        self,
        folder: str,
        *,
        sessions: Sequence[str] = (),
        limit: int | None = None,
        again: bool = False,
        since: str | None = None,
    ) -> dict[str, Any]:
        """Write the requests of a dream as files, to be answered elsewhere. Their sessions are reserved for a week. `again`: as
        for `dream`."""
        return verbs.exchange.dream_export(self.context, folder, sessions=sessions, limit=limit, again=again, since=since)

    def dream_import(self, folder: str) -> dict[str, Any]:
        """Read the answers that are there and write the next requests. The report's status is `partial` while requests are
        open."""
        return verbs.exchange.dream_import(self.context, folder)

    def dream_next(self, session: str = "", *, again: bool = False) -> dict[str, Any]:
        """One request for the calling agent. Its session is reserved for the agent for half an hour. `session`: continue this
        one. `again`: if nothing is waiting, also offer sessions that only rules have read."""
        return verbs.exchange.dream_next(self.context, session, again=again)

    def dream_submit(self, request: str, answer: object) -> dict[str, Any]:
        """Take an answer to a request of `dream_next`. It is checked like any model's. `next` is the next request."""
        return verbs.exchange.dream_submit(self.context, request, answer)

    # -- models

    def model(self) -> dict[str, Any]:
        """The model in use, the models that could be used, and what the last 30 days would cost. Nothing of a session is sent."""
        return verbs.models.model(self.context)

    def model_use(self, what: str) -> dict[str, Any]:
        """Let dreams ask this model: NAME or NAME:MODEL, as `model` lists them. Only keep.toml is changed."""
        return verbs.models.model_use(self.context, what)

    def model_off(self) -> dict[str, Any]:
        """Let dreams use rules and ask no model. The model's other settings stay in keep.toml."""
        return verbs.models.model_off(self.context)

    def models_at_hand(self) -> list[str]:
        """The names of the models found on this machine, without asking any server."""
        return verbs.models.models_at_hand(self.context)

    # -- memory

    def notes(self, *, kind: str | None = None, state: str | None = "active", project: str | None = None) -> list[dict[str, Any]]:
        """Notes, best first. `state` None or "all": notes in any state."""
        return verbs.notes.notes(self.context, kind=kind, state=state, project=project)

    def note_add(self, text: str, *, kind: str = "preference", project: str = "") -> dict[str, Any]:
        """Add a note in the user's own words, which outrank an agent's. Notes that contradict it are superseded at once; a note
        that says the same is strengthened. Returns the note that stands for it now. `changed`: what became of which note."""
        return verbs.notes.note_add(self.context, text, kind=kind, project=project)

    def note_suggest(
        self, text: str, *, kind: str = "preference", project: str = "", session: str | None = None, quote: str | None = None
    ) -> dict[str, Any]:
        """Add a note for an agent. It is `suggested` and waits for `note_change(note, "confirm")`. It is active at once, as the
        user's own word, if `quote` is what the user typed in `session` (default: one of the project's last sessions) and `text`
        says no more than that. Answers like `note_add`."""
        return verbs.notes.note_suggest(self.context, text, kind=kind, project=project, session=session, quote=quote)

    def note_change(self, note: str, act: str, *, text: str = "", reason: str = "", by: str = "user") -> dict[str, Any]:
        """`act`: edit, pin, unpin, retract, confirm, reject. Confirming brings back a note that was retracted or has expired.

        `by`: "agent" may only pin, unpin and retract, and retracts only suggestions. Any other note stays active; its history
        records that an agent doubts it, until the user retracts it."""
        return verbs.notes.note_change(self.context, note, act, text=text, reason=reason, by=by)

    def note_promote(self, note: str, file: AnyPath) -> dict[str, Any]:
        """Append an active note to one of the user's own files (CLAUDE.md, AGENTS.md …) as a list item. The note stays active,
        but our pages leave it out unless it is pinned. The answer has `file`, `line`, and `added`: False if the file said it
        already."""
        return verbs.notes.note_promote(self.context, note, file)

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
        """Record what an agent has learned: `{insight, note, changed}`. `search` and `notes` find it at once; `dream_why`
        explains it.

        `type`: one of TYPES in memory/insight.py. `session`: the session that the agent works in (an id or a unique prefix).
        The insight then belongs to that session, its project and its task, and is deleted with it. `quote`: words of one of its
        messages, word for word, as evidence. `author="user"`: these are the user's words; accepted only if the user typed
        `quote`. `project`: used if there is no session. `task`: an id or a unique prefix.

        It is a suggestion (`insight["source"]` is "suggestion"), unless the user typed `quote` and `text` says no more: its
        note is `suggested`, on no page and in no pack, until the user confirms it.

        `note`: the note that stands for it now; None for what is no memory by itself (a hypothesis, a piece of evidence), and
        for what the user has rejected before. `changed`: `[{what, id, reason}]`, what became of notes. Adding the same insight
        twice changes nothing.
        """
        return verbs.notes.add_insight(
            self.context, type, text, session=session, quote=quote, task=task, project=project, author=author
        )

    def dream_why(self, note: str) -> dict[str, Any]:
        """A note, the insights it rests on, and its history."""
        return verbs.notes.dream_why(self.context, note)

    def tasks(self, *, project: str | None = None) -> list[dict[str, Any]]:
        """Pieces of work, newest first, with how many insights belong to each."""
        return verbs.tasks.tasks(self.context, project=project)

    def task_open(self, title: str, *, project: str = "") -> dict[str, Any]:
        return verbs.tasks.task_open(self.context, title, project=project)

    def task_close(self, task: str, *, state: str = "done") -> dict[str, Any]:
        return verbs.tasks.task_close(self.context, task, state=state)

    def task_rename(self, task: str, title: str) -> dict[str, Any]:
        return verbs.tasks.task_rename(self.context, task, title)

    def task_show(self, task: str) -> dict[str, Any]:
        """One task with its insights."""
        return verbs.tasks.task_show(self.context, task)

    def review(
        self,
        *,
        project: str | None = None,
        accept: Sequence[str] = (),
        reject: Sequence[str] = (),
        edit: tuple[str, str] | None = None,
        accept_all: str | None = None,
    ) -> dict[str, Any]:
        """`{items, accepted, rejected}`: what is in the inbox now, for one project or for all, and what this call decided.

        `accept`, `reject`: ids of items. Accepting a note makes it active, as the user's own word; accepting a project offer
        merges the two projects. `edit`: (id, text) accepts a note with a new text. `accept_all`: accepts every suggested note of
        that kind. An unknown id is an error, and then nothing is done.
        """
        return verbs.review.review(self.context, project=project, accept=accept, reject=reject, edit=edit, accept_all=accept_all)

    # -- projects

    def project_named(self, text: str) -> str:
        """A project's current name, from a name that it has or had, or from the path of a folder in it."""
        return verbs.arguments.find_project(self.context, text)

    def projects(self) -> list[dict[str, Any]]:
        """All projects, the most recently used first. `merged`: earlier names and projects that were merged into it."""
        return verbs.projects.projects(self.context)

    def project_rename(self, project: str, name: str) -> dict[str, Any]:
        """Show everything of a project, also what is captured later, under a new name."""
        return verbs.projects.project_rename(self.context, project, name)

    def project_merge(self, project: str, into: str) -> dict[str, Any]:
        """Make two projects one, also for what is captured later."""
        return verbs.projects.project_merge(self.context, project, into)

    def project_undo(self, project: str) -> dict[str, Any]:
        """Undo a renaming or a merge, whether by hand or by `ingest`. No later `ingest` repeats it."""
        return verbs.projects.project_undo(self.context, project)

    def project_apart(self, project: str, other: str) -> dict[str, Any]:
        """Record that these are different projects: merging them is no longer offered, and `ingest` doesn't do it."""
        return verbs.projects.project_apart(self.context, project, other)

    def project_offers(self) -> list[dict[str, str]]:
        """Pairs of projects that may be the same. Accept one with `project_merge`, reject it with `project_apart`."""
        return verbs.projects.project_offers(self.context)

    def correct_projects(self) -> list[dict[str, str]]:
        """Move sessions whose worktree was already gone at capture to their repository's project. Returns what was changed. A
        failure is only a warning, because capture itself succeeded."""
        return verbs.projects.correct_projects(self.context)

    # -- recovery

    def doctor(self) -> list[dict[str, Any]]:
        return verbs.faults.doctor(self.context)

    def audit(self, *, deep: bool = False, home: AnyPath | None = None) -> dict[str, Any]:
        """Everything that is wrong, here and in the agents' own stores, as JSON data (docs/SPEC.md). Writes nothing.

        `deep`: reread every byte, even of files that look unchanged."""
        return verbs.faults.audit(self.context, deep=deep, home=home)

    def repair(
        self,
        *,
        apply: bool = False,
        undo: str | None = None,
        accept: Sequence[str] = (),
        only: Sequence[str] = (),
        home: AnyPath | None = None,
    ) -> dict[str, Any]:
        """Plan how to fix what an audit finds; or, with one of these: `apply` the plan, `accept` faults as they are, `undo` a
        repair."""
        return verbs.faults.repair(self.context, apply=apply, undo=undo, accept=accept, only=only, home=home)

    def restore(
        self,
        session: str,
        to: str,
        *,
        home: AnyPath | None = None,
        cwd: AnyPath | None = None,
        generation: int | None = None,
        convert: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Write a session back for an agent: byte for byte for the agent it came from, converted for another."""
        return verbs.restore.restore(
            self.context, session, to, home=home, cwd=cwd, generation=generation, convert=convert, dry_run=dry_run
        )

    def delete(self, session: str) -> Summary:
        """Delete a session for good: no word of it stays in the keep, and nothing brings it back. Returns it as it was."""
        return verbs.deletion.delete(self.context, session)

    def delete_all(self, sessions: Sequence[str]) -> list[Summary]:
        """Delete several sessions; views are rebuilt once. If one of them does not exist, none is deleted."""
        return verbs.deletion.delete_all(self.context, sessions)

    def undelete(self, session: str) -> str:
        """Allow a deleted session to be captured again. What was deleted stays deleted. Returns its full id."""
        return verbs.deletion.undelete(self.context, session)

    def export(self, file: AnyPath, *, view: bool = True, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Write the whole keep to one file. `view`: include a readable page of each session."""
        return verbs.snapshots.export(self.context, file, view=view, progress=progress)

    def verify(self, file: AnyPath, *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Check whether a snapshot is whole, and list what is wrong with it."""
        return verbs.snapshots.verify(self.context, file, progress=progress)

    def import_(self, file: AnyPath, *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Import what this keep lacks from a snapshot; everything, if there is no keep yet."""
        return verbs.snapshots.import_(self.context, file, progress=progress)

    # -- upkeep

    def status(self) -> dict[str, Any]:
        """What is in the keep, what waits, and what is running."""
        return verbs.upkeep.status(self.context)

    def reindex(self, *, from_zero: bool = False, progress: Progress | None = None) -> Built:
        return verbs.upkeep.reindex(self.context, from_zero=from_zero, progress=progress)

    def catch_up(self) -> None:
        """Bring the index up to date now, so that the next question is quick. A failure is only a warning: capture needs no
        index."""
        verbs.upkeep.catch_up(self.context)

    def compress(self, *, everything: bool = False, least: int = 0) -> int:
        """Compress parts that are no longer written, and whole journals that nobody has written to for `retention.compress_days`
        (`everything`: all whose last part has at least `least` bytes). Returns how many parts were compressed."""
        return verbs.upkeep.compress_cold(self.context, everything=everything, least=least)
