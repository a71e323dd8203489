"""A session for the OpenAI Agents SDK: `Runner.run(agent, "…", session=DreamkeepSession("chat-42"))`.

It has the methods of the SDK's protocol `Session`; importing it does not need the SDK. The work of each call is done in the
session's one thread, in the order of the calls, so that the event loop never waits for a disk. When `add_items` returns, the
items are on disk. A task that is cancelled meanwhile still waits for that: otherwise nobody would know whether they are.

The SDK does not say when a run ends. A run belongs to a task: when the task ends, or begins another run, a missing answer will
not come any more, and that is journaled (`run.over`). If a process dies, its lock is free, and everybody sees that.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dreamkeep.capture.items import Items, copy_json, kind_of
from dreamkeep.errors import BadUsage
from dreamkeep.host.liveness import notice_forks
from dreamkeep.keep import Keep

T = TypeVar("T")
_Task = asyncio.Task[Any]


@dataclass
class _AgentRun:
    """`last`: the kind of its last item (prompt, answer, result, other). `asked`: the history was read since. `over`: it is
    journaled as over."""

    id: str
    last: str = ""
    asked: bool = False
    over: bool = False


class DreamkeepSession:
    """Keeps every item of a session durably. One object may serve several runs at once; so may several processes."""

    #: The SDK's `SessionSettings`, or None.
    session_settings: Any = None

    def __init__(
        self,
        session_id: str,
        keep: Keep | str | os.PathLike[str] | None = None,
        *,
        agent: str = "python",
        cwd: str | os.PathLike[str] | None = None,
        title: str = "",
        session_settings: Any = None,
    ) -> None:
        """`keep`: an open keep, which stays yours to close, or its place (as for `Keep.open`)."""
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._keep = keep if isinstance(keep, Keep) else Keep.open(keep)
        self._own_keep = not isinstance(keep, Keep)
        self._open = partial(self._keep.items, session_id, agent=agent, cwd=cwd, title=title)
        self._closed = False
        self._made: Items | None = None
        self.after_fork()
        notice_forks(self)

    def after_fork(self) -> None:
        """Threads and runs belong to the parent; a child process begins its own."""
        self._lane = ThreadPoolExecutor(1, "dreamkeep")  # its thread starts with the first work
        self._runs: WeakKeyDictionary[_Task, _AgentRun] = WeakKeyDictionary()

    # -- the SDK's protocol

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The latest `limit` items (None: as the settings say, else all), oldest first."""
        run = self._runs.get(_task())
        if run:
            run.asked = True
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        return await self._settle(self._submit(lambda items: items.now(limit)))

    async def add_items(self, items: Sequence[Any]) -> None:
        given: list[Any] = copy_json(items)  # now: the caller may change them while they are written
        if given:
            run, over = self._run_of(given)
            await self._settle(self._submit(lambda kept: kept.add(given, run=run.id, over=over)))

    async def pop_item(self) -> Any | None:
        """Take back the newest item: it is marked, and not returned again."""
        return await self._settle(self._submit(lambda items: items.pop()))

    async def clear_session(self) -> None:
        """The talk begins anew. The old items stay in the keep; `dreamkeep delete` removes them."""
        await self._settle(self._submit(lambda items: items.clear()))

    async def _atomic_replace_items(self, items: Sequence[Any]) -> bool:
        """The SDK's compaction calls this if a session can replace its items in one step: then no crash leaves it empty."""
        given: list[Any] = copy_json(items)
        await self._settle(self._submit(lambda kept: kept.add(given, run="", instead=True)))
        return True

    # -- its end

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Wait until everything is written. A run that is not over is interrupted."""
        if self._closed:
            return
        over = [one for run in list(self._runs.values()) if (one := _over(run, "the session was closed"))]
        ending = self._submit(lambda items: items.over(over)) if over else None
        self._closed = True
        try:
            self._lane.shutdown(wait=True)
            if ending:
                ending.result()
        finally:
            if self._own_keep:
                self._keep.close()

    async def __aenter__(self) -> DreamkeepSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- runs

    def _run_of(self, given: Sequence[Any]) -> tuple[_AgentRun, list[Mapping[str, str]]]:
        """The run of these items, and the runs that are over because of it."""
        task = _task()
        run, over = self._runs.get(task), []
        if run is None or (run.asked and kind_of(given[0]) == "prompt"):
            if run and (ended := _over(run, "")):
                over.append(ended)
            if run is None:
                task.add_done_callback(self._ended)
            run = self._runs[task] = _AgentRun(self._keep.new_id())
        run.asked, run.last = False, kind_of(given[-1])
        return run, over

    def _ended(self, task: _Task) -> None:
        run = self._runs.pop(task, None)
        if run is None or self._closed:
            return
        problem = None if task.cancelled() else task.exception()
        why = "cancelled" if task.cancelled() else f"{type(problem).__name__}: {problem}" if problem else ""
        if one := _over(run, why, failed=problem is not None):
            self._submit(lambda items: items.over([one])).add_done_callback(self._warn)

    def _warn(self, ending: Future[None]) -> None:
        """Nobody waits for this work, so a problem becomes a warning of the keep."""
        if problem := ending.exception():
            self._keep.warn(f"The end of a run can't be recorded: {problem}")

    # -- its thread

    def _submit(self, act: Callable[[Items], T]) -> Future[T]:
        if self._closed:
            raise BadUsage("the session is closed", where=self.session_id, next="Create a new DreamkeepSession.")
        return self._lane.submit(lambda: act(self._items()))

    def _items(self) -> Items:
        if self._made is None:
            self._made = self._open()
        return self._made

    async def _settle(self, work: Future[T]) -> T:
        """Wait for the work, even if the task is cancelled."""
        waiting = asyncio.wrap_future(work)
        cancelled: asyncio.CancelledError | None = None
        while not waiting.done():
            try:
                await asyncio.wait({waiting})
            except asyncio.CancelledError as problem:
                cancelled = cancelled or problem
        if cancelled:
            waiting.exception()  # retrieved, so that asyncio does not warn; the cancellation is what counts
            raise cancelled
        return waiting.result()


def _task() -> _Task:
    task = asyncio.current_task()
    if task is None:
        raise BadUsage("no task is running", where="DreamkeepSession", next="Await it in a coroutine, as the SDK does.")
    return task


def _over(run: _AgentRun, why: str, *, failed: bool = False) -> Mapping[str, str] | None:
    """How a run ended, if its last item was no answer. (Some runs end with a tool's result.)"""
    if run.over or run.last == "answer":
        return None
    run.over = True
    state = "failed" if failed else "interrupted" if why or run.last != "result" else "completed"
    return {"run": run.id, "state": state, **({"reason": why} if why else {})}


def _settings(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    try:
        from agents import SessionSettings
    except ImportError as problem:
        raise BadUsage(
            "the OpenAI Agents SDK is not installed", where="session_settings", next="pip install 'dreamkeep[openai-agents]'"
        ) from problem
    return SessionSettings(**given)
