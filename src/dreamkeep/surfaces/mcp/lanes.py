"""Tool calls in threads of their own, so that no call holds up another, a ping, or the reading of what comes next.

    quick ─► up to 8 threads        what asks the index or adds a line
    slow  ─► up to 2 threads        what may take minutes: never in the way of a search

Ids are of one client (`whose`): two clients may use the same. A call that was cancelled before its turn is left out; what has
begun runs to its end (it is durable step by step, and may not be stopped between two), and its answer is not sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from dreamkeep.surfaces.mcp.protocol import Call, Id
from dreamkeep.surfaces.mcp.tools import SLOW

#: Gets the answer, or None for a call that was cancelled.
Tell = Callable[[bytes | None], None]
_QUICK, _SLOW = 8, 2


Key = tuple[str, Id]


class _Waiting(NamedTuple):
    key: Key
    call: Call
    tell: Tell


class Lanes:
    """`answer` must not raise."""

    def __init__(self, answer: Callable[[Call], bytes]) -> None:
        self._answer = answer
        self._changed = threading.Condition()
        self._quick, self._slow = _Lane(_QUICK), _Lane(_SLOW)
        #: How many of that id: a client that uses one twice gets two answers.
        self._under_way: dict[Key, int] = {}
        self._cancelled: set[Key] = set()

    def put(self, call: Call, tell: Tell, whose: str = "") -> None:
        """`tell` is called in another thread."""
        key = (whose, call.id)
        with self._changed:
            lane = self._slow if call.tool in SLOW else self._quick
            lane.waiting.append(_Waiting(key, call, tell))
            self._under_way[key] = self._under_way.get(key, 0) + 1
            if len(lane.waiting) > lane.idle and lane.threads < lane.most:
                lane.threads += 1
                threading.Thread(target=self._work, args=(lane,), daemon=True).start()
            self._changed.notify_all()

    def cancel(self, id: Id, whose: str = "") -> None:
        """Of a call that is not under way nothing is remembered: it was answered, or never came."""
        with self._changed:
            if (whose, id) in self._under_way:
                self._cancelled.add((whose, id))

    def done(self, wait_s: float) -> bool:
        """Whether all that was put is done; waits so long for it."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, wait_s)

    def _work(self, lane: _Lane) -> None:
        while True:
            one = self._next(lane)
            answer = self._answer(one.call) if self._wanted(one.key) else None
            one.tell(answer if self._wanted(one.key) else None)
            self._forget(one.key)

    def _next(self, lane: _Lane) -> _Waiting:
        with self._changed:
            lane.idle += 1
            while not lane.waiting:
                self._changed.wait()
            lane.idle -= 1
            return lane.waiting.popleft()

    def _wanted(self, key: Key) -> bool:
        with self._changed:
            return key not in self._cancelled

    def _forget(self, key: Key) -> None:
        with self._changed:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
                self._cancelled.discard(key)
            self._changed.notify_all()


class _Lane:
    def __init__(self, most: int) -> None:
        self.most = most
        self.threads = self.idle = 0
        self.waiting: deque[_Waiting] = deque()
