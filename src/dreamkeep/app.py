"""Keep: opens the parts, wires them, the few verbs. No rules live here."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep import config as settings
from dreamkeep.app_dream import Remembering
from dreamkeep.app_pack import Packing
from dreamkeep.app_project import Naming
from dreamkeep.app_recall import Recalling
from dreamkeep.errors import BadConfig, BadUsage, DreamkeepError, Failed, NotDurable, NotFound, cannot_read, from_os
from dreamkeep.event import Ids, Kind, rfc3339
from dreamkeep.host import Host, RealHost, read_file

if TYPE_CHECKING:
    from dreamkeep.capture.ingest import Ingest, Outcome
    from dreamkeep.capture.items import Items
    from dreamkeep.capture.python import Owners, Session
    from dreamkeep.capture.quota import Quota
    from dreamkeep.index.build import Built, Progress
    from dreamkeep.index.store import Store
    from dreamkeep.journal.pool import Journals
    from dreamkeep.recovery.delete import Deleting
    from dreamkeep.session.summary import Summary

T = TypeVar("T")

_INDEX_WAIT_S = 10.0
_LARGEST_PAGE = 32 << 20
_COMPRESS_EVERY_NS = 3_600_000_000_000
#: Some seconds of work, where a model is installed; the rest follows with the next import, search or `reindex`.
_EMBEDDED_AT_ONCE = 20_000
#: A smaller part that is still written to is not worth compressing: its writer would have to begin another.
_WORTH_COMPRESSING = 64 << 10


class Keep(Recalling, Remembering, Packing, Naming):
    """A folder that holds sessions and what was learned in them. Reading creates nothing; the first write makes the folder."""

    def __init__(self, root: str, host: Host, environment: Mapping[str, str]) -> None:
        self.root = root
        self._host = host
        try:
            found = host.stat(root)
        except OSError as problem:
            raise cannot_read(problem, root) from problem
        if found and not found.is_folder:
            raise BadUsage("a keep is a folder, and this is a file", where=root, next="Choose another with --keep.")
        self.config = settings.load(_toml(host, root), environment, where=f"{root}/keep.toml")
        self._ids = Ids(host.now, host.random)
        self._off = settings.switched_off(environment)
        self._environment = environment
        #: Surfaces may hang themselves in here, to show that something takes time or is not as it should be.
        self.progress: Progress | None = None
        self.warn: Callable[[str], None] = lambda text: None
        self._making = threading.RLock()
        self._strays: tuple[str, ...] = ()
        self._journals_made: Journals | None = None
        self._owners_made: Owners | None = None
        self._quota_made: Quota | None = None

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] | None = None,
        *,
        host: Host | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Keep:
        """`where`: a folder; else DREAMKEEP_KEEP; else the user's data folder."""
        environment = os.environ if environment is None else environment
        root = settings.keep_path(os.fspath(where) if where is not None else None, environment, sys.platform)
        return cls(root, host or RealHost(), environment)

    def __enter__(self) -> Keep:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Turns that were not settled are interrupted from now on."""
        if self._journals_made:
            self._journals_made.close()
        if self._owners_made:
            self._owners_made.close()

    def exists(self) -> bool:
        return self._host.stat(f"{self.root}/journal") is not None

    # -- recording

    def session(
        self, native_id: str, *, agent: str = "python", cwd: str | os.PathLike[str] | None = None, title: str = ""
    ) -> Session:
        """Opens or resumes a session; what it records is durable when the call returns."""
        from dreamkeep.journal.places import session_id

        handle = self._handle(session_id(agent, native_id))
        handle.open(self._about(cwd, title))
        return handle

    def items(
        self, native_id: str, *, agent: str = "python", cwd: str | os.PathLike[str] | None = None, title: str = ""
    ) -> Items:
        """A session as a framework sees it (`dreamkeep.integrations`): items, exactly as they were handed over."""
        from dreamkeep.capture.items import Items
        from dreamkeep.journal.places import session_id

        handle = self._handle(session_id(agent, native_id))
        return Items(self._host, self.root, self._journals(), self._ids, self._owners(), handle, self._about(cwd, title))

    def new_id(self) -> str:
        """A name that nothing else has, later than those before it."""
        return self._ids.new()

    def _about(self, cwd: str | os.PathLike[str] | None, title: str) -> dict[str, str]:
        from dreamkeep.capture.project import project_of

        try:
            folder = os.path.abspath(os.fspath(cwd) if cwd is not None else ".")
            about = {"cwd": folder, "project": project_of(self._host, folder, os.uname().nodename)}
        except (OSError, ValueError, TypeError) as problem:
            raise BadUsage(f"the folder can't be looked at ({problem})", where="cwd", next="Pass one that is there.") from problem
        return {**about, "title": title} if title else about

    def _handle(self, session: str) -> Session:
        from dreamkeep.capture.python import Session

        return Session(session, self._journals(), self._ids, self._owners())

    def end(self, session: str) -> Summary:
        return self._change(session, lambda handle: handle.end())

    def suspend(self, session: str) -> Summary:
        return self._change(session, lambda handle: handle.suspend())

    def resume(self, session: str) -> Summary:
        return self._change(session, lambda handle: handle.resume())

    def _change(self, text: str, act: Callable[[Session], None]) -> Summary:
        session = self.resolve(text)
        act(self._handle(session))
        return self.summary(session)

    def delete(self, session: str) -> Summary:
        """The session as it was. Afterwards no word of it is in the keep, and nothing brings it back."""
        from dreamkeep.capture.seen import Cache

        self.drain(also_off=True)  # what hooks said of it would otherwise lie in the spool for a while
        found = self.summary(self.resolve(session))
        try:
            cache = Cache(self._host, self.root)
            cache.forget_session(found.id)
            cache.save()
            self._deleting().delete(found.id)
        except OSError as problem:
            raise from_os(problem, "deleting", str(problem.filename or found.id)) from problem
        return found

    def undelete(self, session: str) -> str:
        """A later capture of the same session is accepted again; what was deleted stays deleted."""
        dead = self._ask(lambda store: store.tombstones())
        matches = (
            [d for d in dead if session == d]
            or [d for d in dead if session == d.partition(":")[2]]
            or [d for d in dead if session and (d.startswith(session) or d.partition(":")[2].startswith(session))]
        )
        found = _one(matches, session, "deleted session")
        self._deleting().undelete(found)
        return found

    # -- capturing

    def ingest(
        self,
        *,
        agents: Sequence[str] = (),
        home: str | os.PathLike[str] | None = None,
        paths: Sequence[str | os.PathLike[str]] = (),
        again: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[Outcome]:
        """Find and import sessions: of all agents on this machine, below `home`, or what `paths` name. One outcome a source."""
        from dreamkeep.capture import find
        from dreamkeep.capture.ingest import Outcome

        chosen = find.checked(agents)
        where, environment = self._home(home)
        found: list[find.Found] = []
        for path in paths:
            found += find.named(self._host, os.fspath(path), chosen)
        glance = find.Glance(self._host)
        if not paths:
            found = list(find.everywhere(glance, where, environment, chosen))
        for one in found:
            if isinstance(one, find.Trouble):
                yield Outcome(one.agent, one.path, "", state="failed", problem=one.problem)
        if not found and not self.exists():
            return  # nothing to keep: then no keep is made
        ingest = self._ingest(again)
        ingest.quota = self._quota()
        ingest.quota.begin()
        sources = [one for one in found if not isinstance(one, find.Trouble)]
        yield from ingest.run(sources, progress, glanced=glance.seen)
        if not paths:
            yield from ingest.vanished(chosen, {one.path for one in found})

    def watch(
        self,
        *,
        agents: Sequence[str] = (),
        home: str | os.PathLike[str] | None = None,
        polling: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Outcome | None]:
        """The same, live, until `stopped`: outcomes as they come, and None now and then."""
        from dreamkeep.capture.find import checked
        from dreamkeep.capture.watch import Watching

        where, environment = self._home(home)
        ingest = self._ingest()
        ingest.quota = self._quota()
        watching = Watching(
            self._host,
            ingest,
            where,
            environment,
            checked(agents),
            now_s=lambda: self._host.now() / 1e9,
            stopped=stopped,
            off=self.is_off,
            polling=polling,
        )
        tending = self._tending()
        for one in watching.run():
            if one is None:
                next(tending)
            yield one

    def _tending(self) -> Iterator[None]:
        """What a watcher does beside watching: journal what hooks left, compress what is cold, end what is quiet, dream."""
        from dreamkeep.capture import spool

        compress_at = self._host.now()
        while True:
            try:
                if spool.waiting(self._host, self.root):
                    for problem in self.drain()["problems"]:
                        self.warn(problem)
                if self._host.now() >= compress_at and not self.is_off():
                    compress_at = self._host.now() + _COMPRESS_EVERY_NS
                    self.compress()  # before quiet sessions are ended, which writes to them
                    self.hygiene()
                    self.start_dream()
            except (DreamkeepError, OSError) as problem:
                self.warn(f"Watching goes on, but: {problem}")
            yield

    def drain(self, *, also_off: bool = False) -> dict[str, Any]:
        """Journal what hooks have left in the spool, and bring in the transcripts they name. Not while capture is off."""
        from dreamkeep.capture.drain import drain

        if self.is_off() and not also_off:
            return {"calls": 0, "sessions": 0, "busy": False, "problems": []}
        exclude = self.config["capture.exclude"]
        done = drain(self._host, self.root, self._journals(), self._ids, exclude=exclude, read_source=self._read_source)
        if done.sessions:
            self.render_packs(done.compacting)
        return {"calls": done.events, "sessions": len(done.sessions), "busy": done.busy, "problems": list(done.problems)}

    def _read_source(self, agent: str, path: str) -> None:
        """One transcript that a hook named, or (no path) wherever that agent keeps its sessions."""
        found = self.ingest(agents=[agent], paths=[path] if path else ())
        # What is paused is no problem of who called: it is read when there is room again.
        problems = [one.problem for one in found if one.problem and one.state != "paused"]
        if problems:
            raise Failed("; ".join(problems), where=path or agent, next="Run `dreamkeep ingest`; nothing is lost.")

    def take_in(self) -> None:
        """Journal what hooks left, if something waits, so that the next answer knows it. Where that fails: only a warning."""
        if self._host.stat(f"{self.root}/spool") is None or self.is_off():
            return

        from dreamkeep.capture import spool

        try:
            problems = self.drain()["problems"] if spool.waiting(self._host, self.root) else ()
        except (DreamkeepError, OSError) as problem:
            problems = [f"What hooks left can't be journaled now: {problem}"]
        for one in problems:
            self.warn(one)

    def start_drainer(self) -> None:
        """In a process of its own, if something waits for it."""
        if self._host.stat(f"{self.root}/spool") is None:
            return  # no hook has ever been called: most commands of most people end here

        from dreamkeep.capture import spool

        if not spool.waiting(self._host, self.root) or self.is_off():
            return
        words = [sys.executable, "-P", "-m", "dreamkeep", "--keep", self.root, "drain"]
        try:
            self._host.start(words, f"{self.root}/state/drain.log")
        except OSError as problem:
            self.warn(f"The drainer can't be started: {problem}")

    def tap(self, command: Sequence[str], *, agent: str | None = None) -> int:
        """Run an ACP agent between its client and us; its exit code."""
        from dreamkeep.capture import tap
        from dreamkeep.capture.exclude import Excluded

        excluded = Excluded(self.config["capture.exclude"])
        return tap.run(
            self._host,
            self.root,
            self._journals,
            self._ids,
            self._owners,
            command,
            agent=agent,
            environment=self._environment,
            off=self.is_off(),
            scrape=self.config["capture.scrape"],
            excluded=excluded.session,
        )

    def init(
        self,
        *,
        agents: Sequence[str] = (),
        home: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        uninstall: bool = False,
        mcp: bool = True,
    ) -> list[dict[str, str]]:
        """Hooks and the MCP server into the settings of the agents found, or out of them again."""
        from dreamkeep.capture import setup

        where, environment = self._home(home)
        python = os.path.abspath(sys.executable)
        try:
            done = setup.init(
                self._host,
                where,
                environment,
                agents=agents,
                keep=self.root,
                python=python,
                hook=_hook_file(),
                dry_run=dry_run,
                uninstall=uninstall,
                mcp=mcp,
            )
        except OSError as problem:
            raise from_os(problem, "setting up", str(problem.filename or where)) from problem
        if not dry_run and not uninstall:
            self.render_packs()  # for the first session that starts with the hooks
        return [change.as_json() for change in done]

    def _ingest(self, again: bool = False) -> Ingest:
        from dreamkeep.capture.ingest import Ingest

        return Ingest(self._host, self.root, self._journals(), self._ids, exclude=self.config["capture.exclude"], again=again)

    def _home(self, home: str | os.PathLike[str] | None) -> tuple[str, Mapping[str, str]]:
        """A home that is named is looked at as it is; the user's own also where the environment says."""
        if home is not None:
            return os.path.abspath(os.path.expanduser(os.fspath(home))), {}
        return os.path.expanduser("~"), self._environment

    def is_off(self) -> bool:
        try:
            return self._off or self._host.stat(f"{self.root}/OFF") is not None
        except OSError:
            return True  # something of that name is there

    # -- asking

    def resolve(self, text: str) -> str:
        """A session's full id, from itself, a bare native id or a unique prefix."""
        return _one(self._ask(lambda store: store.matching(text)), text, "session")

    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        _positive(limit, "limit")
        return self._ask(lambda store: store.sessions(project=project, agent=agent, limit=limit))

    def summary(self, session: str) -> Summary:
        found = self._ask(lambda store: store.session(session))
        if found is None:
            raise NotFound("there is no such session", where=session, next="`dreamkeep sessions` lists them.")
        return found

    @staticmethod
    def as_json(summary: Summary) -> dict[str, Any]:
        """A session as the contract's JSON has it."""
        from dreamkeep import views

        return views.session(summary)

    def show(self, text: str, *, live: bool = False) -> dict[str, Any]:
        """One session whole, as the contract's JSON; `live` adds what is going on now."""
        from dreamkeep import views

        now = rfc3339(self._host.now())

        def whole(store: Store) -> dict[str, Any]:
            return views.session_whole(store, _one(store.matching(text), text, "session"), self._alive, now, live=live)

        return self._ask(whole)

    def lineage(self, session: str) -> dict[str, Any]:
        """Where a session comes from (`ancestors`, nearest first) and what came of it (`descendants`)."""
        from dreamkeep import views

        return self._ask(lambda store: views.lineage(store, session))

    def raw(self, text: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Everything captured of a session, in the order of capture: what it is, and its exact bytes."""
        from dreamkeep.capture.rejoin import captured
        from dreamkeep.journal.places import folder_of

        return captured(self._host, f"{self.root}/{folder_of(self.resolve(text))}")

    def restore(
        self,
        session: str,
        to: str,
        *,
        home: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        generation: int | None = None,
        convert: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Write a session back for an agent: byte for byte where it came from there, else converted."""
        from dreamkeep.recovery import restore
        from dreamkeep.recovery import where as where_to

        _positive(generation, "generation")
        found = self.resolve(session)
        told = self._ask(lambda store: restore.story(store, found, lambda: self._ask(lambda again: again.messages(found))))
        where, _ = self._home(home)
        folder = os.path.abspath(os.path.expanduser(os.fspath(cwd))) if cwd is not None else ""
        place = where_to.Home(where, home is not None, self._environment)
        try:
            return restore.restore(self._host, self.root, told, restore.Wish(to, place, generation, convert, folder, dry_run))
        except OSError as problem:
            raise from_os(problem, "restoring", str(problem.filename or where)) from problem

    def status(self) -> dict[str, Any]:
        from dreamkeep import views

        off = self.is_off()
        now = rfc3339(self._host.now())
        answer = self._ask(lambda store: views.status(self.root, self.exists(), off, store, self._alive, now))
        return {**answer, "strays": len(self._strays), "quota": self._use()}

    def _use(self) -> dict[str, Any] | None:
        """How much of its quota the keep takes; None without one: then nobody has to measure."""
        from dreamkeep.capture.quota import Use, measure

        limit = int(self.config["retention.quota_mb"] * (1 << 20))
        use = Use(measure(self._host, self.root), limit) if limit else None
        return {**use._asdict(), "over": use.over} if use else None

    def doctor(self) -> list[dict[str, Any]]:
        from importlib.util import find_spec

        from dreamkeep.capture import setup, spool
        from dreamkeep.recovery import doctor

        found = doctor.examine(self._host, self.root, self._ask, lambda: self._strays)
        lost = [(path, line) for path, line in spool.problems(self._host, self.root, self._environment) if self._ours(path, line)]
        stuck = sum(map(spool.is_batch, spool.names(self._host, self.root)))
        found += doctor.around(off=self._off, meaning=find_spec("wordllama") is not None)
        if use := self._use():
            found += doctor.quota(use["used"], use["limit"])
        found += doctor.hooks(self._host, self.root, lost, spool.waiting(self._host, self.root), stuck)
        where, environment = self._home(None)
        return found + setup.examine(self._host, where, environment, hook=_hook_file(), keep=self.root)

    def _ours(self, path: str, line: str) -> bool:
        """Of what hooks could not keep: theirs of another keep is told in a file that all share."""
        return path.startswith(f"{self.root}/") or self.root in line

    @staticmethod
    def markdown(data: dict[str, Any]) -> str:
        """What `show` gives, as a page for people."""
        from dreamkeep.session.markdown import markdown

        return markdown(data)

    def outward(self, answer: Mapping[str, Any], *, longest: int = 20_000) -> dict[str, Any]:
        """An answer as it may leave for a model: marked as ours, so that it is never learned again; no text longer than
        `longest`; and without secrets, unless `recall.redact` says otherwise."""
        from dreamkeep.memory.outward import outward
        from dreamkeep.session.ours import MARKED

        return {**MARKED, **outward(answer, longest=longest, mask=self.config["recall.redact"])}

    # -- snapshots

    def export(
        self, file: str | os.PathLike[str], *, view: bool = True, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]:
        """The whole keep as one file. `view`: with a page for people of each session."""
        from dreamkeep.recovery import snapshot

        path = os.path.abspath(os.fspath(file))
        if not self.exists():
            raise NotFound("there is no keep to be exported", where=self.root, next="Record or ingest something first.")

        def out(store: Store | None) -> snapshot.Exported | NotDurable:
            try:
                return snapshot.export(self._host, self.root, path, self._pages(store) if store else None, progress)
            except NotDurable as problem:
                return problem  # of the file, not of the index: there is no sense in asking without one

        done = self._ask(out) if view else out(None)
        if isinstance(done, NotDurable):
            raise done
        problems = [one._asdict() for one in done.problems]
        return {"file": path, **done.counts._asdict(), "problems": problems}

    def _pages(self, store: Store) -> Callable[[str], tuple[str, str] | None]:
        """For a journal's folder: where a snapshot has its session's page, and that page."""
        from dreamkeep import views
        from dreamkeep.journal.places import SESSIONS, folder_of

        sessions = {folder_of(one.id): one for one in store.sessions()}
        now = rfc3339(self._host.now())

        def page(journal: str) -> tuple[str, str] | None:
            one = sessions.get(journal)
            if one is None:
                return None
            name = f"{journal.removeprefix(SESSIONS)[1:]}.md"
            if one.bytes > _LARGEST_PAGE:
                # A page is made in memory, and a snapshot must not need more of it for a longer session.
                return name, f"# {one.id}\n\nToo long for a page: import this snapshot, then `dreamkeep show {one.id}`.\n"
            try:
                return name, self.markdown(views.session_whole(store, one.id, self._alive, now))
            except NotFound:
                return None  # deleted meanwhile

        return page

    def verify(self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Whether a snapshot is whole; what is wrong with it, if not."""
        from dreamkeep.recovery import snapshot

        path = os.path.abspath(os.fspath(file))
        found = snapshot.verify(self._host, path, progress)
        about = {"file": path, "ok": found.ok, "keep": found.about.get("keep", "")}
        return {**about, **found.counts._asdict(), "problems": [one._asdict() for one in found.bad]}

    def import_(self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """What a snapshot has and this keep has not; everything, where there is no keep yet."""
        from dreamkeep.capture.regain import regain
        from dreamkeep.recovery.snapshot_import import Importing

        def again(session: str, name: str, other: str) -> str:
            return regain(self._host, self.root, self._ingest(), session, name, other)

        path = os.path.abspath(os.fspath(file))
        done = Importing(self._host, self.root, path, self._journals, again).run(progress)
        skipped = [{"where": where, "why": why} for where, why in done.skipped]
        return {"file": path, **done._asdict(), "skipped": skipped, "bad": [one._asdict() for one in done.bad]}

    def audit(self, *, deep: bool = False, home: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Everything that is wrong, here and in the agents' own stores, as the contract's JSON. Nothing is written.

        `deep`: every byte is read again, not only what looks other than it did."""
        from dreamkeep.recovery.audit import audit

        if not self.exists():
            self.warn(f"There is no keep at {self.root} yet: only what agents have themselves is looked at.")
        where, environment = self._home(home)
        try:
            found = audit(self._host, self.root, home=where, environment=environment, deep=deep, around=self._environment)
        except OSError as problem:
            raise cannot_read(problem, self.root) from problem
        return found.as_json()

    def repair(
        self,
        *,
        apply: bool = False,
        undo: str | None = None,
        accept: Sequence[str] = (),
        only: Sequence[str] = (),
        home: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """The plan that mends what an audit finds; or (one of these) do it, accept faults as they are, or take a repair back."""
        from dreamkeep.recovery.audit import audit
        from dreamkeep.recovery.mending import Looking
        from dreamkeep.recovery.repair import Repair, checked

        checked(apply=apply, undo=undo, accept=accept, only=only)
        where, environment = self._home(home)
        repair = Repair(
            Looking(self._host, self.root, where, environment, self.config["capture.exclude"]),
            lambda: audit(self._host, self.root, home=where, environment=environment, around=self._environment),
            alive=self._alive,
            rebuild=lambda: self._with_index(lambda store: None),
            forget=self._forget,
            off=self.is_off(),
        )
        try:
            if undo is not None:
                return repair.undo(undo).as_json()
            if accept:
                return repair.accept(accept).as_json()
            return (repair.apply(only) if apply else repair.plan(only)).as_json()
        except OSError as problem:
            raise from_os(problem, "repairing", str(problem.filename or self.root)) from problem

    # -- care

    def reindex(self, *, from_zero: bool = False, progress: Progress | None = None) -> Built:
        from dreamkeep.index import build

        if not self.exists():
            return build.Built(0, 0, 0)
        if from_zero:
            self._with_index(_clear, follow=False)
        return self._with_index(lambda store: build.follow(self._host, self.root, store, progress), follow=False)

    def catch_up(self) -> None:
        """Bring the index up to date now, so that the next question need not. Capture does not depend on it: only a warning."""
        if not self.exists():
            return
        try:
            self._with_index(lambda store: None)
            self.embed(most=_EMBEDDED_AT_ONCE, progress=self.progress)
        except (DreamkeepError, OSError) as problem:
            self.warn(f"Everything is kept, but the index can't be brought up to date: {problem}")

    def compress(self, *, everything: bool = False, least: int = 0) -> int:
        """Cold parts as zstd: those that nobody will write again, and whole journals that nobody has written to for
        `retention.compress_days` (or all, now, if their last part is of `least` bytes). How many there were."""
        from dreamkeep.index.build import journals
        from dreamkeep.journal import parts

        done = 0
        before = self._host.now() - int(self.config["retention.compress_days"] * 86_400e9)
        for name in [*journals(self._host, self.root), "journal/keep"]:
            folder = f"{self.root}/{name}"
            try:
                numbers = parts.numbers(self._host, folder)
                done += sum(parts.compress(self._host, folder, part) for part in numbers[:-1])
                hot = self._host.stat(f"{folder}/{parts.name(numbers[-1])}") if numbers else None
                if hot and name != "journal/keep" and ((everything and hot.size >= least) or hot.mtime_ns < before):
                    done += parts.compress(self._host, folder, numbers[-1], last=True)
            except OSError as problem:
                raise from_os(problem, "compressing", folder) from problem
        return done

    # -- wiring

    def _journals(self) -> Journals:
        """The way to write; makes the keep when there is none, and refuses one of a newer format."""
        with self._making:
            if self._journals_made is None:
                from dreamkeep.journal.pool import Journals

                journals = Journals(self._host, self.root, self._ids)
                if journals.writer("").carried("created") is None:
                    # The cursor makes it once only, also when many processes open a new keep at the same time.
                    journals.say("", Kind.KEEP_CREATED, {"keep": self._ids.new()}, {"created": 1})
                self._journals_made = journals
                self._finish_deletions()
            return self._journals_made

    def _finish_deletions(self) -> None:
        try:
            self._deleting().finish_all()
        except (DreamkeepError, OSError) as problem:
            # It stays to be done, and doctor tells of it; that is no reason not to record other sessions.
            self.warn(f"A deletion that was interrupted can't be finished: {problem}")

    def _quota(self) -> Quota:
        with self._making:
            if self._quota_made is None:
                from dreamkeep.capture.quota import Quota

                limit = int(self.config["retention.quota_mb"] * (1 << 20))
                press = partial(self.compress, everything=True, least=_WORTH_COMPRESSING)
                self._quota_made = Quota(self._host, self.root, limit, press)
            return self._quota_made

    def _owners(self) -> Owners:
        with self._making:
            if self._owners_made is None:
                from dreamkeep.capture.python import Owners

                self._owners_made = Owners(self._host, self.root, self._ids.new)
            return self._owners_made

    def _alive(self, owner: str) -> bool:
        return self._owners().alive(owner)

    def _deleting(self) -> Deleting:
        from dreamkeep.recovery.delete import Deleting

        return Deleting(self._host, self.root, self._journals(), self._forget)

    def _forget(self, name: str) -> None:
        from dreamkeep.journal.places import KEEP

        def forget(store: Store) -> None:
            with store.writing():
                store.forget(name)
                # What was erased in the keep's own journal left every length and checksum as it was: it is read anew.
                store.forget(KEEP)

        self._with_index(forget)
        self._with_index(lambda store: store.shred())
        if self._host.stat(f"{self.root}/pages") is not None:
            self._publish("")  # without what was learned in that session alone
        self._forget_packs()

    def _ask(self, act: Callable[[Store], T]) -> T:
        """Let `act` ask the index, up to date with the journal. Reading must not need writing: if it can't be, memory does."""
        if not self.exists():
            return self._ask_memory(act)
        try:
            return self._with_index(act)
        except NotDurable as problem:
            self.warn(f"The index can't be written, so everything is read again for this answer: {problem}")
            return self._ask_memory(act)
        except OSError as problem:
            raise cannot_read(problem, self.root) from problem

    def _with_index(self, act: Callable[[Store], T], *, follow: bool = True) -> T:
        """The index file itself. One that is damaged or of another version is rebuilt first."""
        from dreamkeep.index import open as index
        from dreamkeep.index.sqlite import Unusable

        try:
            return self._opened(act, follow)
        except Unusable:
            index.discard(self._host, self.root, wait_s=_INDEX_WAIT_S)
            return self._opened(act, follow)

    def _opened(self, act: Callable[[Store], T], follow: bool) -> T:
        from dreamkeep.index import build
        from dreamkeep.index import open as index

        with index.opened(self._host, self.root, wait_s=_INDEX_WAIT_S) as store:
            if follow and not build.current(self._host, self.root, store.places()):
                self._strays = build.follow(self._host, self.root, store, self.progress).strays
            return act(store)

    def _look(self, act: Callable[[Store], T]) -> T:
        """As `_ask`, and nothing is written: by the index as it lies there if it is up to date, else by one in memory."""
        from dreamkeep.index import build
        from dreamkeep.index import open as index
        from dreamkeep.index.sqlite import Unusable

        def current(store: Store) -> list[T]:
            return [act(store)] if build.current(self._host, self.root, store.places()) else []

        try:
            found = index.peek(self._host, self.root, current) if self.exists() else None
        except Unusable:
            found = None
        return found[0] if found else self._ask_memory(act)

    def _ask_memory(self, act: Callable[[Store], T]) -> T:
        """A keep that is not there yet, or that we may only read: nothing is written for an answer."""
        from dreamkeep.index import build
        from dreamkeep.index.sqlite import SqliteStore

        store = SqliteStore.in_memory()
        try:
            self._strays = build.follow(self._host, self.root, store, self.progress).strays
            return act(store)
        except OSError as problem:
            raise cannot_read(problem, self.root) from problem
        finally:
            store.close()


def untapped(command: Sequence[str]) -> int:
    """Become that program; comes back only when it can't be started, with an exit code."""
    from dreamkeep.capture import tap

    return tap.become(command, os.environ)


def hook(words: Sequence[str], keep: str = "") -> None:
    """One call of an agent's hook, in this process."""
    from dreamkeep.capture import hook

    hook.main(list(words), keep)


def token(given: str | None) -> str:
    """What clients over HTTP must show; "" if nothing is said of it."""
    return settings.token(given, os.environ)


def _hook_file() -> str:
    """The file that agents start: it must be found where it is, without importing it."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "capture", "hook.py")


def _clear(store: Store) -> None:
    with store.writing():
        store.clear()


def _toml(host: Host, root: str) -> bytes | None:
    path = f"{root}/keep.toml"
    try:
        found = host.stat(path)
        if found and found.is_folder:
            raise BadConfig("keep.toml must be a file", where=path, next="Take the folder away.")
        return read_file(host, path) if found else None
    except OSError as problem:
        raise cannot_read(problem, path) from problem


def _one(matches: list[str], text: str, what: str) -> str:
    if not text:
        raise BadUsage(f"which {what}? The id is empty", next="`dreamkeep sessions` lists them.")
    if not matches:
        raise NotFound(f"there is no {what} {text!r}", next="`dreamkeep sessions` lists what there is.")
    if len(matches) > 1:
        some = ", ".join(matches[:5]) + (", …" if len(matches) > 5 else "")
        raise NotFound(f"{text!r} is not one {what} but {len(matches)}", where=some, next="Give more of the id.")
    return matches[0]


def _positive(value: int | None, name: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadUsage(f"{name} must be at least 1, not {value!r}", where=name, next="Give a number from 1 on.")
