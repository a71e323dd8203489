"""A home as pi leaves it, made up.

    MAIN    tools, thinking, an error, a stop by the user, a crash, a compaction, a branch that was left with a summary, the
            user's own shell command, an extension's words, a name, an unknown kind, a torn line
    COPY    a fork of MAIN: its first entries copied, ids and all; the header points back
    FIRST   of the first version: no ids; branched from MAIN

Nothing in it happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.agents.expected import compaction, completed, roles, session

MAIN = "01a1e096-0000-7000-8000-0000000000a1"
COPY = "01a1e096-0000-7000-8000-0000000000a2"
FIRST = "01a1e096-0000-7000-8000-0000000000a3"
CWD = "/home/dev/shop"
FOLDER = ".pi/agent/sessions/--home-dev-shop--"

Line = dict[str, Any]


class Tree:
    def __init__(self, session: str, *, minute: int = 0, **header: Any) -> None:
        self._second = minute * 60
        stamp = self.now()
        self.name = f"{stamp.replace(':', '-').replace('.', '-')}_{session}.jsonl"
        self.lines: list[Line] = [{"type": "session", "version": 3, "id": session, "timestamp": stamp, "cwd": CWD, **header}]
        self.leaf: str | None = None

    def now(self) -> str:
        self._second += 1
        return f"2026-11-15T10:{self._second // 60:02}:{self._second % 60:02}.402Z"

    def entry(self, kind: str, *, parent: str | None = "", **more: Any) -> str:
        entry = f"{0x5EED0000 + self._second:08x}"
        self.lines.append(
            {"type": kind, "id": entry, "parentId": self.leaf if parent == "" else parent, "timestamp": self.now(), **more}
        )
        self.leaf = entry
        return entry

    def user(self, content: object, **more: Any) -> str:
        return self.entry("message", message={"role": "user", "content": content, "timestamp": 1794769343445}, **more)

    def answer(self, *blocks: Line, stop: str = "stop", **more: Any) -> str:
        about = {"api": "openai-completions", "provider": "stub", "model": "stub-model", "usage": {"input": 10, "output": 2}}
        return self.entry("message", message={"role": "assistant", "content": list(blocks), **about, "stopReason": stop, **more})

    def result(self, call: str, name: str, words: str, *, error: bool = False) -> str:
        content = [{"type": "text", "text": words}]
        message = {"role": "toolResult", "toolCallId": call, "toolName": name, "content": content, "isError": error}
        return self.entry("message", message=message)


def say(words: str) -> Line:
    return {"type": "text", "text": words}


def call(tool: str, name: str, **given: Any) -> Line:
    return {"type": "toolCall", "id": tool, "name": name, "arguments": given}


def first_turn(t: Tree) -> None:
    t.entry("model_change", provider="stub", modelId="stub-model")
    t.entry("thinking_level_change", thinkingLevel="off")
    t.user([say("Why is the build slow?"), {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}])
    t.answer({"type": "thinking", "thinking": "Measure first."}, call("call_1", "bash", command="time make"), stop="toolUse")
    t.result("call_1", "bash", "real 3m2s\nCommand exited with code 2", error=True)
    t.answer(say("The linker takes two minutes."))


def main_tree() -> Tree:
    t = Tree(MAIN)
    first_turn(t)
    t.user("Use the other linker.")
    t.answer(stop="error", errorMessage="429 rate limit")
    fork_point = t.leaf
    t.user("Try lld.")
    t.answer(say("Trying l"), stop="aborted")
    t.entry("branch_summary", parent=fork_point, fromId=fork_point, summary="lld was begun and left.")
    t.user("Try mold.")
    t.answer(call("call_2", "write", path="ld.conf", content="mold"), stop="toolUse")
    t.result("call_2", "write", "Successfully wrote 4 bytes to ld.conf")
    kept = t.answer(say("Mold is set."))
    t.entry("compaction", summary="The build was slow; mold is set.", firstKeptEntryId=kept, tokensBefore=195020, fromHook=False)
    shell = {"role": "bashExecution", "command": "make", "output": "ok", "exitCode": 0, "cancelled": False, "truncated": False}
    t.entry("message", message=shell)
    t.entry("custom_message", customType="memory", content="The user likes short answers.", display=False)
    t.entry("custom", customType="memory-state", data={"n": 1})
    t.entry("session_info", name="Faster builds")
    t.entry("label", targetId=kept, label="good")
    t.user("Measure again.")
    t.answer(call("call_3", "bash", command="time make"), stop="toolUse")
    t.result("call_3", "bash", "real 0m40s")
    t.user("Are you there?")  # after a crash: nothing says how the turn before ended
    t.answer(say("Yes: 40 seconds now."))
    t.entry("hologram", data={})
    return t


def copy_tree() -> Tree:
    parent = Tree(MAIN)
    first_turn(parent)
    t = Tree(COPY, minute=30, parentSession=f"/home/dev/{FOLDER}/{parent.name}")
    t.lines += parent.lines[1:]
    t.leaf = parent.leaf
    t.user("And the tests?")
    t.answer(say("They take a minute."))
    return t


def first_tree() -> Tree:
    main = Tree(MAIN)
    t = Tree(FIRST, minute=40)
    t.lines[0] = {"type": "session", "id": FIRST, "timestamp": t.now(), "cwd": CWD, "provider": "stub", "modelId": "stub-model"}
    t.lines[0]["branchedFrom"] = f"C:\\pi\\{main.name}"
    t.user("Hello")
    t.answer(say("Hi!"))
    t.lines = [
        {key: value for key, value in line.items() if n == 0 or key not in ("id", "parentId")} for n, line in enumerate(t.lines)
    ]
    return t


def text_of(lines: Iterable[Line]) -> str:
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def files() -> dict[str, str]:
    """Path below the home → text."""
    main, copy, first = main_tree(), copy_tree(), first_tree()
    return {
        f"{FOLDER}/{main.name}": text_of(main.lines) + '{"type":"message","id":"5eed9999","par\n',
        f"{FOLDER}/{copy.name}": text_of(copy.lines),
        f"{FOLDER}/{first.name}": text_of(first.lines),
        ".pi/agent/settings.json": "{}\n",
    }


def write(home: Path) -> None:
    for name, content in files().items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("time make", True), ("time make", False)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"pi:{MAIN}",
            "Faster builds",
            CWD,
            turns=[
                ("Why is the build slow?\n[image]", "completed"),
                ("Use the other linker.", "failed"),
                ("Try lld.", "cancelled"),
                ("Try mold.", "completed"),
                ("Measure again.", "open"),
                ("Are you there?", "completed"),
            ],
            roles=roles(user=7, assistant=7, tool=3, reasoning=1, summary=2, system=2),
            tool_calls=[
                {"name": "bash", "error": True},
                {"name": "write", "error": False},
                {"name": "bash", "error": False},
            ],
            compactions=[compaction()],
            segments=2,
            # The answer that was begun and then left is partial; going back marks only what had no mark.
            marks={"partial": 1, "rewound": 1, "meta": 2, "hook": 1},
            unknown={"hologram": 1},
            odd=1,
        ),
        session(
            f"pi:{COPY}",
            "And the tests?",
            CWD,
            turns=completed("And the tests?"),
            roles=roles(user=2, assistant=3, tool=1, reasoning=1),
            tool_calls=[{"name": "bash", "error": True}],
            lineage=[{"kind": "fork", "session": f"pi:{MAIN}"}],
            marks={"copied": 5},
        ),
        session(
            f"pi:{FIRST}",
            "Hello",
            CWD,
            turns=completed("Hello"),
            roles=roles(user=1, assistant=1),
            lineage=[{"kind": "fork", "session": f"pi:{MAIN}"}],
        ),
    ]
}
