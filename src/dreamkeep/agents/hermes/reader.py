"""Hermes' `state.db`: rows of `sessions` and `messages`, by their ids. Checked against real data of schema version 22.

A compaction in place sets the old rows aside (`active=0, compacted=1`) and inserts what it keeps once more, under new ids, around
a summary. A split does the same into a new session, whose parent ended by "compression". A copy must count as the same
message, but only its content survives: messages since the program's start get new times, one microsecond apart, at the time of
the compaction. So the key is a hash of the content and the *first* time. The reader remembers content and time of the model's
context, to find a copy's original: in order, and each once, so that "continue" said twice stays two. Rows with a tool's id
need no memory.

    active=1                 live
    active=0, compacted=1    no longer in the context: no mark
    active=0, compacted=0    taken back by the user; newer versions also use it for what a compaction kept (and inserted again)
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.values import count, digest, from_json, items, parse_time, table, text

_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:", "[PRIOR CONTEXT")
_PACKED = ("\x00json:", "\x01json:")  # before content that is no plain text
_CARRIED_ON = ("compression", "turn_boundary_rollover", "turn_boundary_rollover_recovered")
_TASKS_KEPT = "[Your active task list was preserved across context compression]"

_MOST_MESSAGES = 256  # messages without an id in the model's context: about two a turn
_MOST_SESSIONS = 16
_UNIQUE = 12  # characters from which on a tool's id names one call and no other
_STAMPED_S = 0.02  # rows of one compaction are stamped within this time
_COPYING_S = 0.25  # rows that a branch copies follow each other within this time
_HELD_COLUMNS = ("id", "session_id", "role", "content", "timestamp", "active", "compacted", "observed", "display_kind")
_HELD_BACK = 1 << 20  # characters of a prompt that wait for the next row; longer ones are no message that a person typed twice


class _MessageRow(NamedTuple):
    """A row of `messages`, whatever columns there are."""

    id: int | None
    session: str
    role: str
    text: str
    hash: str
    at: float
    unique: bool
    live: bool
    compacted: bool
    raw: Mapping[str, Any]


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.data is None:
            return [f.OddRecord("row", "a row that is no object")]
        if record.name == "sessions":
            return list(self._session(record.data))
        if record.name == "messages":
            return list(self._message(_row(record.data)))
        return [f.UnknownRecord(f"row/{record.name}")]

    # -- sessions

    def _session(self, row: Mapping[str, Any]) -> Iterator[Fact]:
        state, sid = self.state, text(row.get("id"))
        if not state.get("root"):
            state["root"] = state["sid"] = sid
        if sid == state["root"]:
            yield from self._edge(row)
        cwd = text(row.get("cwd")) or text(row.get("workspace")) or text(row.get("worktree_path"))
        branch = text(row.get("git_branch")) or text(row.get("worktree_branch"))
        if cwd or branch or text(row.get("model")):
            yield f.SessionPlaced(cwd, branch, text(row.get("model")))
        if title := text(row.get("title")).strip():
            yield f.SessionTitled(title)
        reason = text(row.get("end_reason"))
        if reason.startswith("turn_boundary_rollover"):
            state["rolled"] = [*(entry for entry in state.get("rolled", []) if entry != sid), sid][-_MOST_SESSIONS:]
        ended = row.get("ended_at") is not None and reason not in _CARRIED_ON
        state["closed"] = [row.get("ended_at"), reason] if ended and isinstance(row.get("ended_at"), (int, float)) else None
        yield from self._close_session()

    def _edge(self, row: Mapping[str, Any]) -> Iterator[Fact]:
        config, at = table(from_json(row.get("model_config"))), parse_time(row.get("started_at"))
        parent = text(row.get("parent_session_id"))
        for marker, kind in (("_branched_from", "fork"), ("_delegate_from", "subagent")):
            if text(config.get(marker)):
                yield f.Edge(kind, text(config[marker]), f"model_config.{marker}", at)
                if kind == "fork":
                    self._copies_from(row)
                return
        noted = table(row.get(f.BESIDE)).get("parent_end_reason") == "branched"
        if parent and (noted or self.state.get("branch")):
            self.state["branch"] = True  # the parent may be resumed, and then has no end
            yield f.Edge("fork", parent, "parent_session_id, and that session ended as branched", at)
            self._copies_from(row)
        elif parent:
            kind = "subagent" if text(row.get("source")) in ("tool", "subagent") else "continuation"
            yield f.Edge(kind, parent, "parent_session_id", at)

    def _copies_from(self, row: Mapping[str, Any]) -> None:
        if isinstance(row.get("started_at"), (int, float)):
            self.state.setdefault("copying", row["started_at"])

    def _close_session(self) -> Iterator[Fact]:
        if closed := self.state.get("closed"):
            yield f.SessionClosed(parse_time(closed[0]), closed[1])

    # -- messages

    def _message(self, row: _MessageRow) -> Iterator[Fact]:
        state = self.state
        if row.id is not None and row.id <= state.get("max", -1):
            yield from self._read_changed_row(row)
            return
        held = state.pop("held", None)
        if held is not None:
            first = _row(held)
            if 0 <= row.at - first.at < _STAMPED_S or _is_summary(row):
                self._begin_batch(first.at)
                yield from self._copy(first)
            else:
                yield from self._new_message(first)
        state["max"] = row.id if row.id is not None else state.get("max", -1)
        if row.session != state.get("sid"):
            yield from self._split(row)
        if _is_summary(row) and not self._branch_copy(row):
            yield from self._summary(row)
        elif "batch" in state:
            yield from self._in_batch(row)
        elif self._find(row, state.get("gen", []), 0, exact=True) is not None:
            self._begin_batch(None)
            yield from self._copy(row)
        elif row.role == "user" and row.hash == state.get("first") and state.get("compacted"):
            yield from self._hold_or_copy(row)
        else:
            yield from self._new_message(row)

    def _hold_or_copy(self, row: _MessageRow) -> Iterator[Fact]:
        """The words with which the context began, once more. The first live row after compacted ones is a copy. Two compacted
        ones may be a prompt that was typed twice: the time of the next row shows which."""
        if row.live or len(row.text) > _HELD_BACK:
            self._begin_batch(row.at)
            yield from self._copy(row)
        else:
            self.state["held"] = {name: row.raw[name] for name in _HELD_COLUMNS if name in row.raw}

    def _new_message(self, row: _MessageRow) -> Iterator[Fact]:
        """A message that is no copy."""
        state = self.state
        key = self._remember(row, row.at)
        if state.get("pending") and (row.live or row.compacted):
            # More messages came after them, and were compacted: so it was the user who took these back.
            yield f.MessagesRewound(parse_time(row.at), state.pop("pending"))
        yield from self._make_messages(row, key, row.at, self._mark_of(row, key), fresh=True)

    def _read_changed_row(self, row: _MessageRow) -> Iterator[Fact]:
        """A row that was read before, with another flag."""
        state = self.state
        if row.hash == state.get("first") and row.compacted:
            state["compacted"] = True
        entry = self._find_read_row(row)
        first_at = entry[1] if entry else row.at
        key = _key(row, first_at)
        yield from self._make_messages(row, key, first_at, self._mark_of(row, key), fresh=False)
        if row.id == state.get("max"):
            yield from self._settle(row)

    def _mark_of(self, row: _MessageRow, key: str) -> str:
        if row.live or row.compacted:
            return ""
        if self.state.get("compacted"):
            self.state.setdefault("pending", key)  # taken back, or kept by a compaction: the next row shows which
            return ""
        return f.REWOUND

    # -- copies

    def _begin_batch(self, stamped: float | None) -> None:
        """From here on, rows may be copies of the context."""
        state = self.state
        state.pop("pending", None)
        state["batch"] = {"at": stamped, "rows": 0, "next": 0, "before": state.get("rows", 0), "id": ""}
        state["old"], state["gen"], state["rows"] = state.get("gen", []), [], 0
        state["was"], state["compacted"], state["first"] = bool(state.get("compacted")), False, ""

    def _in_batch(self, row: _MessageRow) -> Iterator[Fact]:
        batch, old = self.state["batch"], self.state.get("old", [])
        stamped = isinstance(batch["at"], (int, float)) and batch["at"] - _STAMPED_S <= row.at <= batch["at"] + _STAMPED_S
        loose = stamped or bool(batch.get("split"))
        if row.unique:
            # No memory is needed: a copy has an old time, or the compaction's, or follows another copy at once.
            copied = stamped or row.at <= max(self.state.get("latest", 0), batch.get("last", 0) + _COPYING_S)
        else:
            copied = self._find(row, old, batch["next"], exact=not loose) is not None
        if copied:
            yield from self._copy(row)
        elif stamped:
            yield from self._addition(row)
        else:
            yield from self._end_batch(row)
            yield from self._new_message(row)

    def _copy(self, row: _MessageRow) -> Iterator[Fact]:
        """The same message, in the same place. Only one that the user took back and a compaction kept may have another mark."""
        state = self.state
        batch, old = state["batch"], state.get("old", [])
        place = None if row.unique else self._find(row, old, batch["next"], exact=False)
        first_at = row.at
        if place is not None:
            first_at = old[place][1]
            batch["next"] = place + 1
        batch["rows"] += 1
        if batch.get("split"):
            batch["last"] = row.at
        key = self._remember(row, first_at)
        yield from self._make_messages(row, key, first_at, self._mark_of(row, key), fresh=False)

    def _addition(self, row: _MessageRow) -> Iterator[Fact]:
        """What a compaction adds: a list of tasks, a shortened output of a tool."""
        self.state["batch"]["rows"] += 1
        key = self._remember(row, row.at)
        mark = f.META if row.role == "user" else f.COMPACTED
        yield from self._make_messages(row, key, row.at, mark, fresh=False)

    def _summary(self, row: _MessageRow) -> Iterator[Fact]:
        state = self.state
        entry = self._find(row, state.get("old" if "batch" in state else "gen", []), 0, exact=True)
        if "batch" not in state:
            self._begin_batch(row.at)
        batch = state["batch"]
        batch["rows"] += 1
        if entry is None:
            batch["at"] = row.at
            if not batch["id"]:
                batch["id"] = f"{row.session}/{row.id}"
                yield f.Signal(
                    "transcript",
                    "completed",
                    parse_time(row.at),
                    batch["id"],
                    before=_messages(batch["before"]),
                    turn=self._turn(),
                )
        yield from self._make_messages(row, self._remember(row, row.at), row.at, "", fresh=True)

    def _end_batch(self, row: _MessageRow) -> Iterator[Fact]:
        """The first row that is no copy: now we know how much the compaction kept."""
        state = self.state
        batch, was = state.pop("batch"), state.pop("was", False)
        state.pop("old", None)
        if not batch["id"] and was:
            batch["id"] = f"{row.session}/{row.id}"  # there was no summary, but rows were compacted
        if batch["id"]:
            yield f.Signal("transcript", "completed", None, batch["id"], after=_messages(batch["rows"]), turn=self._turn())

    def _split(self, row: _MessageRow) -> Iterator[Fact]:
        state = self.state
        before, passed = text(state.get("sid")), state.get("passed", [])
        if row.session in passed:
            return  # a late row of an earlier session of the chain
        state["passed"] = [*passed, before][-_MOST_SESSIONS:]
        state["sid"] = row.session
        if not before:
            return
        if before in state.get("rolled", []):
            yield f.Boundary("rollover", parse_time(row.at), row.session)
            return
        if "batch" in state:
            yield from self._end_batch(row)
        self._begin_batch(None)
        state["batch"] |= {"split": True, "id": row.session}
        yield f.Signal(
            "transcript",
            "completed",
            parse_time(row.at),
            row.session,
            row.session,
            before,
            before=_messages(state["batch"]["before"]),
            turn=self._turn(),
        )

    # -- memory

    def _remember(self, row: _MessageRow, first_at: float) -> str:
        state = self.state
        if not state.get("rows"):
            state["first"], state["compacted"] = row.hash, row.compacted
        if row.live or row.compacted:
            state["rows"] = state.get("rows", 0) + 1
        state["latest"] = max(state.get("latest", row.at), row.at)
        if not row.unique:
            state["gen"] = [*state.get("gen", []), [row.hash, first_at, row.at]][-_MOST_MESSAGES:]
        return _key(row, first_at)

    def _find(self, row: _MessageRow, entries: list[Any], start: int, *, exact: bool) -> int | None:
        """The place of this row's original in the context: by content and time; without `exact`, by content alone."""
        if row.unique:
            return None
        same = [n for n, entry in enumerate(entries) if n >= start and entry[0] == row.hash]
        for n in same:
            if row.at in entries[n][1:]:
                return n
        return None if exact or not same else same[0]

    def _find_read_row(self, row: _MessageRow) -> list[Any] | None:
        for entries in (self.state.get("gen", []), self.state.get("old", [])):
            place = self._find(row, entries, 0, exact=True)
            if place is not None:
                found: list[Any] = entries[place]
                return found
        return None

    # -- what a row says

    def _turn(self) -> str:
        return text(self.state.get("turn"))

    def _make_messages(self, row: _MessageRow, key: str, at: float, mark: str, *, fresh: bool) -> Iterator[Fact]:
        moment = parse_time(at)
        if _is_summary(row):
            mark = f.COPIED if fresh and self._branch_copy(row) else mark
            yield f.MessageSaid(f.SUMMARY, row.text, key, moment, self._turn() if fresh else "", mark=mark)
            return
        if row.role == "user":
            yield from self._user(row, key, moment, mark, fresh=fresh)
            return
        mark = f.COPIED if fresh and self._branch_copy(row) else mark
        turn = self._turn() if fresh else ""
        if row.role == "assistant":
            yield from _assistant(row, key, moment, turn, mark)
            if fresh and mark != f.COPIED:
                yield from self._settle(row)
        elif row.role == "tool":
            yield f.MessageSaid(f.TOOL, row.text, key, moment, turn, _result(row), mark)
        elif row.role == "system":
            yield f.MessageSaid(f.SYSTEM, row.text, key, moment, turn, mark=mark)
        elif row.role != "session_meta":
            yield f.UnknownRecord(f"messages/{row.role}")

    def _user(self, row: _MessageRow, key: str, moment: str | None, mark: str, *, fresh: bool) -> Iterator[Fact]:
        if fresh and self._branch_copy(row):
            yield f.MessageSaid(f.USER, row.text, key, moment, mark=f.COPIED)
            return
        own = _own_words(row)
        if not own:
            mark = mark or f.META
        elif fresh and not row.raw.get("observed"):
            self.state["turn"] = key
            yield f.TurnBegan(key, row.text, moment, key)
        yield f.MessageSaid(f.USER, row.text, key, moment, self._turn() if fresh else "", mark=mark)

    def _settle(self, row: _MessageRow) -> Iterator[Fact]:
        reason, turn = text(row.raw.get("finish_reason")), self._turn()
        if row.role != "assistant" or not turn:
            return
        how = ""
        if reason in ("stop", "end_turn") and not _calls(row):
            how = "completed"
        elif reason.startswith("interrupt"):
            how = "interrupted"
        elif reason == "error":
            how = "failed"
        if how:
            yield f.TurnSettled(turn, how, parse_time(row.at), None if how == "completed" else reason)
            yield from self._close_session()

    def _branch_copy(self, row: _MessageRow) -> bool:
        """A branch begins with a copy of its parent's messages: older than the branch, or inserted right after each other."""
        until = self.state.get("copying")
        if not isinstance(until, (int, float)):
            return False
        if row.at <= until + _COPYING_S:
            self.state["copying"] = max(until, row.at)
            return True
        self.state["copying"] = None
        return False


