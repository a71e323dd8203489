"""ACP frames from the tap → facts: what client and agent said to each other, whoever the agent is. Pure.

    client  session/prompt ──────────► turn begins        agent  response {stopReason} ──► turn settled
    agent   session/update ──► chunks grow into one message each; tool calls; compactions; titles
    client  session/load ────► until the next prompt, the agent repeats history (some answer first and replay then)

A reader reads one connection. A record's `source` is the connection's id, with `#n` (the frame's number) where that is known. A
frame that was journaled twice, because its writer could not be sure of the first time, then counts once.

Repeated history makes no turns, and its messages have keys of their own, `replay:N:KEY`. Such a message is the message KEY, if
there is one; else the N-th (from 0) in this session with the same role and words; else it is new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.acp import log_lines
from dreamkeep.agents.acp import tools as acp_tools
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.registry import find
from dreamkeep.agents.shared.values import count, digest, items, table, text

REPLAY = "replay:"
#: A longer message continues in another one: the state of a reader must stay small.
LONGEST_SAID = 256 << 10
_MOST_REQUESTS = 256
_MOST_TOOLS = 64
_MOST_REPEATED = 256
_LONGEST_BATCH = 1 << 20
_CANCELLED_ERROR = -32800

_ROLES = {"agent_message_chunk": f.ASSISTANT, "agent_thought_chunk": f.REASONING, "user_message_chunk": f.USER}
_PHASES = {"in_progress": "started", "completed": "completed", "failed": "failed", "cancelled": "cancelled"}
_STATES = {"cancelled": "cancelled", "refusal": "failed"}
#: Updates that say nothing about messages, turns or segments.
_SILENT_UPDATES = frozenset(("plan", "plan_update", "plan_removed"))
#: Updates that come whenever a setting changed: in the middle of an answer (seen with Qwen Code), but also between a warning
#: and the answer (Codex). So they end a message only where the words look like an end.
_UPDATES_AT_ANY_TIME = frozenset(("current_mode_update", "available_commands_update", "config_option_update"))
_REQUESTS = frozenset(("session/prompt", "session/load", "session/resume", "session/new", "session/close"))
_KNOWN_METHODS = _REQUESTS | {
    *("initialize", "authenticate", "logout", "$/cancel_request", "elicitation/create", "elicitation/complete"),
    *("session/cancel", "session/set_mode", "session/set_model", "session/set_config_option", "session/list", "session/delete"),
    *("session/fork", "session/request_permission", "fs/read_text_file", "fs/write_text_file"),
    *("terminal/create", "terminal/output", "terminal/release", "terminal/kill", "terminal/wait_for_exit"),
    *("mcp/connect", "mcp/message", "mcp/disconnect"),
}
_KNOWN_FAMILIES = ("providers/", "nes/", "document/")
#: What Gemini adds to the user's words when it repeats them.
_HOOK_WORDS = re.compile(r"(.*?)(<hook_context>.*</hook_context>)\s*", re.DOTALL)
_FUNCTION_WORDS = re.compile(r"\[Function Response: [^\]\n]*\]")


class Reader:
    """`state`: `n` the last frame; `asked` requests without an answer; `turns` [id, likeness of the prompt] that are not settled;
    `open` the message that is growing; `ids`, `tools`, `seen` what came lately, to recognise what is repeated; `replay`; and what
    `opened` said."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self._place = ""
        self._at = ""

    def read(self, record: Record) -> Iterable[Fact]:
        self._at = record.at
        if record.name == "opened":
            return self._opened(table(record.data))
        if record.name == "closed":
            return self._closed(table(record.data))
        if not self._count_frame(record.source):
            return []
        if record.channel == "stderr":
            signal = None if self.state.get("deaf") else log_lines.signal(record.text, record.at, self._turn())
            return [signal] if signal else []
        if record.data is not None:
            return self._frame(record.data, record.name)
        return self._batch(record)

    def _count_frame(self, source: str) -> bool:
        """Note where we are. False for a frame that was read before."""
        conn, _, number = source.partition("#")
        known = count(self.state.get("n"))
        before = -1 if known is None else known
        numbered = number.isascii() and number.isdigit() and len(number) < 19
        if numbered and int(number) <= before:
            return False
        self.state["n"] = int(number) if numbered else before + 1
        self._place = f"{conn}#{self.state['n']}"
        return True

    def _batch(self, record: Record) -> list[Fact]:
        """A line that is no object: a list of frames, or broken."""
        batch: object = None
        if record.text.startswith("[") and len(record.text) <= _LONGEST_BATCH:
            try:
                batch = json.loads(record.text)
            except (ValueError, RecursionError):
                pass  # reported below
        frames = [frame for frame in items(batch) if isinstance(frame, dict)]
        if not frames:
            return [f.OddRecord("acp", "a line that is no JSON object")] if record.text.strip() else []
        facts: list[Fact] = []
        place = self._place
        for n, frame in enumerate(frames):
            self._place = f"{place}.{n}"
            facts += self._frame(frame, record.name)
        return facts

    # -- the connection

    def _opened(self, body: Mapping[str, Any]) -> list[Fact]:
        self.state["agent"] = text(body.get("agent"))
        if text(body.get("session")):
            self.state["session"] = text(body.get("session"))
        if body.get("scrape") is False:
            self.state["deaf"] = True
        facts: list[Fact] = []
        if text(body.get("version")):
            facts.append(f.SessionPlaced(version=text(body.get("version"))))
        if text(body.get("parent")):
            facts.append(f.Edge("fork", text(body.get("parent")), "ACP session/fork", self._at))
        return facts

    def _closed(self, body: Mapping[str, Any]) -> list[Fact]:
        """Nobody will answer any more. The message that was growing stays partial."""
        growing = text(table(self.state.get("open")).get("role"))
        facts = self._finish_message() if self._is_history() or growing == f.USER else []
        reason = text(body.get("reason")) or "the agent ended"
        facts += [f.TurnSettled(turn, "interrupted", self._at, reason) for turn, _ in self._turns()]
        for key in ("open", "turns", "asked", "replay"):
            self.state.pop(key, None)
        return facts

    # -- frames

    def _frame(self, frame: Mapping[str, Any], side: str) -> list[Fact]:
        method = frame.get("method")
        if isinstance(method, str):
            if method == "session/update":
                return self._update(table(frame.get("params")))
            if side == "client" and method in _REQUESTS:
                return self._request(method, frame)
            known = method in _KNOWN_METHODS or method.startswith(_KNOWN_FAMILIES)
            return [] if known else [f.UnknownRecord(f"method {method}"[:100])]
        if "result" in frame or "error" in frame:
            return self._answer(frame) if side == "agent" else []
        return [f.UnknownRecord("frame")]

    def _request(self, method: str, frame: Mapping[str, Any]) -> list[Fact]:
        params = table(frame.get("params"))
        session = text(params.get("sessionId"))
        if session:
            self.state.setdefault("session", session)
        turn = digest("acp", self._place) if method == "session/prompt" else ""
        asked = self.state.setdefault("asked", {})
        asked[_rpc_name(frame.get("id"))] = [method, turn]
        _drop_oldest(asked, _MOST_REQUESTS)
        if method == "session/prompt":
            return self._prompt(turn, params)
        facts: list[Fact] = []
        if method == "session/load":
            facts = self._finish_message()
            self.state["replay"] = True
        cwd = text(params.get("cwd"))
        return [*facts, f.SessionPlaced(cwd=cwd)] if cwd else facts

    def _prompt(self, turn: str, params: Mapping[str, Any]) -> list[Fact]:
        # Some agents take a prompt while they still work on another: then the current message goes on.
        facts = [] if self._turns() else self._finish_message()
        self.state.pop("replay", None)
        words = acp_tools.blocks(params.get("prompt"))
        self.state["turns"] = [*self._turns(), [turn, _likeness(f.USER, words)]][-_MOST_REQUESTS:]
        key = f"acp:{turn}"
        return [*facts, f.TurnBegan(turn, words, self._at, key), f.MessageSaid(f.USER, words, key, self._at, turn)]

    def _answer(self, frame: Mapping[str, Any]) -> list[Fact]:
        asked = self.state.setdefault("asked", {}).pop(_rpc_name(frame.get("id")), None)
        if not (isinstance(asked, list) and len(asked) == 2):
            return []
        method, turn = text(asked[0]), text(asked[1])
        result, failed = table(frame.get("result")), frame.get("error") is not None
        if method == "session/prompt":
            return [*self._hermes(result, repeats=False), *self._settle(turn, result, table(frame.get("error")), failed)]
        if failed:
            self.state.pop("replay", None)
            return self._finish_message()
        if text(result.get("sessionId")):
            self.state.setdefault("session", text(result.get("sessionId")))
        facts: list[Fact] = [*_model_in(result), *self._hermes(result, repeats=True)]
        if method == "session/load":
            facts = [*self._finish_message(), *facts, f.Boundary("load", self._at, digest("load", self._place))]
        if method == "session/close":
            facts.append(f.SessionClosed(self._at, "session/close"))
        return facts

    def _settle(self, turn: str, result: Mapping[str, Any], error: Mapping[str, Any], failed: bool) -> list[Fact]:
        facts = self._finish_message() if self._turn() in (turn, "") else []
        self.state["turns"] = [other for other in self._turns() if other[0] != turn]
        if failed:
            state = "cancelled" if error.get("code") == _CANCELLED_ERROR else "failed"
            return [*facts, f.TurnSettled(turn, state, self._at, text(error.get("message"))[:500] or "error")]
        stop = text(result.get("stopReason"))
        reason = None if stop == "end_turn" else stop or None
        return [*facts, f.TurnSettled(turn, _STATES.get(stop, "completed"), self._at, reason)]

    # -- updates

    def _update(self, params: Mapping[str, Any]) -> list[Fact]:
        session = text(params.get("sessionId"))
        if session and self.state.setdefault("session", session) != session:
            return [f.UnknownRecord("update of another session")]  # it never changes this one
        update = table(params.get("update"))
        facts = self._read_update(text(update.get("sessionUpdate")), update)
        return [*facts, *self._hermes(params, repeats=False), *self._hermes(update, repeats=False)]

    def _read_update(self, kind: str, update: Mapping[str, Any]) -> list[Fact]:
        growing = table(self.state.get("open"))
        if kind in _ROLES:
            return self._chunk(_ROLES[kind], update)
        if kind in ("tool_call", "tool_call_update"):
            ends = kind == "tool_call" or update.get("status") in acp_tools.FINAL
            return [*(self._finish_message() if ends or not growing.get("id") else []), *self._tool(kind, update)]
        if kind == "compaction_summary_chunk":
            return self._summary_chunk(update)
        if kind in _UPDATES_AT_ANY_TIME:
            if growing:
                self.state["open"] = {**growing, "news": 1}
            return []
        # Where chunks have no message id, anything else between them is the only sign that one message ended.
        facts = [] if growing.get("id") else self._finish_message()
        if kind == "compaction_update":
            return [*facts, *self._compaction(update)]
        if kind == "session_info_update":
            title = text(update.get("title"))
            return [*facts, f.SessionTitled(title)] if title.strip() else facts
        if kind == "usage_update":
            model = text(table(update.get("_meta")).get("_claude/model"))
            if not model or self.state.get("model") == model:
                return facts
            self.state["model"] = model[:200]
            return [*facts, f.SessionPlaced(model=model)]
        return facts if kind in _SILENT_UPDATES else [*facts, f.UnknownRecord(f"update {kind}"[:100])]

    # -- messages that grow

    def _chunk(self, role: str, update: Mapping[str, Any]) -> list[Fact]:
        words, native = acp_tools.blocks(update.get("content")), text(update.get("messageId"))[:200]
        growing = table(self.state.get("open"))
        facts: list[Fact] = []
        other = growing.get("role") != role or growing.get("id") != native or (not native and _begins_anew(growing, words))
        too_long = len(text(growing.get("text"))) + len(words) > LONGEST_SAID
        if growing and (other or too_long or _is_client_talk(role, words)):
            facts, growing = self._finish_message(), {}
        if not words:
            return facts
        if not growing:
            growing = {"role": role, "id": native, "key": self._new_key(role, native), "text": "", "turn": self._turn()}
        return [*facts, *self._grow({**growing, "text": text(growing.get("text")) + words, "news": 0})]

    def _grow(self, growing: dict[str, Any]) -> list[Fact]:
        self.state["open"] = growing
        role, words = growing["role"], growing["text"]
        if len(words) >= LONGEST_SAID or _is_client_talk(role, words):
            return self._finish_message()
        if self._is_history() or role == f.USER:
            return []  # reported when it is whole
        return [f.MessageSaid(role, words, growing["key"], self._at, growing["turn"], None, f.PARTIAL)]

    def _finish_message(self) -> list[Fact]:
        growing = table(self.state.pop("open", None))
        role, words, key, turn = (text(growing.get(name)) for name in ("role", "text", "key", "turn"))
        if not words:
            return []
        if role != f.USER:
            return [self._make_message(role, words, key, turn)]
        # The agent says the user's words: history, a prompt that waited, or the echo of a prompt that we have.
        if any(_likeness(f.USER, words) == likeness for _, likeness in self._turns()):
            return []
        if _is_client_talk(f.USER, words):
            return [self._make_message(f.USER, words, key, turn, f.META)]
        hooked = _HOOK_WORDS.fullmatch(words)
        if hooked is None:
            return [self._make_message(f.USER, words, key, turn)]
        own = [self._make_message(f.USER, hooked[1], key, turn)] if hooked[1].strip() else []
        return [*own, self._make_message(f.USER, hooked[2], f"{key}:hook", turn, f.HOOK)]

    def _make_message(self, role: str, words: str, key: str, turn: str, mark: str = "") -> f.MessageSaid:
        if self._is_history():
            likeness = _likeness(role, words)
            native = key if key.startswith(("acp:m:", "acp:compaction:")) else f"acp:{likeness}"
            key, turn = f"{REPLAY}{self._count_repeats(likeness)}:{native}", ""
        return f.MessageSaid(role, words, key, self._at, turn, None, mark)

    def _new_key(self, role: str, native: str) -> str:
        if not native:
            return f"acp:{digest(role, self._place)}"
        # One message id may cover several stretches: thought, text, and text again behind a tool call.
        ids = self.state.setdefault("ids", {})
        name = f"{native}:{role}"
        ids[name] = stretch = (count(ids.pop(name, None)) or 0) + 1
        _drop_oldest(ids, _MOST_TOOLS)
        return f"acp:m:{name}:{stretch}"

    def _count_repeats(self, likeness: str) -> int:
        """How often the same came before, in this connection's history."""
        seen = self.state.setdefault("seen", {})
        times = count(seen.pop(likeness, None)) or 0
        seen[likeness] = times + 1
        _drop_oldest(seen, _MOST_REPEATED)
        return times

    # -- tools

    def _tool(self, kind: str, update: Mapping[str, Any]) -> list[Fact]:
        native = text(update.get("toolCallId"))[:500]
        if not native:
            return [f.UnknownRecord(f"{kind} without an id")]
        tools = self.state.setdefault("tools", {})
        before = tools.pop(native, None)
        known = before if isinstance(before, list) and len(before) == 2 else None
        name, is_given = acp_tools.name_of(update)
        if known and not is_given:
            name = text(known[0])
        shows_call = known is None or update.get("rawInput") is not None
        call = acp_tools.input_of(update) if shows_call else None
        id = text(known[1]) if known else self._tool_id(native, name, call)
        tools[native] = [name, id]
        _drop_oldest(tools, _MOST_TOOLS)
        facts: list[Fact] = []
        if shows_call:
            facts.append(self._tool_message(f.ASSISTANT, "", f"acp:tool:{id}", {"id": id, "name": name, "input": call}))
        return [*facts, *self._tool_result(kind, update, id, name)]

    def _tool_id(self, native: str, name: str, call: object) -> str:
        """Hermes invents an id for the client, another one each time it reports a call: there the content is the identity."""
        agent = find(text(self.state.get("agent")))
        if agent is None or not agent.renews_acp_ids:
            return native
        likeness = digest("tool", name, _to_json(call))
        return f"{likeness}.{self._count_repeats(likeness)}"

    def _tool_result(self, kind: str, update: Mapping[str, Any], id: str, name: str) -> list[Fact]:
        status = update.get("status")
        running = kind == "tool_call_update" and status == "in_progress" and bool(update.get("content"))
        if status not in acp_tools.FINAL and not running:
            return []
        output = acp_tools.output_of(update)
        if self._is_history() and kind == "tool_call" and not output:
            return []  # the next update has it
        tool = {"id": id, "name": name, **acp_tools.outcome_of(update)}
        return [self._tool_message(f.TOOL, output, f"acp:tool:{id}:result", tool, f.PARTIAL if running else "")]

    def _tool_message(self, role: str, words: str, key: str, tool: Mapping[str, Any], mark: str = "") -> f.MessageSaid:
        if self._is_history():
            return f.MessageSaid(role, words, f"{REPLAY}0:{key}", self._at, "", tool, mark)
        return f.MessageSaid(role, words, key, self._at, self._turn(), tool, mark)

    # -- compactions

    def _compaction(self, update: Mapping[str, Any]) -> list[Fact]:
        native, phase = text(update.get("compactionId")), _PHASES.get(text(update.get("status")))
        if phase is None:
            return [f.UnknownRecord("compaction_update")]
        if phase == "started" and self.state.get("compacting") == [native]:
            phase = "progress"
        self.state["compacting"] = [native] if phase in ("started", "progress") else []
        history = self._is_history()
        error = text(update.get("error"))[:500]
        turn = "" if history else self._turn()
        facts: list[Fact] = [f.Signal("structured", phase, self._at, native, turn=turn, historic=history, error=error)]
        words = acp_tools.blocks(update.get("summary")) if update.get("summary") else ""
        if words:
            self.state.pop("open", None)  # these are all of the words that came in chunks
            facts.append(self._summary(native, words, ""))
        elif phase != "progress":
            facts += self._finish_message()
        return facts

    def _summary_chunk(self, update: Mapping[str, Any]) -> list[Fact]:
        native, words = text(update.get("compactionId")), acp_tools.blocks(update.get("content"))
        key = f"acp:compaction:{native}"
        growing = table(self.state.get("open"))
        facts: list[Fact] = []
        if growing.get("key") != key:
            facts, growing = self._finish_message(), {}
        whole = (text(growing.get("text")) + words)[:LONGEST_SAID]
        if not whole:
            return facts
        self.state["open"] = {"role": f.SUMMARY, "id": native, "key": key, "text": whole, "turn": self._turn()}
        return facts if self._is_history() else [*facts, self._summary(native, whole, f.PARTIAL)]

    def _summary(self, native: str, words: str, mark: str) -> f.MessageSaid:
        return self._make_message(f.SUMMARY, words, f"acp:compaction:{native}", self._turn(), mark)

    def _hermes(self, holder: Mapping[str, Any], *, repeats: bool) -> list[Fact]:
        """Hermes' report of how often the session was compacted. `repeats`: an answer to new, load or resume only repeats it."""
        meta = table(table(holder.get("_meta")).get("hermes"))
        origin = table(meta.get("sessionProvenance"))
        if not origin:
            return []
        session, reported = text(self.state.get("session")), text(origin.get("acpSessionId"))
        if session and reported and session != reported:
            return [f.UnknownRecord("hermes of another session")]
        depth = count(origin.get("compressionDepth"))
        scope = text(origin.get("hermesSessionId")) or text(origin.get("currentHermesSessionId"))
        old = text(origin.get("previousHermesSessionId"))
        if not old and origin.get("sessionKind") == "continuation":
            old = text(origin.get("parentHermesSessionId"))
        reason = text(origin.get("reason")) or text(table(meta.get("compaction")).get("lastReason"))
        facts: list[Fact] = self._learn_scope(old or scope, reported)
        if not depth and not reason:
            return [*facts, f.Signal("structured", "noop", self._at, "", scope, old, depth, historic=True)]
        historic = repeats or self._is_history()
        name = f"{scope}@{depth}" if depth is not None else ""
        turn = "" if historic else self._turn()
        done = f.Signal("structured", "completed", self._at, name, scope, old, depth, reason, turn=turn, historic=historic)
        return [*facts, done]

    def _learn_scope(self, scope: str, reported: str) -> list[Fact]:
        """Hermes' own id of this session. After a split it is not the client's; it separates our signals from a subagent's."""
        if not scope or not reported or scope in (reported, self.state.get("scope")):
            return []
        self.state["scope"] = scope
        return [f.Signal("structured", "noop", self._at, "", scope, reported, historic=True)]

    # -- where we are

    def _is_history(self) -> bool:
        return bool(self.state.get("replay"))

    def _turns(self) -> list[Any]:
        return [turn for turn in items(self.state.get("turns")) if isinstance(turn, list) and len(turn) == 2]

    def _turn(self) -> str:
        """The turn that the agent works on: others may wait behind it."""
        turns = self._turns()
        return text(turns[0][0]) if turns else ""


