"""A home folder as Codex CLI writes it: paginated and legacy rollouts, a fork, a subagent, a cold file. Made up, in real forms.

`main` holds a hook's words, our own pack, a failing command, an MCP call, reasoning, a manual and an automatic compaction, a
cancelled turn, a rollback, a crash, a kind of record that nobody knows, and an ordinal that is used twice.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import zstandard

from tests.agents.expected import compaction, completed, roles, session

MAIN = "0199a000-1000-7000-8000-00000000000a"
FORK = "0199a100-0000-7000-8000-00000000000b"
HELPER = "0199a200-0000-7000-8000-00000000000c"
LEGACY = "0199a300-0000-7000-8000-00000000000d"
COLD = "0199a400-0000-7000-8000-00000000000e"
CWD = "/home/dev/tide"
PREFIX = "Another language model started to solve this problem and produced a summary of its thinking process.\n"
ENVIRONMENT = f"<environment_context>\n  <cwd>{CWD}</cwd>\n  <shell>bash</shell>\n</environment_context>"

Lines = list[dict[str, Any]]


def turn_id(n: int) -> str:
    return f"0199a000-2{n:03x}-7000-8000-0000000000ff"


class Rollout:
    """Lines in the order of writing; `paginated` ones are counted."""

    def __init__(self, *, paginated: bool = True) -> None:
        self.lines: list[str] = []
        self._paginated = paginated
        self.ordinal = 0
        self._second = 0

    def put(self, kind: str, payload: dict[str, Any], *, ordinal: int | None = None, **more: Any) -> None:
        self._second += 1
        line: dict[str, Any] = {"timestamp": f"2026-10-03T09:{self._second // 60:02}:{self._second % 60:02}.250Z"}
        if self._paginated:
            line["ordinal"] = self.ordinal if ordinal is None else ordinal
            self.ordinal = line["ordinal"] + 1
        self.lines.append(json.dumps({**line, "type": kind, "payload": payload, **more}))

    def meta(self, thread: str, **more: Any) -> None:
        mode = "paginated" if self._paginated else "legacy"
        known = {
            "session_id": thread,
            "id": thread,
            "timestamp": "2026-10-03T09:00:00.100Z",
            "cwd": CWD,
            "cli_version": "0.166.0",
        }
        self.put("session_meta", {**known, "source": "cli", "history_mode": mode, "git": {"branch": "main"}, **more})

    def event(self, kind: str, **more: Any) -> None:
        self.put("event_msg", {"type": kind, **more})

    def shown(self, turn: str, kind: str, own: str, **more: Any) -> None:
        self.event("item_completed", turn_id=turn, item={"type": kind, "id": own, **more})

    def said(self, turn: str, role: str, own: str, words: str, kind: str = "", *, hook: bool = False, **more: Any) -> None:
        form = "output_text" if role == "assistant" else "input_text"
        inside = {
            "turn_id": turn,
            "content_item_kinds": [kind or "unknown"],
            "content_item_metadata": [{"provenance": {"type": "harness", "hook": hook}}],
        }
        payload = {"type": "message", "id": own, "role": role, "content": [{"type": form, "text": words}]}
        self.put("response_item", {**payload, "internal_chat_message_metadata_passthrough": inside}, metadata=more)

    def asks(self, turn: str, words: str) -> None:
        self.event("task_started", turn_id=turn, started_at=1790000000)
        self.put("turn_context", {"turn_id": turn, "cwd": CWD, "model": "gpt-test"})
        self.said(turn, "user", f"msg_{turn}-u", words, "user.text")
        self.shown(turn, "UserMessage", f"{turn}-shown", content=[{"type": "text", "text": words, "text_elements": []}])

    def answers(self, turn: str, words: str, own: str = "") -> None:
        own = own or f"msg_{turn}-a"
        self.shown(turn, "AgentMessage", own, content=[{"type": "Text", "text": words}])
        self.said(turn, "assistant", own, words)

    def ends(self, turn: str) -> None:
        self.event("token_count", info={"last_token_usage": {"total_tokens": 9000}})
        self.event("task_complete", turn_id=turn, last_agent_message="…")

    def runs(self, turn: str, call: str, command: str, output: str, code: int) -> None:
        self.put(
            "response_item",
            {
                "type": "function_call",
                "name": "exec_command",
                "arguments": json.dumps({"cmd": command}),
                "call_id": call,
                "internal_chat_message_metadata_passthrough": {"turn_id": turn},
            },
        )
        self.shown(
            turn,
            "CommandExecution",
            call,
            command=["bash", "-lc", command],
            status="completed" if code == 0 else "failed",
            aggregated_output=output,
            exit_code=code,
        )
        shown = f"Chunk ID: 1a2b\nWall time: 0.1 seconds\nProcess exited with code {code}\nOutput:\n{output}"
        self.put("response_item", {"type": "function_call_output", "call_id": call, "output": shown})

    def compacts(self, turn: str, window: str, summary: str) -> None:
        self.said(turn, "assistant", f"msg_{window}", summary, compaction_output=True)
        kept = [
            {"type": "message", "role": "user", "id": f"msg_{turn_id(1)}-u", "content": [{"type": "input_text", "text": "old"}]}
        ]
        self.put("compacted", {"message": PREFIX + summary, "replacement_history": kept, "window_number": 1, "window_id": window})
        self.event("token_count", info={"last_token_usage": {"total_tokens": 3000}})
        self.shown(turn, "ContextCompaction", f"{window}-shown")


def main() -> list[str]:
    r = Rollout()
    r.meta(MAIN)
    one = turn_id(1)
    r.event("task_started", turn_id=one)
    r.said(one, "developer", "msg_dev", "<permissions instructions>\nAll is allowed.", "permissions.instructions")
    r.said(one, "user", "msg_env", ENVIRONMENT, "environments.environment_context")
    r.said(one, "developer", "msg_hook", "The user likes short answers.", "hooks.additional_context", hook=True)
    pack = "<!-- dreamkeep:pack 1 -->\nThe tide tables are in feet.\n<!-- dreamkeep:end -->"
    r.said(one, "developer", "msg_pack", pack, "hooks.additional_context", hook=True)
    r.asks(one, "Why does the tide table test fail?\nIt worked last week.")
    r.shown(one, "Reasoning", "rs_1", summary_text=["Look at the test first."], raw_content=[])
    summary = [{"type": "summary_text", "text": "Look at the test first."}]
    r.put("response_item", {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAAAA=="})
    r.runs(one, "call_1", "pytest -q", "1 failed: feet != metres\n", 1)
    r.put(
        "response_item",
        {
            "type": "function_call",
            "name": "search",
            "namespace": "mcp__memo",
            "arguments": '{"query":"units"}',
            "call_id": "call_2",
        },
    )
    r.shown(
        one,
        "McpToolCall",
        "call_2",
        server="memo",
        tool="search",
        arguments={"query": "units"},
        status="completed",
        result={"content": [{"type": "text", "text": "units: feet"}], "isError": False},
    )
    r.put(
        "response_item", {"type": "function_call_output", "call_id": "call_2", "output": "Wall time: 0.01 seconds\nOutput:\nfeet"}
    )
    r.answers(one, "The table is in feet, the test expects metres.")
    r.ends(one)
    r.event("task_started", turn_id=turn_id(2))
    r.compacts(turn_id(2), "window-1", "The test fails because of units.")
    r.event("task_complete", turn_id=turn_id(2), last_agent_message=None)
    r.asks(turn_id(3), "continue")
    r.put("weather_report", {"sky": "clear"})
    r.event("turn_aborted", turn_id=turn_id(3), reason="interrupted")
    r.asks(turn_id(4), "continue")
    r.compacts(turn_id(4), "window-2", "Units again.")
    r.answers(turn_id(4), "Converted to metres; all tests pass.")
    r.ends(turn_id(4))
    r.event("thread_settings_applied", thread_id=MAIN)
    r.put("event_msg", {"type": "token_count", "info": None}, ordinal=r.ordinal - 1)
    r.asks(turn_id(5), "Rename everything to fathoms.")
    r.answers(turn_id(5), "Renamed.")
    r.ends(turn_id(5))
    r.event("thread_rolled_back", num_turns=1)
    r.asks(turn_id(6), "Run the slow tests.")
    r.put(
        "response_item",
        {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"make slow"}', "call_id": "call_3"},
    )
    return r.lines


def fork() -> list[str]:
    """As `codex fork` did it before history_base: all is written again, with new times, the parent's head included."""
    r = Rollout(paginated=False)
    r.meta(FORK, forked_from_id=MAIN)
    r.meta(MAIN)
    r.asks(turn_id(1), "Why does the tide table test fail?\nIt worked last week.")
    r.answers(turn_id(1), "The table is in feet, the test expects metres.")
    r.ends(turn_id(1))
    own = "0199a100-3000-7000-8000-0000000000ff"
    r.asks(own, "Try it with fathoms instead.")
    r.answers(own, "A fathom is six feet.")
    r.ends(own)
    return r.lines


