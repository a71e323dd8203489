"""What a row of an agent's database says, and when an agent takes rows away itself, which is no loss. Pure.

`row_habits.py` of an agent's folder has `HABITS`, a `RowHabits`. `capture/sources/row_loss.py` asks it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

_BLANK = " \t\r\n\0"

Row = Mapping[str, Any]
Facts = dict[str, Any]


class RowWords(NamedTuple):
    """What a row says: `words` by column, "" for nothing. `same`: known by it if it is inserted again. `place`: its order among
    the session's rows. `part`: of which session of a chain. `live`, `squeezed`: whether the model has it, or only a summary."""

    key: str
    same: str
    words: tuple[str, ...]
    place: tuple[Any, ...]
    at: object
    part: str = ""
    live: bool = True
    squeezed: bool = False


@dataclass(frozen=True)
class RowGap:
    """Rows that were `going` at one time. Others `stayed`; some that went are there `again`, in new rows; others `came` since.
    What is asked for each row that went is found once: a session may have lost very many."""

    going: Sequence[RowWords]
    stayed: Mapping[str, RowWords]
    again: Sequence[RowWords]
    came: Sequence[RowWords]
    now: Mapping[str, RowWords]
    facts: Facts

    def ends_with(self, gone: RowWords) -> bool:
        """Nothing that was there with it stands behind it now, and something that came since does; and none of that has a place
        of what went: an agent does not give one twice, but an older copy of its database does."""
        return self._went_on and gone.place > self._end

    @cached_property
    def _end(self) -> tuple[Any, ...]:
        return max((one.place for one in (*self.stayed.values(), *self.again)), default=())

    @cached_property
    def _went_on(self) -> bool:
        first, last = min(one.place for one in self.going), max(one.place for one in self.going)
        reused = any(first <= one.place <= last for one in self.came)
        return not reused and any(one.place > last for one in self.came)

    @cached_property
    def known_rows(self) -> frozenset[str]:
        """By what the rows that are there are known."""
        return frozenset(one.same for one in self.now.values())

    @cached_property
    def live(self) -> frozenset[str]:
        """The parts of which a live row stayed."""
        return frozenset(one.part for one in self.stayed.values() if one.live)

    @cached_property
    def many(self) -> Mapping[str, int]:
        """By part, how many rows are there of which the model has more than a summary."""
        return Counter(one.part for one in self.now.values() if not one.squeezed)


class RowHabits(Protocol):
    #: Whether what a row says is written again as a habit.
    edits: bool
    #: The table whose row begins a capture with what is gone by then, be it nothing; "" where that is always noted elsewhere.
    begins: str
    #: The columns in which a row speaks, where an older version of it may give them back; none where they are not told apart.
    columns: tuple[str, ...]

    def read_words(self, table: str, row: Row) -> RowWords | None:
        """None: a row in which nobody speaks."""

    def facts(self, table: str, row: Row) -> Facts:
        """What tells that something was taken away by intent."""

    def meant(self, gone: RowWords, gap: RowGap) -> bool: ...


# -- values


def text_in(value: object) -> str:
    """A column's text, "" if there is nothing but blanks in it. Bytes that were no UTF-8 stand there as base64 (rows.py)."""
    if isinstance(value, Mapping) and value.keys() & {"$text", "$blob"}:
        value = b64decode(str(next(iter(value.values())))).decode("utf-8", "replace")
    found = value if isinstance(value, str) else "" if value is None else str(value)
    return found if found.strip(_BLANK) else ""


def json_in(value: object) -> object:
    try:
        return json.loads(text_in(value), strict=False)
    except (ValueError, RecursionError):
        return None


def dumped(value: object) -> str:
    return "" if value in (None, "", {}, []) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest_of(*values: object) -> str:
    return blake2b(json.dumps(values).encode(), digest_size=12).hexdigest()
