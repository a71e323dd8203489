"""OpenCode's database: rows of `session`, `message`, `part`, with JSON in `data`. Checked against real data of 1.18.

A message's row comes before its parts, and either may come again in a newer version. A user's message is a prompt if one of
its parts is the user's own (not `synthetic`); its id is the turn's id. The answers name it as `parentID`; the last one has a
`finish` other than "tool-calls", or an `error`. A compaction is a user's message with a part "compaction", and an answer to
it with `summary: true`, done when that has a `finish`. `session.revert` names the message (or part) from which on the user took
things back. If it is empty again, that was undone; unless the rows are gone, as they are when a prompt followed. Newer versions
write `session_message` rows instead (from their source only; not seen in real data). `event` rows tell the same once more, change
by change: kept raw, not read.

A fork begins with copies of its parent's messages: new ids, their old times, which lie before the fork's own beginning. It does
not name its parent; capture finds that one by the same times (`fork_of` beside the session's row).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.values import from_json, items, parse_time, table, text

_MOST_MESSAGES = 32
_MOST_DELETED = 256
_LONGEST_ID = 200
_UNNAMED = re.compile(r"(New|Child) session - \d{4}-\d\d-\d\dT")
#: Parts that say nothing: bookkeeping of steps, snapshots and retries.
_SILENT = frozenset(("step-start", "step-finish", "snapshot", "patch", "agent", "retry"))
_SILENT_ROWS = frozenset(("event", "project"))
_UNFINISHED = frozenset(("", "tool-calls", "tool_calls", "unknown"))


class Reader:
    """`state["messages"]`: of the last few messages {id: [role, turn, whether it is a compaction's summary]}."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        row = record.data
        if row is None:
            return [f.OddRecord("row", "a row that is no object")]
        if record.name == "session":
            return list(self._session(row))
        if record.name in _SILENT_ROWS:
            return []
        if record.name not in ("message", "part", "session_message"):
            return [f.UnknownRecord(f"row/{record.name}")]
        data = from_json(row.get("data"))
        if not isinstance(data, Mapping):
            return [f.OddRecord("row", f"a row of {record.name} whose data is no object")]
        if record.name == "message":
            copied = self._is_copy(row)
            found = list(self._message(row, data))
        elif record.name == "part":
            copied = text(row.get("message_id")) in self.state.get("copies", ())
            found = list(self._part(row, data))
        else:
            return list(self._message_row(row, data))
        return _mark_copies(found) if copied else found

    def _is_copy(self, row: Mapping[str, Any]) -> bool:
        began, created = self.state.get("forked"), row.get("time_created")
        if not isinstance(began, int) or not isinstance(created, int) or created >= began:
            return False
        self.state["copies"] = [*self.state.get("copies", ()), text(row.get("id"))[:_LONGEST_ID]][-_MOST_MESSAGES:]
        return True

    # -- sessions

    def _session(self, row: Mapping[str, Any]) -> Iterator[Fact]:
        model = table(from_json(row.get("model")))
        yield f.SessionPlaced(text(row.get("directory")), "", text(model.get("id")), text(row.get("version")))
        title = text(row.get("title"))
        if title.strip() and not _UNNAMED.match(title):
            yield f.SessionTitled(title)
        if parent := text(row.get("parent_id")):
            yield f.Edge("subagent", parent, "session.parent_id", parse_time(row.get("time_created")))
        if (origin := text(table(row.get(f.BESIDE)).get("fork_of"))) and isinstance(row.get("time_created"), int):
            self.state["forked"] = row["time_created"]
            yield f.Edge(
                "fork", origin, "it begins with that session's messages, at the same times", parse_time(row.get("time_created"))
            )
        yield from self._delete_rows(row)
        yield from self._revert(row)

    def _delete_rows(self, row: Mapping[str, Any]) -> Iterator[Fact]:
        """Deleted rows: the user took back their messages, whether we saw that before or not."""
        keys = [text(key) for key in items(table(row.get(f.BESIDE)).get("gone")) if len(text(key)) <= _LONGEST_ID]
        for kind, _, key in (entry.partition("/") for entry in keys):
            if self._is_reverted("", key) if kind == "part" else self._is_reverted(key, ""):
                self.state["deleted"] = True
            names = [key, f"{key}/result"] if kind == "part" else [key]
            self.state["gone"] = [*self.state.get("gone", ()), *names][-_MOST_DELETED:]
            yield from (f.MessagesRewound(None, name, only=True) for name in names)

    def _revert(self, row: Mapping[str, Any]) -> Iterator[Fact]:
        at, told = parse_time(row.get("time_updated")), table(from_json(row.get("revert")))
        now = [text(told.get(name))[:_LONGEST_ID] for name in ("messageID", "partID")]
        before = self.state.get("reverted") or ["", ""]
        if now == before:
            return
        self.state["reverted"] = now
        if any(before) and not self.state.pop("deleted", False):
            yield f.MessagesRestored(at, before[1] or before[0])
            yield from (f.MessagesRewound(None, name, only=True) for name in self.state.get("gone", ()))
        if any(now):
            yield f.MessagesRewound(at, now[1] or now[0])

    def _is_reverted(self, message: str, part: str) -> bool:
        """Ids grow with time. `message` is "" if the part's message is unknown."""
        from_message, from_part = self.state.get("reverted") or ("", "")
        if message and message != from_message:
            return bool(from_message) and message > from_message
        return part >= from_part if from_part else bool(message)

    # -- messages

    def _message(self, row: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Fact]:
        key, role = text(row.get("id")), text(data.get("role"))
        if role not in ("user", "assistant"):
            yield f.UnknownRecord(f"message/{role}")
            return
        if role == "user":
            # Its parts show whether it is a prompt. Until then it belongs to the current turn.
            known = self._find_message(key)
            self._remember(key, role, known[1] if known else text(self.state.get("turn")), False)
            return
        turn = self._turn_of(text(data.get("parentID")))
        summary = data.get("summary") is True
        self._remember(key, role, turn, summary)
        if summary:
            yield from self._summary_message(data, turn)
        else:
            yield from _settle(data, turn)

    def _summary_message(self, data: Mapping[str, Any], turn: str) -> Iterator[Fact]:
        at, error = parse_time(table(data.get("time")).get("completed")), table(data.get("error"))
        compaction = text(data.get("parentID"))
        if error:
            phase = "cancelled" if text(error.get("name")) == "MessageAbortedError" else "failed"
            yield f.Signal("transcript", phase, at, compaction, turn=turn, error=_error_text(error))
        elif text(data.get("finish")):
            yield f.Signal("transcript", "completed", at, compaction, turn=turn)

    # -- parts

    def _part(self, row: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Fact]:
        message, kind = text(row.get("message_id")), text(data.get("type"))
        known = self._find_message(message)
        # Of an old message only a tool's part changes (its output is dropped from the context), so it is the assistant's.
        role, turn, summary = known or ("assistant", "", False)
        key, at = text(row.get("id")), parse_time(row.get("time_created"))
        mark = f.REWOUND if self._is_reverted(message, key) else ""
        if kind == "tool":
            yield from _tool(data, key, at, turn, mark)
        elif kind == "compaction":
            reason = "auto" if data.get("auto") is True else "manual"
            yield f.Signal("transcript", "started", at, message, reason=reason, turn=turn)
        elif kind in ("text", "file", "subtask") and role == "user":
            yield from self._user_part(message, key, at, data, mark)
        elif kind in ("text", "reasoning"):
            words = text(data.get("text"))
            said = f.SUMMARY if summary else f.REASONING if kind == "reasoning" else f.ASSISTANT
            if words.strip():
                yield f.MessageSaid(
                    said, words, key, at, turn, mark=mark or (f.SYNTHETIC if data.get("synthetic") is True else "")
                )
        elif kind == "file":
            yield f.MessageSaid(f.ASSISTANT, _file(data), key, at, turn, mark=mark)
        elif kind not in _SILENT:
            yield f.UnknownRecord(f"part/{kind}")

    def _user_part(self, message: str, key: str, at: str | None, data: Mapping[str, Any], mark: str) -> Iterator[Fact]:
        kind = text(data.get("type"))
        words = _file(data) if kind == "file" else text(data.get("text")) or text(data.get("prompt"))
        known = self._find_message(message) or ("user", "", False)
        if not words.strip() or data.get("ignored") is True:
            return
        if data.get("synthetic") is True:
            yield f.MessageSaid(f.USER, words, key, at, known[1], mark=mark or f.SYNTHETIC)
            return
        # The first part of the user's own has the message's id as its key: a revert names it so.
        first = self.state.get("firsts", {}).get(message) in (None, key)
        name = message if first else key
        if first:
            firsts = {**self.state.get("firsts", {}), message: key}
            self.state["firsts"] = dict(list(firsts.items())[-_MOST_MESSAGES:])
            self._remember(message, "user", message, False)
            if known[1] != message:
                self.state["turn"] = message
            yield f.TurnBegan(message, words, at, name)
        yield f.MessageSaid(f.USER, words, name, at, message, mark=mark)

    # -- newer versions: one row a message

    def _message_row(self, row: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Fact]:
        kind, key = text(row.get("type")) or text(data.get("type")), text(row.get("id"))
        time = table(data.get("time"))
        at, turn = parse_time(time.get("created")) or parse_time(row.get("time_created")), text(self.state.get("turn"))
        if kind == "user":
            self.state["turn"] = key
            yield f.TurnBegan(key, text(data.get("text")), at, key)
            yield f.MessageSaid(f.USER, text(data.get("text")), key, at, key)
        elif kind == "assistant":
            yield from _contents(data, key, at, turn)
            yield from _settle(data, turn)
        elif kind == "compaction":
            done = bool(text(data.get("summary")))
            reason = text(data.get("reason"))
            yield f.Signal("transcript", "completed" if done else "started", at, key, reason=reason, turn=turn)
            if done:
                yield f.MessageSaid(f.SUMMARY, text(data.get("summary")), key, at, turn)
        elif kind in ("synthetic", "system"):
            role = f.USER if kind == "synthetic" else f.SYSTEM
            if text(data.get("text")).strip():
                yield f.MessageSaid(
                    role, text(data.get("text")), key, at, turn, mark=f.SYNTHETIC if kind == "synthetic" else f.META
                )
        elif kind == "shell":
            tool = {"id": key, "name": "shell", "input": {"command": text(data.get("command"))}}
            yield f.MessageSaid(f.ASSISTANT, "", key, at, turn, tool)
            if text(data.get("output")):
                yield f.MessageSaid(f.TOOL, text(data.get("output")), f"{key}/result", at, turn, {"id": key, "name": "shell"})
        elif kind not in ("agent-switched", "model-switched"):
            yield f.UnknownRecord(f"session_message/{kind}")

    # -- memory

    def _find_message(self, message: str) -> tuple[str, str, bool] | None:
        found = self.state.get("messages", {}).get(message)
        return (text(found[0]), text(found[1]), bool(found[2])) if isinstance(found, list) and len(found) == 3 else None

    def _remember(self, message: str, role: str, turn: str, summary: bool) -> None:
        known = {key: value for key, value in self.state.get("messages", {}).items() if key != message}
        known[message] = [role, turn, summary]
        self.state["messages"] = dict(list(known.items())[-_MOST_MESSAGES:])

    def _turn_of(self, prompt: str) -> str:
        known = self._find_message(prompt)
        return known[1] if known else prompt or text(self.state.get("turn"))


def _mark_copies(found: Iterable[Fact]) -> list[Fact]:
    """Only the messages, marked: turns and compactions count in the original session."""
    said = (fact for fact in found if isinstance(fact, (f.MessageSaid, f.UnknownRecord, f.OddRecord)))
    return [fact._replace(mark=f.COPIED, turn="") if isinstance(fact, f.MessageSaid) else fact for fact in said]


def _settle(data: Mapping[str, Any], turn: str) -> Iterator[Fact]:
    """Whether this answer is the turn's last."""
    at, error = parse_time(table(data.get("time")).get("completed")), table(data.get("error"))
    if not turn:
        return
    if error:
        aborted = text(error.get("name")) == "MessageAbortedError"
        yield f.TurnSettled(turn, "cancelled" if aborted else "failed", at, _error_text(error))
    elif at and text(data.get("finish")) not in _UNFINISHED:
        yield f.TurnSettled(turn, "completed", at)


def _error_text(error: Mapping[str, Any]) -> str:
    told = text(table(error.get("data")).get("message")) or text(error.get("message"))
    return ": ".join(part for part in (text(error.get("name")), told) if part)


def _tool(data: Mapping[str, Any], key: str, at: str | None, turn: str, mark: str) -> Iterator[Fact]:
    state = table(data.get("state"))
    time, status = table(state.get("time")), text(state.get("status"))
    call, name = text(data.get("callID")) or text(data.get("id")) or key, text(data.get("tool")) or text(data.get("name"))
    tool = {"id": call, "name": name, "input": state.get("input")}
    yield f.MessageSaid(f.ASSISTANT, "", key, parse_time(time.get("start")) or at, turn, tool, mark)
    if status not in ("completed", "error"):
        return
    failed = status == "error"
    result: dict[str, Any] = {"id": call, "name": name, "error": failed}
    code = table(state.get("metadata")).get("exit")
    if isinstance(code, int) and not isinstance(code, bool):
        result |= {"exit_code": code, "error": failed or code != 0}
    words = text(state.get("output")) or _pieces(state.get("content"))
    if failed:
        words = text(state.get("error")) or text(table(state.get("error")).get("message")) or words
    yield f.MessageSaid(f.TOOL, words, f"{key}/result", parse_time(time.get("end")) or at, turn, result, mark)


def _contents(data: Mapping[str, Any], key: str, at: str | None, turn: str) -> Iterator[Fact]:
    for n, block in enumerate(table(entry) for entry in items(data.get("content"))):
        kind, name = text(block.get("type")), f"{key}/{text(block.get('id')) or n}"
        if kind == "tool":
            yield from _tool(block, name, parse_time(table(block.get("time")).get("created")) or at, turn, "")
        elif kind in ("text", "reasoning"):
            if text(block.get("text")).strip():
                yield f.MessageSaid(f.REASONING if kind == "reasoning" else f.ASSISTANT, text(block.get("text")), name, at, turn)
        else:
            yield f.UnknownRecord(f"content/{kind}")


def _pieces(value: object) -> str:
    return "\n".join(text(table(entry).get("text")) or "[file]" for entry in items(value))


def _file(data: Mapping[str, Any]) -> str:
    if text(data.get("mime")).startswith("image/"):
        return "[image]"
    name = text(data.get("filename"))
    return f"[file {name}]" if name else "[file]"
