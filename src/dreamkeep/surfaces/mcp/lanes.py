"""Runs tool calls in threads, so that no call delays another one, a ping, or the reading of the next message.

    quick ─► up to 8 threads        calls that query the index or add a line
    slow  ─► up to 2 threads        calls that may take minutes: they never delay a search

Ids belong to one client (`whose`): two clients may use the same id. A call that is cancelled before it starts is skipped. One
that has started runs to its end, because it must not be stopped between two durable steps; its answer is not sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dreamkeep.surfaces.mcp.protocol import Id, ToolCall
from dreamkeep.surfaces.mcp.tools import SLOW

#: Gets the answer, or None for a call that was cancelled.
Tell = Callable[[bytes | None], None]
_QUICK, _SLOW = 8, 2


Key = tuple[str, Id]


class _PendingCall:
    """One call, from `put` until it is answered."""

    def __init__(self, key: Key, call: ToolCall, tell: Tell) -> None:
        self.key, self.call, self.tell = key, call, tell
        self.cancelled = False


class Lanes:
    """`answer` must not raise."""

    def __init__(self, answer: Callable[[ToolCall], bytes]) -> None:
        self._answer = answer
        self._changed = threading.Condition()
        self._quick, self._slow = _Lane(_QUICK), _Lane(_SLOW)
        self._under_way: set[_PendingCall] = set()

    def put(self, call: ToolCall, tell: Tell, whose: str = "") -> None:
        """`tell` is called in another thread."""
        asked = _PendingCall((whose, call.id), call, tell)
        with self._changed:
            self._under_way.add(asked)
            lane = self._slow if call.tool in SLOW else self._quick
            lane.waiting.append(asked)
            if len(lane.waiting) > lane.idle and lane.threads < lane.most:
                lane.threads += 1
                threading.Thread(target=self._work, args=(lane,), daemon=True).start()
            self._changed.notify_all()

    def cancel(self, id: Id, whose: str = "") -> None:
        """Cancel the calls with that id that are under way now. A later call may use the id again."""
        with self._changed:
            for asked in self._under_way:
                asked.cancelled |= asked.key == (whose, id)

    def done(self, wait_s: float, quick_s: float = 0.0) -> bool:
        """Whether all calls are done. Waits up to `wait_s` for them, and at least `quick_s` for quick ones."""
        with self._changed:
            if quick_s > wait_s:
                self._changed.wait_for(lambda: all(asked.call.tool in SLOW for asked in self._under_way), quick_s)
            return self._changed.wait_for(lambda: not self._under_way, wait_s)

    def _work(self, lane: _Lane) -> None:
        while True:
            asked = self._next(lane)
            answer = None if asked.cancelled else self._answer(asked.call)
            asked.tell(None if asked.cancelled else answer)
            with self._changed:
                self._under_way.discard(asked)
                self._changed.notify_all()

    def _next(self, lane: _Lane) -> _PendingCall:
        with self._changed:
            lane.idle += 1
            while not lane.waiting:
                self._changed.wait()
            lane.idle -= 1
            return lane.waiting.popleft()


class _Lane:
    def __init__(self, most: int) -> None:
        self.most = most
        self.threads = self.idle = 0
        self.waiting: deque[_PendingCall] = deque()
