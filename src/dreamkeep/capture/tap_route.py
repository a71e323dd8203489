"""Which session a frame of an ACP connection belongs to. Pure: remembers what was asked, touches nothing.

    params.sessionId ──► that session           response ──► the session of its request
    result of session/new ──► the new session   nothing of it ──► "", the keep's own journal

Lines that can't be read, and stderr, go where somebody was asked last. A line in pieces can't be parsed, only searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

CLIENT, AGENT, STDERR = "c", "a", "e"
#: Agents whose ACP session id is the id of their own store, by what their ACP names hold.
AGENTS = ("claude", "codex", "gemini", "qwen", "opencode", "hermes", "kimi", "goose", "copilot")
UNNAMED = "acp"

_SEARCHED = 16 << 10
_MOST_ASKED = 1024
_SESSION_ID = re.compile(rb'(?<!\\)"sessionId"\s*:\s*"((?:[^"\\]|\\.){1,500})"')
_METHOD = re.compile(rb'(?<!\\)"method"\s*:\s*"([\w/$]{1,100})"')
_ID = re.compile(rb'(?<!\\)"id"\s*:\s*(\d{1,18}|"[^"\\]{1,200}")')
_LOGGED_SESSION = re.compile(rb"\bsession=(\S{1,500})")
_WORDS_OF_COMMAND = 3


class Asked(NamedTuple):
    method: str
    session: str
    cwd: str


class Session(NamedTuple):
    """What is known of a session when its first frame comes."""

    native: str
    cwd: str = ""
    loaded: bool = False
    parent: str = ""


class Router:
    def __init__(self, agent: str | None, command: Sequence[str]) -> None:
        self._given = agent
        self._by_command = agent_named(*command[:_WORDS_OF_COMMAND])
        self._introduced: str | None = None
        self.version = ""
        self.sessions: dict[str, Session] = {}
        self._asked: dict[str, dict[Any, Asked]] = {CLIENT: {}, AGENT: {}}
        #: Sessions that were prompted; whoever looks takes them out.
        self.prompted: set[str] = set()
        #: The session that was asked for something last.
        self._busy = ""
        #: Where the pieces of a frame that is too long for one go.
        self._going_on: dict[str, str] = {}

    @property
    def agent(self) -> str:
        return self._given or self._introduced or self._by_command

    def route(self, side: str, line: bytes, *, unended: bool = False) -> str:
        """The native id of its session; "" for none. `unended`: the rest of the line comes later."""
        going_on = self._going_on.pop(side, None)
        if going_on is not None:
            target = going_on
        elif side == STDERR:
            target = self._logged(line)
        else:
            target = self._searched(side, line) if unended else self._frame(side, line)
        if unended:
            self._going_on[side] = target
        return target

    def _logged(self, line: bytes) -> str:
        # One stream for all sessions of an agent: a line that names one of them is that one's.
        for found in _LOGGED_SESSION.finditer(line[:_SEARCHED]):
            if (name := found[1].decode("utf-8", "replace")) in self.sessions:
                return name
        return self._busy

    def _frame(self, side: str, line: bytes) -> str:
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            return self._busy
        if isinstance(parsed, list):
            targets = [self._message(side, one) for one in parsed if isinstance(one, dict)]
            return next((target for target in targets if target), "")
        return self._message(side, parsed) if isinstance(parsed, dict) else self._busy

    def _searched(self, side: str, line: bytes) -> str:
        # Text inside of a message can't look like these: its quotes are escaped.
        head = line[:_SEARCHED]
        found = {"session": _SESSION_ID.search(head), "method": _METHOD.search(head), "id": _ID.search(head)}
        session, method, rpc_id = (match[1].decode("utf-8", "replace") if match else "" for match in found.values())
        if not method:
            return session if session in self.sessions else self._busy
        params = {"sessionId": session} if session in self.sessions else {}
        return (
            self._message(side, {"method": method, "params": params, "id": json.loads(rpc_id or "null", strict=False)})
            or self._busy
        )

    def _message(self, side: str, message: Mapping[str, Any]) -> str:
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return self._answer(side, message)
        params = params if isinstance(params, dict) else {}
        session, cwd = _text(params.get("sessionId")), _text(params.get("cwd"))
        if message.get("id") is not None:
            asked = self._asked[side]
            asked[_id(message["id"])] = Asked(method, session, cwd)
            while len(asked) > _MOST_ASKED:
                del asked[next(iter(asked))]
        if session:
            self._meet(session, cwd, loaded=side == CLIENT and method in ("session/load", "session/resume"))
        if session and method == "session/prompt":
            self._busy = session
            self.prompted.add(session)
        return session

    def _answer(self, side: str, message: Mapping[str, Any]) -> str:
        asked = self._asked[CLIENT if side == AGENT else AGENT].pop(_id(message.get("id")), None)
        if asked is None:
            return ""
        result = message.get("result")
        result = result if isinstance(result, dict) else {}
        if asked.method == "initialize":
            self._introduce(result.get("agentInfo"))
        made = _text(result.get("sessionId"))
        if made and asked.method in ("session/new", "session/fork"):
            self._meet(made, asked.cwd, parent=asked.session)
        return asked.session or made

    def _introduce(self, info: object) -> None:
        if isinstance(info, dict) and _text(info.get("name")) and not self.sessions:
            # An agent that has a name of its own has ids of its own, whatever the command is called.
            self._introduced = agent_named(info["name"])
            self.version = _text(info.get("version"))[:100]

    def _meet(self, session: str, cwd: str, *, loaded: bool = False, parent: str = "") -> None:
        if not self.sessions:
            self._given = self.agent  # from here on it stands
        known = self.sessions.get(session)
        if known is None:
            # Some agents talk of a new session before they answer the request that made it.
            waiting = [asked.cwd for asked in self._asked[CLIENT].values() if asked.method == "session/new"]
            self.sessions[session] = Session(session, cwd or (waiting[-1] if waiting else ""), loaded, parent)
        elif parent and not known.parent:
            self.sessions[session] = known._replace(parent=parent)
        if not self._busy:
            self._busy = session


def agent_named(*names: str) -> str:
    """Our name of an agent, by what it calls itself or is called."""
    for name in names:
        base = name.rstrip("/").rpartition("/")[2].lower()
        for agent in AGENTS:
            if agent in base and not name.startswith("-"):
                return agent
    return UNNAMED


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _id(value: object) -> object:
    """1 and "1" are two ids, 1 and 1.0 and True are not worth telling apart."""
    return value if isinstance(value, (str, int, float)) else None
