"""How large the keep may grow (`[retention] quota_mb`), and what waits when it is larger.

Nothing that was captured is ever dropped for it. Above the quota everything that can be compressed is; if that is not enough,
reading transcripts pauses, because agents' own files still hold them: what is not read now is read later, from the same byte
on. Hooks, tap and Python sessions go on: what they don't write is gone.

Measuring is a walk over the keep, 0.02 ms a session. A watcher asks before each append, so the walk is repeated only when a
hundred times its own duration has passed, and after ten seconds at the earliest; in between what we append ourselves is added to
it. So it costs a hundredth of the time at most, however large the keep is. What others write in between is seen by the next
walk. (To remember folders by their mtime would still need two stats a session, because a part that grows does not change its
folder: measured, a third of the walk, for another thing that can be wrong.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dreamkeep.errors import DreamkeepError
from dreamkeep.event import Event, Verbatim
from dreamkeep.host import Host

_LEAST_NS = 10_000_000_000
_TIMES = 100
#: Compressing is tried again when so much has come since.
_WORTH_IT = 1 << 20
#: About what an event without an agent's bytes takes.
_SMALL = 256
#: journal/sessions/AGENT/SESSION/PART: whatever lies deeper is not ours (or a link that leads back).
_DEEPEST = 8

NEXT = (
    "Raise `quota_mb` under [retention] in keep.toml, delete sessions you don't need, or move the keep to where it may be larger."
)


class Paused(Exception):
    """Not now; its words are for people."""


class Use(NamedTuple):
    """How much the keep takes, and may take (0: as much as it likes). In bytes."""

    used: int
    limit: int

    @property
    def over(self) -> bool:
        return bool(self.limit) and self.used > self.limit

    def __str__(self) -> str:
        return f"the keep takes {_mib(self.used)}, its quota is {_mib(self.limit)}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def measure(host: Host, folder: str, depth: int = 0) -> int:
    """The bytes of all files below a folder. What goes away meanwhile, or can't be looked at, takes no space."""
    if depth > _DEEPEST:
        return 0
    try:
        found = host.entries(folder)
    except OSError:
        return 0
    size = 0
    for entry in found:
        if entry.at is not None:
            size += measure(host, f"{folder}/{entry.name}", depth + 1) if entry.at.is_folder else entry.at.size
    return size


class Quota:
    """`compress`: makes the keep as small as it can be."""

    def __init__(self, host: Host, root: str, limit: int, compress: Callable[[], object]) -> None:
        self._host = host
        self._root = root
        self._limit = limit
        self._compress = compress
        self._used = 0
        self._measured_at = self._good_until = 0
        #: How large it was when it was compressed last.
        self._pressed: int | None = None
        self._trouble = ""

    def begin(self) -> None:
        """Somebody begins to read: a quota that was exceeded may not be any more."""
        if self._use().over:
            self._good_until = 0

    def problem(self) -> str:
        """Why nothing more may be read now; empty when it may."""
        if not self._limit:
            return ""
        now = self._host.now()
        if not self._measured_at <= now < self._good_until:
            self._measure()
        if self._use().over and (self._pressed is None or self._used > self._pressed + _WORTH_IT):
            self._press()
        if not self._use().over:
            return ""
        return f"paused: {self._use()}, also compressed{self._trouble}. The agent's own file still has it. {NEXT}"

    def wrote(self, events: Sequence[Event]) -> None:
        self._used += sum(len(e.body.raw) if isinstance(e.body, Verbatim) else _SMALL for e in events)

    def _use(self) -> Use:
        return Use(self._used, self._limit)

    def _measure(self) -> None:
        self._measured_at = self._host.now()
        self._used = measure(self._host, self._root)
        now = self._host.now()
        self._good_until = now + max(_LEAST_NS, _TIMES * (now - self._measured_at))

    def _press(self) -> None:
        self._trouble = ""
        try:
            self._compress()
        except (DreamkeepError, OSError) as problem:
            self._trouble = f" as far as that worked ({problem})"
        self._measure()
        self._pressed = self._used
