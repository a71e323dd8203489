"""A home folder as Gemini CLI leaves it: hooks, a resume, a crash, a compaction, a rewind, a subagent, an older document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.expected import compaction, completed, roles, session

MAIN = "5d0c41f7-7c1e-4b0a-9f55-0b8f3f1c2a10"
OLD = "9a7be210-1f64-4c53-8a0e-6f4d2f3b7c11"
SUBAGENT = "codebase_investigator-6f21ac"
FOLDER = "/home/mira/barometer"
_HASH = "4be2" * 16
_TAIL = "\n\n</session_context>"


class Chat:
    """Writes records in the client's forms; every one a second later than the one before."""

    def __init__(self, session: str, kind: str = "main", minute: int = 14) -> None:
        self.lines: list[str] = []
        self._second = minute * 60
        self._ids = 0
        self._session = session
        self._name = f"{kind[0]}{minute:02d}"
        header = {"sessionId": session, "projectHash": _HASH, "startTime": self.now(), "lastUpdated": self.now(), "kind": kind}
        self.record(header)

    def now(self) -> str:
        self._second += 1
        return f"2026-03-02T09:{self._second // 60:02d}:{self._second % 60:02d}.120Z"

    def record(self, value: Any) -> None:
        self.lines.append(json.dumps(value, ensure_ascii=False))

    def set(self, **members: Any) -> None:
        self.record({"$set": members})

    def listed(self, messages: list[dict[str, Any]]) -> None:
        self.set(messages=messages, lastUpdated=self.now())

    def message(self, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        self._ids += 1
        return {"id": f"{self._name}-{self._ids:04d}", "timestamp": self.now(), "type": kind, "content": content, **more}

    def say(self, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        message = self.message(kind, content, **more)
        self.record(message)
        self.set(lastUpdated=self.now())
        return message

    def prompt(self, words: str, *contexts: str) -> dict[str, Any]:
        shown = [{"text": words}]
        content = shown + [{"text": f"<hook_context>{context}</hook_context>"} for context in contexts]
        return self.say("user", content, displayContent=shown)

    def answer(self, words: str, thoughts: list[dict[str, str]] | None = None) -> dict[str, Any]:
        tokens = {"input": 4100, "output": 20, "cached": 0, "thoughts": 0, "tool": 0, "total": 4120}
        return self.say("gemini", words, thoughts=thoughts or [], tokens=tokens, model="gemini-2.5-pro")

    def calls(self, words: str, *calls: tuple[str, str, dict[str, Any], dict[str, str], str]) -> list[dict[str, Any]]:
        """The model's message, the same with what its tools gave, and that once more as the user's."""
        asked = self.answer(words)
        ran: list[dict[str, Any]] = []
        for native, name, args, response, status in calls:
            part = {"functionResponse": {"id": native, "name": name, "response": response}}
            ran.append({"id": native, "name": name, "args": args, "result": [part], "status": status, "timestamp": self.now()})
        again = asked | {"toolCalls": ran}
        self.record(again)
        given = self.say("user", [one["result"][0] for one in ran])
        return [again, given]

    def context(self) -> dict[str, Any]:
        text = (
            "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n"
            f"The project's temporary directory is: /home/mira/.gemini/tmp/barometer\n- **Workspace Directories:**\n  - {FOLDER}"
        )
        return self.message("user", [{"text": text + _TAIL}]) | {"id": "0a51c0ffee" * 3}

    def reopened(self, kept: list[dict[str, Any]]) -> None:
        """A resume: prompts are dropped from the list, results doubled under other ids."""
        self.set(sessionId=self._session)
        messages = [self.context()]
        for one in kept:
            if "displayContent" in one:
                continue
            parts = [{"text": one["content"]}] if isinstance(one["content"], str) and one["content"] else one["content"]
            messages.append(one | {"content": parts or [{"functionCall": call} for call in one.get("toolCalls", ())]})
            if "toolCalls" in one:
                response = [call["result"][0] for call in one["toolCalls"]]
                messages.append(self.message("user", response) | {"id": f"{one['id']}_response"})
        self.listed(messages)


def _main() -> list[str]:
    chat = Chat(MAIN)
    chat.listed([chat.context()])
    kept: list[dict[str, Any]] = []
    kept.append(chat.prompt("Why does the barometer drift at night?", "The user likes short answers."))
    kept += chat.calls(
        "I will look at the log.",
        ("run_shell_command__1", "run_shell_command", {"command": "tail -3 drift.log"}, {"output": "03:00 +2.1 hPa"}, "success"),
        ("read_file__2", "read_file", {"file_path": "calib.toml"}, {"error": "File not found: calib.toml"}, "error"),
    )
    thought = {"subject": "Temperature", "description": "The drift follows the heating.", "timestamp": chat.now()}
    kept.append(chat.answer("The sensor is not compensated for temperature.", [thought]))
    chat.set(summary="Find out why the barometer drifts at night")
    chat.record({"$flag": {"experiment": 7}})
    chat.reopened(kept)
    kept.append(chat.prompt("Write the compensation."))
    kept += chat.calls("", ("write_file__3", "write_file", {"file_path": "comp.py"}, {"output": "Wrote comp.py"}, "success"))
    # Killed here; the next line was never finished.
    chat.lines.append(chat.lines[-2][:70])
    chat.reopened(kept)
    asked = chat.prompt("Go on with the compensation.")
    calls = chat.calls(
        "", ("run_shell_command__4", "run_shell_command", {"command": "pytest -q"}, {"output": "4 passed"}, "success")
    )
    _compact(chat, asked, calls)
    chat.answer("The compensation is in, with its tests.")
    taken_back = chat.prompt("Rename everything to German.")
    chat.answer("Renamed.")
    chat.record({"$rewindTo": taken_back["id"]})
    chat.prompt("Go on with the compensation.")
    chat.answer("Nothing is left to do.")
    return chat.lines


def _compact(chat: Chat, asked: dict[str, Any], calls: list[dict[str, Any]]) -> None:
    """Within a turn: the prompt and the call are repeated under new ids, all at one time."""
    chat.set(sessionId=MAIN)
    snapshot = "<state_snapshot><overall_goal>Compensate the barometer for temperature.</overall_goal></state_snapshot>"
    new = [
        chat.message("user", [{"text": snapshot}]),
        chat.message("gemini", [{"text": "Got it. Thanks for the additional context!"}]),
        chat.message("user", asked["content"]),
        chat.message("gemini", [{"functionCall": {"id": call["id"], "name": call["name"]}} for call in calls[0]["toolCalls"]]),
    ]
    at = new[-1]["timestamp"]
    new = [chat.context(), *(one | {"timestamp": at} for one in new)]
    chat.listed(new)
    # Later the same list once more, with tool output masked: no compaction.
    chat.listed([*new, calls[1] | {"content": [{"text": "<tool_output_masked>"}]}])


def _again() -> list[str]:
    """A resume in another minute leaves a file with nothing but a header and the context."""
    chat = Chat(MAIN, minute=31)
    chat.listed([chat.context()])
    return chat.lines


def _subagent() -> list[str]:
    chat = Chat(SUBAGENT, kind="subagent", minute=15)
    chat.say("user", [{"text": "Find where the pressure is read."}])
    chat.calls("", ("glob__7", "glob", {"pattern": "**/*.py"}, {"output": "sensor.py"}, "success"))
    chat.answer("In sensor.py, read_pressure().")
    return chat.lines


def _old() -> str:
    chat = Chat(OLD, minute=2)
    chat.lines.clear()
    chat.prompt("Which pins does the display use?")
    chat.answer("GPIO 5 and 6.")
    chat.prompt("And the buzzer?")
    messages = [one for one in map(json.loads, chat.lines) if "id" in one]
    document = {"sessionId": OLD, "projectHash": _HASH, "startTime": chat.now(), "lastUpdated": chat.now(), "messages": messages}
    return json.dumps(document | {"summary": "Pins of the display"}, indent=2)


def write(home: Path) -> None:
    chats = home / ".gemini" / "tmp" / "barometer" / "chats"
    (chats / MAIN).mkdir(parents=True)
    (home / ".gemini" / "projects.json").write_text(json.dumps({"projects": {FOLDER: "barometer"}}))
    files = {
        f"session-2026-03-02T09-14-{MAIN[:8]}.jsonl": "\n".join(_main()) + "\n",
        f"session-2026-03-02T09-31-{MAIN[:8]}.jsonl": "\n".join(_again()) + "\n",
        f"session-2026-03-02T09-02-{OLD[:8]}.json": _old(),
        f"{MAIN}/{SUBAGENT}.jsonl": "\n".join(_subagent()) + "\n",
        "notes.txt": "no session",
    }
    for name, text in files.items():
        (chats / name).write_text(text, encoding="utf-8")


#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("tail -3 drift.log", False), ("pytest -q", False)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"gemini:{MAIN}",
            "Find out why the barometer drifts at night",
            FOLDER,
            turns=[
                ("Why does the barometer drift at night?", "completed"),
                ("Write the compensation.", "interrupted"),
                ("Go on with the compensation.", "completed"),
                ("Rename everything to German.", "completed"),
                ("Go on with the compensation.", "completed"),
            ],
            # Five answers in words, one beside tool calls; four calls; the client's own to the summary.
            roles=roles(user=5, assistant=10, tool=4, reasoning=1, summary=1, system=2),
            tool_calls=[
                {"name": "run_shell_command", "error": False},
                {"name": "read_file", "error": True},
                {"name": "write_file", "error": False},
                {"name": "run_shell_command", "error": False},
            ],
            compactions=[compaction()],
            segments=2,
            marks={"hook": 1, "meta": 1, "synthetic": 1, "rewound": 2},
            unknown={"$flag": 1},
            odd=1,
        ),
        session(
            f"gemini:{OLD}",
            "Pins of the display",
            FOLDER,
            turns=[
                ("Which pins does the display use?", "completed"),
                ("And the buzzer?", "open"),
            ],
            roles=roles(user=2, assistant=1),
        ),
        session(
            f"gemini:{SUBAGENT}",
            "Find where the pressure is read.",
            FOLDER,
            turns=completed("Find where the pressure is read."),
            roles=roles(user=1, assistant=2, tool=1),
            tool_calls=[{"name": "glob", "error": False}],
            # Only the folder says whose it is: capture knows it, no record does.
            lineage=[{"kind": "subagent", "session": f"gemini:{MAIN}"}],
        ),
    ]
}
