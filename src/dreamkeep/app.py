"""Keep: opens the parts, wires them, the few verbs. No rules live here."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep import config as settings
from dreamkeep.app_capture import Capturing, hook, untapped
from dreamkeep.app_dream import Dreams
from dreamkeep.app_exchange import Exchanges
from dreamkeep.app_model import Models
from dreamkeep.app_notes import Remembering
from dreamkeep.app_pack import Packing
from dreamkeep.app_project import Naming
from dreamkeep.app_recall import Recalling
from dreamkeep.app_recovery import Recovering
from dreamkeep.app_review import Reviewing
from dreamkeep.errors import BadConfig, BadUsage, DreamkeepError, NotDurable, NotFound, cannot_read, from_os
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host, RealHost, read_file

if TYPE_CHECKING:
    from dreamkeep.app_access import AccessToken
    from dreamkeep.capture.items import Items
    from dreamkeep.capture.python import Owners, Session
    from dreamkeep.index.build import Built, Progress
    from dreamkeep.index.store import Store
    from dreamkeep.journal.pool import Journals
    from dreamkeep.session.summary import Summary

__all__ = ["Keep", "hook", "http_token", "untapped"]

T = TypeVar("T")

_INDEX_WAIT_S = 10.0
#: Some seconds of work, where a model is installed; the rest follows with the next import, search or `reindex`.
_EMBEDDED_AT_ONCE = 20_000


class Keep(Capturing, Recovering, Recalling, Dreams, Exchanges, Models, Remembering, Reviewing, Packing, Naming):
    """A folder that holds sessions and what was learned in them. Reading creates nothing; the first write makes the folder."""

    def __init__(self, root: str, host: Host, environment: Mapping[str, str], *, anyway: bool = False) -> None:
        self.root = root
        self._host = host
        try:
            found = host.stat(root)
        except OSError as problem:
            raise cannot_read(problem, root) from problem
        if found and not found.is_folder:
            raise BadUsage("a keep is a folder, but this is a file", where=root, next="Choose another with --keep.")
        #: Why keep.toml counts for nothing, where somebody goes on without it.
        self._misset = ""
        try:
            self.config = settings.load(_toml(host, root), environment, where=f"{root}/keep.toml")
        except DreamkeepError as problem:
            if not anyway:
                raise
            self.config = settings.load(None, environment)
            self._misset = problem.what
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

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] | None = None,
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
        if self._journals_made:
            self._journals_made.close()
        if self._owners_made:
            self._owners_made.close()

    def exists(self) -> bool:
        return self._host.stat(f"{self.root}/journal") is not None

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
            raise BadUsage(f"the folder can't be read ({problem})", where="cwd", next="Pass an existing folder.") from problem
        return {**about, "title": title} if title else about

    def _handle(self, session: str) -> Session:
        from dreamkeep.capture.python import Session

        return Session(session, self._journals(), self._ids, self._owners())

    def end(self, session: str) -> Summary:
        """By hand: that nothing more comes is no news of the session, so it is not the newest by that."""
        from dreamkeep.session.summary import BY_HAND

        return self._change(session, lambda handle: handle.end(BY_HAND))

    def suspend(self, session: str) -> Summary:
        from dreamkeep.session.summary import BY_HAND

        return self._change(session, lambda handle: handle.suspend(BY_HAND))

    def resume(self, session: str) -> Summary:
        return self._change(session, lambda handle: handle.resume())

    def _change(self, text: str, act: Callable[[Session], None]) -> Summary:
        session = self.resolve(text)
        act(self._handle(session))
        return self.summary(session)

    # -- asking

    def resolve(self, text: str) -> str:
        """A session's full id, from itself, a bare native id or a unique prefix."""
        from dreamkeep.app_asked import the_session

        return self._ask(lambda store: the_session(store, text))

    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        from dreamkeep.app_asked import at_least_one

        if limit is not None:
            at_least_one(limit, "limit")
        return self._ask(lambda store: store.sessions(project=project, agent=agent, limit=limit))

    def summary(self, session: str) -> Summary:
        found = self._ask(lambda store: store.session(session))
        if found is None:
            raise NotFound("no such session", where=session, next="`dreamkeep sessions` lists them.")
        return found

    @staticmethod
    def as_json(summary: Summary) -> dict[str, Any]:
        """A session as the contract's JSON has it."""
        from dreamkeep import views

        return views.session(summary)

    def show(self, text: str, *, live: bool = False) -> dict[str, Any]:
        """One session whole, as the contract's JSON; `live` adds what is going on now."""
        from dreamkeep import views
        from dreamkeep.app_asked import the_session

        now = rfc3339(self._host.now())

        def whole(store: Store) -> dict[str, Any]:
            return views.session_whole(store, the_session(store, text), self._alive, now, live=live)

        return self._ask(whole)

    def digest(self, text: str) -> dict[str, Any]:
        """The reading copy of a session, as a model is given it: without secrets, every line with its place."""
        from dreamkeep.app_asked import the_session
        from dreamkeep.dream.budget import estimate
        from dreamkeep.dream.clean import clean_messages
        from dreamkeep.index.heard_before import find_heard
        from dreamkeep.session.digest import digest, find_unheard, render

        session = self.summary(self._ask(lambda store: the_session(store, text)))
        messages = clean_messages(self._ask(lambda store: store.messages(session.id)))
        heard = self._ask(lambda store: find_heard(store, find_unheard(messages)))
        lines = digest(messages, session.cwd, heard.__contains__)
        return {"digest": [line._asdict() for line in lines], "tokens": estimate(render(lines))}

    def lineage(self, session: str) -> dict[str, Any]:
        """Where a session comes from (`ancestors`, nearest first) and what came of it (`descendants`)."""
        from dreamkeep import views

        return self._ask(lambda store: views.lineage(store, session))

    def raw(self, text: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Everything captured of a session, in the order of capture: what it is, and its exact bytes."""
        from dreamkeep.capture.rejoin import captured
        from dreamkeep.journal.places import folder_of

        return captured(self._host, f"{self.root}/{folder_of(self.resolve(text))}")

    def status(self) -> dict[str, Any]:
        from dreamkeep import views

        off = self.is_off()
        now = rfc3339(self._host.now())
        answer = self._ask(lambda store: views.status(self.root, self.exists(), off, store, self._alive, now))
        disk = self._room()
        limits = {"quota": self._use(), "disk": disk if disk["short"] else None, "paused": self._paused_sources()}
        more = {"notes": self._counted_notes(), "backend": self.config["dream.backend"], "strays": len(self._strays)}
        return {**answer, **more, **limits}

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

    def masked(self, answer: Any) -> Any:
        """What a verb says, as it may be printed: without secrets, unless `recall.redact` says otherwise."""
        from dreamkeep.memory.outward import outward

        return outward(answer) if self.config["recall.redact"] else answer

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
            self.warn(f"Everything is safe, but the index can't be updated: {problem}")

    def compress(self, *, everything: bool = False, least: int = 0) -> int:
        """Cold parts as zstd: those that nobody will write again, and whole journals that nobody has written to for
        `retention.compress_days` (or all, now, if their last part is of `least` bytes). How many there were."""
        from dreamkeep.index.build import journals
        from dreamkeep.journal import parts

        self._finish_first()
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

                journals = Journals(self._host, self.root, self._ids, mask=self._mask())
                if journals.writer("").carried("created") is None:
                    # The cursor makes it once only, also when many processes open a new keep at the same time.
                    journals.say("", Kind.KEEP_CREATED, {"keep": self._ids.new()}, {"created": 1})
                self._journals_made = journals
                self._finish_deletions()
            return self._journals_made

    def _mask(self) -> Callable[[Event], Event] | None:
        if not self.config["capture.redact_raw"]:
            return None
        from dreamkeep.capture.masked import mask_event

        return mask_event

    def _owners(self) -> Owners:
        with self._making:
            if self._owners_made is None:
                from dreamkeep.capture.python import Owners

                self._owners_made = Owners(self._host, self.root, self._ids.new)
            return self._owners_made

    def _alive(self, owner: str) -> bool:
        return self._owners().alive(owner)

    def _ask(self, act: Callable[[Store], T]) -> T:
        """Let `act` ask the index, up to date with the journal. Reading must not need writing: if it can't be, memory does."""
        if not self.exists():
            return self._ask_memory(act)
        try:
            return self._with_index(act)
        except NotDurable as problem:
            self.warn(f"The index can't be written, so this answer rereads everything: {problem}")
            return self._ask_memory(act)
        except OSError as problem:
            raise cannot_read(problem, self.root) from problem

    def _glance(self, act: Callable[[Store], T]) -> T:
        """Ask the index as it is, without following the journal: for who knows that what he asks for is there."""
        if not self.exists():
            return self._ask(act)
        try:
            return self._with_index(act, follow=False)
        except (NotDurable, OSError):
            return self._ask(act)

    def _with_index(self, act: Callable[[Store], T], *, follow: bool = True) -> T:
        """The index file itself. One that is damaged or of another version is rebuilt first. A flipped bit may show only in what
        `act` makes of an answer: whatever that raises is believed when it is raised over a new index, too."""
        from dreamkeep.index import open as index
        from dreamkeep.index.sqlite_errors import STRANGE, Unusable

        try:
            return self._opened(act, follow)
        except UnicodeEncodeError:
            raise  # what was asked for, not what was answered
        except (Unusable, *STRANGE):
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
        from dreamkeep.index.sqlite_errors import STRANGE, Unusable

        def current(store: Store) -> list[T]:
            return [act(store)] if build.current(self._host, self.root, store.places()) else []

        try:
            found = index.peek(self._host, self.root, current) if self.exists() else None
        except (Unusable, *STRANGE):
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


def http_token(where: str | None) -> AccessToken:
    """What clients of this keep must send over HTTP. Works also where the keep itself can't be opened."""
    from dreamkeep.app_access import access_token

    return access_token(RealHost(), settings.keep_path(where, os.environ, sys.platform), os.environ)


def without_secrets(text: str) -> str:
    """A message of ours as it may be printed: it may quote what somebody typed, or what a file says."""
    from dreamkeep.memory.redact import redact

    return redact(text)[0]


def _clear(store: Store) -> None:
    with store.writing():
        store.clear()


def _toml(host: Host, root: str) -> bytes | None:
    path = f"{root}/keep.toml"
    try:
        found = host.stat(path)
        if found and found.is_folder:
            raise BadConfig("keep.toml must be a file", where=path, next="Remove the folder.")
        return read_file(host, path) if found else None
    except OSError as problem:
        raise cannot_read(problem, path) from problem