def _begins_anew(growing: Mapping[str, Any], words: str) -> bool:
    """Whether chunks after a change of settings are another message: a sentence was over, and no blank follows."""
    over = text(growing.get("text")).endswith((".", "!", "?", ":", "\n"))
    return bool(growing.get("news") and over and words and not words[0].isspace())


def _is_client_talk(role: str, words: str) -> bool:
    """What a client says to the model in the user's name. It comes in one piece."""
    return role == f.USER and (words.startswith("<session_context>") or bool(_FUNCTION_WORDS.fullmatch(words)))


def _model_in(result: Mapping[str, Any]) -> list[Fact]:
    model = text(table(result.get("models")).get("currentModelId"))
    for option in items(result.get("configOptions")):
        if table(option).get("id") == "model":
            model = text(table(option).get("currentValue")) or model
    return [f.SessionPlaced(model=model)] if model else []


def _likeness(role: str, words: str) -> str:
    return digest(role, " ".join(words.split()))


def _rpc_name(rpc_id: object) -> str:
    """1 and "1" are two ids. Anything but a number or text is none."""
    return f"{type(rpc_id).__name__}:{rpc_id}"[:200] if isinstance(rpc_id, (int, float, str)) else "none"


def _to_json(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return "too deep"


def _drop_oldest(remembered: dict[str, Any], most: int) -> None:
    while len(remembered) > most:
        remembered.pop(next(iter(remembered)))