def _assistant(row: _MessageRow, key: str, moment: str | None, turn: str, mark: str) -> Iterator[Fact]:
    thought = text(row.raw.get("reasoning")) or text(row.raw.get("reasoning_content"))
    if thought.strip():
        yield f.MessageSaid(f.REASONING, thought, f"{key}/reasoning", moment, turn, mark=mark)
    if row.text.strip():
        yield f.MessageSaid(f.ASSISTANT, row.text, key, moment, turn, mark=mark)
    for n, call in enumerate(_calls(row)):
        function = table(call.get("function"))
        given = function.get("arguments")
        parsed = from_json(given)
        tool = {
            "id": _call_id(call),
            "name": text(function.get("name")) or text(call.get("name")),
            "input": given if parsed is None else parsed,
        }
        yield f.MessageSaid(f.ASSISTANT, "", f"{key}/call/{n}", moment, turn, tool, mark)


def _result(row: _MessageRow) -> dict[str, Any]:
    tool: dict[str, Any] = {"id": text(row.raw.get("tool_call_id"))}
    if name := text(row.raw.get("tool_name")):
        tool["name"] = name
    told = table(from_json(row.text)) if row.text.startswith("{") else {}
    code = told.get("exit_code")
    if isinstance(code, int) and not isinstance(code, bool):
        tool["exit_code"] = code
    tool["error"] = bool(told.get("error")) or bool(tool.get("exit_code")) or told.get("success") is False
    return tool


