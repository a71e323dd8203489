"""Rows of a session that were captured and that its database has no more, or blanked, or with other words. Pure.

Agents take rows away themselves, and that is no loss:

    Hermes     writes a session anew (/retry, /undo, /compress in a chat, an ACP client): all rows, or all active ones, go, and
               what is kept is inserted again; `message_count` says how many. It never takes away some of the active rows. Rows
               that are rewound or compacted stay, marked; a flag that changes loses no word.
    Goose      a compaction deletes all rows and inserts them again (the same `message_id`). When a prompt is edited, everything
               from it on goes, and the new prompt follows. /clear takes away all, and says 0 tokens.
    OpenCode   what is removed is also an event that says so. Versions without events: what was reverted goes, from there on to
               the end, when the next prompt comes. Parts are written again as they grow, so only a blanked one is a loss.

A row that is gone is not lost if its message stands in a row that came since, each for one. The order in which rows came and
went is that of the journal: a row that is gone is noted there with the next that is new (`beside.gone`, rows.py), so what was
there before the note was there together with it. (Of Goose that was not always noted: what came in a later capture without a
note may have come when others were gone.) What a row said counts, though it was captured again since, blanked.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from dreamkeep.memory.masking import hides, is_masked

_BLANK = " \t\r\n\0"
_EVENTS = "events"
_CLEARED = "cleared"

Row = Mapping[str, Any]
Facts = dict[str, Any]


class Said(NamedTuple):
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


class Loss(NamedTuple):
    """Keys of rows. `spoken`: how many that say something were captured."""

    gone: tuple[str, ...]
    blanked: tuple[str, ...]
    changed: tuple[str, ...]
    spoken: int

    def __bool__(self) -> bool:
        return bool(self.gone or self.blanked or self.changed)


class _Missed(NamedTuple):
    """`beside`: rows that were there with it, and are no copies that were made of it since."""

    said: Said
    beside: Mapping[str, Said]


@dataclass(frozen=True)
class _Gap:
    """Rows that were `going` at one time. Others `stayed`; some that went are there `again`, in new rows; others `came` since.
    What is asked for each row that went is found once: a session may have lost very many."""

    going: Sequence[Said]
    stayed: Mapping[str, Said]
    again: Sequence[Said]
    came: Sequence[Said]
    now: Mapping[str, Said]
    facts: Facts

    def ends_with(self, gone: Said) -> bool:
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
    def known(self) -> frozenset[str]:
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


class _Habits(Protocol):
    #: Whether what a row says is written again as a habit.
    edits: bool
    #: The table whose row begins a capture with what is gone by then, be it nothing; "" where that is always noted elsewhere.
    begins: str

    def said(self, table: str, row: Row) -> Said | None:
        """None: a row in which nobody speaks."""

    def facts(self, table: str, row: Row) -> Facts:
        """What tells that something was taken away by intent."""

    def meant(self, gone: Said, gap: _Gap) -> bool: ...


def lost(agent: str, captured: Iterable[bytes], now: Iterable[bytes]) -> Loss:
    """`captured`: every row's line in the order of the journal; `now`: of each row that is there."""
    habits = _HABITS[agent]
    before, there = _Fold(habits), _Fold(habits)
    for line in captured:
        before.take(line)
    for line in now:
        there.take(line)
    return before.against(there)


def may_be_less(agent: str, line: bytes) -> bool:
    """Whether a row that was captured before, in another version, may have lost what it said."""
    held, habits = json.loads(line), _HABITS[agent]
    said = habits.said(str(held["table"]), held["row"])
    return said is not None and (not habits.edits or not all(said.words[:2]))


def says_no_less(agent: str, table: str, before: Row, row: Row) -> bool:
    """Whether a row that was captured again says all that it said before."""
    habits = _HABITS[agent]
    had, said = habits.said(table, before), habits.said(table, row)
    if had is None or said is None:
        return had is said
    return not _is_less(had, said) and (habits.edits or not _is_other(had, said))


def with_its_words(before: Row, row: Row) -> Row:
    """A message of Hermes, captured again since: with what it said, where that was blanked or is something else now. Hermes edits
    no row; but in an older copy of its database that went on, another message can have the number."""
    if any(before.get(name) != row.get(name) for name in ("role", "timestamp")):
        return row
    kept = (name for name in _Hermes.COLUMNS if _no_more_says(_text(before.get(name)), _text(row.get(name))))
    return {**row, **{name: before[name] for name in kept}}


def _no_more_says(old: str, new: str) -> bool:
    return bool(old) and (not new or _says_other(old, new))


