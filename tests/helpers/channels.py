"""One session of Claude Code on three channels (transcript, hooks, tap), and a keep that captures them in any order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dreamkeep import Keep
from dreamkeep.event import Event, Kind
from dreamkeep.session.raw import pack

SID = "5f0c2d1e-0000-4000-8000-00000000000a"
SESSION = f"claude:{SID}"


def line(role: str, uuid: str, content: Any, at: int, **message: Any) -> bytes:
    said = {"role": role, "content": content, **message}
    record = {
        "parentUuid": None,
        "isSidechain": False,
        "type": role,
        "message": said,
        "uuid": uuid,
        "timestamp": f"2026-11-01T10:00:{at:02d}.000Z",
        "sessionId": SID,
        "cwd": "/home/dev/shop",
    }
    return json.dumps(record).encode()


def tool(name: str, id: str, given: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": id, "name": name, "input": given}]


TRANSCRIPT = [
    line("user", "u1", "continue", 1),
    line("assistant", "u2", tool("Bash", "toolu_1", {"command": "ls"}), 2, id="m1", stop_reason="tool_use"),
    line("user", "u3", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}], 3),
    line("assistant", "u4", [{"type": "text", "text": "There is a.txt."}], 4, id="m2", stop_reason="end_turn"),
    line("user", "u5", "continue", 5),
    line("assistant", "u6", [{"type": "text", "text": "Done."}], 6, id="m3", stop_reason="end_turn"),
]


def rpc(side: str, **frame: Any) -> tuple[str, bytes]:
    return side, json.dumps({"jsonrpc": "2.0", **frame}).encode()


def update(**what: Any) -> tuple[str, bytes]:
    return rpc("a", method="session/update", params={"sessionId": SID, "update": what})


def chunk(text: str) -> tuple[str, bytes]:
    return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def prompt(id: int, text: str) -> tuple[str, bytes]:
    return rpc("c", id=id, method="session/prompt", params={"sessionId": SID, "prompt": [{"type": "text", "text": text}]})


FRAMES = [
    prompt(1, "continue"),
    update(sessionUpdate="tool_call", toolCallId="toolu_1", title="ls", kind="execute", rawInput={"command": "ls"}),
    update(
        sessionUpdate="tool_call_update",
        toolCallId="toolu_1",
        status="completed",
        content=[{"type": "content", "content": {"type": "text", "text": "a.txt"}}],
    ),
    chunk("There is "),
    chunk("a.txt."),
    rpc("a", id=1, result={"stopReason": "end_turn"}),
    prompt(2, "continue"),
    chunk("Done."),
    rpc("a", id=2, result={"stopReason": "end_turn"}),
]

HOOKS: list[tuple[str, dict[str, Any]]] = [
    ("SessionStart", {"source": "startup"}),
    ("UserPromptSubmit", {"prompt": "continue"}),
    ("PostToolUse", {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": "a.txt", "tool_use_id": "toolu_1"}),
    ("Stop", {"last_assistant_message": "There is a.txt."}),
    ("UserPromptSubmit", {"prompt": "continue"}),
    ("Stop", {"last_assistant_message": "Done."}),
]


class Heard:
    """Captured events of one session, put into a keep's journal one by one."""

    def __init__(self, root: Path, session: str = SESSION) -> None:
        self.keep = Keep.open(root, environment={})
        self._session = session
        self._journals = self.keep.context.journals()
        self._n = 0

    def say(self, kind: str, body: Any) -> None:
        self._n += 1
        at = f"2026-11-01T11:00:{self._n % 60:02d}.000000Z"
        self._journals.append(self._session, [Event(f"event-{self._n}", kind, at, body)])

    def lines(self, *lines: bytes) -> None:
        self.say(Kind.SOURCE_READ, pack({"source": "main-1", "role": "main", "gen": 1, "at": 0}, lines))

    def frames(self, *frames: tuple[str, bytes], conn: str = "conn-1") -> None:
        places = [[self._n * 100 + n, side, 1_793_527_200_000_000_000 + n] for n, (side, _) in enumerate(frames)]
        self.say(Kind.TAP_FRAMES, pack({"conn": conn, "frames": places}, [raw for _, raw in frames]))

    def hooks(self, *calls: tuple[str, dict[str, Any]]) -> None:
        about = [
            {"event": e, "at": f"2026-11-01T10:00:{self._n:02d}.{n:06d}Z", "spool": f"{self._n}-{n}"}
            for n, (e, _) in enumerate(calls)
        ]
        payloads = [
            json.dumps({"session_id": SID, "cwd": "/home/dev/shop", "hook_event_name": e, **p}).encode() for e, p in calls
        ]
        self.say(Kind.HOOK_FIRED, pack({"agent": "claude", "calls": about}, payloads))

    def shown(self) -> dict[str, Any]:
        return self.keep.show(self._session)

    def words(self) -> list[tuple[str, str]]:
        return [(m["role"], m["text"]) for m in self.shown()["messages"] if m["role"] in ("user", "assistant") and m["text"]]


WORDS = [("user", "continue"), ("assistant", "There is a.txt."), ("user", "continue"), ("assistant", "Done.")]


def assert_everything_once(heard: Heard) -> None:
    shown = heard.shown()
    assert sorted(heard.words()) == sorted(WORDS)
    assert [t["prompt"] for t in shown["turns"]] == ["continue", "continue"]
    assert [t["state"] for t in shown["turns"]] == ["completed", "completed"]
    calls = [m for m in shown["messages"] if m.get("tool") and m["role"] == "assistant"]
    results = [m for m in shown["messages"] if m.get("tool") and m["role"] == "tool"]
    assert (len(calls), len(results)) == (1, 1)
    assert not any(m.get("mark") == "partial" for m in shown["messages"])
    assert shown["session"]["messages"] == len(shown["messages"])
