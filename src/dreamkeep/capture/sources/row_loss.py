"""Finds captured rows of a session that its database lost: they are gone, blanked, or hold other words. Pure.

Agents remove rows themselves, which is no loss: `row_habits.py` of an agent's folder knows when.

A row that is gone is not lost if its message stands in a row that came later, one row for each. The order in which rows came and
went is that of the journal: a row that is gone is noted there with the next new one (`beside.gone`, rows.py), so all rows before
the note were there together with it. (For Goose that was not always noted: rows of a later capture without a note may have come
after others were gone.) The words of a row count, also if it was captured once more since, blanked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dreamkeep.agents.registry import row_habits
from dreamkeep.agents.shared.row_habits import Facts, Row, RowGap, RowHabits, RowWords, text_in
from dreamkeep.secrets.masking import is_masked, matches_masked


class Loss(NamedTuple):
    """Keys of rows. `spoken`: how many captured rows hold words."""

    gone: tuple[str, ...]
    blanked: tuple[str, ...]
    changed: tuple[str, ...]
    spoken: int

    def __bool__(self) -> bool:
        return bool(self.gone or self.blanked or self.changed)


class _Missed(NamedTuple):
    """`beside`: rows that were there together with it, and so are no later copies of it."""

    said: RowWords
    beside: Mapping[str, RowWords]


def lost(agent: str, captured: Iterable[bytes], now: Iterable[bytes]) -> Loss:
    """`captured`: the lines of all rows in the order of the journal; `now`: of the rows in the database."""
    habits = row_habits(agent)
    before, there = _Fold(habits), _Fold(habits)
    for line in captured:
        before.take(line)
    for line in now:
        there.take(line)
    return before.against(there)


def may_be_less(agent: str, line: bytes) -> bool:
    """Whether a new version of a captured row may have lost words."""
    held, habits = json.loads(line), row_habits(agent)
    said = habits.read_words(str(held["table"]), held["row"])
    return said is not None and (not habits.edits or not all(said.words[:2]))


def says_no_less(agent: str, table: str, before: Row, row: Row) -> bool:
    """Whether a new version of a row holds all the words of the one before."""
    habits = row_habits(agent)
    had, said = habits.read_words(table, before), habits.read_words(table, row)
    if had is None or said is None:
        return had is said
    return not _is_less(had, said) and (habits.edits or not _is_other(had, said))


def with_its_words(agent: str, before: Row, row: Row) -> Row:
    """The new version of a message, with its old words where they were blanked or replaced. Agents don't edit rows; but in an
    older copy of the database that went on, another message can have the same number."""
    if any(before.get(name) != row.get(name) for name in ("role", "timestamp")):
        return row
    words = {name: (text_in(before.get(name)), text_in(row.get(name))) for name in row_habits(agent).columns}
    return {**row, **{name: before[name] for name, (old, new) in words.items() if old and (not new or _is_replaced(old, new))}}


class _Going(NamedTuple):
    """Rows that went, and rows that `stayed`. `came`: in which capture each came, counting those without a note."""

    rows: Sequence[RowWords]
    stayed: Mapping[str, RowWords]
    came: Mapping[str, int]

    def lost(self, habits: RowHabits, now: Mapping[str, RowWords], facts: Facts) -> dict[str, _Missed]:
        """Only rows that had come by then are known to have been there together with a row."""
        found: dict[str, _Missed] = {}
        for number in sorted({self._number(one.key) for one in self.rows}):
            going = [one for one in self.rows if self._number(one.key) == number]
            beside = {key: one for key, one in self.stayed.items() if self._number(key) <= number}
            found.update((one.key, _Missed(one, beside)) for one in _not_meant(habits, going, beside, now, facts))
        return found

    def _number(self, key: str) -> int:
        return self.came.get(key, 0)


class _Fold:
    def __init__(self, habits: RowHabits) -> None:
        self._habits = habits
        self._there: dict[str, RowWords] = {}
        self._facts: Facts = {}
        self._lost: dict[str, _Missed] = {}
        self._changed: dict[str, _Missed] = {}
        self._spoken: set[str] = set()
        self._going: _Going | None = None
        #: In which capture since the last note a row came, counting those without a note.
        self._came: dict[str, int] = {}
        self._unnoted = 0

    def take(self, line: bytes) -> None:
        held = json.loads(line)
        table, row = str(held["table"]), held["row"]
        gone = (held.get("beside") or {}).get("gone")
        if gone:
            self._settle()
            going = [self._there.pop(key) for key in gone if key in self._there]
            self._going = _Going(going, dict(self._there), self._came)
        if gone is not None:
            self._came, self._unnoted = {}, 0  # the rows that are left were there together
        elif table == self._habits.begins:
            self._unnoted += 1
        self._facts.update(self._habits.facts(table, row))
        said = self._habits.read_words(table, row)
        if said is not None:
            self._there[said.key] = self._with_its_earlier_words(said)
            self._came[said.key] = self._unnoted
            self._spoken.update([said.key] if any(said.words) else [])

    def _with_its_earlier_words(self, said: RowWords) -> RowWords:
        had = self._there.get(said.key)
        if had is None:
            return said
        if not self._habits.edits and _is_other(had, said):
            self._changed.setdefault(said.key, _Missed(had, self._there))
            return said
        return said._replace(words=tuple(new or old for old, new in zip(had.words, said.words, strict=True)), same=had.same)

    def _settle(self) -> None:
        if self._going is not None:
            self._lost.update(self._going.lost(self._habits, self._there, self._facts))
            self._going = None

    def against(self, other: _Fold) -> Loss:
        self._settle()
        now, facts = other._there, {**self._facts, **other._facts}
        going = [one for key, one in self._there.items() if key not in now]
        stayed = {key: one for key, one in self._there.items() if key in now}
        lost = {**self._lost, **_Going(going, stayed, self._came).lost(self._habits, now, facts)}
        changed = dict(self._changed)
        if not self._habits.edits:
            others = (one for key, one in stayed.items() if _is_other(one, now[key]) and key not in changed)
            changed.update((one.key, _Missed(one, stayed)) for one in others)
        blanked = [key for key, one in stayed.items() if _is_less(one, now[key]) and key not in changed]
        alike: dict[str, list[RowWords]] = {}
        for one in now.values():
            alike.setdefault(one.same, []).append(one)
        return Loss(
            tuple(sorted(key for key, one in lost.items() if not _is_back(one, now, alike))),
            tuple(sorted(blanked)),
            tuple(sorted(key for key, one in changed.items() if key in now and not _is_back(one, now, alike))),
            len(self._spoken),
        )


def _not_meant(
    habits: RowHabits, going: Sequence[RowWords], stayed: Mapping[str, RowWords], now: Mapping[str, RowWords], facts: Facts
) -> list[RowWords]:
    came: dict[str, list[RowWords]] = {}
    for key, one in now.items():
        if key not in stayed:
            came.setdefault(one.same, []).append(one)
    again: list[RowWords] = []
    left: list[RowWords] = []
    for one in going:
        same = came.get(one.same) or _hidden_by(one, came.values())
        if same:
            same.pop(0)
            again.append(one)
        elif any(one.words):
            left.append(one)
    gap = RowGap(going, stayed, again, [one for held in came.values() for one in held], now, facts)
    return [one for one in left if not habits.meant(one, gap)]


def _is_other(had: RowWords, said: RowWords) -> bool:
    """Whether words were replaced: not only extended, nor only masked when they were captured."""
    pairs = zip(had.words, said.words, strict=True)
    return any(old and new and _is_replaced(old, new) for old, new in pairs)


def _is_replaced(old: str, new: str) -> bool:
    return old not in new and not _alike(old, new)


def _is_less(had: RowWords, said: RowWords) -> bool:
    return any(old and not new for old, new in zip(had.words, said.words, strict=True))


def _is_back(missed: _Missed, now: Mapping[str, RowWords], alike: Mapping[str, Sequence[RowWords]]) -> bool:
    """Whether it is there after all: at its old place, or restored under another number. `alike`: present rows by `same`."""
    one, there = missed.said, now.get(missed.said.key)
    if there is not None and not _is_less(one, there) and not _is_other(one, there):
        return True
    came = (other for other in alike.get(one.same, ()) if other.key not in missed.beside and other.key != one.key)
    return any(other.at == one.at for other in came)


def _hidden_by(one: RowWords, came: Iterable[list[RowWords]]) -> list[RowWords] | None:
    """Rows with the words of this one, except for what was masked when it was captured."""
    if not any(is_masked(_bytes(words)) for words in one.words):
        return None
    return next((held for held in came if held and all(map(_alike, one.words, held[0].words))), None)


def _alike(one: str, other: str) -> bool:
    return one == other or matches_masked(_bytes(one), _bytes(other)) or matches_masked(_bytes(other), _bytes(one))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
