"""Copilot CLI's events.jsonl → facts. Each line is `{type, data, id, timestamp, parentId, agentId?}`.

Observed: the envelope and the types session.start, user.message, assistant.message, tool.execution_start/complete,
hook.start/end, session.compaction_start/complete (with `success:false, outcome:"cancelled"` when the process ended meanwhile),
session.shutdown.
From the published event schema of its SDK, not observed by us: the members of `data`, and all other types.
Assumed:
* The agent calls the model in a loop, each call between assistant.turn_start and turn_end; `turnId` starts again for every
  prompt. So a turn of the user is named by its prompt's event id, and is complete at the turn_end after an answer without
  tool calls.
* A user.message that the client made itself has a `source`. One that came during a turn has `delivery: "steering"`.
* Records with an `agentId` (or `parentToolCallId`) belong to a subagent: they are messages, but begin no turn.
* `workspace.yaml` beside the file is flat. We read `name` (older: `summary`), `user_named`, `cwd` and `branch`.
* At a cold session.resume, no process works on the session: a turn that had not ended was interrupted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.reader_state import is_new_text, remember
from dreamkeep.agents.shared.values import count, digest, items, parse_time, table, text

#: How a shell's output ends.
_EXIT = re.compile(r"<(?:exited|shellId: \S+ completed) with exit code (\d{1,9})>\s*$")

#: Records that say nothing about the conversation.
_SILENT = re.compile(
    r"""session\.(info|warning|mode_\w+|plan_changed|todos_changed|workspace_file_changed|truncation|usage_\w+|task_complete
        |schedule_\w+|autopilot_\w+|permissions_changed|session_limits_\w+|remote_steerable_changed|tools_updated|binary_asset
        |background_tasks_changed|skills_loaded|custom_agents_updated|mcp_\w+|extensions\w*|canvas\w*|import_legacy|managed_\w+
        |auto_mode_\w+|custom_notification|fusion_\w+|factory_\w+)
    |assistant\.(turn_start|intent|usage|idle|message_start|\w+_delta|streaming_delta|server_tool_progress|fusion_\w+)
    |tool\.execution_(partial_result|progress)|tool_search\.\w+|hook\.(start|progress)|pending_messages\.modified
    |subagent\.(started|configured|completed|failed|selected|deselected)|model\.\w+
    |(permission|user_input|elicitation|sampling|mcp|mcp_app|mcp_oauth|external_tool|command|commands|capabilities|exit_plan_mode
        |auto_mode_switch|session_limits_exhausted|extensions|canvas|ui|factory)\.\w+""",
    re.VERBOSE,
).fullmatch
_HUMAN = ("", "user", "human")


class CopilotLine(NamedTuple):
    kind: str
    data: Mapping[str, Any]
    id: str
    at: str | None
    agent: str


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.source == "workspace":
            return _workspace(record.text)
        if record.data is None:
            return []  # a broken line, which was reported where the file was split into lines
        kind, data = text(record.data.get("type")), table(record.data.get("data"))
        at = parse_time(record.data.get("timestamp"))
        agent = text(record.data.get("agentId")) or text(data.get("parentToolCallId"))
        line = CopilotLine(kind, data, text(record.data.get("id")) or digest(kind, sorted(map(str, data.items())), at), at, agent)
        handle = self._KINDS.get(kind)
        if handle:
            return handle(self, line)
        return [] if _SILENT(kind) else [f.UnknownRecord(kind or "?")]

    # -- session

    def _session_start(self, line: CopilotLine) -> Iterable[Fact]:
        parent = text(line.data.get("detachedFromSpawningParentSessionId"))
        edges: list[Fact] = [f.Edge("continuation", parent, "session.start", line.at)] if parent else []
        return [*self._place(line), *edges]

    def _session_resume(self, line: CopilotLine) -> Iterable[Fact]:
        cold = not line.data.get("sessionWasActive") and not line.data.get("continuePendingWork")
        ended = self._settle(line, "interrupted", "resumed before it had ended") if cold else []
        return [*ended, *self._place(line)]

    def _place(self, line: CopilotLine) -> Iterable[Fact]:
        where = table(line.data.get("context")) or line.data
        model = text(line.data.get("selectedModel")) or text(line.data.get("newModel")) or text(line.data.get("model"))
        placed = f.SessionPlaced(text(where.get("cwd")), text(where.get("branch")), model, text(line.data.get("copilotVersion")))
        return [placed] if any(placed) else []

    def _title(self, line: CopilotLine) -> Iterable[Fact]:
        title = text(line.data.get("title"))
        return [f.SessionTitled(title)] if title else []

    def _handoff(self, line: CopilotLine) -> Iterable[Fact]:
        session, summary = text(line.data.get("remoteSessionId")), text(line.data.get("summary"))
        edges: list[Fact] = [f.Edge("continuation", session, "session.handoff", line.at)] if session else []
        return [*edges, *([f.MessageSaid(f.SUMMARY, summary, line.id, line.at)] if summary.strip() else [])]

    def _rewind(self, line: CopilotLine) -> Iterable[Fact]:
        key = text(line.data.get("upToEventId"))
        return [f.MessagesRewound(line.at, key)] if key else []

    def _clear(self, line: CopilotLine) -> Iterable[Fact]:
        return [f.Boundary("clear", line.at, line.id)]

    def _shutdown(self, line: CopilotLine) -> Iterable[Fact]:
        broken = line.data.get("shutdownType") == "error"
        ended = self._settle(line, "interrupted", text(line.data.get("errorReason")) or "error") if broken else []
        return [*ended, f.SessionClosed(line.at, text(line.data.get("shutdownType")))]

    # -- turns

    def _prompt(self, line: CopilotLine) -> Iterable[Fact]:
        words = text(line.data.get("content")) or text(line.data.get("text")) or text(line.data.get("prompt"))
        images = sum(text(table(file).get("mimeType")).startswith("image/") for file in items(line.data.get("attachments")))
        words = "\n".join([*["[image]"] * images, *([words] if words else [])])
        if not words.strip():
            return []
        if line.agent or text(line.data.get("source")) not in _HUMAN or line.data.get("isAutopilotContinuation"):
            return [f.MessageSaid(f.USER, words, line.id, line.at, mark=f.INJECTED if f.PACK in words else f.META)]
        said = f.MessageSaid(f.USER, words, line.id, line.at)
        if line.data.get("delivery") == "steering" and self.state.get("turn"):
            return [said]
        self.state["turn"] = {"id": line.id}
        self.state.pop("twins", None)
        return [f.TurnBegan(line.id, words, line.at, line.id), said._replace(turn=line.id)]

    def _settle(self, line: CopilotLine, state: str, reason: str | None = None) -> list[Fact]:
        turn = self.state.pop("turn", None)
        return [f.TurnSettled(turn["id"], state, line.at, reason)] if turn else []

    def _turn_end(self, line: CopilotLine) -> Iterable[Fact]:
        answered = not line.agent and self.state.get("turn", {}).get("answered")
        return self._settle(line, "completed") if answered else []

    def _idle(self, line: CopilotLine) -> Iterable[Fact]:
        return self._settle(line, "cancelled" if line.data.get("aborted") else "completed")

    def _abort(self, line: CopilotLine) -> Iterable[Fact]:
        return [] if line.agent else self._settle(line, "cancelled", text(line.data.get("reason")) or None)

    def _error(self, line: CopilotLine) -> Iterable[Fact]:
        if line.agent or line.data.get("eligibleForAutoSwitch"):
            return []  # the turn goes on with another model
        return self._settle(line, "failed", text(line.data.get("message")) or text(line.data.get("errorType")) or None)

    # -- messages

    def _assistant(self, line: CopilotLine) -> Iterable[Fact]:
        words, calls = text(line.data.get("content")) or text(line.data.get("text")), items(line.data.get("toolRequests"))
        facts: list[Fact] = [*self._reasoning(line, "message", f"{line.id}#reasoning", text(line.data.get("reasoningText")))]
        if words.strip():
            facts.append(f.MessageSaid(f.ASSISTANT, words, line.id, line.at))
        facts += [self._call(line, table(call)) for call in calls]
        return facts + self._note_answer(line, answered=bool(words.strip()) and not calls)

    def _note_answer(self, line: CopilotLine, *, answered: bool) -> list[Fact]:
        """An answer without a call ends the turn, unless a call follows. Not every file has an event for the end of a turn."""
        turn = self.state.get("turn")
        if not turn or line.agent:
            return []
        before, turn["answered"] = bool(turn.get("answered")), answered
        if answered == before:
            return []
        return [f.TurnSettled(turn["id"], "completed" if answered else "started", line.at)]

    def _reasoning_event(self, line: CopilotLine) -> Iterable[Fact]:
        return self._reasoning(line, "event", text(line.data.get("reasoningId")) or line.id, text(line.data.get("content")))

    def _reasoning(self, line: CopilotLine, source: str, key: str, words: str) -> Iterable[Fact]:
        if not words.strip() or not is_new_text(self.state, source, f.REASONING, words):
            return []
        return [f.MessageSaid(f.REASONING, words, key, line.at)]

    def _system(self, line: CopilotLine) -> Iterable[Fact]:
        words = text(line.data.get("content")) or text(line.data.get("message"))
        mark = f.INJECTED if f.PACK in words else f.META
        return [f.MessageSaid(f.SYSTEM, words, line.id, line.at, mark=mark)] if words.strip() else []

    def _hook_output(self, line: CopilotLine) -> Iterable[Fact]:
        output = table(line.data.get("output"))
        words = text(output.get("additionalContext"))
        words = words or text(table(output.get("hookSpecificOutput")).get("additionalContext"))
        mark = f.INJECTED if f.PACK in words else f.HOOK
        return [f.MessageSaid(f.SYSTEM, words, line.id, line.at, mark=mark)] if words.strip() else []

    # -- tools

    def _call(self, line: CopilotLine, call: Mapping[str, Any]) -> Fact:
        name = text(call.get("name")) or text(call.get("toolName"))
        own = text(call.get("toolCallId")) or digest(line.id, name)
        remember(self.state, "calls", own, name)
        return f.MessageSaid(
            f.ASSISTANT, "", f"call:{own}", line.at, tool={"id": own, "name": name, "input": call.get("arguments")}
        )

    def _tool_start(self, line: CopilotLine) -> Iterable[Fact]:
        known = text(line.data.get("toolCallId")) in self.state.get("calls", {})
        restarted = self._note_answer(line, answered=False)
        return restarted if known else [*restarted, self._call(line, line.data)]

    def _tool_end(self, line: CopilotLine) -> Iterable[Fact]:
        call = text(line.data.get("toolCallId"))
        if not call:
            return [f.OddRecord("tool", "a tool's result that says of no call")]
        result, problem = table(line.data.get("result")), line.data.get("error")
        words = text(result.get("content")) or text(result.get("detailedContent")) or _words(items(result.get("contents")))
        words = words or text(line.data.get("result")) or text(table(problem).get("message")) or text(problem)
        tool: dict[str, Any] = {"id": call, "name": self.state.get("calls", {}).get(call, text(line.data.get("toolName")))}
        if isinstance(line.data.get("success"), bool) or problem:
            tool["error"] = line.data.get("success") is False or bool(problem)
        for code in (table(block).get("exitCode") for block in items(result.get("contents"))):
            if isinstance(code, int) and not isinstance(code, bool):
                tool["exit_code"] = code
        exited = _EXIT.search(words)
        if exited and "exit_code" not in tool:
            tool["exit_code"] = int(exited[1])
        if tool.get("exit_code"):
            tool["error"] = True
        return [f.MessageSaid(f.TOOL, words, f"result:{call}", line.at, tool=tool)]

    # -- compactions

    def _compaction_start(self, line: CopilotLine) -> Iterable[Fact]:
        if line.agent:
            return []  # a compaction of a subagent's own context
        self.state["compaction"] = line.id
        return [f.Signal("transcript", "started", line.at, line.id, reason=_reason(line.data), turn=self._turn_id())]

    def _compaction_end(self, line: CopilotLine) -> Iterable[Fact]:
        if line.agent:
            return []
        data = line.data
        own = self.state.pop("compaction", None) or line.id
        phase = _phase(data)
        before, removed = count(data.get("preCompactionMessagesLength")), count(data.get("messagesRemoved"))
        facts: list[Fact] = [
            f.Signal(
                "transcript",
                phase,
                line.at,
                own,
                reason=_reason(data),
                before=_counts(before, count(data.get("preCompactionTokens"))),
                after=_counts(_left(before, removed), count(data.get("postCompactionTokens"))),
                turn=self._turn_id(),
                error=text(data.get("error"))[:500],
            )
        ]
        summary = text(data.get("summaryContent"))
        return [*facts, *([f.MessageSaid(f.SUMMARY, summary, line.id, line.at)] if summary.strip() else [])]

    def _turn_id(self) -> str:
        return str(self.state.get("turn", {}).get("id", ""))

    _KINDS: ClassVar[Mapping[str, Callable[[Reader, CopilotLine], Iterable[Fact]]]] = {
        "session.start": _session_start,
        "session.resume": _session_resume,
        "session.context_changed": _place,
        "session.model_change": _place,
        "session.title_changed": _title,
        "session.handoff": _handoff,
        "session.snapshot_rewind": _rewind,
        "session.context_cleared": _clear,
        "session.shutdown": _shutdown,
        "session.idle": _idle,
        "session.error": _error,
        "session.compaction_start": _compaction_start,
        "session.compaction_complete": _compaction_end,
        "abort": _abort,
        "user.message": _prompt,
        "assistant.message": _assistant,
        "assistant.reasoning": _reasoning_event,
        "assistant.thinking": _reasoning_event,
        "assistant.turn_end": _turn_end,
        "system.message": _system,
        "system.notification": _system,
        "skill.invoked": _system,
        "hook.end": _hook_output,
        "tool.user_requested": _tool_start,
        "tool.execution_start": _tool_start,
        "tool.execution_complete": _tool_end,
    }


_MEMBER = re.compile(r"^(\w{1,40}):[ \t]+(.{1,4096}?)[ \t\r]*$", re.MULTILINE)


def _workspace(document: str) -> list[Fact]:
    members = {name: _read_scalar(value) for name, value in _MEMBER.findall(document)}
    title, is_chosen = members.get("name") or members.get("summary", ""), members.get("user_named") == "true"
    placed = f.SessionPlaced(members.get("cwd", ""), members.get("branch", ""))
    return [*([f.SessionTitled(title, 2 if is_chosen else 1)] if title else []), *([placed] if any(placed) else [])]


def _read_scalar(value: str) -> str:
    """A YAML scalar on one line; "" for one on several lines."""
    if value[0] == "'" and value[-1] == "'" and len(value) > 1:
        return value[1:-1].replace("''", "'")
    if value[0] == '"':
        try:
            return text(json.loads(value))
        except ValueError:
            return ""
    return "" if value[0] in "|>&*{[#" or value in ("null", "~") else value.partition(" #")[0]


def _words(blocks: list[Any]) -> str:
    return "\n".join(text(table(block).get("text")) or f"[{text(table(block).get('type')) or '?'}]" for block in blocks)


def _phase(data: Mapping[str, Any]) -> str:
    outcome = text(data.get("outcome"))
    if outcome in ("cancelled", "noop"):
        return outcome
    return "failed" if data.get("success") is False or data.get("error") else "completed"


def _reason(data: Mapping[str, Any]) -> str:
    trigger = text(data.get("trigger"))
    if trigger == "manual" or data.get("customInstructions"):
        return "manual"
    return "auto" if trigger else ""


def _left(before: int | None, removed: int | None) -> int | None:
    return before - removed if before is not None and removed is not None and removed <= before else None


def _counts(messages: int | None, tokens: int | None) -> dict[str, int] | None:
    known = {"messages": messages, "tokens": tokens}
    return {name: number for name, number in known.items() if number is not None} or None