def _own_words(row: _MessageRow) -> bool:
    """Whether a user's row has the user's words: Hermes also talks to the model in that role."""
    own = text(row.raw.get("display_kind")) in ("", "steer")
    note = row.text.startswith("[System:") and row.text.rstrip().endswith("]")
    return own and not note and not row.text.startswith(_TASKS_KEPT)


def _row(raw: Mapping[str, Any]) -> _MessageRow:
    content, at, key = raw.get("content"), raw.get("timestamp"), raw.get("id")
    active, compacted = raw.get("active", 1), raw.get("compacted")
    parts = [raw.get(name) for name in ("role", "content", "tool_call_id", "tool_calls", "tool_name")]
    called = text(raw.get("tool_call_id"))
    ids = [called] if called else [_call_id(call) for call in _calls_in(raw.get("tool_calls"))]
    return _MessageRow(
        count(key),
        text(raw.get("session_id")),
        text(raw.get("role")),
        _words(content),
        digest(*parts)[:16],
        float(at) if isinstance(at, (int, float)) and abs(at) < 1e12 else 0.0,
        bool(ids) and all(len(entry) >= _UNIQUE for entry in ids),
        active is None or bool(active),
        bool(compacted) and not (active is None or active),
        raw,
    )


def _key(row: _MessageRow, first_at: float) -> str:
    return digest(row.hash) if row.unique else digest(row.hash, repr(first_at))


def _calls(row: _MessageRow) -> list[Mapping[str, Any]]:
    return _calls_in(row.raw.get("tool_calls"))


def _calls_in(value: object) -> list[Mapping[str, Any]]:
    return [call for call in items(from_json(value)) if isinstance(call, Mapping)]


def _call_id(call: Mapping[str, Any]) -> str:
    return text(call.get("id")) or text(call.get("call_id"))


def _is_summary(row: _MessageRow) -> bool:
    return row.role in ("user", "assistant") and row.text.startswith(_SUMMARIES)


def _messages(number: object) -> dict[str, int] | None:
    return {"messages": number} if isinstance(number, int) and number else None


def _words(value: object) -> str:
    """A row's content as text: plain, packed as JSON, or bytes that are no UTF-8."""
    if isinstance(value, Mapping):
        try:
            return base64.b64decode(text(value.get("$text"))).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return ""
    plain = text(value)
    if not plain.startswith(_PACKED):
        return plain
    parts = from_json(plain[len(_PACKED[0]) :])
    return "\n".join(_part(part) for part in (parts if isinstance(parts, list) else [parts]))


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = text(table(part).get("type"))
    if "image" in kind:
        return "[image]"
    return text(table(part).get("text")) or (f"[{kind}]" if kind else "")
