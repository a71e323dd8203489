"""Keep: opens a keep and offers its verbs. What a verb does is in `dreamkeep.verbs`; what it answers is said here."""

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
    from dreamkeep.capture.ingest import IngestOutcome
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
        """Surfaces may hang themselves in here and into `warn`, to show that something takes time or is not as it should be."""
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
        """`where`: a folder; else DREAMKEEP_KEEP; else the user's data folder. `anyway`: to look what is wrong, also where
        keep.toml can't be used; then the defaults count, and an audit tells it."""
        environment = os.environ if environment is None else environment
        root = settings.keep_path(os.fspath(where) if where is not None else None, environment, sys.platform)
        return cls(root, host or RealHost(), environment, anyway=anyway)

    def __enter__(self) -> Keep:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Turns that were not settled are interrupted from now on."""
        self.context.close()

    def exists(self) -> bool:
        return self.context.exists()

    def is_off(self) -> bool:
        return self.context.is_off()

    # -- recording

    def session(self, native_id: str, *, agent: str = "python", cwd: AnyPath | None = None, title: str = "") -> Session:
        """Opens or resumes a session; what it records is durable when the call returns."""
        return verbs.sessions.session(self.context, native_id, agent=agent, cwd=cwd, title=title)

    def items(self, native_id: str, *, agent: str = "python", cwd: AnyPath | None = None, title: str = "") -> Items:
        """A session as a framework sees it (`dreamkeep.integrations`): items, exactly as they were handed over."""
        return verbs.sessions.items(self.context, native_id, agent=agent, cwd=cwd, title=title)

    def end(self, session: str) -> Summary:
        """By hand: that nothing more comes is no news of the session, so it is not the newest by that."""
        return verbs.sessions.end(self.context, session)

    def suspend(self, session: str) -> Summary:
        return verbs.sessions.suspend(self.context, session)

    def resume(self, session: str) -> Summary:
        return verbs.sessions.resume(self.context, session)

    def new_id(self) -> str:
        """A name that nothing else has, later than those before it."""
        return self.context.ids.new()

    # -- sessions

    def resolve(self, text: str) -> str:
        """A session's full id, from itself, a bare native id or a unique prefix."""
        return verbs.arguments.resolve_session(self.context, text)

    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        return verbs.sessions.sessions(self.context, project=project, agent=agent, limit=limit)

    def summary(self, session: str) -> Summary:
        return verbs.sessions.summary(self.context, session)

    def show(self, text: str, *, live: bool = False) -> dict[str, Any]:
        """One session whole, as the contract's JSON; `live` adds what is going on now."""
        return verbs.sessions.show(self.context, text, live=live)

    def digest(self, text: str) -> dict[str, Any]:
        """The reading copy of a session, as a model is given it: without secrets, every line with its place."""
        return verbs.sessions.digest(self.context, text)

    def lineage(self, session: str) -> dict[str, Any]:
        """Where a session comes from (`ancestors`, nearest first) and what came of it (`descendants`)."""
        return verbs.sessions.lineage(self.context, session)

    def raw(self, text: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Everything captured of a session, in the order of capture: what it is, and its exact bytes."""
        return verbs.sessions.raw(self.context, text)

    @staticmethod
    def as_json(summary: Summary) -> dict[str, Any]:
        """A session as the contract's JSON has it."""
        return verbs.views.show_session(summary)

    @staticmethod
    def markdown(data: dict[str, Any]) -> str:
        """What `show` gives, as a page for people."""
        from dreamkeep.session.reading.markdown import markdown

        return markdown(data)

    def outward(self, answer: Mapping[str, Any], *, longest: int = 20_000) -> dict[str, Any]:
        """An answer as it may leave for a model: marked as ours, so that it is never learned again; no text longer than
        `longest`; and without secrets, unless `recall.redact` says otherwise."""
        from dreamkeep.secrets.outward import outward
        from dreamkeep.session.reading.own_answers import MARKED

        return {**MARKED, **outward(answer, longest=longest, mask=self.config["recall.redact"])}

    def masked(self, answer: Any) -> Any:
        """What a verb says, as it may be printed: without secrets, unless `recall.redact` says otherwise."""
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
        """Find and import sessions: of all agents on this machine, below `home`, or what `paths` name. One outcome a source."""
        return verbs.capture.ingest(self.context, agents=agents, home=home, paths=paths, again=again, progress=progress)

    def watch(
        self,
        *,
        agents: Sequence[str] = (),
        home: AnyPath | None = None,
        polling: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[IngestOutcome | None]:
        """The same, live, until `stopped`: outcomes as they come, and None now and then."""
        return verbs.capture.watch(self.context, agents=agents, home=home, polling=polling, stopped=stopped)

    def drain(self, *, also_off: bool = False) -> dict[str, Any]:
        """Journal what hooks have left in the spool, and bring in the transcripts they name. Not while capture is off."""
        return verbs.capture.drain(self.context, also_off=also_off)

    def take_in(self) -> None:
        """Journal what hooks left, if something waits, so that the next answer knows it. Where that fails: only a warning."""
        verbs.capture.take_in(self.context)

    def tap(self, command: Sequence[str], *, agent: str | None = None) -> int:
        """Run an ACP agent between its client and us; its exit code."""
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
        """Hooks and the MCP server into the settings of the agents found, or out of them again."""
        return verbs.capture.init(self.context, agents=agents, home=home, dry_run=dry_run, uninstall=uninstall, mcp=mcp)

    def start_drainer(self) -> None:
        """In a process of its own, if something waits for it."""
        verbs.capture.start_drainer(self.context)

    @property
    def corrected(self) -> Sequence[dict[str, str]]:
        """What the last `ingest` corrected of projects."""
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
        """What was said and learned, best first. Any query is legal. `kinds`: message, insight, note; all, if none is named.
        `as_of`: what was known then."""
        return verbs.search.search(
            self.context, query, kinds=kinds, project=project, agent=agent, session=session, since=since, as_of=as_of, limit=limit
        )

    def pack(
        self, query: str | None = None, project: str | None = None, task: str | None = None, budget: int | None = None
    ) -> dict[str, Any]:
        """`{text, tokens, sources}` and more: pinned notes, rules, open ends, where the last session stood, what works here; and
        what matches `query`, or the task (its id, or words that say what it is).

        `project`: its name or the path of a folder in it; without it that of the current folder; "": only what holds everywhere.
        `budget`: in tokens, by `page.Size`; without it `recall.budget`."""
        return verbs.packs.pack(self.context, query, project, task, budget)

    def render_packs(self, squeezed: Sequence[str] = ()) -> None:
        """The packs that hooks hand to agents, anew where something changed. `squeezed`: sessions whose context is compacted.

        A pack is never worth failing for: what could not be rendered is told, and is next time."""
        verbs.packs.render_packs(self.context, squeezed)

    def embed(self, *, most: int = 1 << 60, progress: Callable[[int, int], None] | None = None) -> int:
        """Bring the vectors up to date, if an embedder is installed; how many texts that were."""
        return verbs.similarity.embed(self.context, most=most, progress=progress)

    @staticmethod
    def places_of(query: str, text: str) -> list[tuple[int, int]]:
        """Where words of the query stand in the text: from, to."""
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
        """Read finished sessions and remember what matters of them; the report. `backend`: a name, or anything with `backfill`.

        `with_model`: with the model that the settings name. `dry_run`: only what would be read. `preview`: with the backend, and
        what would change; neither of the two writes anything. `again`: sessions that were read before (those named, or since a
        time, or all) once more from their beginning, with a model.
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
        """Each session that has ended, whether a dream is due, and the last report. What ended and has no completion record yet
        is as it will be: the next dream records it first."""
        return verbs.dreams.dream_status(self.context)

    def dream_history(self) -> list[dict[str, Any]]:
        """All runs, newest first. `running`: its report comes when it has ended."""
        return verbs.dreams.dream_history(self.context)

    def dream_undo(self, run: str) -> dict[str, Any]:
        """Nothing of that run counts any more; later ones stay where they do not rest on it, and what follows from them now."""
        return verbs.dreams.dream_undo(self.context, run)

    def start_dream(self) -> bool:
        """In a process of its own, of low priority, if it is due: completion is recorded first. Whether one was started."""
        return verbs.dreams.start_dream(self.context)

    def hygiene(self) -> dict[str, Any]:
        """End what has been quiet for long, record what ended, compress what is cold."""
        return verbs.hygiene.hygiene(self.context)

    def page(self, *, project: str = "", write: AnyPath | None = None) -> dict[str, Any]:
        """A project's page: as it would be, or (`write`) into the fenced region of that file, taking in what was edited there. A
        new file is made, and no folder."""
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
        """The requests of a dream as files, for whoever answers them. The sessions are left to him for a week. `again`: about
        sessions that were read before, as `dream`."""
        return verbs.exchange.dream_export(self.context, folder, sessions=sessions, limit=limit, again=again, since=since)

    def dream_import(self, folder: str) -> dict[str, Any]:
        """Takes the answers that are there, and writes what is to be asked next. The report; `partial` while something is."""
        return verbs.exchange.dream_import(self.context, folder)

    def dream_next(self, session: str = "", *, again: bool = False) -> dict[str, Any]:
        """One request, for the agent that asks; its session is left to it for half an hour. `session`: go on with this one.
        `again`: where nothing waits, also what rules alone have read."""
        return verbs.exchange.dream_next(self.context, session, again=again)

    def dream_submit(self, request: str, answer: object) -> dict[str, Any]:
        """An answer to a request of `dream_next`: checked as any model's, and what came of it. `next`: what is asked then."""
        return verbs.exchange.dream_submit(self.context, request, answer)

    # -- models

    def model(self) -> dict[str, Any]:
        """Who is asked now, who could be, and what the last 30 days would cost. Nothing of a session is sent."""
        return verbs.models.model(self.context)

    def model_use(self, what: str) -> dict[str, Any]:
        """From now on dreams ask this one: NAME or NAME:MODEL, as `model` found them. Only keep.toml is changed."""
        return verbs.models.model_use(self.context, what)

    def model_off(self) -> dict[str, Any]:
        """Dreams ask nobody: they go by rules. The model's other settings stay, for when it is wanted again."""
        return verbs.models.model_off(self.context)

    def models_at_hand(self) -> list[str]:
        """Names of what was found, without asking anybody: for who only wants to mention it."""
        return verbs.models.models_at_hand(self.context)

    # -- memory

    def notes(self, *, kind: str | None = None, state: str | None = "active", project: str | None = None) -> list[dict[str, Any]]:
        """What is remembered, best first. `state` None or "all": whatever became of it."""
        return verbs.notes.notes(self.context, kind=kind, state=state, project=project)

    def note_add(self, text: str, *, kind: str = "preference", project: str = "") -> dict[str, Any]:
        """The user's own word: it counts more than what an agent said. What it contradicts is superseded at once, and what says
        the same already is strengthened: the note that stands for it now, with `changed`: what became of which note, and why."""
        return verbs.notes.note_add(self.context, text, kind=kind, project=project)

    def note_suggest(
        self, text: str, *, kind: str = "preference", project: str = "", session: str | None = None, quote: str | None = None
    ) -> dict[str, Any]:
        """What an agent wants to be remembered: a note in the state `suggested`, which waits for `note_change(note, "confirm")`.
        It counts at once, as the user's own word, if `quote` is what the user typed in `session` (without it: in a late session
        of the project) and `text` says no more than that. Answers as `note_add`."""
        return verbs.notes.note_suggest(self.context, text, kind=kind, project=project, session=session, quote=quote)

    def note_change(self, note: str, act: str, *, text: str = "", reason: str = "", by: str = "user") -> dict[str, Any]:
        """`act`: edit, pin, unpin, retract, confirm, reject. To confirm one that was taken back, or expired, brings it back.

        `by`: "agent" may pin, unpin and retract. It takes back only what waits as a suggestion; of another note its history
        tells that an agent doubts it, and the note holds until the user retracts it."""
        return verbs.notes.note_change(self.context, note, act, text=text, reason=reason, by=by)

    def note_promote(self, note: str, file: AnyPath) -> dict[str, Any]:
        """An active note into a file of the user's own (CLAUDE.md, AGENTS.md …), as a list item at its end. The note stays active
        and is found as before; our pages leave it out, unless it is pinned. With `file`, `line`, and `added`: False where the
        file said it already."""
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
        """An agent tags its own work: `{insight, note, changed}`; found at once by `search` and `notes`, and `dream why` tells.

        `type`: one of memory/insight.py's TYPES. `session`: the one it works in (an id, or a unique beginning): the insight then
        belongs to that session, its project and its task, and goes when that is deleted. `quote`: words of one of its messages,
        word for word, as evidence. `author="user"`: these are the user's words; believed only if `quote` stands in what the user
        typed. `project`: where there is no session. `task`: an id, or a unique beginning.

        It is a suggestion (`insight["source"]` is "suggestion"), unless `quote` is what the user typed and `text` says no more:
        its note is in the state `suggested`, on no page and in no pack, until the user confirms it.

        `note`: the note that stands for it now; None where it is no memory by itself (a hypothesis, a piece of evidence), or
        where the user rejected it before. `changed`: `[{what, id, reason}]`, what became of notes. The same again changes
        nothing.
        """
        return verbs.notes.add_insight(
            self.context, type, text, session=session, quote=quote, task=task, project=project, author=author
        )

    def dream_why(self, note: str) -> dict[str, Any]:
        """A note with what it rests on and what happened to it, step by step."""
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
        """`{items, accepted, rejected}`: what waits in the inbox now, of one project or of all, and what this call decided.

        `accept`, `reject`: ids of items. Accepting a note makes it active, as the user's own word; accepting a project offer
        merges the two projects. `edit`: (id, text): accepted in these words. `accept_all`: every suggested note of that kind. An
        id that nothing has is an error, and then nothing is done.
        """
        return verbs.review.review(self.context, project=project, accept=accept, reject=reject, edit=edit, accept_all=accept_all)

    # -- projects

    def project_named(self, text: str) -> str:
        """A project's name as it is called now: from a name it has or had, or from the path of a folder in it."""
        return verbs.arguments.find_project(self.context, text)

    def projects(self) -> list[dict[str, Any]]:
        """All projects, the one that was worked in last first. `merged`: names that were given up for this one."""
        return verbs.projects.projects(self.context)

    def project_rename(self, project: str, name: str) -> dict[str, Any]:
        """Everything of a project, what is there and what comes, is shown under that name from now on."""
        return verbs.projects.project_rename(self.context, project, name)

    def project_merge(self, project: str, into: str) -> dict[str, Any]:
        """Two projects are one: what is there, and what comes, of either."""
        return verbs.projects.project_merge(self.context, project, into)

    def project_undo(self, project: str) -> dict[str, Any]:
        """Take back that a project was renamed or merged, by hand or by `ingest`; no later `ingest` does it again."""
        return verbs.projects.project_undo(self.context, project)

    def project_apart(self, project: str, other: str) -> dict[str, Any]:
        """These are two projects: that they are one is neither offered nor found by `ingest` any more."""
        return verbs.projects.project_apart(self.context, project, other)

    def project_offers(self) -> list[dict[str, str]]:
        """Projects that may be the same as another: to be accepted (`project_merge`) or rejected (`project_apart`)."""
        return verbs.projects.project_offers(self.context)

    def correct_projects(self) -> list[dict[str, str]]:
        """Sessions that were read when their worktree was gone go to their repository's project; what was changed. Of nobody who
        captures it is the failure when that can't be done now: only a warning."""
        return verbs.projects.correct_projects(self.context)

    # -- recovery

    def doctor(self) -> list[dict[str, Any]]:
        return verbs.faults.doctor(self.context)

    def audit(self, *, deep: bool = False, home: AnyPath | None = None) -> dict[str, Any]:
        """Everything that is wrong, here and in the agents' own stores, as the contract's JSON. Nothing is written.

        `deep`: every byte is read again, not only what looks other than it did."""
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
        """The plan that mends what an audit finds; or (one of these) do it, accept faults as they are, or take a repair back."""
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
        """Write a session back for an agent: byte for byte where it came from there, else converted."""
        return verbs.restore.restore(
            self.context, session, to, home=home, cwd=cwd, generation=generation, convert=convert, dry_run=dry_run
        )

    def delete(self, session: str) -> Summary:
        """The session as it was. Afterwards no word of it is in the keep, and nothing brings it back."""
        return verbs.deletion.delete(self.context, session)

    def delete_all(self, sessions: Sequence[str]) -> list[Summary]:
        """Several at once: index, pages and packs are made anew once. If one of them is not there, none is deleted."""
        return verbs.deletion.delete_all(self.context, sessions)

    def undelete(self, session: str) -> str:
        """A later capture of the same session is accepted again; what was deleted stays deleted."""
        return verbs.deletion.undelete(self.context, session)

    def export(self, file: AnyPath, *, view: bool = True, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """The whole keep as one file. `view`: with a page for people of each session."""
        return verbs.snapshots.export(self.context, file, view=view, progress=progress)

    def verify(self, file: AnyPath, *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Whether a snapshot is whole; what is wrong with it, if not."""
        return verbs.snapshots.verify(self.context, file, progress=progress)

    def import_(self, file: AnyPath, *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """What a snapshot has and this keep has not; everything, where there is no keep yet."""
        return verbs.snapshots.import_(self.context, file, progress=progress)

    # -- upkeep

    def status(self) -> dict[str, Any]:
        return verbs.upkeep.status(self.context)

    def reindex(self, *, from_zero: bool = False, progress: Progress | None = None) -> Built:
        return verbs.upkeep.reindex(self.context, from_zero=from_zero, progress=progress)

    def catch_up(self) -> None:
        """Bring the index up to date now, so that the next question need not. Capture does not depend on it: only a warning."""
        verbs.upkeep.catch_up(self.context)

    def compress(self, *, everything: bool = False, least: int = 0) -> int:
        """Cold parts as zstd: those that nobody will write again, and whole journals that nobody has written to for
        `retention.compress_days` (or all, now, if their last part is of `least` bytes). How many there were."""
        return verbs.upkeep.compress_cold(self.context, everything=everything, least=least)
