"""Finds the session that a frame of an ACP connection belongs to. Pure: it only remembers the requests.

    params.sessionId ──► that session           response ──► the session of its request
    result of session/new ──► the new session   none of these ──► "", the keep's own journal

Clients ask for sessions that they remember, and that the agent may no longer have. So only the agent can *confirm* a session: by
a result, or by naming the session itself. Until then the session is only *named*, and its frames open no journal
(`knows_session`, `refused`).

Lines that can't be parsed, and stderr, belong to the session that was prompted last. A line in pieces is only searched for names.
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
    """What the connection has said about a session."""

    native: str
    cwd: str = ""
    loaded: bool = False
    parent: str = ""


class Router:
    def __init__(self, agent: str | None, command: Sequence[str]) -> None:
        self._chosen = agent
        self._by_command = agent_named(*command[:_WORDS_OF_COMMAND])
        self._by_itself: str | None = None
        self.version = ""
        #: Sessions that the agent has confirmed; and those that only the client has named so far.
        self.sessions: dict[str, TapSession] = {}
        self._named: dict[str, TapSession] = {}
        self._requests: dict[str, dict[Any, TapRequest]] = {CLIENT: {}, AGENT: {}}
        #: Sessions that were prompted. `Copier` removes each when it has journaled that.
        self.prompted: set[str] = set()
        #: The session that was prompted last, and the last confirmed one before it.
        self._busy = ""
        self._was_busy = ""
        #: Side → session of a line whose next piece is still to come.
        self._unended: dict[str, str] = {}

    @property
    def agent(self) -> str:
        return self._chosen or self._by_itself or self._by_command

    def agents(self) -> Sequence[str]:
        """The agents that an unconfirmed session may belong to."""
        known = self._chosen or self._by_itself
        return (known,) if known else (*(agent.name for agent in registry.agents() if agent.acp_names), UNNAMED)

    def knows_session(self, session: str) -> bool:
        return session in self.sessions or not session

    def refused(self, session: str) -> bool:
        """Only the client named it, and no request for it is open."""
        return not self.knows_session(session) and not any(asked.session == session for asked in self._requests[CLIENT].values())

    def about(self, session: str) -> TapSession | None:
        return self.sessions.get(session) or self._named.get(session)

    def route(self, side: str, line: bytes, *, unended: bool = False) -> str:
        """The native id of its session; "" for none. `unended`: the rest of the line comes later."""
        unended_target = self._unended.pop(side, None)
        if unended_target is not None:
            target = unended_target
        elif side == STDERR:
            target = self._session_in_log(line)
        else:
            target = self._session_in_piece(side, line) if unended else self._session_of_line(side, line)
        if unended:
            self._unended[side] = target
        return target

    def _session_in_log(self, line: bytes) -> str:
        # All sessions of an agent share its stderr: a line that names a session belongs to it.
        for found in _LOGGED_SESSION.finditer(line[:_SEARCHED]):
            if self.about(name := found[1].decode("utf-8", "replace")):
                return name
        return self._busy

    def _session_of_line(self, side: str, line: bytes) -> str:
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            return self._busy
        if isinstance(parsed, list):
            targets = [self._session_of_message(side, message) for message in parsed if isinstance(message, dict)]
            return next((target for target in targets if target), "")
        return self._session_of_message(side, parsed) if isinstance(parsed, dict) else self._busy

    def _session_in_piece(self, side: str, line: bytes) -> str:
        # Text inside a message can't match, because its quotes are escaped.
        head = line[:_SEARCHED]
        found = {"session": _SESSION_ID.search(head), "method": _METHOD.search(head), "id": _ID.search(head)}
        session, method, rpc_id = (match[1].decode("utf-8", "replace") if match else "" for match in found.values())
        if not method:
            return session if self.about(session) else self._busy
        params = {"sessionId": session} if self.about(session) else {}
        message = {"method": method, "params": params, "id": json.loads(rpc_id or "null", strict=False)}
        return self._session_of_message(side, message) or self._busy

    def _session_of_message(self, side: str, message: Mapping[str, Any]) -> str:
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return self._session_of_answer(side, message)
        params = params if isinstance(params, dict) else {}
        session, cwd = _text(params.get("sessionId")), _text(params.get("cwd"))
        if message.get("id") is not None:
            asked = self._requests[side]
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

    def _session_of_answer(self, side: str, message: Mapping[str, Any]) -> str:
        asked = self._requests[CLIENT if side == AGENT else AGENT].pop(_id(message.get("id")), None)
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
            exists = "result" in message and not message.get("error") and asked.method != "session/delete"
            self._note_answer(asked.session, exists=exists)
        return asked.session or made

    def _note_answer(self, session: str, *, exists: bool) -> None:
        """The agent has answered a request that names a session."""
        if exists:
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
            self._by_itself = agent_named(info["name"])
            self.version = _text(info.get("version"))[:100]
        else:
            self._by_itself = self._by_itself or self._by_command  # it did not say its name

    def _name(self, session: str, cwd: str, *, loaded: bool) -> None:
        known = self._named.pop(session, None) or TapSession(session)
        self._named[session] = known._replace(cwd=known.cwd or cwd, loaded=known.loaded or loaded)
        while len(self._named) > _MOST_ASKED:
            del self._named[next(iter(self._named))]

    def _confirm(self, session: str, cwd: str, *, parent: str = "") -> None:
        if not self.sessions:
            self._chosen = self.agent  # must not change any more
        known = self.sessions.get(session)
        if known is None:
            # Some agents name a new session before they answer the request that made it.
            waiting = [asked.cwd for asked in self._requests[CLIENT].values() if asked.method == "session/new"]
            named = self._named.pop(session, None) or TapSession(session, cwd or (waiting[-1] if waiting else ""))
            self.sessions[session] = named._replace(cwd=named.cwd or cwd, parent=parent)
        elif parent and not known.parent:
            self.sessions[session] = known._replace(parent=parent)
        if not self._busy:
            self._busy = session


def agent_named(*names: str) -> str:
    """Our name for an agent, from its own name or its command."""
    for name in names:
        base = name.rstrip("/").rpartition("/")[2].lower()
        for agent in registry.agents():
            if any(called in base for called in agent.acp_names) and not name.startswith("-"):
                return agent.name
    return UNNAMED


def ids_in(line: bytes) -> set[str]:
    """Native ids of all sessions that a line names, except inside texts, where the quotes are escaped."""
    return {found[1].decode("utf-8", "replace") for found in _SESSION_ID.finditer(line)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _id(value: object) -> object:
    """1 and "1" are two ids; 1, 1.0 and True count as the same."""
    return value if isinstance(value, (str, int, float)) else None
