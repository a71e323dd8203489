"""What happened: events, their kinds and ids, to and from JSON.

An event is plain and frozen. Its body is JSON data; what strict JSON can't hold (lone surrogates, integers
beyond 64 bits, NaN) is *armoured*: replaced by a small marked object, so that every line stays acceptable to strict parsers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.errors import Refused

Body = Mapping[str, Any]
Carry = Mapping[str, "int | str"]


class RawChunk(dict[str, Any]):
    """A body that is already JSON bytes and is written as it is. Its maker guarantees that it is one line of strict JSON."""

    def __init__(self, raw: bytes, texts: Sequence[int] = ()) -> None:
        super().__init__()
        self.raw = raw
        #: Which lines in it (session/raw.py) are not JSON objects.
        self.texts = texts


class Kind:
    """The names of what can happen. `part.*`, `journal.*` and `chunk` are the journal's own book-keeping."""

    PART_OPENED = "part.opened"
    JOURNAL_SETTLED = "journal.settled"
    JOURNAL_HOLE = "journal.hole"
    JOURNAL_MENDED = "journal.mended"
    JOURNAL_ERASED = "journal.erased"
    CHUNK = "chunk"
    KEEP_CREATED = "keep.created"
    FAULT_ACCEPTED = "fault.accepted"
    SESSION_DELETED = "session.deleted"
    SESSION_UNDELETED = "session.undeleted"
    SESSION_OPENED = "session.opened"
    SESSION_ENDED = "session.ended"
    SESSION_SUSPENDED = "session.suspended"
    SESSION_RESUMED = "session.resumed"
    SESSION_TITLED = "session.titled"
    SESSION_PLACED = "session.placed"
    TURN_SUBMITTED = "turn.submitted"
    TURN_STARTED = "turn.started"
    TURN_SETTLED = "turn.settled"
    TURN_RECORDED = "turn.recorded"
    MESSAGE_ADDED = "message.added"
    # What a framework hands over, exactly (agents/shared/openai_items.py).
    ITEMS_ADDED = "items.added"
    ITEMS_POPPED = "items.popped"
    ITEMS_CLEARED = "items.cleared"
    RUN_OVER = "run.over"
    #: Added by a repair: nothing will end that compaction any more.
    COMPACTION_CLOSED = "compaction.closed"
    # What was captured raw (session/raw.py).
    SOURCE_OPENED = "source.opened"
    SOURCE_READ = "source.read"
    SOURCE_CHANGED = "source.changed"
    SOURCE_ROWS = "source.rows"
    HOOK_FIRED = "hook.fired"
    TAP_OPENED = "tap.opened"
    TAP_FRAMES = "tap.frames"
    TAP_CLOSED = "tap.closed"
    LINEAGE_FOUND = "lineage.found"
    # What was learned, and how: in the keep's own journal (memory/memory.py).
    SESSION_COMPLETED = "session.completed"
    DREAM_STARTED = "dream.started"
    DREAM_READ = "dream.read"
    DREAM_FINISHED = "dream.finished"
    DREAM_MERGED = "dream.merged"
    DREAM_SHELVED = "dream.shelved"
    DREAM_UNDONE = "dream.undone"
    INSIGHT_ADDED = "insight.added"
    INSIGHT_CONFIRMED = "insight.confirmed"
    INSIGHT_REJECTED = "insight.rejected"
    INSIGHT_EXPIRED = "insight.expired"
    INSIGHT_LINKED = "insight.linked"
    NOTE_ADDED = "note.added"
    NOTE_STRENGTHENED = "note.strengthened"
    NOTE_SUPERSEDED = "note.superseded"
    NOTE_CLOSED = "note.closed"
    NOTE_EXPIRED = "note.expired"
    NOTE_RETRACTED = "note.retracted"
    NOTE_EDITED = "note.edited"
    NOTE_PINNED = "note.pinned"
    NOTE_UNPINNED = "note.unpinned"
    NOTE_DOUBTED = "note.doubted"
    NOTE_PROMOTED = "note.promoted"
    TASK_OPENED = "task.opened"
    TASK_CLOSED = "task.closed"
    TASK_RENAMED = "task.renamed"
    TASK_JOINED = "task.joined"
    PROJECT_RENAMED = "project.renamed"
    PROJECT_UNDONE = "project.undone"
    PROJECT_APART = "project.apart"
    PAGE_PUBLISHED = "page.published"
    PAGE_WRITTEN = "page.written"


#: Kinds that hold an agent's own bytes (session/records.py).
RAW = frozenset((Kind.SOURCE_READ, Kind.SOURCE_ROWS, Kind.HOOK_FIRED, Kind.TAP_OPENED, Kind.TAP_FRAMES, Kind.TAP_CLOSED))
#: Kinds that hold a framework's own items, and what became of them.
HANDED = frozenset((Kind.ITEMS_ADDED, Kind.ITEMS_POPPED, Kind.ITEMS_CLEARED, Kind.RUN_OVER))


class Event(NamedTuple):
    """`carry` holds what the head of every later part must repeat: cursors (ints, which only grow) and last-wins words."""

    id: str
    kind: str
    at: str
    body: Body
    carry: Carry | None = None


def text_in(body: Body, key: str, default: str | None = None) -> str:
    """A text of a body. A missing value raises KeyError, another type TypeError: the caller decides what that means."""
    value = body[key] if default is None else (body.get(key) or default)
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