def helper() -> list[str]:
    r = Rollout()
    spawned = {"parent_thread_id": MAIN, "depth": 1, "agent_nickname": "Otter"}
    r.meta(HELPER, source={"subagent": {"thread_spawn": spawned}}, parent_thread_id=MAIN, subagent_history_start_ordinal=3)
    r.meta(MAIN)
    r.said(turn_id(4), "user", f"msg_{turn_id(4)}-u", "continue", "user.text")
    own = "0199a200-3000-7000-8000-0000000000ff"
    r.asks(own, "List all files with units in them.")
    r.answers(own, "tide.py and test_tide.py")
    r.ends(own)
    return r.lines


def legacy() -> list[str]:
    """No ordinals, no ids, no turn ids; each text as response_item and as event, one of them only as event."""
    r = Rollout(paginated=False)
    r.meta(LEGACY)

    def message(role: str, words: str) -> None:
        form = "output_text" if role == "assistant" else "input_text"
        r.put("response_item", {"type": "message", "role": role, "content": [{"type": form, "text": words}]})

    message("user", ENVIRONMENT)
    message("user", "hello")
    r.event("user_message", message="hello")
    r.event("agent_reasoning", text="**A greeting**")
    r.put("response_item", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "**A greeting**"}]})
    r.event("agent_message", message="Hello. What shall we do?")
    message("assistant", "Hello. What shall we do?")
    message("user", "hello")
    r.event("user_message", message="hello")
    shell = json.dumps({"output": "nothing\n", "metadata": {"exit_code": 0, "duration_seconds": 0.1}})
    r.put("response_item", {"type": "local_shell_call", "call_id": "sh_1", "action": {"type": "exec", "command": ["ls"]}})
    r.put("response_item", {"type": "function_call_output", "call_id": "sh_1", "output": shell})
    r.event("agent_message", message="Only the event has this.")
    message("assistant", "The summary of it all.")
    r.put("compacted", {"message": PREFIX + "The summary of it all."})
    r.event("context_compacted")
    r.event("turn_aborted", reason="interrupted")
    return r.lines


