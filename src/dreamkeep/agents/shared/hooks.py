"""Hook payloads → facts. One reader for all agents: they borrowed each other's names and fields. Pure.

Hooks are the weakest channel. The transcript usually says the same, and better; the fold pairs the two by the tool's id or by the
words. So a payload only becomes a message if that pairing can work:

- tools without an id (Gemini, Copilot) and a subagent's calls (`agent_id`) are left to the transcript;
- Gemini's `prompt_response` repeats pieces of the answer ("after compact compact "), so it only shows that the turn is over;
- Claude's `compact_summary` differs from the summary in the transcript, so it would appear twice.

Nothing is lost: the payloads are in the journal.

Traps: Qwen fires UserPromptSubmit with an empty prompt after every tool result; Gemini fires PreCompress before every request;
Hermes fires on_session_end after every turn; Claude fires SessionStart{compact} before PostCompact, and SubagentStop for the
compaction itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dreamkeep.agents.facts import (
    ASSISTANT,
    TOOL,
    USER,
    Boundary,
    Fact,
    MessageSaid,
    OddRecord,
    Record,
    SessionClosed,
    SessionPlaced,
    SessionTitled,
    Signal,
    TurnBegan,
    TurnSettled,
    UnknownRecord,
)
from dreamkeep.agents.shared.values import digest, items, parse_time, table, text

# The meaning of a hook's event, whatever the agent calls it.
START, PROMPT, ANSWER, CALL, RESULT = "start", "prompt", "answer", "call", "result"
COMPACTING, COMPACTED, TURN_END = "compacting", "compacted", "turn_end"
FAILED, INTERRUPTED, END, TOLD, QUIET = "failed", "interrupted", "end", "told", "quiet"

_MEANINGS = {
    START: "sessionstart onsessionstart session.created",
    PROMPT: "userpromptsubmit userpromptsubmitted beforeagent prellmcall chat.message",
    ANSWER: "stop afteragent agentstop postllmcall",
    CALL: "pretooluse beforetool pretoolcall tool.execute.before",
    RESULT: "posttooluse posttoolusefailure aftertool posttoolcall tool.execute.after",
    COMPACTING: "precompact session.compacting experimental.session.compacting",
    COMPACTED: "postcompact session.compacted",
    TURN_END: "onsessionend session.idle",
    FAILED: "stopfailure",
    INTERRUPTED: "interrupt",
    END: "sessionend onsessionfinalize session.deleted",
    TOLD: "session.updated",
    # Known, and without a meaning for the conversation.
    QUIET: "precompress beforemodel aftermodel beforetoolselection subagentstart subagentstop notification permissionrequest"
    " permissiondenied erroroccurred setup configchange teammateidle taskcompleted instructionsloaded worktreecreate init"
    " worktreeremove onsessionreset system.transform experimental.chat.system.transform session.status session.diff"
    " message.updated message.part.updated message.part.delta",
}
_MEANING = {name: meaning for meaning, names in _MEANINGS.items() for name in names.split()}
_CONTEXT = re.compile(r"\s*<(hook_context|qwen:user-prompt-submit-context)>.*?</\1>\s*", re.DOTALL)
#: The beginning of OpenCode's title for a session without one.
_NO_TITLE = "New session - "


def meaning(event: str) -> str:
    """The meaning of an event; "" if it is unknown."""
    name = event.removeprefix("event:").removeprefix("event_").lower()
    return _MEANING.get(name) or _MEANING.get(name.replace("_", "").replace("-", ""), "")


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        data = record.data
        if not isinstance(data, Mapping):
            return [OddRecord("hook", f"the payload of {record.name[:60] or 'a hook'} is no JSON object")]
        name = record.name or text(data.get("hook_event_name"))
        what = meaning(name)
        if not what:
            return [UnknownRecord(f"hook {name[:60]}")]
        act = _ACTS.get(what)
        if act is None or (text(data.get("agent_id")) and what != END):
            return []  # without a meaning; or a subagent's, whose words are in its own transcript
        said = act(data, parse_time(data.get("timestamp")) or record.at or None)
        if what == START and text(data.get("source")) == "clear" and self.state.get("prompted"):
            said = [*said, Boundary("clear", record.at or None, digest("hook", "clear", record.at))]
        if what == PROMPT and said:
            self.state["prompted"] = 1
        return said


def _turn(data: Mapping[str, Any]) -> str:
    extra = table(data.get("extra"))
    return text(data.get("prompt_id")) or text(data.get("turn_id")) or text(extra.get("turn_id"))


def _placed(data: Mapping[str, Any]) -> list[Fact]:
    info, extra = table(data.get("info")), table(data.get("extra"))
    cwd = text(data.get("cwd")) or text(info.get("directory"))
    model = text(data.get("model")) or text(extra.get("model"))
    version = text(info.get("version"))
    return [SessionPlaced(cwd, "", model, version)] if cwd or model or version else []


def _start(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    """A resumed session keeps its context, so that is no boundary."""
    facts = _placed(data)
    if text(data.get("source")) == "compact":
        # Between PreCompact and PostCompact: a sign of life, never one more compaction.
        facts.append(Signal("hook", "progress", at, turn=_turn(data)))
    return facts + _read_notice(data, at)


def _prompt(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    prompt = text(data.get("prompt")) or text(table(data.get("extra")).get("user_message"))
    turn = _turn(data)
    for part in map(table, items(data.get("parts"))):
        if part.get("type") == "text" and not part.get("synthetic") and not prompt:
            prompt, turn = text(part.get("text")), turn or text(part.get("messageID"))
    while found := _CONTEXT.match(prompt):
        prompt = prompt[found.end() :]  # another hook added it; the transcript has it, too
    if not prompt.strip():
        return []
    # If the agent names no turn, the time separates two prompts with the same words.
    key = digest("hook", "prompt", turn or at or "", prompt)
    turn = turn or key
    return [*_placed(data), TurnBegan(turn, prompt, at, key), MessageSaid(USER, prompt, key, at, turn)]


def _answer(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    turn = _turn(data)
    extra = table(data.get("extra"))
    said = text(data.get("last_assistant_message")) or text(extra.get("assistant_response"))
    facts: list[Fact] = []
    if said.strip():
        facts.append(MessageSaid(ASSISTANT, said, digest("hook", "answer", turn or at or "", said), at, turn))
    # Hermes has an event of its own for the turn's end.
    return facts if "assistant_response" in extra else [*facts, TurnSettled(turn, "completed", at)]


def _turn_end(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    extra = table(data.get("extra"))
    if extra.get("interrupted") is True:
        return _interrupted(data, at)
    return [TurnSettled(_turn(data), "failed" if extra.get("completed") is False else "completed", at)]


def _failed(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    error = data.get("error")
    return [TurnSettled(_turn(data), "failed", at, text(error) or text(table(error).get("message")) or None)]


def _interrupted(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    return [TurnSettled(_turn(data), "interrupted", at)]


def _tool(data: Mapping[str, Any]) -> tuple[str, str]:
    """(id, name); the id is "" if the agent gives none."""
    extra, given = table(data.get("extra")), table(data.get("input"))
    ids = (
        data.get("tool_use_id"),
        data.get("tool_call_id"),
        data.get("toolCallId"),
        extra.get("tool_call_id"),
        given.get("callID"),
    )
    names = (data.get("tool_name"), data.get("toolName"), given.get("tool"))
    return next(filter(None, map(text, ids)), ""), next(filter(None, map(text, names)), "")


def _call(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    id, name = _tool(data)
    places = ((data, "tool_input"), (data, "toolArgs"), (data, "args"), (table(data.get("input")), "args"))
    given = next((place[key] for place, key in places if place.get(key) is not None), None)
    if not id or given is None:
        return []
    return [MessageSaid(ASSISTANT, "", digest("hook", "call", id), at, _turn(data), {"id": id, "name": name, "input": given})]


def _result(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    id, name = _tool(data)
    if not id:
        return []
    extra = table(data.get("extra"))
    given = (data.get("tool_response"), data.get("tool_output"), data.get("output"), extra.get("result"), data.get("error"))
    response = next((value for value in given if value is not None), "")
    tool: dict[str, Any] = {"id": id, "name": name}
    if data.get("error") or extra.get("status", "ok") != "ok" or _flagged(table(response)):
        tool["error"] = True
    code = table(table(response).get("metadata")).get("exit")
    if isinstance(code, int) and not isinstance(code, bool):
        tool["exit_code"] = code
    # With the call itself, in case only this hook is installed. After a hook for the call, it is the same message again.
    return [*_call(data, at), MessageSaid(TOOL, _output(response), digest("hook", "result", id), at, _turn(data), tool)]


def _flagged(response: Mapping[str, Any]) -> bool:
    return any(response.get(key) is True for key in ("isError", "is_error", "interrupted"))


def _output(response: object) -> str:
    """The text of a tool's answer, in any of the usual forms; else the answer as JSON."""
    if isinstance(response, str):
        return response
    if isinstance(response, list):
        return "\n".join(text(part) or text(table(part).get("text")) or _no_text(table(part)) for part in response)
    fields = table(response)
    if "stdout" in fields:
        return "\n".join(part for part in (text(fields["stdout"]), text(fields.get("stderr"))) if part)
    for key in ("content", "output", "text"):
        if isinstance(fields.get(key), (str, list)):
            return _output(fields[key])
    try:
        return json.dumps(response, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""


def _no_text(part: Mapping[str, Any]) -> str:
    return f"[{text(part.get('type')) or 'part'}]"


def _compacting(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    return [Signal("hook", "started", at, reason=text(data.get("trigger")), turn=_turn(data))]


def _compacted(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    return [Signal("hook", "completed", at, reason=text(data.get("trigger")), turn=_turn(data))]


def _end(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    return [SessionClosed(at, text(data.get("reason")) or text(table(data.get("extra")).get("reason")))]


def _read_notice(data: Mapping[str, Any], at: str | None) -> list[Fact]:
    title = text(table(data.get("info")).get("title"))
    return [SessionTitled(title)] if title and not title.startswith(_NO_TITLE) else []


_ACTS = {
    START: _start,
    PROMPT: _prompt,
    ANSWER: _answer,
    CALL: _call,
    RESULT: _result,
    COMPACTING: _compacting,
    COMPACTED: _compacted,
    TURN_END: _turn_end,
    FAILED: _failed,
    INTERRUPTED: _interrupted,
    END: _end,
    TOLD: _read_notice,
}