class _Going(NamedTuple):
    """Rows that went, and others that `stayed`; `came`: in which capture each came, of those that noted nothing."""

    rows: Sequence[Said]
    stayed: Mapping[str, Said]
    came: Mapping[str, int]

    def lost(self, habits: _Habits, now: Mapping[str, Said], facts: Facts) -> dict[str, _Missed]:
        """Only what had come by then is known to have been there with a row."""
        found: dict[str, _Missed] = {}
        for number in sorted({self._number(one.key) for one in self.rows}):
            going = [one for one in self.rows if self._number(one.key) == number]
            beside = {key: one for key, one in self.stayed.items() if self._number(key) <= number}
            found.update((one.key, _Missed(one, beside)) for one in _not_meant(habits, going, beside, now, facts))
        return found

    def _number(self, key: str) -> int:
        return self.came.get(key, 0)


class _Fold:
    def __init__(self, habits: _Habits) -> None:
        self._habits = habits
        self._there: dict[str, Said] = {}
        self._facts: Facts = {}
        self._lost: dict[str, _Missed] = {}
        self._changed: dict[str, _Missed] = {}
        self._spoken: set[str] = set()
        self._going: _Going | None = None
        #: In which capture since the last note a row came: those that noted nothing are counted.
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
            self._came, self._unnoted = {}, 0  # what is left was there together
        elif table == self._habits.begins:
            self._unnoted += 1
        self._facts.update(self._habits.facts(table, row))
        said = self._habits.said(table, row)
        if said is not None:
            self._there[said.key] = self._with_what_it_said(said)
            self._came[said.key] = self._unnoted
            self._spoken.update([said.key] if any(said.words) else [])

    def _with_what_it_said(self, said: Said) -> Said:
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
        alike: dict[str, list[Said]] = {}
        for one in now.values():
            alike.setdefault(one.same, []).append(one)
        return Loss(
            tuple(sorted(key for key, one in lost.items() if not _is_back(one, now, alike))),
            tuple(sorted(blanked)),
            tuple(sorted(key for key, one in changed.items() if key in now and not _is_back(one, now, alike))),
            len(self._spoken),
        )


def _not_meant(
    habits: _Habits, going: Sequence[Said], stayed: Mapping[str, Said], now: Mapping[str, Said], facts: Facts
) -> list[Said]:
    came: dict[str, list[Said]] = {}
    for key, one in now.items():
        if key not in stayed:
            came.setdefault(one.same, []).append(one)
    again: list[Said] = []
    left: list[Said] = []
    for one in going:
        same = came.get(one.same) or _hidden_by(one, came.values())
        if same:
            same.pop(0)
            again.append(one)
        elif any(one.words):
            left.append(one)
    gap = _Gap(going, stayed, again, [one for held in came.values() for one in held], now, facts)
    return [one for one in left if not habits.meant(one, gap)]


def _is_other(had: Said, said: Said) -> bool:
    """Nothing is blanked, and something says something else: not only more, nor only what was masked when it was captured."""
    pairs = zip(had.words, said.words, strict=True)
    return any(old and new and _says_other(old, new) for old, new in pairs)


def _says_other(old: str, new: str) -> bool:
    return old not in new and not _alike(old, new)


def _is_less(had: Said, said: Said) -> bool:
    return any(old and not new for old, new in zip(had.words, said.words, strict=True))


def _is_back(missed: _Missed, now: Mapping[str, Said], alike: Mapping[str, Sequence[Said]]) -> bool:
    """Whether it is there after all: at its old place, or given back under another number. `alike`: who is there, by `same`."""
    one, there = missed.said, now.get(missed.said.key)
    if there is not None and not _is_less(one, there) and not _is_other(one, there):
        return True
    came = (other for other in alike.get(one.same, ()) if other.key not in missed.beside and other.key != one.key)
    return any(other.at == one.at for other in came)


def _hidden_by(one: Said, came: Iterable[list[Said]]) -> list[Said] | None:
    """Rows that say what this one says, but for what was masked when it was captured."""
    if not any(is_masked(_bytes(words)) for words in one.words):
        return None
    return next((held for held in came if held and all(map(_alike, one.words, held[0].words))), None)


def _alike(one: str, other: str) -> bool:
    return one == other or hides(_bytes(one), _bytes(other)) or hides(_bytes(other), _bytes(one))


# -- what each agent does


class _Hermes:
    edits = False
    begins = ""
    COLUMNS = ("content", "tool_calls", "reasoning", "reasoning_content")

    def said(self, table: str, row: Row) -> Said | None:
        if table != "messages":
            return None
        words = tuple(_text(row.get(name)) for name in self.COLUMNS)
        active = row.get("active", 1)
        live = active is None or bool(active)
        same = _digest(row.get("role"), words[0], row.get("tool_call_id"), words[1])
        part, squeezed = str(row.get("session_id")), bool(row.get("compacted"))
        return Said(f"messages/{row.get('id')}", same, words, (row.get("id"),), row.get("timestamp"), part, live, squeezed)

    def facts(self, table: str, row: Row) -> Facts:
        return {str(row.get("id")): row.get("message_count")} if table == "sessions" else {}

    def meant(self, gone: Said, gap: _Gap) -> bool:
        """Written anew: nothing live stayed, and there are as many as Hermes counted when it did that (and has added since)."""
        if gone.part in gap.live:
            return False
        there, counted = gap.many.get(gone.part, 0), gap.facts.get(gone.part)
        return there >= counted if isinstance(counted, int) else bool(there)