class Ids:
    """UUIDv7: sorted by time, and within a process strictly increasing even when the clock steps back."""

    def __init__(self, now: Callable[[], int], random: Callable[[int], bytes]) -> None:
        self._now = now
        self._random = random
        self.after_fork()

    def after_fork(self) -> None:
        """A forked child must not reuse its parent's random bytes."""
        self._lock = threading.Lock()
        self._tick = 0
        self._tails: list[str] = []

    def new(self) -> str:
        # 48 bits of milliseconds and 12 bits within the millisecond make one clock that never goes back.
        tick = self._now() * 512 // 125_000
        with self._lock:
            if tick <= self._tick:
                tick = self._tick + 1
            self._tick = tick
            tail = (self._tails or self._more_tails()).pop()
        head = f"{tick:015x}"
        # The variant leaves two bits of its digit free; a constant there costs nothing that matters.
        return f"{head[:8]}-{head[8:12]}-7{head[12:]}-8{tail[:3]}-{tail[3:]}"

    def _more_tails(self) -> list[str]:
        chance = self._random(15 * 64).hex()
        self._tails = [chance[n : n + 15] for n in range(0, len(chance), 15)]
        return self._tails


_second: tuple[int, str] = (-1, "")
#: The years 1 to 9999: what four digits can say, and what calendars can read.
_FIRST_NS, _LAST_NS = -62_135_596_800 * 10**9, 253_402_300_800 * 10**9 - 1


def rfc3339(ns: int) -> str:
    """UTC with microseconds, in a fixed width, so that text order is time order. An impossible year gives the first or the
    last possible moment."""
    global _second
    ns = min(max(ns, _FIRST_NS), _LAST_NS)
    second, rest = divmod(ns, 1_000_000_000)
    known, text = _second
    if known != second:
        t = time.gmtime(second)
        text = f"{t.tm_year:04d}-{t.tm_mon:02d}-{t.tm_mday:02d}T{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d}"
        _second = (second, text)
    return f"{text}.{rest // 1000:06d}Z"


def encode_body(body: Body) -> tuple[bytes, bool]:
    """JSON bytes without a line feed, and whether they are armoured."""
    if type(body) is RawChunk:
        return body.raw, False
    try:
        raw = _dumps(body)
    except TypeError:  # a lone surrogate, a huge integer, or something that is no JSON data at all (armour refuses that)
        return _armoured(body), True
    for value in body.values():
        if type(value) is not str and _hides_nan(value):
            return _armoured(body), True  # orjson would write null
    return raw, False


def _armoured(body: Body) -> bytes:
    try:
        return _dumps(armour(body))
    except (TypeError, ValueError, RecursionError) as problem:
        raise Refused(
            f"nested too deeply or too large to write ({problem})",
            where="an event's body",
            next="Nest at most about 100 levels; write very long numbers as strings.",
        ) from problem


def _dumps(value: object) -> bytes:
    """orjson's `dumps`. The first call loads it and replaces this function."""
    global _dumps
    from orjson import dumps as _dumps

    return _dumps(value)


def _hides_nan(value: Any) -> bool:
    if isinstance(value, float):
        return value - value != 0  # so for NaN and both infinities
    if isinstance(value, (dict, Mapping)):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    for item in value:  # noqa: SIM110  (a generator for any() costs more than the body of most events)
        if type(item) is not str and _hides_nan(item):
            return True
    return False


def armour(value: object) -> object:
    """`{"$s": base64}` for text, `{"$n": digits}` for numbers, `{"$d": [[key, value]…]}` for objects whose keys need it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _armour_text(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else {"$n": str(value)}
    if isinstance(value, float):
        return {"$n": repr(value)} if _hides_nan(value) else value
    if isinstance(value, (list, tuple)):
        return [armour(v) for v in value]
    if isinstance(value, Mapping):
        return _armour_object(value)
    raise Refused(
        f"{type(value).__name__} is not JSON data",
        where="an event's body",
        next="Pass only strings, numbers, booleans, None, lists and dicts.",
    )


def _armour_text(text: str) -> object:
    import base64

    try:
        text.encode()
    except UnicodeEncodeError:
        return {"$s": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")}
    return text


def _armour_object(value: Mapping[Any, Any]) -> object:
    for key in value:
        if not isinstance(key, str):
            raise Refused(
                f"an object's key must be a string, not {type(key).__name__}", where="an event's body", next="Use string keys."
            )
    if all(not key.startswith("$") and isinstance(_armour_text(key), str) for key in value):
        return {key: armour(v) for key, v in value.items()}
    return {"$d": [[armour(key), armour(v)] for key, v in value.items()]}


def disarm(value: object) -> Any:
    """The inverse of `armour`."""
    import base64

    if isinstance(value, list):
        return [disarm(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "$s" in value:
        return base64.b64decode(value["$s"]).decode("utf-8", "surrogatepass")
    if "$n" in value:
        digits = value["$n"]
        return int(digits) if digits.lstrip("-").isdigit() else float(digits)
    if "$d" in value:
        return {disarm(key): disarm(v) for key, v in value["$d"]}
    return {key: disarm(v) for key, v in value.items()}


def readable_size(count: int) -> str:
    """ "512 B", "10.3 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def printable(text: str) -> str:
    """The text with control characters escaped: a terminal shows what was captured and never obeys it."""
    return "".join(
        c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text
    )
