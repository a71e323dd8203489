"""A home folder as Qwen Code leaves it: tools, hooks, a compaction, a rewind, a crash, a branch, a subagent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.expected import compaction, completed, roles, session

MAIN = "c4a1f0d2-2f0e-4c7c-9f0a-5b7d7a0f9e21"
BRANCH = "e0b7c9a4-8d35-4a41-b3a5-1c2f6f0d7b32"
FOLDER = "/home/mira/orchard"
_SLUG = "-home-mira-orchard"
_HOOK = "<qwen:user-prompt-submit-context>\n{}\n</qwen:user-prompt-submit-context>"


class Chat:
    def __init__(self, session: str, name: str = "r") -> None:
        self.records: list[dict[str, Any]] = []
        self._session = session
        self._name = name
        self.last: str | None = None

    def add(self, kind: str, parts: list[dict[str, Any]] | None = None, role: str = "user", **more: Any) -> dict[str, Any]:
        n = len(self.records) + 1
        record: dict[str, Any] = {
            "uuid": f"{self._name}-{n:04d}",
            "parentUuid": self.last,
            "sessionId": self._session,
            "timestamp": f"2026-04-11T07:{n:02d}:00.000Z",
            "type": kind,
            "cwd": FOLDER,
            "version": "0.19.2",
            "gitBranch": "main",
        }
        if parts is not None:
            record["message"] = {"role": role, "parts": parts}
        record |= more
        self.records.append(record)
        self.last = record["uuid"]
        return record

    def prompt(self, words: str, context: str = "", **more: Any) -> dict[str, Any]:
        parts = [{"text": words}]
        if context:
            parts.append({"text": _HOOK.format(context)})
            more["systemPayload"] = {"displayText": words, "hookContext": context}
        return self.add("user", parts, **more)

    def answer(self, *parts: dict[str, Any]) -> dict[str, Any]:
        return self.add("assistant", list(parts), "model", model="qwen3-coder-plus", usageMetadata={"totalTokenCount": 900})

    def call(self, native: str, name: str, response: dict[str, Any], status: str = "success", words: str = "") -> None:
        said = [{"text": words}] if words else []
        self.answer(*said, {"functionCall": {"id": native, "name": name, "args": {"path": "trees.csv"}}})
        part = {"functionResponse": {"id": native, "name": name, "response": response}}
        self.add("tool_result", [part], toolCallResult={"callId": native, "status": status})

    def system(self, subtype: str, **payload: Any) -> dict[str, Any]:
        return self.add("system", subtype=subtype, systemPayload=payload)

    def text(self) -> str:
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in self.records)


def _main() -> Chat:
    chat = Chat(MAIN)
    chat.prompt("Which trees need pruning?", "It is April.", promptId=f"{MAIN}########0")
    chat.call("call_1", "read_file", {"output": "apple,2019\npear,2024"}, words="I read the list.")
    chat.call("call_2", "grep", {"error": "no such tool"}, "error")
    chat.answer({"text": "Old trees first.", "thought": True}, {"text": "The apple trees of 2019."})
    chat.system("ui_telemetry", uiEvent={"event.name": "qwen-code.api_response"})
    chat.system("attribution_snapshot", snapshot={})
    chat.system("custom_title", customTitle="Pruning the apple trees", titleSource="auto")
    chat.add("user", [{"text": "A background task has ended."}], subtype="notification", provenance="system")
    # The process was stopped here; the next one counts its prompts from 0 again.
    chat.prompt("Make a calendar.", promptId=f"{MAIN}########0")
    chat.prompt("Make the calendar, please.", promptId=f"{MAIN}########1")
    history = [
        {"role": "user", "parts": [{"text": "<state_snapshot>Apple trees of 2019; a calendar is wanted.</state_snapshot>"}]},
        {"role": "model", "parts": [{"text": "Got it. Thanks for the additional context!"}]},
        {"role": "user", "parts": [{"text": "Make the calendar, please."}]},
    ]
    info = {"originalTokenCount": 91000, "newTokenCount": 2100, "compressionStatus": 1}
    chat.system("chat_compression", info=info, compressedHistory=history)
    chat.answer({"text": "Pruning: 12 to 20 April."})
    chat.system("turn_result", promptId=f"{MAIN}########1", state="completed", stopReason="end_turn", endedAt=1775891000000)
    return chat


def _taken_back(chat: Chat) -> None:
    before = chat.last
    chat.prompt("Cut down the pear tree.")
    chat.answer({"text": "Shall I really?"})
    chat.last = before
    chat.system("rewind", truncatedCount=2)
    chat.prompt("And the pear?")
    chat.system("weather_report", sunny=True)
    chat.system("turn_result", promptId="", state="cancelled", endedAt=1775891100000)


def _branch(parent: Chat) -> str:
    chat = Chat(BRANCH, "b")
    for record in parent.records[:6]:
        chat.records.append(record | {"sessionId": BRANCH, "forkedFrom": {"sessionId": MAIN, "messageUuid": record["uuid"]}})
        chat.last = record["uuid"]
    chat.prompt("Only the pears, then.")
    chat.answer({"text": "The pear needs nothing."})
    return chat.text()


def _subagent() -> str:
    chat = Chat(MAIN, "a")
    more: dict[str, Any] = {"agentId": "explore-7f3c", "isSidechain": True}
    chat.add("user", [{"text": "Count the trees."}], subtype="agent_launch_prompt", **more)
    chat.add("assistant", [{"text": "Two."}], "model", model="qwen3-coder-plus", **more)
    return chat.text()


def write(home: Path) -> None:
    project = home / ".qwen" / "projects" / _SLUG
    (project / "chats").mkdir(parents=True)
    (project / "subagents" / MAIN).mkdir(parents=True)
    main = _main()
    _taken_back(main)
    # A power cut in the middle of a line, and NULs where blocks were never written.
    torn = main.text() + '{"uuid":"r-9999","parentUu\n' + "\0" * 64 + "\n"
    (project / "chats" / f"{MAIN}.jsonl").write_text(torn, encoding="utf-8")
    (project / "chats" / f"{BRANCH}.jsonl").write_text(_branch(main), encoding="utf-8")
    (project / "subagents" / MAIN / "agent-explore-7f3c.jsonl").write_text(_subagent(), encoding="utf-8")


#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = []

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"qwen:{MAIN}",
            "Pruning the apple trees",
            FOLDER,
            turns=[
                ("Which trees need pruning?", "completed"),
                ("Make a calendar.", "open"),
                ("Make the calendar, please.", "completed"),
                ("Cut down the pear tree.", "completed"),
                ("And the pear?", "cancelled"),
            ],
            roles=roles(user=5, assistant=6, tool=2, reasoning=1, summary=1, system=2),
            tool_calls=[{"name": "read_file", "error": False}, {"name": "grep", "error": True}],
            compactions=[compaction()],
            segments=2,
            marks={"hook": 1, "meta": 1, "rewound": 2},
            unknown={"system/weather_report": 1},
            # The torn line, and the NULs.
            odd=2,
        ),
        session(
            f"qwen:{BRANCH}",
            "Only the pears, then.",
            FOLDER,
            turns=completed("Only the pears, then."),
            # Of six copied records: a prompt, a hook's words, words and two calls, two results, a thought, an answer.
            roles=roles(user=2, assistant=5, tool=2, reasoning=1, system=1),
            tool_calls=[{"name": "read_file", "error": False}, {"name": "grep", "error": True}],
            lineage=[{"kind": "fork", "session": f"qwen:{MAIN}"}],
            marks={"copied": 9},
        ),
        session(
            f"qwen:{MAIN}/agent-explore-7f3c",
            "Count the trees.",
            FOLDER,
            turns=completed("Count the trees."),
            roles=roles(user=1, assistant=1),
            lineage=[{"kind": "subagent", "session": f"qwen:{MAIN}"}],
        ),
    ]
}