class _Goose:
    edits = False
    begins = "sessions"

    def said(self, table: str, row: Row) -> Said | None:
        if table != "messages":
            return None
        blocks = _json(row.get("content_json"))
        words = "\n".join(filter(None, map(_block, blocks))) if isinstance(blocks, list) else ""
        at = row.get("created_timestamp")
        same = str(row.get("message_id") or _digest(row.get("role"), words, at))
        return Said(f"messages/{row.get('id')}", same, (words,), (row.get("id"),), at)

    def facts(self, table: str, row: Row) -> Facts:
        return {_CLEARED: row.get("total_tokens") == 0} if table == "sessions" else {}

    def meant(self, gone: Said, gap: _Gap) -> bool:
        # It gives no two messages one id: whenever that row came, it is this message.
        return gone.same in gap.known or gap.ends_with(gone) or (not gap.now and bool(gap.facts.get(_CLEARED)))


def _block(block: object) -> str:
    """Without what a client may add to it later."""
    if not isinstance(block, Mapping):
        return ""
    call, result = block.get("toolCall"), block.get("toolResult")
    call = call.get("value", call) if isinstance(call, Mapping) else None
    result = result.get("value", result) if isinstance(result, Mapping) else None
    told = [_text(block.get(name)) for name in ("text", "thinking", "reasoning", "msg", "data")]
    if isinstance(call, Mapping):
        told += [_text(block.get("id")), _text(call.get("name")), _dumped(call.get("arguments"))]
    if result is not None:
        content = result.get("content", result) if isinstance(result, Mapping) else result
        told += [_text(block.get("id")), _dumped(content)]
    return "\n".join(filter(None, told))


class _OpenCode:
    edits = True
    begins = ""

    def said(self, table: str, row: Row) -> Said | None:
        if table not in ("message", "part"):
            return None
        key, data = str(row.get("id")), _json(row.get("data"))
        data = data if isinstance(data, Mapping) else {}
        message = key if table == "message" else str(row.get("message_id"))
        words = (_text(data.get("role")), "", "") if table == "message" else _part(data)
        place = (message,) if table == "message" else (message, key)
        return Said(f"{table}/{key}", f"{table}/{key}", words, place, row.get("time_created"), f"message/{message}")

    def facts(self, table: str, row: Row) -> Facts:
        if table != "event":
            return {}
        kind, data = str(row.get("type")), _json(row.get("data"))
        if not isinstance(data, Mapping) or ".removed" not in kind:
            return {_EVENTS: True}
        gone = f"part/{data.get('partID')}" if kind.startswith("message.part.") else f"message/{data.get('messageID')}"
        return {_EVENTS: True, gone: True}

    def meant(self, gone: Said, gap: _Gap) -> bool:
        if gap.facts.get(_EVENTS):
            return bool(gap.facts.get(gone.key) or gap.facts.get(gone.part))
        return gap.ends_with(gone)


def _part(data: Row) -> tuple[str, str, str]:
    kind = _text(data.get("type"))
    if kind != "tool":
        return kind, _text(data.get("text")), ""
    state = data.get("state")
    state = state if isinstance(state, Mapping) else {}
    time = state.get("time")
    if isinstance(time, Mapping) and time.get("compacted"):
        return kind, _dumped(state.get("input")), "compacted"
    return kind, _dumped(state.get("input")), _dumped(state.get("output") or state.get("error") or state.get("content"))


_HABITS: Mapping[str, _Habits] = {"hermes": _Hermes(), "goose": _Goose(), "opencode": _OpenCode()}


# -- values


def _text(value: object) -> str:
    """A column's text, "" if there is nothing but blanks in it. Bytes that were no UTF-8 stand there as base64 (rows.py)."""
    if isinstance(value, Mapping) and value.keys() & {"$text", "$blob"}:
        value = b64decode(str(next(iter(value.values())))).decode("utf-8", "replace")
    found = value if isinstance(value, str) else "" if value is None else str(value)
    return found if found.strip(_BLANK) else ""


def _json(value: object) -> object:
    try:
        return json.loads(_text(value), strict=False)
    except (ValueError, RecursionError):
        return None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _dumped(value: object) -> str:
    return "" if value in (None, "", {}, []) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _digest(*values: object) -> str:
    return blake2b(json.dumps(values).encode(), digest_size=12).hexdigest()
