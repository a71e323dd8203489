"""Finds the session that a frame of an ACP connection belongs to. Pure: it only remembers the requests.

    params.sessionId ──► that session           response ──► the session of its request
    result of session/new ──► the new session   nothing of it ──► "", the keep's own journal

Clients ask for sessions that they remember and the agent no longer has. So a session is *confirmed* only by the agent: by a
result, or by naming it itself. Until then it is only *named*, and its frames open no session (`knows_session`, `refused`).

Lines that can't be parsed, and stderr, belong to the session that was prompted last. A line in pieces can only be searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.agents import registry

CLIENT, AGENT, STDERR = "c", "a", "e"
UNNAMED = "acp"

_SEARCHED = 16 << 10
_MOST_ASKED = 1024
_SESSION_ID = re.compile(rb'(?<!\\)"sessionId"\s*:\s*"((?:[^"\\]|\\.){1,500})"')
_METHOD = re.compile(rb'(?<!\\)"method"\s*:\s*"([\w/$]{1,100})"')
_ID = re.compile(rb'(?<!\\)"id"\s*:\s*(\d{1,18}|"[^"\\]{1,200}")')
_LOGGED_SESSION = re.compile(rb"\bsession=(\S{1,500})")
_WORDS_OF_COMMAND = 3


class TapRequest(NamedTuple):
    method: str
    session: str
    cwd: str


class TapSession(NamedTuple):
    """What is known of a session."""

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
        #: Sessions that the agent has confirmed; and those that only the client has named so far.
        self.sessions: dict[str, TapSession] = {}
        self._named: dict[str, TapSession] = {}
        self._asked: dict[str, dict[Any, TapRequest]] = {CLIENT: {}, AGENT: {}}
        #: Sessions that were prompted; the reader removes them.
        self.prompted: set[str] = set()
        #: The session that was prompted last, and the last confirmed one before it.
        self._busy = ""
        self._was_busy = ""
        #: Side → session of a frame whose next piece is still to come.
        self._going_on: dict[str, str] = {}

    @property
    def agent(self) -> str:
        return self._given or self._introduced or self._by_command

    def agents(self) -> Sequence[str]:
        """The agents that an unconfirmed session may belong to."""
        known = self._given or self._introduced
        return (known,) if known else (*(agent.name for agent in registry.agents() if agent.acp_names), UNNAMED)

    def knows_session(self, session: str) -> bool:
        return session in self.sessions or not session

    def refused(self, session: str) -> bool:
        """Only the client named it, and no request for it is open any more."""
        return not self.knows_session(session) and not any(asked.session == session for asked in self._asked[CLIENT].values())

    def about(self, session: str) -> TapSession | None:
        return self.sessions.get(session) or self._named.get(session)

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
        # stderr is shared by all sessions of an agent: a line that names one belongs to it.
        for found in _LOGGED_SESSION.finditer(line[:_SEARCHED]):
            if self.about(name := found[1].decode("utf-8", "replace")):
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
        # Text inside a message can't match: its quotes are escaped.
        head = line[:_SEARCHED]
        found = {"session": _SESSION_ID.search(head), "method": _METHOD.search(head), "id": _ID.search(head)}
        session, method, rpc_id = (match[1].decode("utf-8", "replace") if match else "" for match in found.values())
        if not method:
            return session if self.about(session) else self._busy
        params = {"sessionId": session} if self.about(session) else {}
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
            asked[_id(message["id"])] = TapRequest(method, session, cwd)
            while len(asked) > _MOST_ASKED:
                del asked[next(iter(asked))]
        if session and side == AGENT:
            self._confirm(session, cwd)
        elif session and session not in self.sessions:
            self._name(session, cwd, loaded=method in ("session/load", "session/resume"))
        if session and method == "session/prompt":
            self._was_busy = self._busy if self.knows_session(self._busy) else self._was_busy
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
            self._confirm(made, asked.cwd, parent=asked.session)
        if asked.session and side == AGENT:
            # The result of deleting a session must not open it here.
            there = "result" in message and not message.get("error") and asked.method != "session/delete"
            self._note_answer(asked.session, there=there)
        return asked.session or made

    def _note_answer(self, session: str, *, there: bool) -> None:
        """The agent has answered a request that names a session."""
        if there:
            self._confirm(session, "")
        elif self.refused(session):
            self.prompted.discard(session)
            if self._busy == session:
                self._busy = self._was_busy

    def _introduce(self, info: object) -> None:
        if self.sessions:
            return
        if isinstance(info, dict) and _text(info.get("name")):
            # The agent's own name counts more than the name of the command.
            self._introduced = agent_named(info["name"])
            self.version = _text(info.get("version"))[:100]
        else:
            self._introduced = self._introduced or self._by_command  # it gave no name

    def _name(self, session: str, cwd: str, *, loaded: bool) -> None:
        known = self._named.pop(session, None) or TapSession(session)
        self._named[session] = known._replace(cwd=known.cwd or cwd, loaded=known.loaded or loaded)
        while len(self._named) > _MOST_ASKED:
            del self._named[next(iter(self._named))]

    def _confirm(self, session: str, cwd: str, *, parent: str = "") -> None:
        if not self.sessions:
            self._given = self.agent  # must not change any more
        known = self.sessions.get(session)
        if known is None:
            # Some agents name a new session before they answer the request that made it.
            waiting = [asked.cwd for asked in self._asked[CLIENT].values() if asked.method == "session/new"]
            named = self._named.pop(session, None) or TapSession(session, cwd or (waiting[-1] if waiting else ""))
            self.sessions[session] = named._replace(cwd=named.cwd or cwd, parent=parent)
        elif parent and not known.parent:
            self.sessions[session] = known._replace(parent=parent)
        if not self._busy:
            self._busy = session


def agent_named(*names: str) -> str:
    """Our name of an agent, from its own name or its command."""
    for name in names:
        base = name.rstrip("/").rpartition("/")[2].lower()
        for agent in registry.agents():
            if any(called in base for called in agent.acp_names) and not name.startswith("-"):
                return agent.name
    return UNNAMED


def ids_in(line: bytes) -> set[str]:
    """Native ids of all sessions that a line names. (Not those inside texts, where a backslash stands before each quote.)"""
    return {found[1].decode("utf-8", "replace") for found in _SESSION_ID.finditer(line)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _id(value: object) -> object:
    """1 and "1" are two ids; 1, 1.0 and True count as the same."""
    return value if isinstance(value, (str, int, float)) else None
