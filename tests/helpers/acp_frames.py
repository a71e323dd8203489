"""ACP frames for tests: what client and agent say, and how the reader's facts count."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.acp import reader as acp
from dreamkeep.agents.facts import Record
from dreamkeep.agents.shared.values import digest
from tests.helpers.agent_samples import REAL_TRANSCRIPTS
from tests.paths import TESTS

REAL = REAL_TRANSCRIPTS / "acp"
EXPECTED = {one["file"]: one for one in json.loads((TESTS / "expected" / "acp.json").read_text())["sessions"]}
AT = "2026-11-15T18:48:17.000000Z"
SIDES = {"c": "client", "a": "agent"}

Said = tuple[str, Any]  # ("c" | "a" | "e", frame or line)


def records(said: Iterable[Said], conn: str = "c1") -> list[Record]:
    """As the tap journals one session's frames and the fold hands them on."""
    found = []
    for n, (side, what) in enumerate(said, 1):
        place = f"{conn}#{n}"
        if side == "e":
            found.append(Record("stderr", None, what, "", place, AT))
        elif isinstance(what, dict):
            found.append(Record("acp", what, "", SIDES[side], place, AT))
        else:
            found.append(Record("acp", None, what, SIDES[side], place, AT))
    return found


def opened(agent: str = "acp", session: str = "s", conn: str = "c1", **more: Any) -> Record:
    return Record("acp", {"conn": conn, "agent": agent, "session": session, **more}, "", "opened", conn, AT)


def closed(conn: str = "c1", reason: str = "the agent was killed by SIGKILL") -> Record:
    return Record("acp", {"conn": conn, "reason": reason}, "", "closed", conn, AT)


def read(given: Iterable[Record]) -> list[f.Fact]:
    """With a new reader for every record: what it knows must be in its state, as JSON."""
    found: list[f.Fact] = []
    state: dict[str, Any] = {}
    for record in given:
        reader = acp.Reader(json.loads(json.dumps(state)))
        found += reader.read(record)
        state = reader.state
    whole = acp.Reader({})
    assert [fact for record in given for fact in whole.read(record)] == found
    return found


def of(kind: type, found: Iterable[f.Fact]) -> list[Any]:
    return [one for one in found if isinstance(one, kind)]


def likeness(said: f.MessageSaid) -> str:
    if said.tool:
        return digest(said.role, said.tool["id"])
    return digest(said.role, " ".join(said.text.split()))


def replayed(key: str) -> tuple[str, int] | None:
    """(the key it has if it was heard live, how many with the same words came before it in the replay); None: no replay's key."""
    if not key.startswith(acp.REPLAY):
        return None
    number, _, native = key[len(acp.REPLAY) :].partition(":")
    return native, int(number)


def messages(found: Iterable[f.Fact]) -> list[f.MessageSaid]:
    """The rule for history: by its key, else by its words, else it is new."""
    kept: dict[str, f.MessageSaid] = {}
    for said in of(f.MessageSaid, found):
        replay = replayed(said.key)
        if replay and said.key not in kept:
            native, n = replay
            alike = [one for key, one in kept.items() if likeness(one) == likeness(said) and not replayed(key)]
            if native in kept or len(alike) > n:
                continue
        kept[said.key] = said
    return list(kept.values())


def ask(number: int, method: str, **params: Any) -> Said:
    return "c", {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def prompt(number: int, text: str, session: str = "s") -> Said:
    return ask(number, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])


def answer(number: int, **result: Any) -> Said:
    return "a", {"jsonrpc": "2.0", "id": number, "result": result}


def update(kind: str, session: str = "s", **more: Any) -> Said:
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **more}}
    return "a", {"jsonrpc": "2.0", "method": "session/update", "params": params}


def chunk(text: str, who: str = "agent_message", session: str = "s", **more: Any) -> Said:
    return update(f"{who}_chunk", session, content={"type": "text", "text": text}, **more)


def tool(native: str, kind: str = "tool_call", **more: Any) -> Said:
    return update(kind, toolCallId=native, **more)


#: A conversation, and what the agent tells of it again when a client loads the session.
FIRST = [
    prompt(3, "build it"),
    chunk("On it."),
    tool("t1", title="bash", rawInput={"command": "make"}),
    tool("t1", "tool_call_update", status="completed", rawOutput="ok"),
    chunk("\n\nDone."),
    answer(3, stopReason="end_turn"),
    prompt(4, "continue"),
    chunk("Yes."),
    answer(4, stopReason="end_turn"),
    prompt(5, "continue"),
    chunk("Yes."),
    answer(5, stopReason="end_turn"),
]
LOAD = ask(2, "session/load", sessionId="s", cwd="/w")
REPLAY = [
    chunk("build it", "user_message"),
    chunk("On it."),
    tool("t1", title="exec", rawInput={"cmd": "make"}, status="completed"),
    tool("t1", "tool_call_update", status="completed", rawOutput="Wall time 1 s\nok"),
    chunk("Done."),
    chunk("continue", "user_message"),
    chunk("Yes."),
    chunk("continue", "user_message"),
    chunk("Yes."),
]
