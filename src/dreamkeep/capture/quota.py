"""Limits for the keep's size (`[retention] quota_mb`), its disk (`[capture] reserve_mb`) and one source (`[capture] expansion`,
`source_mb_per_day`).

Nothing that was captured is ever dropped. Above the quota everything that can be compressed is. If that is not enough, reading
transcripts pauses: agents' own files still hold them, so they are read later, from the same byte on. Hooks, tap and Python
sessions go on, because what they don't write is lost.

Measuring is a walk over the keep, 0.02 ms a session. A watcher asks before each append, so the walk is repeated only when a
hundred times its own duration has passed, and after ten seconds at the earliest; in between what we append ourselves is added to
it. So it costs a hundredth of the time at most, however large the keep is. What others write in between is seen by the next
walk. (Remembering folders by their mtime would still need two stats a session, because a growing part does not change its
folder. Measured, that is a third of the walk: not worth the risk.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dreamkeep.errors import DreamkeepError
from dreamkeep.event import Event, RawChunk
from dreamkeep.host import Host

_LEAST_NS = 10_000_000_000
_TIMES = 100
#: Compressing is tried again when so much has come since.
_WORTH_IT = 1 << 20
#: About what an event without an agent's bytes takes.
_SMALL = 256
#: journal/sessions/AGENT/SESSION/PART: whatever lies deeper is not ours (or a link that leads back).
_DEEPEST = 8

NEXT = "Raise `quota_mb` under [retention] in keep.toml, delete sessions you don't need, or move the keep to a larger disk."


class Paused(Exception):
    """Reading must wait. The message is for people."""


class OverLimit(Paused):
    """One source is over its own limit. `day`: the day of the limit; "" if waiting for another day doesn't help."""

    def __init__(self, why: str, day: str) -> None:
        super().__init__(why)
        self.day = day


#: At least so many bytes of a packed file are unpacked, however small it is.
_UNPACKED_ANYWAY = 64 << 20


class SourceLimits(NamedTuple):
    """What one source may bring in. `expansion`: bytes out of one packed byte; `per_day`: bytes in a day; 0: no limit."""

    expansion: float = 0
    per_day: int = 0

    def most_unpacked(self, packed: int) -> int | None:
        """How much of a packed file of this size is read; None: all of it."""
        return max(_UNPACKED_ANYWAY, int(packed * self.expansion)) if self.expansion else None

    def too_packed(self, packed: int) -> OverLimit:
        return OverLimit(
            f"paused: its {_mib(packed)} unpack to more than {_mib(self.most_unpacked(packed) or 0)}, so the rest isn't imported."
            " If the file is fine, raise `expansion` under [capture] in keep.toml.",
            "",
        )

    def too_much_today(self, grown: int, more: int, day: str) -> OverLimit | None:
        """`grown`: bytes of it that were captured on this day; `more`: those that would come at once."""
        if not self.per_day or (grown < self.per_day and grown + more <= self.per_day):
            return None
        coming = f", and {_mib(more)} more are waiting" if more else ""
        return OverLimit(
            f"paused: {_mib(grown)} of it were captured today{coming}; the limit for a source is"
            f" {_mib(self.per_day)} a day. The agent's own file keeps the rest; tomorrow it is imported. To import it now, raise"
            " `source_mb_per_day` under [capture] in keep.toml.",
            day,
        )


#: What stays free by default: 2 % of the disk, but at least 1 GiB and at most 10 GiB; of a small disk 10 %.
_RESERVE, _LEAST_RESERVE, _MOST_RESERVE, _SMALL_DISK = 50, 1 << 30, 10 << 30, 10


def reserve_of(total: int, asked: int | None) -> int:
    """How much of a disk must stay free for transcripts to be read. `asked`: the setting, None when there is none. Pure."""
    if asked is not None:
        return asked
    return min(max(total // _RESERVE, _LEAST_RESERVE), _MOST_RESERVE, total // _SMALL_DISK)


class Room(NamedTuple):
    """The disk of the keep: what is free, and what must stay so. In bytes."""

    free: int
    reserve: int

    @property
    def short(self) -> bool:
        return self.free < self.reserve

    def __str__(self) -> str:
        return f"the keep's disk has {_mib(self.free)} free, less than the reserve of {_mib(self.reserve)}"


RESERVE_NEXT = "Free some space, move the keep to a larger disk, or lower `reserve_mb` under [capture] in keep.toml."


def room(host: Host, root: str, asked: int | None) -> Room:
    """Of the disk where the keep is, or will be."""
    while host.stat(root) is None and root != os.path.dirname(root):
        root = os.path.dirname(root)
    free, total = host.disk_space(root)
    return Room(free, reserve_of(total, asked))


class Use(NamedTuple):
    """How much the keep takes, and may take (0: as much as it likes). In bytes."""

    used: int
    limit: int

    @property
    def over(self) -> bool:
        return bool(self.limit) and self.used > self.limit

    def __str__(self) -> str:
        return f"the keep uses {_mib(self.used)}, its quota is {_mib(self.limit)}"


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


def size_of(events: Sequence[Event]) -> int:
    """About what they take in a journal."""
    return sum(len(event.body.raw) if isinstance(event.body, RawChunk) else _SMALL for event in events)


class Quota:
    """`compress`: makes the keep as small as it can be. `reserve`: what must stay free on its disk; None: by the disk's size."""

    def __init__(self, host: Host, root: str, limit: int, compress: Callable[[], object], *, reserve: int | None = 0) -> None:
        self._host = host
        self._root = root
        self._limit = limit
        self._compress = compress
        self._reserve = reserve
        self._used = 0
        self._measured_at = self._good_until = 0
        #: How large it was when it was compressed last.
        self._pressed: int | None = None
        self._trouble = ""

    def begin(self) -> None:
        """Somebody begins to read: a quota that was exceeded may not be any more."""
        if self._use().over:
            self._good_until = 0

    def problem(self, more: int = 0) -> str:
        """Why nothing more may be read now; empty when it may. `more`: bytes that would come at once."""
        if self._reserve != 0:
            left = room(self._host, self._root, self._reserve)
            if left._replace(free=left.free - more).short:
                return f"paused: {left}. The agent's own file still has it. {RESERVE_NEXT}"
        if not self._limit:
            return ""
        now = self._host.now()
        if not self._measured_at <= now < self._good_until:
            self._measure()
        if self._use().over and (self._pressed is None or self._used > self._pressed + _WORTH_IT):
            self._press()
        if not self._use().over:
            return ""
        return f"paused: {self._use()}, even compressed{self._trouble}. The agent's own file still has it. {NEXT}"

    def wrote(self, events: Sequence[Event]) -> None:
        self._used += size_of(events)

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
            self._trouble = f" as far as possible ({problem})"
        self._measure()
        self._pressed = self._used
