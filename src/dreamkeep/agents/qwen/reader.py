"""Qwen Code: one JSON object a line, appended; `uuid`/`parentUuid`, content in Gemini's form.

    {"uuid":…,"parentUuid":…,"sessionId":…,"timestamp":…,"type":…,"subtype":…,"cwd":…,"version":…,"gitBranch":…,"promptId":…,
     "message":{"role":…,"parts":[{"text":…}|{"text":…,"thought":true}|{"functionCall":…}|{"functionResponse":…}]},
     "model":…,"toolCallResult":{"callId":…,"status":…},"systemPayload":{…},"forkedFrom":{"sessionId":…,"messageUuid":…}}

Types: user, assistant, tool_result, system/<subtype>. We had no real transcript. The places, the types and
system/{ui_telemetry, attribution_snapshot, chat_compression} were observed. The rest is from the client's source:
* A user record with a subtype (notification, cron, …) or a `provenance` other than `real_user` is the client's own; a
  `mid_turn_user_message` is the user's, within the current turn. `systemPayload.displayText`, if present, is what the user typed;
  a hook's addition is a part of its own, `<qwen:user-prompt-submit-context>`.
* `promptId` counts from the beginning in every process, so the turn's id is the prompt's uuid; `system/turn_result` (only written
  by the daemon) says how it ended. Without it, an answer without function calls ends the turn.
* `system/chat_compression` holds the new history (`compressedHistory`): its summary is the text before the client's answer
  "Got it. Thanks for the additional context!"; everything else in it came before. If a `/compress` stands next to it, the user
  asked for it. (The client writes the command when it is done, so after the compression; we take either order.)
* `system/rewind` hangs below the record before the prompt that was taken back.
* A branch copies records with their uuids, each with `forkedFrom`: they count where they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.gemini.reader import ACKNOWLEDGED, call_message, cut_tags, id_of, output_of, parts, texts_of
from dreamkeep.agents.shared.values import count, digest, items, parse_time, table, text

_HOOK_TAGS = ("qwen:user-prompt-submit-context", "qwen:session-start-context")
#: System records that say nothing of the conversation.
_SILENT = frozenset(
    (
        *(
            "ui_telemetry",
            "attribution_snapshot",
            "at_command",
            "file_history_snapshot",
            "user_text_elements",
            "branch_checkpoint",
        ),
        *("session_source", "session_sources_snapshot", "session_execution_engine", "session_approval_mode", "session_notes"),
        *("session_artifact_event", "session_artifact_snapshot", "goal_state", "goal_turn_end", "omni_recall"),
        *("agent_bootstrap", "agent_retry", "agent_session_ready", "background_task_completed"),
    )
)
_COMPRESS = frozenset(("/compress", "/summarize", "/compress-fast"))
_STATES = {"completed": "completed", "cancelled": "cancelled", "error": "failed"}
#: So many prompts are remembered with their parents, to know what a rewind takes back.
_MOST_PROMPTS = 48


class Reader:
    """`state`: the current turn, the parents of the last prompts, and the half of a compression that waits for the other half."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterable[Fact]:
        if record.data is None:
            return ()  # no JSON object: whoever cut the file into lines has reported it
        return self._record(record.data, record.source == "subagent")

    def _record(self, data: Mapping[str, Any], subagent: bool) -> Iterator[Fact]:
        kind, subtype = text(data.get("type")), text(data.get("subtype"))
        key = id_of(data.get("uuid")) or digest(kind, repr(data.get("timestamp")), repr(data.get("message")))
        at = parse_time(data.get("timestamp"))
        copied = isinstance(data.get("forkedFrom"), Mapping)
        if kind in ("user", "assistant", "tool_result", "system"):
            yield from self._place_and_edges(data, subagent, at)
        if kind in ("user", "assistant"):
            self.state.pop("asked", None)
            self.state.pop("squeezed", None)
        if kind == "user":
            facts = self._user(data, subtype, key, at, subagent)
        elif kind == "assistant":
            facts = self._assistant(data, key, at)
        elif kind == "tool_result":
            facts = self._results(data, key, at)
        elif kind == "system":
            facts = self._system(data, subtype, key, at)
        else:
            facts = iter((f.UnknownRecord(kind or next((name for name in data if isinstance(name, str)), "empty")),))
        yield from _copies(facts) if copied else facts

    # -- where it runs, where it comes from

    def _place_and_edges(self, data: Mapping[str, Any], subagent: bool, at: str | None) -> Iterator[Fact]:
        placed = f.SessionPlaced(
            text(data.get("cwd")), text(data.get("gitBranch")), text(data.get("model")), text(data.get("version"))
        )
        # A record without a model does not change the last one.
        known = f.SessionPlaced(*self.state.get("placed", ("", "", "", "")))
        now = f.SessionPlaced(*(digest(new)[:8] if new else old for new, old in zip(placed, known, strict=True)))
        if now != known:
            self.state["placed"] = list(now)
            yield placed
        parent = id_of(table(data.get("forkedFrom")).get("sessionId"))
        if parent:
            yield from self._edge("fork", parent, "its records say forkedFrom", at)
        elif subagent and id_of(data.get("sessionId")):
            yield from self._edge("subagent", id_of(data.get("sessionId")), "its lines carry the session's id", at)

    def _edge(self, kind: str, session: str, evidence: str, at: str | None) -> Iterator[Fact]:
        if self.state.get("edge") != [kind, session]:
            self.state["edge"] = [kind, session]
            yield f.Edge(kind, session, evidence, at)

    # -- what was said

    def _user(self, data: Mapping[str, Any], subtype: str, key: str, at: str | None, subagent: bool) -> Iterator[Fact]:
        found = parts(table(data.get("message")).get("parts"))
        if any("functionResponse" in part for part in found):
            yield from self._results(data, key, at)
            return
        words, hooks = "\n".join(texts_of(found)), []
        for tag in _HOOK_TAGS:
            words, more = cut_tags(words, tag)
            hooks += more
        words = text(table(data.get("systemPayload")).get("displayText")).strip() or words
        by_user = text(data.get("provenance")) in ("", "real_user")
        prompt = by_user and (not subtype or (subagent and subtype == "agent_launch_prompt"))
        if words and prompt:
            self._note_prompt(data, key)
            yield f.TurnBegan(key, words, at, key)
            yield f.MessageSaid(f.USER, words, key, at, key)
        elif words and by_user and subtype == "mid_turn_user_message":
            yield f.MessageSaid(f.USER, words, key, at)
        elif words:
            yield f.MessageSaid(f.SYSTEM, words, key, at, mark=f.META)
        for n, context in enumerate(hooks):
            yield f.MessageSaid(f.SYSTEM, context, f"{key}#hook{n}", at, mark=f.HOOK)

    def _note_prompt(self, data: Mapping[str, Any], key: str) -> None:
        if isinstance(data.get("forkedFrom"), Mapping):
            return  # the parent's turn
        below = [id_of(data.get("parentUuid")), key]
        self.state["prompts"] = [*self.state.get("prompts", ()), below][-_MOST_PROMPTS:]
        self.state.update(turn=key, prompt=id_of(data.get("promptId")))

    def _assistant(self, data: Mapping[str, Any], key: str, at: str | None) -> Iterator[Fact]:
        found = parts(table(data.get("message")).get("parts"))
        thoughts = [text(part.get("text")) for part in found if part.get("thought")]
        if thinking := "".join(thoughts).strip():
            yield f.MessageSaid(f.REASONING, thinking, f"{key}#thought", at)
        if words := "".join(texts_of(found)).strip():
            yield f.MessageSaid(f.ASSISTANT, words, key, at)
        calls = [table(part.get("functionCall")) for part in found if "functionCall" in part]
        for n, entry in enumerate(calls):
            yield call_message(entry, f"{key}#call{n}", at)
        turn = self.state.get("turn")
        if words and not calls and turn:
            self.state["over"] = turn
            yield f.TurnSettled(turn, "completed", at)
        elif calls and turn and self.state.pop("over", None) == turn:
            yield f.TurnSettled(turn, "started", at)  # those words were not the last ones

    def _results(self, data: Mapping[str, Any], key: str, at: str | None) -> Iterator[Fact]:
        about = table(data.get("toolCallResult"))
        status = text(about.get("status"))
        found = [
            table(part.get("functionResponse"))
            for part in parts(table(data.get("message")).get("parts"))
            if "functionResponse" in part
        ]
        for n, entry in enumerate(found):
            native = id_of(entry.get("id")) or id_of(about.get("callId")) or f"{key}#{n}"
            words, error = output_of(entry.get("response"))
            tool = {"id": native, "name": text(entry.get("name")), "error": error or status in ("error", "cancelled")}
            yield f.MessageSaid(f.TOOL, words, f"{native}#result", at, tool=tool)
        native = id_of(about.get("callId"))
        if not found and native:
            words = "".join(texts_of(parts(table(data.get("message")).get("parts")))) or output_of(about.get("result"))[0]
            tool = {"id": native, "name": text(about.get("name")), "error": status in ("error", "cancelled")}
            yield f.MessageSaid(f.TOOL, words, f"{native}#result", at, tool=tool)
        elif not found:
            yield f.UnknownRecord("tool_result")

    # -- system records

    def _system(self, data: Mapping[str, Any], subtype: str, key: str, at: str | None) -> Iterator[Fact]:
        payload = table(data.get("systemPayload"))
        if subtype == "chat_compression":
            yield from self._compression(payload, key, at)
        elif subtype == "custom_title":
            yield f.SessionTitled(text(payload.get("customTitle")), 1 if payload.get("titleSource") == "auto" else 2)
        elif subtype == "parent_session":
            parent = id_of(payload.get("parentSessionId"))
            if parent:
                yield from self._edge("subagent", parent, "system/parent_session", at)
        elif subtype == "turn_result":
            yield from self._turn_result(payload, at)
        elif subtype == "rewind":
            yield from self._rewind(data, key, at)
        elif subtype == "session_model":
            yield f.SessionPlaced(model=text(payload.get("modelId")))
        elif subtype == "slash_command":
            yield from self._command(payload, key, at)
        elif subtype == "notification":
            if words := text(payload.get("displayText")):
                yield f.MessageSaid(f.SYSTEM, words, key, at, mark=f.META)
        elif subtype not in _SILENT:
            yield f.UnknownRecord(f"system/{subtype}")

    def _command(self, payload: Mapping[str, Any], key: str, at: str | None) -> Iterator[Fact]:
        command, done = text(payload.get("rawCommand")), payload.get("phase") == "result"
        if command and not done:
            yield f.MessageSaid(f.SYSTEM, command, key, at, mark=f.META)
        if command.partition(" ")[0] not in _COMPRESS:
            return
        if done:
            self.state.pop("asked", None)  # its compression came before this
        elif squeezed := text(self.state.pop("squeezed", None)):
            yield f.Signal("transcript", "completed", at, squeezed, reason="manual")
        else:
            self.state["asked"] = True

    def _compression(self, payload: Mapping[str, Any], key: str, at: str | None) -> Iterator[Fact]:
        asked = self.state.pop("asked", None)
        for fact in _compression(payload, key, at):
            if isinstance(fact, f.Signal) and fact.phase == "completed":
                self.state["squeezed"] = "" if asked else key
                fact = fact._replace(reason="manual" if asked else "")
            yield fact

    def _turn_result(self, payload: Mapping[str, Any], at: str | None) -> Iterator[Fact]:
        state = _STATES.get(text(payload.get("state")))
        turn, prompt = self.state.get("turn"), self.state.get("prompt")
        # If the prompt has no id, it can only be the current turn.
        if turn and state and (not prompt or prompt == id_of(payload.get("promptId"))):
            reason = text(table(payload.get("error")).get("message")) or text(payload.get("stopReason"))
            yield f.TurnSettled(turn, state, parse_time(payload.get("endedAt")) or at, reason[:200] or None)

    def _rewind(self, data: Mapping[str, Any], key: str, at: str | None) -> Iterator[Fact]:
        below = id_of(data.get("parentUuid"))
        prompts = self.state.get("prompts", [])
        taken = next((n for n, (above, _) in enumerate(prompts) if above == below), None)
        self.state.update(turn="", prompt="")
        if taken is None:
            yield f.Boundary("rewind", at, key)
        else:
            yield f.MessagesRewound(at, prompts[taken][1])
            self.state["prompts"] = prompts[:taken]


