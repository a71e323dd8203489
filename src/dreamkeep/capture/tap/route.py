"""Which session a frame of an ACP connection belongs to. Pure: remembers what was asked, touches nothing.

    params.sessionId ──► that session           response ──► the session of its request
    result of session/new ──► the new session   nothing of it ──► "", the keep's own journal

Clients ask for sessions that they remember and the agent does not have. So a session is *met* only when the agent says so: by a
result, or by naming it itself. Until then it is only *named*, and its frames begin no session (`met`, `refused`).

Lines that can't be read, and stderr, go where somebody was asked last. A line in pieces can't be parsed, only searched.
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
        #: Those the agent knows of, and those that so far only the client speaks of.
        self.sessions: dict[str, TapSession] = {}
        self._named: dict[str, TapSession] = {}
        self._asked: dict[str, dict[Any, TapRequest]] = {CLIENT: {}, AGENT: {}}
        #: Sessions that were prompted; whoever looks takes them out.
        self.prompted: set[str] = set()
        #: The session that was asked for something last, and the one before it that is known to be there.
        self._busy = ""
        self._was_busy = ""
        #: Where the pieces of a frame that is too long for one go.
        self._going_on: dict[str, str] = {}

    @property
    def agent(self) -> str:
        return self._given or self._introduced or self._by_command

    def agents(self) -> Sequence[str]:
        """Whose a session that was not met may turn out to be."""
        known = self._given or self._introduced
        return (known,) if known else (*(agent.name for agent in registry.agents() if agent.acp_names), UNNAMED)

    def knows_session(self, session: str) -> bool:
        return session in self.sessions or not session

    def refused(self, session: str) -> bool:
        """Only the client spoke of it, and the agent has nothing more to say to that."""
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
        # One stream for all sessions of an agent: a line that names one of them is that one's.
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
        # Text inside of a message can't look like these: its quotes are escaped.
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
            self._meet(session, cwd)
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
            self._meet(made, asked.cwd, parent=asked.session)
        if asked.session and side == AGENT:
            # A result for a session that goes is no reason to begin one here.
            there = "result" in message and not message.get("error") and asked.method != "session/delete"
            self._note_answer(asked.session, there=there)
        return asked.session or made

    def _note_answer(self, session: str, *, there: bool) -> None:
        """The agent has answered a request that names a session."""
        if there:
            self._meet(session, "")
        elif self.refused(session):
            self.prompted.discard(session)
            if self._busy == session:
                self._busy = self._was_busy

    def _introduce(self, info: object) -> None:
        if self.sessions:
            return
        if isinstance(info, dict) and _text(info.get("name")):
            # An agent that has a name of its own has ids of its own, whatever the command is called.
            self._introduced = agent_named(info["name"])
            self.version = _text(info.get("version"))[:100]
        else:
            self._introduced = self._introduced or self._by_command  # it had the chance

    def _name(self, session: str, cwd: str, *, loaded: bool) -> None:
        known = self._named.pop(session, None) or TapSession(session)
        self._named[session] = known._replace(cwd=known.cwd or cwd, loaded=known.loaded or loaded)
        while len(self._named) > _MOST_ASKED:
            del self._named[next(iter(self._named))]

    def _meet(self, session: str, cwd: str, *, parent: str = "") -> None:
        if not self.sessions:
            self._given = self.agent  # from here on it stands
        known = self.sessions.get(session)
        if known is None:
            # Some agents talk of a new session before they answer the request that made it.
            waiting = [asked.cwd for asked in self._asked[CLIENT].values() if asked.method == "session/new"]
            named = self._named.pop(session, None) or TapSession(session, cwd or (waiting[-1] if waiting else ""))
            self.sessions[session] = named._replace(cwd=named.cwd or cwd, parent=parent)
        elif parent and not known.parent:
            self.sessions[session] = known._replace(parent=parent)
        if not self._busy:
            self._busy = session


def agent_named(*names: str) -> str:
    """Our name of an agent, by what it calls itself or is called."""
    for name in names:
        base = name.rstrip("/").rpartition("/")[2].lower()
        for agent in registry.agents():
            if any(called in base for called in agent.acp_names) and not name.startswith("-"):
                return agent.name
    return UNNAMED


def ids_in(line: bytes) -> set[str]:
    """Native ids of all sessions that a line names. (Not those in somebody's text: there a quote has a backslash before it.)"""
    return {found[1].decode("utf-8", "replace") for found in _SESSION_ID.finditer(line)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _id(value: object) -> object:
    """1 and "1" are two ids, 1 and 1.0 and True are not worth telling apart."""
    return value if isinstance(value, (str, int, float)) else None
