"""What keeps a keep in order: its state, its index, its cold parts, and how large it may grow."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import DreamkeepError, from_os
from dreamkeep.event import rfc3339
from dreamkeep.verbs.recall.similarity import embed

if TYPE_CHECKING:
    from dreamkeep.capture.quota import Quota
    from dreamkeep.context import KeepContext
    from dreamkeep.index.build import Built, Progress
    from dreamkeep.index.store import Store

#: A few seconds of work if an embedder is installed; the rest follows with the next import, search or `reindex`.
_EMBEDDED_AT_ONCE = 20_000
#: `status` describes so many running sessions.
_RUNNING_SHOWN = 20
#: A smaller part that is still written to is not worth compressing: its writer would have to begin another.
_WORTH_COMPRESSING = 64 << 10


def status(context: KeepContext) -> dict[str, Any]:
    """Everything that `dreamkeep status` says. The command line prints it in `surfaces/cli/upkeep.py`."""
    from dreamkeep.verbs.memory.notes import count_notes

    disk = measure_room(context)
    return {
        "keep": context.root,
        "exists": context.exists(),
        "off": context.is_off(),
        **context.ask(partial(_count_indexed, context)),
        "notes": count_notes(context),
        "backend": context.config["dream.backend"],
        "strays": len(context.strays),
        "quota": measure_use(context),
        "disk": disk if disk["short"] else None,
        "paused": list_paused_sources(context),
    }


def _count_indexed(context: KeepContext, store: Store) -> dict[str, Any]:
    """The part of `status` that the index knows, all of one moment."""
    from dreamkeep.session.turns import INTERRUPTED, STARTED, SUBMITTED, view_turn
    from dreamkeep.verbs.views import show_running

    now = rfc3339(context.host.now())
    with store.reading():
        counts = store.counts()
        unsettled = [(session, view_turn(turn, context.is_alive).state) for session, turn in store.unsettled()]
        running = [session for session, state in unsettled if state in (SUBMITTED, STARTED)]
        shown = list(dict.fromkeys(running))[:_RUNNING_SHOWN]
        return {
            "sessions": counts.sessions,
            "turns": counts.turns,
            "messages": counts.messages,
            "bytes": counts.bytes,
            "turns_running": len(running),
            "turns_interrupted": sum(state == INTERRUPTED for _, state in unsettled),
            "live": [show_running(store, session, context.is_alive, now) for session in shown],
            "faults": counts.faults,
            "deleted": len(store.tombstones()),
        }


def reindex(context: KeepContext, *, from_zero: bool = False, progress: Progress | None = None) -> Built:
    from dreamkeep.index import build

    if not context.exists():
        return build.Built(0, 0, 0)
    if from_zero:
        context.with_index(_clear, follow=False)
    return context.with_index(lambda store: build.follow(context.host, context.root, store, progress), follow=False)


def catch_up(context: KeepContext) -> None:
    if not context.exists():
        return
    try:
        context.with_index(lambda store: None)
        embed(context, most=_EMBEDDED_AT_ONCE, progress=context.progress)
    except (DreamkeepError, OSError) as problem:
        context.warn(f"Everything is safe, but the index can't be updated: {problem}")


def _clear(store: Store) -> None:
    with store.writing():
        store.clear()


def compress_cold(context: KeepContext, *, everything: bool = False, least: int = 0) -> int:
    from dreamkeep.index.build import journals
    from dreamkeep.journal import parts

    context.settle_deletions()
    done = 0
    before = context.host.now() - int(context.config["retention.compress_days"] * 86_400e9)
    for name in [*journals(context.host, context.root), "journal/keep"]:
        folder = f"{context.root}/{name}"
        try:
            numbers = parts.numbers(context.host, folder)
            done += sum(parts.compress(context.host, folder, part) for part in numbers[:-1])
            hot = context.host.stat(f"{folder}/{parts.name(numbers[-1])}") if numbers else None
            if hot and name != "journal/keep" and ((everything and hot.size >= least) or hot.mtime_ns < before):
                done += parts.compress(context.host, folder, numbers[-1], last=True)
        except OSError as problem:
            raise from_os(problem, "compressing", folder) from problem
    return done


def open_quota(context: KeepContext) -> Quota:
    """Pauses an ingest when the keep or its disk is full. It compresses cold journals first."""
    from dreamkeep.capture.quota import Quota

    def make() -> Quota:
        press = partial(compress_cold, context, everything=True, least=_WORTH_COMPRESSING)
        return Quota(context.host, context.root, _read_limit(context), press, reserve=_read_reserve(context))

    return context.once(Quota, make)


def measure_use(context: KeepContext) -> dict[str, Any] | None:
    """How much of its quota the keep uses; None without a quota, because then nobody needs to measure."""
    from dreamkeep.capture.quota import Use, measure

    limit = _read_limit(context)
    use = Use(measure(context.host, context.root), limit) if limit else None
    return {**use._asdict(), "over": use.over} if use else None


def measure_room(context: KeepContext) -> dict[str, Any]:
    """How much is free on the keep's disk, and how much must stay free."""
    from dreamkeep.capture.quota import room

    left = room(context.host, context.root, _read_reserve(context))
    return {**left._asdict(), "short": left.short}


def list_paused_sources(context: KeepContext) -> list[dict[str, str]]:
    """Sources that are over their own limit."""
    from dreamkeep.capture.sources.source_cache import paused_sources

    found = sorted(paused_sources(context.host, context.root).items())
    return [{"source": name, "session": pause.session, "problem": pause.problem} for name, pause in found]


def _read_reserve(context: KeepContext) -> int | None:
    """In bytes; None: derived from the size of the disk."""
    asked = context.config["capture.reserve_mb"]
    return None if asked is None else int(asked * (1 << 20))


def _read_limit(context: KeepContext) -> int:
    """In bytes; 0: no limit."""
    return int(context.config["retention.quota_mb"] * (1 << 20))