def cold() -> list[str]:
    r = Rollout()
    r.meta(COLD)
    own = "0199a400-3000-7000-8000-0000000000ff"
    r.asks(own, "What is a neap tide?")
    r.answers(own, "The smallest one.")
    r.ends(own)
    return r.lines


def write(home: pathlib.Path) -> None:
    day = home / ".codex" / "sessions" / "2026" / "10" / "03"
    old = home / ".codex" / "archived_sessions"
    day.mkdir(parents=True)
    old.mkdir()
    files = ((day, MAIN, main()), (day, FORK, fork()), (day, HELPER, helper()), (old, LEGACY, legacy()))
    for n, (folder, thread, lines) in enumerate(files):
        (folder / f"rollout-2026-10-03T11-0{n}-00-{thread}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    packed = zstandard.compress("".join(f"{line}\n" for line in cold()).encode())
    (day / f"rollout-2026-10-03T12-00-00-{COLD}.jsonl.zst").write_bytes(packed)
    (home / ".codex" / "session_index.jsonl").write_text(names())


def names() -> str:
    """Of all threads: one renamed, one with no file, a line that is broken, and one that is being written."""
    given = (
        (LEGACY, "Greetings"),
        (COLD, "Neap tides"),
        ("0199a500-0000-7000-8000-00000000000f", "Gone"),
        (LEGACY, "A greeting"),
    )
    lines = [json.dumps({"id": thread, "thread_name": name, "updated_at": "2026-10-04T10:00:00Z"}) for thread, name in given]
    return "\n".join([*lines, "{torn", f'{{"id":"{COLD}","thread_na'])


#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("pytest -q", True), ("make slow", None), ("ls", False)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"codex:{MAIN}",
            "Why does the tide table test fail?",
            CWD,
            turns=[
                ("Why does the tide table test fail?\nIt worked last week.", "completed"),
                ("continue", "cancelled"),
                ("continue", "completed"),
                ("Rename everything to fathoms.", "completed"),
                ("Run the slow tests.", "open"),
            ],
            roles=roles(user=6, assistant=6, tool=2, reasoning=1, summary=2, system=3),
            tool_calls=[
                {"name": "exec_command", "error": True},
                {"name": "mcp__memo__search", "error": False},
                {"name": "exec_command", "error": False},
            ],
            compactions=[compaction("manual"), compaction("auto")],
            segments=3,
            marks={"meta": 2, "hook": 1, "injected": 1, "rewound": 2},
            unknown={"weather_report": 1},
            odd=1,
        ),
        session(
            f"codex:{FORK}",
            "Try it with fathoms instead.",
            CWD,
            turns=completed("Try it with fathoms instead."),
            roles=roles(user=2, assistant=2),
            lineage=[{"kind": "fork", "session": f"codex:{MAIN}"}],
            marks={"copied": 2},
        ),
        session(
            f"codex:{HELPER}",
            "List all files with units in them.",
            CWD,
            turns=completed("List all files with units in them."),
            roles=roles(user=2, assistant=1),
            lineage=[{"kind": "subagent", "session": f"codex:{MAIN}"}],
            marks={"copied": 1},
        ),
        session(
            f"codex:{LEGACY}",
            "A greeting",
            CWD,
            # Before task_complete: an answer in words, then the next prompt.
            turns=[("hello", "completed"), ("hello", "cancelled")],
            roles=roles(user=3, assistant=3, tool=1, reasoning=1, summary=1),
            tool_calls=[{"name": "local_shell", "error": False}],
            compactions=[compaction("auto")],
            segments=2,
            marks={"meta": 1},
        ),
        session(
            f"codex:{COLD}",
            "Neap tides",
            CWD,
            turns=completed("What is a neap tide?"),
            roles=roles(user=1, assistant=1),
        ),
    ]
}