def _copies(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Of a branch's copies only the words, marked. Their turns and compactions count in the parent."""
    for fact in facts:
        if isinstance(fact, f.MessageSaid):
            yield fact._replace(mark=f.COPIED, turn="")
        elif isinstance(fact, (f.SessionTitled, f.UnknownRecord)):
            yield fact


def _compression(payload: Mapping[str, Any], key: str, at: str | None) -> Iterator[Fact]:
    info = table(payload.get("info"))
    history = [table(entry) for entry in items(payload.get("compressedHistory"))]
    counts = [count(info.get(name)) for name in ("originalTokenCount", "newTokenCount")]
    before = {"tokens": counts[0]} if counts[0] is not None else None
    after = {"messages": len(history)} | ({"tokens": counts[1]} if counts[1] is not None else {})
    # It is written after a success, but a status may say otherwise. The numbers 2 and 3 are failures.
    status = info.get("compressionStatus")
    failed = "FAILED" in text(status).upper() or (isinstance(status, int) and status in (2, 3))
    yield f.Signal("transcript", "failed" if failed else "completed", at, key, before=before, after=after)
    summary = _summary(history)
    if summary and not failed:
        yield f.MessageSaid(f.SUMMARY, summary, key, at)


def _summary(history: list[Mapping[str, Any]]) -> str:
    words = [(text(entry.get("role")), "\n".join(texts_of(parts(entry.get("parts")))).strip()) for entry in history]
    for n, (role, spoken) in enumerate(words[1:]):
        if role == "model" and spoken == ACKNOWLEDGED:
            return words[n][1]
    return next((spoken for role, spoken in words if role == "user" and spoken.startswith("<")), "")
