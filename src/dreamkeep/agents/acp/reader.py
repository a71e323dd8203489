"""ACP frames of the tap → facts: what client and agent said to each other, whoever the agent is. Pure.

    client  session/prompt ──────────► turn begins        agent  response {stopReason} ──► turn settled
    agent   session/update ──► chunks grow into one message each; tool calls; compactions; titles
    client  session/load ────► what the agent tells from here to the next prompt is history (some answer first and replay then)

A reader hears one connection. A record's `source` is the connection's id, with `#n` (the frame's number) where it is known: a
frame that was journaled twice, because the first time its writer could not be sure, then counts once.

History that is told again makes no turns, and its messages have keys of their own, `replay:N:KEY`: it is the message KEY, if
there is one; else the N-th (from 0) in this session with the same role and words; else nobody has heard it before, and it is a
message like any other.
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
#: A message longer than this goes on in another one: the state of a reader must stay small.
LONGEST_SAID = 256 << 10
_MOST_ASKED = 256
_MOST_TOOLS = 64
_MOST_SEEN = 256
_LONGEST_BATCH = 1 << 20
_CANCELLED_ERROR = -32800

_ROLES = {"agent_message_chunk": f.ASSISTANT, "agent_thought_chunk": f.REASONING, "user_message_chunk": f.USER}
_PHASES = {"in_progress": "started", "completed": "completed", "failed": "failed", "cancelled": "cancelled"}
_STATES = {"cancelled": "cancelled", "refusal": "failed"}
#: Updates that say nothing of what we keep in messages, turns and segments.
_PLAIN_UPDATES = frozenset(("plan", "plan_update", "plan_removed"))
#: Those that come whenever something around the talk has changed: also in the middle of an answer (seen with Qwen Code), but also
#: between a warning and the answer (Codex). So they end a message only where the words look like it.
_AT_ANY_TIME = frozenset(("current_mode_update", "available_commands_update", "config_option_update"))
_REQUESTS = frozenset(("session/prompt", "session/load", "session/resume", "session/new", "session/close"))
_PLAIN_METHODS = _REQUESTS | {
    *("initialize", "authenticate", "logout", "$/cancel_request", "elicitation/create", "elicitation/complete"),
    *("session/cancel", "session/set_mode", "session/set_model", "session/set_config_option", "session/list", "session/delete"),
    *("session/fork", "session/request_permission", "fs/read_text_file", "fs/write_text_file"),
    *("terminal/create", "terminal/output", "terminal/release", "terminal/kill", "terminal/wait_for_exit"),
    *("mcp/connect", "mcp/message", "mcp/disconnect"),
}
_PLAIN_FAMILIES = ("providers/", "nes/", "document/")
#: What Gemini adds to the user's words when it tells them again.
_HOOK_WORDS = re.compile(r"(.*?)(<hook_context>.*</hook_context>)\s*", re.DOTALL)
_FUNCTION_WORDS = re.compile(r"\[Function Response: [^\]\n]*\]")


class Reader:
    """State: `n` the last frame; `asked` requests without an answer; `turns` [id, prompt's words] that go on; `open` the message
    that is being said; `ids`, `tools`, `seen` what came lately, to tell what comes again; `replay`; what `opened` said."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self._place = ""
        self._at = ""

    def read(self, record: Record) -> Iterable[Fact]:
        self._at = record.at
        if record.name in ("opened", "closed"):
            return self._opened(table(record.data)) if record.name == "opened" else self._closed(table(record.data))
        if not self._is_new(record):
            return []
        if record.channel == "stderr":
            return self._stderr(record)
        if record.data is not None:
            return self._frame(record.data, record.name)
        return self._no_object(record)

    def _is_new(self, record: Record) -> bool:
        conn, _, number = record.source.partition("#")
        known = count(self.state.get("n"))
        before = -1 if known is None else known
        if _is_number(number):
            if int(number) <= before:
                return False
            self.state["n"] = int(number)
        else:
            self.state["n"] = before + 1
        self._place = f"{conn}#{self.state['n']}"
        return True

    def _no_object(self, record: Record) -> list[Fact]:
        batch: object = None
        if record.text.startswith("[") and len(record.text) <= _LONGEST_BATCH:
            try:
                batch = json.loads(record.text)
            except (ValueError, RecursionError):
                pass  # said below
        frames = [frame for frame in items(batch) if isinstance(frame, dict)]
        if not frames:
            return [f.OddRecord("acp", "a line that is no JSON object")] if record.text.strip() else []
        found: list[Fact] = []
        place = self._place
        for n, frame in enumerate(frames):
            self._place = f"{place}.{n}"
            found += self._frame(frame, record.name)
        return found

    # -- who runs it

    def _opened(self, body: Mapping[str, Any]) -> list[Fact]:
        self.state["agent"] = text(body.get("agent"))
        if text(body.get("session")):
            self.state["session"] = text(body.get("session"))
        if body.get("scrape") is False:
            self.state["deaf"] = True
        found: list[Fact] = []
        if text(body.get("version")):
            found.append(f.SessionPlaced(version=text(body.get("version"))))
        if text(body.get("parent")):
            found.append(f.Edge("fork", text(body.get("parent")), "ACP session/fork", self._at))
        return found

    def _closed(self, body: Mapping[str, Any]) -> list[Fact]:
        """What was being said stays partial; nobody will answer any more."""
        found = self._close() if self._is_history() or self._saying() == f.USER else []
        reason = text(body.get("reason")) or "the agent ended"
        found += [f.TurnSettled(turn, "interrupted", self._at, reason) for turn, _ in self._turns()]
        for key in ("open", "turns", "asked", "replay"):
            self.state.pop(key, None)
        return found

    def _stderr(self, record: Record) -> list[Fact]:
        if self.state.get("deaf"):
            return []
        found = log_lines.signal(record.text, record.at, self._turn())
        return [found] if found else []

    # -- frames

    def _frame(self, frame: Mapping[str, Any], side: str) -> list[Fact]:
        method = frame.get("method")
        if isinstance(method, str):
            if method == "session/update":
                return self._update(table(frame.get("params")))
            if side == "client" and method in _REQUESTS:
                return self._request(method, frame)
            known = method in _PLAIN_METHODS or method.startswith(_PLAIN_FAMILIES)
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
        asked[_name(frame.get("id"))] = [method, turn]
        _shorten(asked, _MOST_ASKED)
        if method == "session/prompt":
            return self._prompt(turn, params)
        if method == "session/load":
            found = self._close()
            self.state["replay"] = True
            return [*found, *_placed(text(params.get("cwd")))]
        return _placed(text(params.get("cwd")))

    def _prompt(self, turn: str, params: Mapping[str, Any]) -> list[Fact]:
        # Some agents take prompts while they still work on another: then what is being said goes on.
        found = [] if self._turns() else self._close()
        self.state.pop("replay", None)
        words = acp_tools.blocks(params.get("prompt"))
        self.state["turns"] = [*self._turns(), [turn, _likeness(f.USER, words)]][-_MOST_ASKED:]
        key = f"acp:{turn}"
        return [*found, f.TurnBegan(turn, words, self._at, key), f.MessageSaid(f.USER, words, key, self._at, turn)]

    def _answer(self, frame: Mapping[str, Any]) -> list[Fact]:
        asked = self.state.setdefault("asked", {}).pop(_name(frame.get("id")), None)
        if not (isinstance(asked, list) and len(asked) == 2):
            return []
        method, turn = text(asked[0]), text(asked[1])
        result, failed = table(frame.get("result")), frame.get("error") is not None
        if method == "session/prompt":
            return [*self._hermes(result, told=False), *self._settle(turn, result, table(frame.get("error")), failed)]
        if failed:
            self.state.pop("replay", None)
            return self._close()
        if text(result.get("sessionId")):
            self.state.setdefault("session", text(result.get("sessionId")))
        found: list[Fact] = [*self._model_in(result), *self._hermes(result, told=True)]
        if method == "session/load":
            found = [*self._close(), *found, f.Boundary("load", self._at, digest("load", self._place))]
        if method == "session/close":
            found.append(f.SessionClosed(self._at, "session/close"))
        return found

    def _settle(self, turn: str, result: Mapping[str, Any], error: Mapping[str, Any], failed: bool) -> list[Fact]:
        found = self._close() if self._turn() in (turn, "") else []
        self.state["turns"] = [one for one in self._turns() if one[0] != turn]
        if failed:
            state = "cancelled" if error.get("code") == _CANCELLED_ERROR else "failed"
            return [*found, f.TurnSettled(turn, state, self._at, text(error.get("message"))[:500] or "error")]
        stop = text(result.get("stopReason"))
        return [
            *found,
            f.TurnSettled(turn, _STATES.get(stop, "completed"), self._at, None if stop == "end_turn" else stop or None),
        ]

    def _model_in(self, result: Mapping[str, Any]) -> list[Fact]:
        model = text(table(result.get("models")).get("currentModelId"))
        for option in items(result.get("configOptions")):
            if table(option).get("id") == "model":
                model = text(table(option).get("currentValue")) or model
        return [f.SessionPlaced(model=model)] if model else []

    # -- updates

    def _update(self, params: Mapping[str, Any]) -> list[Fact]:
        session = text(params.get("sessionId"))
        if session and self.state.setdefault("session", session) != session:
            # Other ids never change this session.
            return [f.UnknownRecord("update of another session")]
        update = table(params.get("update"))
        kind = text(update.get("sessionUpdate"))
        found = self._said_by(kind, update)
        return [*found, *self._hermes(params, told=False), *self._hermes(update, told=False)]

    def _said_by(self, kind: str, update: Mapping[str, Any]) -> list[Fact]:
        if kind in _ROLES:
            return self._chunk(_ROLES[kind], update)
        if kind in ("tool_call", "tool_call_update"):
            ends = kind == "tool_call" or update.get("status") in acp_tools.FINAL
            return [*(self._close() if ends or not self._has_id() else []), *self._tool(kind, update)]
        if kind == "compaction_summary_chunk":
            return self._summary_chunk(update)
        if kind in _AT_ANY_TIME:
            if going := table(self.state.get("open")):
                self.state["open"] = {**going, "news": 1}
            return []
        # Where chunks have no message id, anything else between them is the only sign that one message ended.
        found = [] if self._has_id() else self._close()
        if kind == "compaction_update":
            return [*found, *self._compaction(update)]
        if kind == "session_info_update":
            title = text(update.get("title"))
            return [*found, f.SessionTitled(title)] if title.strip() else found
        if kind == "usage_update":
            return [*found, *self._model(text(table(update.get("_meta")).get("_claude/model")))]
        return found if kind in _PLAIN_UPDATES else [*found, f.UnknownRecord(f"update {kind}"[:100])]

    def _model(self, model: str) -> list[Fact]:
        if not model or self.state.get("model") == model:
            return []
        self.state["model"] = model[:200]
        return [f.SessionPlaced(model=model)]

    # -- messages that grow

    def _chunk(self, role: str, update: Mapping[str, Any]) -> list[Fact]:
        said, native = acp_tools.blocks(update.get("content")), text(update.get("messageId"))[:200]
        going = table(self.state.get("open"))
        found: list[Fact] = []
        other = going.get("role") != role or going.get("id") != native or (not native and _is_new(going, said))
        if going and (other or len(text(going.get("text"))) + len(said) > LONGEST_SAID or _is_talk(role, said)):
            found, going = self._close(), {}
        if not said:
            return found
        if not going:
            going = {"role": role, "id": native, "key": self._new_key(role, native), "text": "", "turn": self._turn()}
        return [*found, *self._grow({**going, "text": text(going.get("text")) + said, "news": 0})]

    def _grow(self, going: dict[str, Any]) -> list[Fact]:
        self.state["open"] = going
        if len(going["text"]) >= LONGEST_SAID or _is_talk(going["role"], going["text"]):
            return self._close()
        if self._is_history() or going["role"] == f.USER:
            return []  # told when it is whole
        return [f.MessageSaid(going["role"], going["text"], going["key"], self._at, going["turn"], None, f.PARTIAL)]

    def _close(self) -> list[Fact]:
        going = table(self.state.pop("open", None))
        role, words = text(going.get("role")), text(going.get("text"))
        if not words:
            return []
        key, turn = text(going.get("key")), text(going.get("turn"))
        if role == f.USER:
            return self._user(words, key, turn)
        return [self._make_message(role, words, key, turn)]

    def _user(self, words: str, key: str, turn: str) -> list[Fact]:
        """Told by the agent: history, a prompt that waited, or the echo of a prompt that we have."""
        if any(_likeness(f.USER, words) == like for _, like in self._turns()):
            return []
        if _is_talk(f.USER, words):
            return [self._make_message(f.USER, words, key, turn, f.META)]
        hooked = _HOOK_WORDS.fullmatch(words)
        if hooked is None:
            return [self._make_message(f.USER, words, key, turn)]
        own = [self._make_message(f.USER, hooked[1], key, turn)] if hooked[1].strip() else []
        return [*own, self._make_message(f.USER, hooked[2], f"{key}:hook", turn, f.HOOK)]

    def _make_message(self, role: str, words: str, key: str, turn: str, mark: str = "") -> f.MessageSaid:
        if self._is_history():
            like = _likeness(role, words)
            native = key if key.startswith(("acp:m:", "acp:compaction:")) else f"acp:{like}"
            key, turn = f"{REPLAY}{self._times(like)}:{native}", ""
        return f.MessageSaid(role, words, key, self._at, turn, None, mark)

    def _new_key(self, role: str, native: str) -> str:
        if not native:
            return f"acp:{digest(role, self._place)}"
        # One message id, several stretches: thought, text, and text again behind a tool call.
        ids = self.state.setdefault("ids", {})
        name = f"{native}:{role}"
        ids[name] = stretch = (count(ids.pop(name, None)) or 0) + 1
        _shorten(ids, _MOST_TOOLS)
        return f"acp:m:{name}:{stretch}"

    def _times(self, like: str) -> int:
        """How often these words came before, in this connection's history."""
        seen = self.state.setdefault("seen", {})
        times = count(seen.pop(like, None)) or 0
        seen[like] = times + 1
        _shorten(seen, _MOST_SEEN)
        return times

    # -- tools

    def _tool(self, kind: str, update: Mapping[str, Any]) -> list[Fact]:
        native = text(update.get("toolCallId"))[:500]
        if not native:
            return [f.UnknownRecord(f"{kind} without an id")]
        tools = self.state.setdefault("tools", {})
        before = tools.pop(native, None)
        known = before if isinstance(before, list) and len(before) == 2 else None
        name, given = acp_tools.name_of(update)
        if known and not given:
            name = text(known[0])
        fresh = known is None or update.get("rawInput") is not None
        call = acp_tools.input_of(update) if fresh else None
        mine = text(known[1]) if known else self._tool_id(native, name, call)
        tools[native] = [name, mine]
        _shorten(tools, _MOST_TOOLS)
        found: list[Fact] = []
        if fresh:
            found.append(self._tool_said(f.ASSISTANT, "", mine, {"id": mine, "name": name, "input": call}))
        return [*found, *self._tool_result(kind, update, mine, name)]

    def _tool_id(self, native: str, name: str, call: object) -> str:
        """Hermes makes up an id for the client, another one each time it tells of a call: there the content is the identity."""
        agent = find(text(self.state.get("agent")))
        if agent is None or not agent.renews_acp_ids:
            return native
        like = digest("tool", name, _written(call))
        return f"{like}.{self._times(like)}"

    def _tool_result(self, kind: str, update: Mapping[str, Any], mine: str, name: str) -> list[Fact]:
        status = update.get("status")
        running = kind == "tool_call_update" and status == "in_progress" and bool(update.get("content"))
        if status not in acp_tools.FINAL and not running:
            return []
        output = acp_tools.output_of(update)
        if self._is_history() and kind == "tool_call" and not output:
            return []  # it is told in the next update
        tool = {"id": mine, "name": name, **acp_tools.outcome_of(update)}
        return [self._tool_said(f.TOOL, output, mine, tool, f.PARTIAL if running else "")]

    def _tool_said(self, role: str, words: str, mine: str, tool: Mapping[str, Any], mark: str = "") -> f.MessageSaid:
        key = f"acp:tool:{mine}" if role == f.ASSISTANT else f"acp:tool:{mine}:result"
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
        found: list[Fact] = [f.Signal("structured", phase, self._at, native, turn=turn, historic=history, error=error)]
        words = acp_tools.blocks(update.get("summary")) if update.get("summary") else ""
        if words:
            self.state.pop("open", None)  # the whole of what came in pieces
            found.append(self._summary(native, words, ""))
        elif phase != "progress":
            found += self._close()
        return found

    def _summary_chunk(self, update: Mapping[str, Any]) -> list[Fact]:
        native, words = text(update.get("compactionId")), acp_tools.blocks(update.get("content"))
        going = table(self.state.get("open"))
        found: list[Fact] = []
        if going.get("key") != f"acp:compaction:{native}":
            found, going = self._close(), {}
        whole = (text(going.get("text")) + words)[:LONGEST_SAID]
        if not whole:
            return found
        key = f"acp:compaction:{native}"
        self.state["open"] = {"role": f.SUMMARY, "id": native, "key": key, "text": whole, "turn": self._turn()}
        return found if self._is_history() else [*found, self._summary(native, whole, f.PARTIAL)]

    def _summary(self, native: str, words: str, mark: str) -> f.MessageSaid:
        return self._make_message(f.SUMMARY, words, f"acp:compaction:{native}", self._turn(), mark)

    def _hermes(self, holder: Mapping[str, Any], *, told: bool) -> list[Fact]:
        """Hermes' word on how often the session was compacted. `told`: an answer to new, load or resume states it, no more."""
        meta = table(table(holder.get("_meta")).get("hermes"))
        origin = table(meta.get("sessionProvenance"))
        if not origin:
            return []
        session, about = text(self.state.get("session")), text(origin.get("acpSessionId"))
        if session and about and session != about:
            return [f.UnknownRecord("hermes of another session")]
        depth = count(origin.get("compressionDepth"))
        scope = text(origin.get("hermesSessionId")) or text(origin.get("currentHermesSessionId"))
        old = text(origin.get("previousHermesSessionId"))
        if not old and origin.get("sessionKind") == "continuation":
            old = text(origin.get("parentHermesSessionId"))
        reason = text(origin.get("reason")) or text(table(meta.get("compaction")).get("lastReason"))
        history = told or self._is_history()
        found: list[Fact] = self._learned(old or scope, about)
        if not depth and not reason:
            return [*found, f.Signal("structured", "noop", self._at, "", scope, old, depth, historic=True)]
        name = f"{scope}@{depth}" if depth is not None else ""
        turn = "" if history else self._turn()
        done = f.Signal("structured", "completed", self._at, name, scope, old, depth, reason, turn=turn, historic=history)
        return [*found, done]

    def _learned(self, scope: str, about: str) -> list[Fact]:
        """Hermes' own id of this session, which after a split is not the client's: to tell its signals from a subagent's."""
        if not scope or not about or scope in (about, self.state.get("scope")):
            return []
        self.state["scope"] = scope
        return [f.Signal("structured", "noop", self._at, "", scope, about, historic=True)]

    # -- where we are

    def _is_history(self) -> bool:
        return bool(self.state.get("replay"))

    def _turns(self) -> list[Any]:
        return [one for one in items(self.state.get("turns")) if isinstance(one, list) and len(one) == 2]

    def _turn(self) -> str:
        """The one that is being worked on: others may wait behind it."""
        turns = self._turns()
        return text(turns[0][0]) if turns else ""

    def _saying(self) -> str:
        return text(table(self.state.get("open")).get("role"))

    def _has_id(self) -> bool:
        return bool(table(self.state.get("open")).get("id"))


def _is_new(going: Mapping[str, Any], said: str) -> bool:
    """Whether what comes behind news is another message: a sentence was over, and nothing parts it from these words."""
    return bool(
        going.get("news") and text(going.get("text")).endswith((".", "!", "?", ":", "\n")) and said and not said[0].isspace()
    )


def _is_talk(role: str, words: str) -> bool:
    """What a client says to the model in the user's name; it comes in one piece."""
    return role == f.USER and (words.startswith("<session_context>") or bool(_FUNCTION_WORDS.fullmatch(words)))


def _placed(cwd: str) -> list[Fact]:
    return [f.SessionPlaced(cwd=cwd)] if cwd else []


def _likeness(role: str, words: str) -> str:
    return digest(role, " ".join(words.split()))


def _name(rpc_id: object) -> str:
    """1 and "1" are two ids; what is neither a number nor text is none."""
    return f"{type(rpc_id).__name__}:{rpc_id}"[:200] if isinstance(rpc_id, (int, float, str)) else "none"


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) < 19


def _written(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return "too deep"


def _shorten(remembered: dict[str, Any], most: int) -> None:
    """Forget what came first."""
    while len(remembered) > most:
        remembered.pop(next(iter(remembered)))
