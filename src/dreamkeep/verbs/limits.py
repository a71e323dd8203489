"""How large a keep, its disk and one source may grow, by the settings. Wiring, no rules."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.verbs.compress import compress_cold

if TYPE_CHECKING:
    from dreamkeep.capture.quota import Quota
    from dreamkeep.context import KeepContext

#: A smaller part that is still written to is not worth compressing: its writer would have to begin another.
_WORTH_COMPRESSING = 64 << 10


class Limits:
    """What is used, what is free, and what is paused."""

    def __init__(self, context: KeepContext) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._making = threading.Lock()
        self._quota: Quota | None = None

    def open_quota(self) -> Quota:
        """What pauses an ingest when the keep or its disk is full; it compresses what is cold first."""
        with self._making:
            if self._quota is None:
                from dreamkeep.capture.quota import Quota

                press = partial(compress_cold, self._context, everything=True, least=_WORTH_COMPRESSING)
                self._quota = Quota(self._host, self._root, self._read_limit(), press, reserve=self._read_reserve())
            return self._quota

    def measure_use(self) -> dict[str, Any] | None:
        """How much of its quota the keep takes; None without one: then nobody has to measure."""
        from dreamkeep.capture.quota import Use, measure

        limit = self._read_limit()
        use = Use(measure(self._host, self._root), limit) if limit else None
        return {**use._asdict(), "over": use.over} if use else None

    def measure_room(self) -> dict[str, Any]:
        """What is free on the keep's disk, and what is to stay so."""
        from dreamkeep.capture.quota import room

        left = room(self._host, self._root, self._read_reserve())
        return {**left._asdict(), "short": left.short}

    def list_paused_sources(self) -> list[dict[str, str]]:
        """Sources that are over their own limit."""
        from dreamkeep.capture.sources.source_cache import paused_sources

        found = sorted(paused_sources(self._host, self._root).items())
        return [{"source": name, "session": pause.session, "problem": pause.problem} for name, pause in found]

    def _read_reserve(self) -> int | None:
        """In bytes; None: by the size of the disk."""
        asked = self._context.config["capture.reserve_mb"]
        return None if asked is None else int(asked * (1 << 20))

    def _read_limit(self) -> int:
        """In bytes; 0: none."""
        return int(self._context.config["retention.quota_mb"] * (1 << 20))
