"""Kimi Code's wire.jsonl → facts. Each line is `{type, time, …}`; one file for each agent of a session. And its state.json.

Observed: the place, and that there are turn.prompt, context.append_message, context.append_loop_event,
full_compaction.begin / .complete and context.apply_compaction{summary, compactedCount, …}.
From its published sources, not observed by us: all members, the loop's events (step.begin, content.part, tool.call, tool.result,
step.end), turn.ended, turn.cancel, turn.steer, context.undo, context.clear, and the kinds of `origin`.
* A prompt is written twice, in turn.prompt and in the append_message after it, and counts once (`is_new_text`).
* Records have no ids. Their keys are made of their content and time, so that a fork's copies have the same keys as the originals.
  Ids of tool calls may be used again; together with their step they are unique.
* apply_compaction may come before or after its `begin`. So records of different kinds, up to `complete`, are one compaction.
* A `forked` record does not say from where. In older files nothing says how a turn ended but the finish reason of its last step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.reader_state import is_new_text, note_prompt, remember, rewind_turns
from dreamkeep.agents.shared.values import arguments, count, digest, items, parse_time, table, text

#: Records that say nothing about the conversation.
_SILENT = re.compile(
    r"""metadata|forked|(permission|tools|plan_mode|plan|swarm_mode|tower_mode|goal|cron|task|token_counting|usage|mcp|interaction
        |file_history|staleGuard|interruptionReminder|runtime|plugin|prompt)\.\w+
    |context\.update_token_count|micro_compaction\.apply|llm\.tools_snapshot|turn\.step\.\w+""",
    re.VERBOSE,
).fullmatch
#: The members that we need, for a document that can't be parsed because it was cut.
_PLAIN = re.compile(r'"(title|isCustomTitle|titleKind|cwd|workDir|forkedFrom)"\s*:\s*("(?:[^"\\]|\\.)*"|true|false)')
_FINISHED = ("end_turn", "completed", "stop")


class KimiLine(NamedTuple):
    data: Mapping[str, Any]
    at: str | None
    time: object
    subagent: bool


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.channel == "piece":
            return _read_state(record.text)
        if record.data is None:
            return []  # a broken line, which was reported where the file was split into lines
        data = record.data
        time = data.get("time", data.get("created_at"))
        kind = text(data.get("type"))
        handle = self._KINDS.get(kind)
        if handle:
            return handle(self, KimiLine(data, parse_time(time), time, record.source == "subagent"))
        return [] if _SILENT(kind) else [f.UnknownRecord(kind or "?")]

    # -- turns

    def _prompt(self, line: KimiLine) -> Iterable[Fact]:
        return self._user_message(line, "turn", line.data.get("input"), table(line.data.get("origin")), begins=True)

    def _steer(self, line: KimiLine) -> Iterable[Fact]:
        return self._user_message(line, "turn", line.data.get("input"), table(line.data.get("origin")), begins=False)

    def _user_message(
        self, line: KimiLine, source: str, content: object, origin: Mapping[str, Any], *, begins: bool
    ) -> Iterable[Fact]:
        words = _words(content)
        if source != "message":
            self.state["prompted"] = 1
        mark = _mark(origin, words)
        role = f.SUMMARY if mark == f.COMPACTED else f.USER
        if not words.strip() or not is_new_text(self.state, source, role, words):
            return []
        key = text(line.data.get("id")) or digest(role, words, line.time)
        said = f.MessageSaid(role, words, key, line.at, mark=mark)
        typed = _typed_words(origin, words)
        if line.subagent and not typed and origin.get("kind") == "system_trigger":
            typed, said = words, said._replace(mark="")  # for a subagent, the words of its parent are the prompt
        if not typed or not begins:
            return [said]
        self.state["turn"] = {"id": key}
        note_prompt(self.state, key)
        return [f.TurnBegan(key, typed, line.at, key), said._replace(turn=key)]

    def _settle(self, line: KimiLine, state: str, reason: str | None = None) -> Iterable[Fact]:
        turn = self.state.pop("turn", None)
        return [f.TurnSettled(turn["id"], state, line.at, reason)] if turn else []

    def _turn_end(self, line: KimiLine) -> Iterable[Fact]:
        reason, problem = text(line.data.get("reason")), line.data.get("error")
        states = {"completed": "completed", "cancelled": "cancelled", "failed": "failed", "blocked": "failed"}
        why = text(table(problem).get("message")) or text(problem) or ("" if reason == "completed" else reason)
        return self._settle(line, states.get(reason, "interrupted"), why or None)

    def _turn_cancel(self, line: KimiLine) -> Iterable[Fact]:
        if line.data.get("target") == "queued":
            return []
        return self._settle(line, "cancelled", text(line.data.get("reason")) or None)

    def _undo(self, line: KimiLine) -> Iterable[Fact]:
        return rewind_turns(self.state, count(line.data.get("count")) or 0, line.at)

    def _clear(self, line: KimiLine) -> Iterable[Fact]:
        return [f.Boundary("clear", line.at, digest("clear", line.time))]

    def _place(self, line: KimiLine) -> Iterable[Fact]:
        model = text(line.data.get("modelAlias")) or text(line.data.get("model"))
        cwd = text(line.data.get("cwd")) or text(line.data.get("workDir"))
        return [f.SessionPlaced(cwd, "", model)] if cwd or model else []

    # -- messages

    def _message(self, line: KimiLine) -> Iterable[Fact]:
        message = table(line.data.get("message"))
        message = table(message.get("message")) or message
        role, content = text(message.get("role")), message.get("content")
        key = text(message.get("id")) or digest(role, _words(content), line.time)
        if role == "user":
            # If prompts have records of their own, another message steers the turn; otherwise it begins one.
            begins = "turn" not in self.state or not self.state.get("prompted")
            return self._user_message(line, "message", content, table(message.get("origin")), begins=begins)
        if role == "assistant":
            return self._answer(line, message, key)
        if role == "tool":
            call = text(message.get("toolCallId")) or text(message.get("tool_call_id"))
            return [self._result(line, call, _words(content), message.get("isError"))]
        words = _words(content)
        return [f.MessageSaid(f.SYSTEM, words, key, line.at, mark=_mark({"kind": "injection"}, words))] if words.strip() else []

    def _answer(self, line: KimiLine, message: Mapping[str, Any], key: str) -> Iterable[Fact]:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else items(content)
        found: list[Fact] = []
        for n, part in enumerate(blocks):
            found += self._part(line, table(part), f"{key}#{n}" if n else key)
        for call in map(table, items(message.get("toolCalls")) or items(message.get("tool_calls"))):
            function = table(call.get("function")) or call
            found.append(self._call(line, key, text(call.get("id")), text(function.get("name")), function.get("arguments")))
        return found

    def _part(self, line: KimiLine, part: Mapping[str, Any], key: str) -> Iterable[Fact]:
        if part.get("type") in ("think", "thinking", "reasoning"):
            thought = text(part.get("think")) or text(part.get("thinking")) or text(part.get("text"))
            return [f.MessageSaid(f.REASONING, thought, key, line.at)] if thought.strip() else []
        words = _words([part])
        return [f.MessageSaid(f.ASSISTANT, words, key, line.at)] if words.strip() else []

    # -- the loop

    def _loop_event(self, line: KimiLine) -> Iterable[Fact]:
        event = table(line.data.get("event"))
        kind, step = text(event.get("type")), text(event.get("stepUuid")) or text(event.get("uuid"))
        if kind in ("content.part", "tool.call") and not text(event.get("stepUuid")):
            step = table(self.state.get("step")).get("id") or step
        if kind == "step.begin":
            self.state["step"] = {"id": step, "parts": 0}
            return []
        if kind == "step.end":
            return self._settle(line, "completed") if text(event.get("finishReason")) in _FINISHED else []
        if kind == "content.part":
            return self._part(line, table(event.get("part")), text(event.get("uuid")) or self._part_key(step))
        if kind == "tool.call":
            return [self._call(line, step, text(event.get("toolCallId")), text(event.get("name")), event.get("args"))]
        if kind == "tool.result":
            result = table(event.get("result")) or {"output": event.get("result")}
            failed = result.get("isError", result.get("is_error", event.get("is_error")))
            return [self._result(line, text(event.get("toolCallId")), _words(result.get("output")), failed)]
        return [f.UnknownRecord(f"context.append_loop_event/{kind}")]

    def _part_key(self, step: str) -> str:
        now = self.state.get("step") or {"id": "", "parts": 0}
        n = now["parts"] if now["id"] == step else 0
        self.state["step"] = {"id": step, "parts": n + 1}
        return digest("part", step, n)

    def _call(self, line: KimiLine, step: str, call: str, name: str, input: object) -> Fact:
        own = digest(step, call) if call else digest(step, name, line.time)
        remember(self.state, "calls", call, [own, name])
        tool = {"id": call, "name": name, "input": arguments(input)}
        return f.MessageSaid(f.ASSISTANT, "", f"call:{own}", line.at, tool=tool)

    def _result(self, line: KimiLine, call: str, words: str, failed: object) -> Fact:
        own, name = self.state.get("calls", {}).get(call) or [digest(call, line.time), ""]
        tool: dict[str, Any] = {"id": call, "name": name, "error": failed is True}
        return f.MessageSaid(f.TOOL, words, f"result:{own}", line.at, tool=tool)

    # -- compactions

    def _compaction_begin(self, line: KimiLine) -> Iterable[Fact]:
        own, first = self._compaction(line, "begin")
        reason = text(line.data.get("source")) or text(line.data.get("trigger"))
        phase = "started" if first else "completed"  # if it is not the first record, the compaction was applied before
        return [f.Signal("transcript", phase, line.at, own, reason=reason, turn=self._turn_id())]

    def _compaction_apply(self, line: KimiLine) -> Iterable[Fact]:
        own, _ = self._compaction(line, "apply")
        before, after = count(line.data.get("tokensBefore")), count(line.data.get("tokensAfter"))
        signal = f.Signal(
            "transcript",
            "completed",
            line.at,
            own,
            before=None if before is None else {"tokens": before},
            after=None if after is None else {"tokens": after},
            turn=self._turn_id(),
        )
        summary = line.data.get("summary")
        message = table(table(summary).get("message")) or table(summary)
        words = text(line.data.get("contextSummary")) or text(summary) or _words(message.get("content"))
        if not words.strip() or not is_new_text(self.state, "apply", f.SUMMARY, words):
            return [signal]
        return [signal, f.MessageSaid(f.SUMMARY, words, digest(f.SUMMARY, words, line.time), line.at)]

    def _compaction_complete(self, line: KimiLine) -> Iterable[Fact]:
        own, alone = self._compaction(line, "complete")
        self.state.pop("compaction", None)
        # Alone, this record may end a compaction whose beginning was lost, or none at all.
        return [] if alone else [f.Signal("transcript", "completed", line.at, own, turn=self._turn_id())]

    def _compaction_cancel(self, line: KimiLine) -> Iterable[Fact]:
        own, alone = self._compaction(line, "cancel")
        self.state.pop("compaction", None)
        return [] if alone else [f.Signal("transcript", "cancelled", line.at, own, turn=self._turn_id())]

    def _compaction(self, line: KimiLine, by: str) -> tuple[str, bool]:
        """The id of the compaction that a record belongs to, and whether the record is its first."""
        now = self.state.get("compaction")
        first = now is None or by in now["by"]
        own = digest("compaction", by, line.time) if now is None or first else str(now["id"])
        self.state["compaction"] = {"id": own, "by": [by] if now is None or first else [*now["by"], by]}
        return own, first

    def _turn_id(self) -> str:
        return str(self.state.get("turn", {}).get("id", ""))

    _KINDS: ClassVar[Mapping[str, Callable[[Reader, KimiLine], Iterable[Fact]]]] = {
        "turn.prompt": _prompt,
        "turn.steer": _steer,
        "turn.ended": _turn_end,
        "turn.cancel": _turn_cancel,
        "context.append_message": _message,
        "context.append_loop_event": _loop_event,
        "context.apply_compaction": _compaction_apply,
        "context.undo": _undo,
        "context.clear": _clear,
        "full_compaction.begin": _compaction_begin,
        "full_compaction.complete": _compaction_complete,
        "full_compaction.cancel": _compaction_cancel,
        "config.update": _place,
        "profile.bind": _place,
        "llm.request": _place,
    }


def _words(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(words for words in map(_block, map(table, items(content))) if words)


def _block(block: Mapping[str, Any]) -> str:
    kind = text(block.get("type"))
    for what in ("image", "audio", "video"):
        if kind.startswith(what):
            return f"[{what}]"
    return text(block.get("text")) or text(block.get("content"))


def _mark(origin: Mapping[str, Any], words: str) -> str:
    kind = text(origin.get("kind"))
    if kind == "compaction_summary":
        return f.COMPACTED
    if kind in ("", "user"):
        return ""
    if f.PACK in words:
        return f.INJECTED
    return f.HOOK if kind == "hook_result" else f.META


def _typed_words(origin: Mapping[str, Any], words: str) -> str:
    """The user's own words; "" if somebody else wrote them."""
    if text(origin.get("kind")) in ("", "user"):
        return words
    if origin.get("trigger") != "user-slash":
        return ""
    name = text(origin.get("skillName")) or text(origin.get("commandName"))
    return f"/{name} {text(origin.get('skillArgs')) or text(origin.get('commandArgs'))}".strip()


def _read_state(piece: str) -> Iterable[Fact]:
    """Title, folder and parent from state.json, or from its beginning if it was cut."""
    state = _parse_state(piece)
    title = text(state.get("title"))
    is_chosen = state.get("isCustomTitle") is True or state.get("titleKind") == "custom"
    cwd = text(state.get("cwd")) or text(state.get("workDir"))
    parent = text(table(state.get("custom")).get("parent_session_id"))
    forked = text(state.get("forkedFrom")) or text(state.get("forked_from"))
    found: list[Fact] = [f.SessionTitled(title, 2 if is_chosen else 1)] if title else []
    found += [f.SessionPlaced(cwd)] if cwd else []
    found += [f.Edge("subagent", parent, "state.json")] if parent else []
    found += [f.Edge("fork", forked, "state.json")] if forked else []
    return found


def _parse_state(piece: str) -> Mapping[str, Any]:
    try:
        return table(json.loads(piece))
    except (ValueError, RecursionError):
        pass
    if not piece.lstrip().startswith("{"):
        return {}
    try:
        return {name: json.loads(value) for name, value in _PLAIN.findall(piece)}
    except ValueError:
        return {}
