"""Capture: sessions come in from files, from hooks and through the tap."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import DreamkeepError, Failed, from_os
from dreamkeep.verbs.dream.dreams import start_dream
from dreamkeep.verbs.dream.hygiene import hygiene
from dreamkeep.verbs.projects import correct_projects
from dreamkeep.verbs.recall.packs import render_packs
from dreamkeep.verbs.upkeep import catch_up, compress_cold, open_quota

if TYPE_CHECKING:
    from dreamkeep.capture.context import IngestOutcome
    from dreamkeep.capture.ingest import Ingest
    from dreamkeep.context import KeepContext
    from dreamkeep.index.build import Progress

_TEND_EVERY_S = 3_600.0


def ingest(
    context: KeepContext,
    *,
    agents: Sequence[str] = (),
    home: str | os.PathLike[str] | None = None,
    paths: Sequence[str | os.PathLike[str]] = (),
    again: bool = False,
    progress: Progress | None = None,
) -> Iterator[IngestOutcome]:
    paused = False
    for outcome in _import_sources(context, agents, home, paths, again, progress):
        paused = paused or outcome.state == "paused"
        yield outcome
    if not paused:  # a keep that is full is not made larger by an index
        catch_up(context)


def _import_sources(
    context: KeepContext,
    agents: Sequence[str] = (),
    home: str | os.PathLike[str] | None = None,
    paths: Sequence[str | os.PathLike[str]] = (),
    again: bool = False,
    progress: Progress | None = None,
) -> Iterator[IngestOutcome]:
    from dreamkeep.capture import find
    from dreamkeep.capture.context import IngestOutcome

    chosen = find.checked(agents)
    where, environment = context.find_home(home)
    found: list[find.Found] = []
    for path in paths:
        found += find.named(context.host, os.fspath(path), chosen)
    glance = find.Glance(context.host)
    if not paths:
        found = list(find.everywhere(glance, where, environment, chosen))
    for one in found:
        if isinstance(one, find.Trouble):
            yield IngestOutcome(one.agent, one.path, "", state="failed", problem=one.problem)
    if not found and not context.exists():
        return  # nothing to keep: then no keep is made
    ingest = _open_limited_ingest(context, again)
    open_quota(context).begin()
    sources = [one for one in found if not isinstance(one, find.Trouble)]
    states = set()
    for outcome in ingest.run(sources, progress, glanced=glance.seen):
        states.add(outcome.state)
        yield outcome
    if not paths:
        yield from ingest.vanished(chosen, {one.path for one in found})
    # Who asks for that needs an index: a keep that is full is not made larger by one.
    context.corrected = correct_projects(context) if (not paths or "new" in states) and "paused" not in states else []


def watch(
    context: KeepContext,
    *,
    agents: Sequence[str] = (),
    home: str | os.PathLike[str] | None = None,
    polling: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[IngestOutcome | None]:
    from dreamkeep.capture.find import checked
    from dreamkeep.capture.watch import Forward, Watching

    where, environment = context.find_home(home)
    ingest = _open_limited_ingest(context)
    watching = Watching(
        context.host,
        ingest,
        where,
        environment,
        checked(agents),
        now_s=Forward(context.host.now),
        stopped=stopped,
        off=context.is_off,
        polling=polling,
    )
    tending = _tend(context)
    for one in watching.run():
        if one is None:
            next(tending)
        yield one


def _tend(context: KeepContext) -> Iterator[None]:
    """What a watcher does besides watching: drain the spool, and every hour compress cold journals, end idle sessions, dream."""
    from dreamkeep.capture.hooks import spool
    from dreamkeep.capture.watch import Forward

    now_s = Forward(context.host.now)
    tend_at = now_s()
    while True:
        try:
            if spool.waiting(context.host, context.root):
                for problem in drain(context)["problems"]:
                    context.warn(problem)
            if now_s() >= tend_at and not context.is_off():
                tend_at = now_s() + _TEND_EVERY_S
                correct_projects(context)
                compress_cold(context)  # before idle sessions are ended, because that writes to them
                hygiene(context)
                start_dream(context)
        except (DreamkeepError, OSError) as problem:
            context.warn(f"Still watching, but: {problem}")
        yield


def drain(context: KeepContext, *, also_off: bool = False) -> dict[str, Any]:
    from dreamkeep.capture.hooks.drain import drain

    if context.is_off() and not also_off:
        return {"calls": 0, "sessions": 0, "busy": False, "problems": []}
    exclude = context.config["capture.exclude"]
    done = drain(
        context.host, context.root, context.journals(), context.ids, exclude=exclude, read_source=partial(_read_source, context)
    )
    if done.sessions:
        render_packs(context, done.compacting)
    return {"calls": done.events, "sessions": len(done.sessions), "busy": done.busy, "problems": list(done.problems)}


def _read_source(context: KeepContext, agent: str, path: str) -> None:
    """Import one transcript that a hook named or, without a path, all sessions of that agent."""
    found = _import_sources(context, [agent], paths=[path] if path else ())
    # A paused source is not the hook's problem: it is read when there is room again.
    problems = [one.problem for one in found if one.problem and one.state != "paused"]
    if problems:
        raise Failed("; ".join(problems), where=path or agent, next="Run `dreamkeep ingest`; nothing is lost.")


def take_in(context: KeepContext) -> None:
    if context.host.stat(f"{context.root}/spool") is None or context.is_off():
        return

    from dreamkeep.capture.hooks import spool

    try:
        problems = drain(context)["problems"] if spool.waiting(context.host, context.root) else ()
    except (DreamkeepError, OSError) as problem:
        problems = [f"Waiting hook calls can't be moved into the journals now: {problem}"]
    for one in problems:
        context.warn(one)


def tap(context: KeepContext, command: Sequence[str], *, agent: str | None = None) -> int:
    from dreamkeep.capture.exclude import Excluded
    from dreamkeep.capture.tap import tap

    excluded = Excluded(context.config["capture.exclude"])
    return tap.run(
        context.host,
        context.root,
        context.journals,
        context.ids,
        context.owners,
        command,
        agent=agent,
        environment=context.environment,
        off=context.is_off(),
        scrape=context.config["capture.scrape"],
        excluded=excluded.session,
    )


def init(
    context: KeepContext,
    *,
    agents: Sequence[str] = (),
    home: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    uninstall: bool = False,
    mcp: bool = True,
) -> list[dict[str, str]]:
    from dreamkeep.capture import setup

    where, environment = context.find_home(home)
    python = os.path.abspath(sys.executable)
    try:
        done = setup.init(
            context.host,
            where,
            environment,
            agents=agents,
            keep=context.root,
            python=python,
            hook=find_hook_file(),
            dry_run=dry_run,
            uninstall=uninstall,
            mcp=mcp,
        )
    except OSError as problem:
        raise from_os(problem, "setting up", str(problem.filename or where)) from problem
    if not dry_run and not uninstall:
        render_packs(context)  # for the first session that starts with the hooks
    return [change.as_json() for change in done]


def open_ingest(context: KeepContext, force: bool = False) -> Ingest:
    """An ingest without limits: for a repair or an import, which must not be paused."""
    from dreamkeep.capture.ingest import Ingest

    return Ingest(
        context.host, context.root, context.journals(), context.ids, exclude=context.config["capture.exclude"], force=force
    )


def _open_limited_ingest(context: KeepContext, force: bool = False) -> Ingest:
    """An ingest that a full disk, the quota and a source's own limits may pause: for reading transcripts."""
    from dreamkeep.capture.quota import SourceLimits

    made = open_ingest(context, force)
    made.context.quota = open_quota(context)
    made.context.limits = SourceLimits(
        context.config["capture.expansion"], int(context.config["capture.source_mb_per_day"] * (1 << 20))
    )
    return made


def start_drainer(context: KeepContext) -> None:
    if context.host.stat(f"{context.root}/spool") is None:
        return  # no hook was ever called: the usual case without hooks

    from dreamkeep.capture.hooks import spool

    if not spool.waiting(context.host, context.root) or context.is_off():
        return
    words = [sys.executable, "-P", "-m", "dreamkeep", "--keep", context.root, "drain"]
    try:
        context.host.start(words, f"{context.root}/state/drain.log")
    except OSError as problem:
        context.warn(f"The drainer can't be started: {problem}")


def find_hook_file() -> str:
    """The file that agents start as a hook. It must be found without importing it."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "capture", "hook.py")
