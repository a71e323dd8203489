"""What a row of an agent's database says, and which rows an agent deletes itself, so that this is no loss. Pure.

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
    """What a row says: `words` by column, "" for none. `same`: identifies it if it is inserted again. `place`: its order among
    the session's rows. `part`: its session in a chain. `live`, `squeezed`: whether the model has it, or only a summary of it."""

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
    """Rows that went missing at one time (`going`). Others `stayed`; some are there `again`, in new rows; others `came` since.
    What is needed for each missing row is computed once: a session may have lost very many."""

    going: Sequence[RowWords]
    stayed: Mapping[str, RowWords]
    again: Sequence[RowWords]
    came: Sequence[RowWords]
    now: Mapping[str, RowWords]
    facts: Facts

    def ends_with(self, gone: RowWords) -> bool:
        """Whether the session was cut at this row: no row that stayed lies behind it, and a new one does. And no new row has the
        place of a missing one: an agent does not use a place twice, but an older copy of its database does."""
        return self._went_on and gone.place > self._end

    @cached_property
    def _end(self) -> tuple[Any, ...]:
        return max((row.place for row in (*self.stayed.values(), *self.again)), default=())

    @cached_property
    def _went_on(self) -> bool:
        first, last = min(row.place for row in self.going), max(row.place for row in self.going)
        reused = any(first <= row.place <= last for row in self.came)
        return not reused and any(row.place > last for row in self.came)

    @cached_property
    def known_rows(self) -> frozenset[str]:
        """What identifies the rows that are there."""
        return frozenset(row.same for row in self.now.values())

    @cached_property
    def live(self) -> frozenset[str]:
        """The parts in which a live row stayed."""
        return frozenset(row.part for row in self.stayed.values() if row.live)

    @cached_property
    def many(self) -> Mapping[str, int]:
        """By part, the number of rows of which the model has more than a summary."""
        return Counter(row.part for row in self.now.values() if not row.squeezed)


class RowHabits(Protocol):
    #: Whether the agent rewrites rows as a habit.
    edits: bool
    #: The table whose row begins a capture with the list of missing rows, even an empty one; "" if that is always elsewhere.
    begins: str
    #: The columns with words, if an older version of a row may restore them; none if they are not kept apart.
    columns: tuple[str, ...]

    def read_words(self, table: str, row: Row) -> RowWords | None:
        """None for a row without words."""

    def facts(self, table: str, row: Row) -> Facts:
        """Facts that show that something was deleted on purpose."""

    def meant(self, gone: RowWords, gap: RowGap) -> bool: ...


# -- values


def text_in(value: object) -> str:
    """A column's text; "" if it is blank. Bytes that are no UTF-8 are there as base64 (rows.py)."""
    if isinstance(value, Mapping) and value.keys() & {"$text", "$blob"}:
        value = b64decode(str(next(iter(value.values())))).decode("utf-8", "replace")
    found = value if isinstance(value, str) else "" if value is None else str(value)
    return found if found.strip(_BLANK) else ""


def json_in(value: object) -> object:
    try:
        return json.loads(text_in(value), strict=False)
    except (ValueError, RecursionError):
        return None


def to_json(value: object) -> str:
    return "" if value in (None, "", {}, []) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest_of(*values: object) -> str:
    return blake2b(json.dumps(values).encode(), digest_size=12).hexdigest()
