"""Part of app: capture. The verbs of `Keep` by which sessions come in; wiring, no rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.app_part import Part
from dreamkeep.errors import DreamkeepError, Failed, from_os

if TYPE_CHECKING:
    import threading

    from dreamkeep.capture.ingest import Ingest, Outcome
    from dreamkeep.capture.python import Owners
    from dreamkeep.capture.quota import Quota
    from dreamkeep.index.build import Progress

_TEND_EVERY_S = 3_600.0
#: A smaller part that is still written to is not worth compressing: its writer would have to begin another.
_WORTH_COMPRESSING = 64 << 10


class Capturing(Part):
    """What `Keep` can do to take sessions in."""

    _making: threading.RLock
    _quota_made: Quota | None = None
    #: What the last `ingest` corrected of projects.
    corrected: Sequence[dict[str, str]] = ()

    if TYPE_CHECKING:

        def _owners(self) -> Owners: ...

        def hygiene(self) -> dict[str, Any]: ...

        def start_dream(self) -> bool: ...

        def render_packs(self, squeezed: Sequence[str] = ()) -> None: ...

        def correct_projects(self) -> list[dict[str, str]]: ...

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
        ingest = self._limited_ingest(again)
        self._quota().begin()
        sources = [one for one in found if not isinstance(one, find.Trouble)]
        states = set()
        for outcome in ingest.run(sources, progress, glanced=glance.seen):
            states.add(outcome.state)
            yield outcome
        if not paths:
            yield from ingest.vanished(chosen, {one.path for one in found})
        # Who asks for that needs an index: a keep that is full is not made larger by one.
        self.corrected = self.correct_projects() if (not paths or "new" in states) and "paused" not in states else []

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
        from dreamkeep.capture.watch import Forward, Watching

        where, environment = self._home(home)
        ingest = self._limited_ingest()
        watching = Watching(
            self._host,
            ingest,
            where,
            environment,
            checked(agents),
            now_s=Forward(self._host.now),
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
        from dreamkeep.capture.watch import Forward

        now_s = Forward(self._host.now)
        tend_at = now_s()
        while True:
            try:
                if spool.waiting(self._host, self.root):
                    for problem in self.drain()["problems"]:
                        self.warn(problem)
                if now_s() >= tend_at and not self.is_off():
                    tend_at = now_s() + _TEND_EVERY_S
                    self.correct_projects()
                    self.compress()  # before quiet sessions are ended, which writes to them
                    self.hygiene()
                    self.start_dream()
            except (DreamkeepError, OSError) as problem:
                self.warn(f"Still watching, but: {problem}")
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
            problems = [f"Waiting hook calls can't be moved into the journals now: {problem}"]
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
                hook=hook_file(),
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

    def _limited_ingest(self, again: bool = False) -> Ingest:
        """With all that may pause it: for who reads transcripts, not for who mends a journal by one."""
        from dreamkeep.capture.quota import SourceLimits

        made = self._ingest(again)
        made.quota = self._quota()
        made.limits = SourceLimits(self.config["capture.expansion"], int(self.config["capture.source_mb_per_day"] * (1 << 20)))
        return made

    def _quota(self) -> Quota:
        with self._making:
            if self._quota_made is None:
                from dreamkeep.capture.quota import Quota

                press = partial(self.compress, everything=True, least=_WORTH_COMPRESSING)
                self._quota_made = Quota(self._host, self.root, self._limit(), press, reserve=self._reserve())
            return self._quota_made

    def _use(self) -> dict[str, Any] | None:
        """How much of its quota the keep takes; None without one: then nobody has to measure."""
        from dreamkeep.capture.quota import Use, measure

        limit = self._limit()
        use = Use(measure(self._host, self.root), limit) if limit else None
        return {**use._asdict(), "over": use.over} if use else None

    def _room(self) -> dict[str, Any]:
        """What is free on the keep's disk, and what is to stay so."""
        from dreamkeep.capture.quota import room

        left = room(self._host, self.root, self._reserve())
        return {**left._asdict(), "short": left.short}

    def _paused_sources(self) -> list[dict[str, str]]:
        """Sources that are over their own limit."""
        from dreamkeep.capture.seen import paused_sources

        found = sorted(paused_sources(self._host, self.root).items())
        return [{"source": name, "session": pause.session, "problem": pause.problem} for name, pause in found]

    def _reserve(self) -> int | None:
        """In bytes; None: by the size of the disk."""
        asked = self.config["capture.reserve_mb"]
        return None if asked is None else int(asked * (1 << 20))

    def _limit(self) -> int:
        """In bytes; 0: none."""
        return int(self.config["retention.quota_mb"] * (1 << 20))


def untapped(command: Sequence[str]) -> int:
    """Become that program; comes back only when it can't be started, with an exit code."""
    from dreamkeep.capture import tap

    return tap.become(command, os.environ)


def hook(words: Sequence[str], keep: str = "") -> None:
    """One call of an agent's hook, in this process."""
    from dreamkeep.capture import hook

    hook.main(list(words), keep)


def hook_file() -> str:
    """The file that agents start: it must be found where it is, without importing it."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "capture", "hook.py")
