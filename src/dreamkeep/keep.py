"""Keep: opens the parts, wires them, the few verbs. No rules live here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dreamkeep import config as settings
from dreamkeep.context import KeepContext
from dreamkeep.errors import BadUsage, DreamkeepError, NotFound, from_os
from dreamkeep.event import rfc3339
from dreamkeep.host import Host, RealHost
from dreamkeep.verbs.capture import Capturing, hook, untapped
from dreamkeep.verbs.dream.exchange import Exchanges
from dreamkeep.verbs.dream.model import Models
from dreamkeep.verbs.dream.run import Dreams
from dreamkeep.verbs.memory.notes import Remembering
from dreamkeep.verbs.memory.review import Reviewing
from dreamkeep.verbs.projects import Naming
from dreamkeep.verbs.recall.pack import Packing
from dreamkeep.verbs.recall.search import Recalling
from dreamkeep.verbs.recovery.faults import Recovering

if TYPE_CHECKING:
    from dreamkeep.capture.items import Items
    from dreamkeep.capture.python import Session
    from dreamkeep.index.build import Built, Progress
    from dreamkeep.index.store import Store
    from dreamkeep.session.summary import Summary
    from dreamkeep.verbs.access import AccessToken

__all__ = ["Keep", "hook", "http_token", "untapped"]

#: Some seconds of work, where a model is installed; the rest follows with the next import, search or `reindex`.
_EMBEDDED_AT_ONCE = 20_000


class Keep(Capturing, Recovering, Recalling, Dreams, Exchanges, Models, Remembering, Reviewing, Packing, Naming):
    """A folder that holds sessions and what was learned in them. Reading creates nothing; the first write makes the folder."""

    def __init__(self, root: str, host: Host, environment: Mapping[str, str], *, anyway: bool = False) -> None:
        self.context = KeepContext(root, host, environment, anyway=anyway)
        self.context.finish_deletions = self._finish_deletions

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
        self.context.close()

    def exists(self) -> bool:
        return self.context.exists()

    def is_off(self) -> bool:
        return self.context.is_off()

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
        return Items(
            self.context.host,
            self.context.root,
            self.context.journals(),
            self.context.ids,
            self.context.owners(),
            handle,
            self._about(cwd, title),
        )

    def new_id(self) -> str:
        """A name that nothing else has, later than those before it."""
        return self.context.ids.new()

    def _about(self, cwd: str | os.PathLike[str] | None, title: str) -> dict[str, str]:
        from dreamkeep.capture.project import project_of

        try:
            folder = os.path.abspath(os.fspath(cwd) if cwd is not None else ".")
            about = {"cwd": folder, "project": project_of(self.context.host, folder, os.uname().nodename)}
        except (OSError, ValueError, TypeError) as problem:
            raise BadUsage(f"the folder can't be looked at ({problem})", where="cwd", next="Pass one that is there.") from problem
        return {**about, "title": title} if title else about

    def _handle(self, session: str) -> Session:
        from dreamkeep.capture.python import Session

        return Session(session, self.context.journals(), self.context.ids, self.context.owners())

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
        from dreamkeep.verbs.arguments import the_session

        return self.context.ask(lambda store: the_session(store, text))

    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        from dreamkeep.verbs.arguments import at_least_one

        if limit is not None:
            at_least_one(limit, "limit")
        return self.context.ask(lambda store: store.sessions(project=project, agent=agent, limit=limit))

    def summary(self, session: str) -> Summary:
        found = self.context.ask(lambda store: store.session(session))
        if found is None:
            raise NotFound("there is no such session", where=session, next="`dreamkeep sessions` lists them.")
        return found

    @staticmethod
    def as_json(summary: Summary) -> dict[str, Any]:
        """A session as the contract's JSON has it."""
        from dreamkeep.verbs import views

        return views.session(summary)

    def show(self, text: str, *, live: bool = False) -> dict[str, Any]:
        """One session whole, as the contract's JSON; `live` adds what is going on now."""
        from dreamkeep.verbs import views
        from dreamkeep.verbs.arguments import the_session

        now = rfc3339(self.context.host.now())

        def whole(store: Store) -> dict[str, Any]:
            return views.session_whole(store, the_session(store, text), self.context.is_alive, now, live=live)

        return self.context.ask(whole)

    def digest(self, text: str) -> dict[str, Any]:
        """The reading copy of a session, as a model is given it: without secrets, every line with its place."""
        from dreamkeep.dream.budget import estimate
        from dreamkeep.dream.clean import clean_messages
        from dreamkeep.index.heard_before import find_heard
        from dreamkeep.session.digest import digest, find_unheard, render
        from dreamkeep.verbs.arguments import the_session

        session = self.summary(self.context.ask(lambda store: the_session(store, text)))
        messages = clean_messages(self.context.ask(lambda store: store.messages(session.id)))
        heard = self.context.ask(lambda store: find_heard(store, find_unheard(messages)))
        lines = digest(messages, session.cwd, heard.__contains__)
        return {"digest": [line._asdict() for line in lines], "tokens": estimate(render(lines))}

    def lineage(self, session: str) -> dict[str, Any]:
        """Where a session comes from (`ancestors`, nearest first) and what came of it (`descendants`)."""
        from dreamkeep.verbs import views

        return self.context.ask(lambda store: views.lineage(store, session))

    def raw(self, text: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Everything captured of a session, in the order of capture: what it is, and its exact bytes."""
        from dreamkeep.capture.rejoin import captured
        from dreamkeep.journal.places import folder_of

        return captured(self.context.host, f"{self.context.root}/{folder_of(self.resolve(text))}")

    def status(self) -> dict[str, Any]:
        from dreamkeep.verbs import views

        off = self.context.is_off()
        now = rfc3339(self.context.host.now())
        answer = self.context.ask(
            lambda store: views.status(self.context.root, self.context.exists(), off, store, self.context.is_alive, now)
        )
        disk = self._room()
        limits = {"quota": self._use(), "disk": disk if disk["short"] else None, "paused": self._paused_sources()}
        more = {
            "notes": self._counted_notes(),
            "backend": self.context.config["dream.backend"],
            "strays": len(self.context.strays),
        }
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

        return {**MARKED, **outward(answer, longest=longest, mask=self.context.config["recall.redact"])}

    def masked(self, answer: Any) -> Any:
        """What a verb says, as it may be printed: without secrets, unless `recall.redact` says otherwise."""
        from dreamkeep.memory.outward import outward

        return outward(answer) if self.context.config["recall.redact"] else answer

    # -- care

    def reindex(self, *, from_zero: bool = False, progress: Progress | None = None) -> Built:
        from dreamkeep.index import build

        if not self.context.exists():
            return build.Built(0, 0, 0)
        if from_zero:
            self.context.with_index(_clear, follow=False)
        return self.context.with_index(
            lambda store: build.follow(self.context.host, self.context.root, store, progress), follow=False
        )

    def catch_up(self) -> None:
        """Bring the index up to date now, so that the next question need not. Capture does not depend on it: only a warning."""
        if not self.context.exists():
            return
        try:
            self.context.with_index(lambda store: None)
            self.embed(most=_EMBEDDED_AT_ONCE, progress=self.context.progress)
        except (DreamkeepError, OSError) as problem:
            self.context.warn(f"Everything is kept, but the index can't be brought up to date: {problem}")

    def compress(self, *, everything: bool = False, least: int = 0) -> int:
        """Cold parts as zstd: those that nobody will write again, and whole journals that nobody has written to for
        `retention.compress_days` (or all, now, if their last part is of `least` bytes). How many there were."""
        from dreamkeep.index.build import journals
        from dreamkeep.journal import parts

        self.context.settle_deletions()
        done = 0
        before = self.context.host.now() - int(self.context.config["retention.compress_days"] * 86_400e9)
        for name in [*journals(self.context.host, self.context.root), "journal/keep"]:
            folder = f"{self.context.root}/{name}"
            try:
                numbers = parts.numbers(self.context.host, folder)
                done += sum(parts.compress(self.context.host, folder, part) for part in numbers[:-1])
                hot = self.context.host.stat(f"{folder}/{parts.name(numbers[-1])}") if numbers else None
                if hot and name != "journal/keep" and ((everything and hot.size >= least) or hot.mtime_ns < before):
                    done += parts.compress(self.context.host, folder, numbers[-1], last=True)
            except OSError as problem:
                raise from_os(problem, "compressing", folder) from problem
        return done


def http_token(where: str | None) -> AccessToken:
    """What clients of this keep must send over HTTP. Works also where the keep itself can't be opened."""
    from dreamkeep.verbs.access import access_token

    return access_token(RealHost(), settings.keep_path(where, os.environ, sys.platform), os.environ)


def without_secrets(text: str) -> str:
    """A message of ours as it may be printed: it may quote what somebody typed, or what a file says."""
    from dreamkeep.memory.redact import redact

    return redact(text)[0]


def _clear(store: Store) -> None:
    with store.writing():
        store.clear()
