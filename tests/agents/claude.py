"""A home as Claude Code leaves it, made up, in the forms of versions 2.1 (and 2.0 for `OLD`).

    MAIN      hooks, a pack of ours, tools, a command of one's own, an interruption, a rewind, a compaction in the middle of a
              turn whose preserved lines come again, a crash, an API error, an unknown kind, a torn line
    HELPER    a subagent of MAIN
    COPY      `--fork-session` of MAIN: its first turn copied, uuids and all, and no pointer back
    BRANCH    `fork_session()` of the SDK: new uuids, `forkedFrom`
    OLD       no `stop_reason`; a subagent's talk in the main file, and one in a file beside it; a compaction that repeats lines
              under new uuids; the title of another session at its head

Nothing in it happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from tests.agents.expected import compaction, completed, roles, session

MAIN = "7d0f7c52-6a39-4a55-9d62-0a4f6f2d1b01"
COPY = "7d0f7c52-6a39-4a55-9d62-0a4f6f2d1b02"
BRANCH = "7d0f7c52-6a39-4a55-9d62-0a4f6f2d1b03"
OLD = "7d0f7c52-6a39-4a55-9d62-0a4f6f2d1b04"
HELPER = f"{MAIN}/agent-a5e1c0ffee12d34b7"
OLD_HELPER = f"{OLD}/agent-1f2e3d4c"
CWD = "/home/dev/shop"
#: What lies in the session's folder: two files of which only the transcript says whose they are, a copy of a short output, one
#: of the subagent, and one that is no text.
LOG, NOTES = "b7k2m9xq1.txt", "mcp-memo-memo_list-1794700000000.txt"
RESULTS = (LOG, NOTES, "toolu_01.txt", "toolu_h1.txt", "webfetch-1794700000000-x1.pdf")
PACK = "<!-- dreamkeep:pack v1 -->\n- Prices are integers, in cents.\n<!-- dreamkeep:end -->"

Line = dict[str, Any]


def made(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, name))


class Talk:
    """Lines of one file, each the child of the one before."""

    def __init__(self, session: str, *, version: str = "2.1.325", sidechain: str = "", minute: int = 0) -> None:
        self.session = session
        self.lines: list[Line] = []
        self.leaf: str | None = None
        self._second = minute * 60
        self._version = version
        self._agent = sidechain
        self._prompt = ""

    def now(self) -> str:
        self._second += 1
        return f"2026-11-15T09:{self._second // 60:02}:{self._second % 60:02}.{self._second % 7}00Z"

    def loose(self, kind: str, **more: Any) -> None:
        """A line outside the tree."""
        self.lines.append({"type": kind, **more, "sessionId": self.session})

    def line(self, kind: str, *, parent: str | None = "", **more: Any) -> str:
        uuid = made(f"{self.session}{self._agent}{len(self.lines)}")
        line: Line = {
            "parentUuid": self.leaf if parent == "" else parent,
            "isSidechain": bool(self._agent),
            **({"agentId": self._agent} if self._agent else {}),
            "type": kind,
            **more,
            "uuid": uuid,
            "timestamp": self.now(),
            "cwd": CWD,
            "sessionId": self.session,
            "version": self._version,
            "gitBranch": "main",
        }
        self.lines.append(line)
        self.leaf = uuid
        return uuid

    def prompt(self, content: object, **more: Any) -> str:
        self._prompt = made(f"prompt {self.session} {len(self.lines)}")
        return self.user(content, promptSource="typed", **more)

    def user(self, content: object, **more: Any) -> str:
        message = {"role": "user", "content": content}
        named = {"promptId": self._prompt} if self._version > "2.1" else {}
        return self.line("user", **named, message=message, **more)

    def result(self, tool: str, content: object, *, error: bool = False, outcome: object = None) -> str:
        block = {"tool_use_id": tool, "type": "tool_result", "content": content, "is_error": error}
        return self.user([block], toolUseResult=outcome, sourceToolAssistantUUID=self.leaf)

    def answer(self, *blocks: Line, stop: str | None = "end_turn", **more: Any) -> None:
        """One message of the model: a line for each block."""
        message = made(f"message {self.session} {len(self.lines)}")[:18]
        for n, block in enumerate(blocks):
            self.line(
                "assistant",
                message={
                    "id": f"msg_{message}",
                    "type": "message",
                    "role": "assistant",
                    "model": "claude-sonnet-4-5",
                    "content": [block],
                    "stop_reason": stop if n == len(blocks) - 1 else None,
                    "usage": {"input_tokens": 900, "output_tokens": 40},
                },
                apiBlockIndex=n,
                **more,
            )

    def attachment(self, kind: str, **more: Any) -> str:
        return self.line("attachment", attachment={"type": kind, **more})

    def system(self, kind: str, **more: Any) -> str:
        return self.line("system", subtype=kind, **more)

    def finished(self) -> None:
        self.system("stop_hook_summary", hookCount=1, hookErrors=[], preventedContinuation=False, level="suggestion")
        self.loose("last-prompt", lastPrompt="…", leafUuid=self.leaf)
        self.loose("cost-state", totalCostUSD=0.2)


def say(words: str) -> Line:
    return {"type": "text", "text": words}


def think(words: str) -> Line:
    return {"type": "thinking", "thinking": words, "signature": "c2lnbmF0dXJl"}


def call(tool: str, name: str, **given: Any) -> Line:
    return {"type": "tool_use", "id": tool, "name": name, "input": given}


def first_turn(t: Talk) -> None:
    t.loose("queue-operation", operation="enqueue", timestamp=t.now(), content="Why does the price test fail?")
    t.loose("queue-operation", operation="dequeue", timestamp=t.now())
    answer = json.dumps({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": PACK}})
    t.attachment("hook_success", hookName="SessionStart:startup", hookEvent="SessionStart", content="", stdout=answer, exitCode=0)
    t.attachment("hook_additional_context", hookName="SessionStart", hookEvent="SessionStart", content=[PACK])
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    opened = say("<ide_opened_file>The user opened src/price.py in the IDE.</ide_opened_file>")
    t.prompt([opened, say("Why does the price test fail?"), image])
    t.attachment("environment", snapshot={"workingDirectory": CWD, "platform": "linux"})
    t.attachment(
        "hook_additional_context", hookName="UserPromptSubmit", hookEvent="UserPromptSubmit", content=["Branch is main."]
    )
    t.attachment("prompt_snapshot", systemPrompt=["You are an agent working with the user."])
    t.loose("api-request-shape", shapeHash="9b9e", shape={"system": [say("You are an agent.")], "tools": []})
    t.loose("api-request", id=made("request"), params={"model": "claude-sonnet-4-5"})
    t.answer(
        think("The test compares a float. I should run it first."),
        say("I run the test."),
        call("toolu_01", "Bash", command="pytest -q tests/test_price.py"),
        stop="tool_use",
    )
    failed = "Exit code 1\nE  assert 0.30000000000000004 == 0.3"
    t.result("toolu_01", failed, error=True, outcome=f"Error: {failed}")
    t.answer(call("toolu_02", "Task", description="Find floats", prompt="Find every float price."), stop="tool_use")
    t.result("toolu_02", [say("Two places: price.py:12, cart.py:40.")], outcome={"status": "completed", "agentId": HELPER[-17:]})
    t.attachment("queued_command", prompt="also look at the rounding", commandMode="prompt", origin={"kind": "human"})
    t.answer(say("Prices are floats in two places; rounding happens after the sum."))
    t.finished()


def main_lines() -> list[Line | str]:
    t = Talk(MAIN)
    first_turn(t)
    t.loose("ai-title", aiTitle="Failing price test")
    t.loose("file-history-snapshot", messageId=t.leaf, snapshot={"trackedFileBackups": {}})

    # A command of one's own, that the user stops.
    review = "<command-message>review is running…</command-message>\n<command-name>/review</command-name>"
    t.prompt(f"{review}\n<command-args>src/price.py</command-args>")
    t.user([say("Review the file src/price.py for correctness.")], isMeta=True)
    t.answer(call("toolu_03", "Edit", file_path="src/price.py", old_string="0.1", new_string="10"), stop="tool_use")
    t.result("toolu_03", "The user doesn't want to proceed with this tool use.", error=True, outcome="User rejected tool use")
    t.user([say("[Request interrupted by user for tool use]")])

    # Asked, taken back, asked otherwise.
    fork_point = t.leaf
    t.prompt("Store prices as strings.")
    t.answer(say("Prices are strings now."))
    t.finished()
    t.prompt("Store prices as integers, in cents.", parent=fork_point)
    t.answer(call("toolu_04", "Write", file_path="src/price.py", content="CENTS = 30\n"), stop="tool_use")
    t.result("toolu_04", "File created successfully at: src/price.py", outcome={"type": "create", "filePath": "src/price.py"})
    # Two outputs that were too long for the transcript, each with its own words of where they are.
    t.answer(call("toolu_07", "Bash", command="git log"), stop="tool_use")
    place = f"/home/dev/.claude/projects/-home-dev-shop/{MAIN}/tool-results"
    preview = f"Output too large (300KB). Full output saved to: {place}/{LOG}\n\nPreview (first 2KB):\n{log_text()[:300]}\n...\n"
    outcome = {"stdout": log_text()[:300], "persistedOutputPath": f"{place}/{LOG}", "persistedOutputSize": len(log_text())}
    t.result("toolu_07", f"<persisted-output>\n{preview}</persisted-output>", outcome=outcome)
    t.answer(call("toolu_08", "mcp__memo__memo_list"), stop="tool_use")
    too_long = f"exceeds maximum allowed tokens. Output has been saved to {place}/{NOTES}.\nFormat: Plain text\n"
    t.result("toolu_08", [say(f"Error: result (70,000 characters) {too_long}- You MUST read the content from the file")])
    t.answer(say("Done: prices are integers."))
    t.finished()

    # The context is full in the middle of a turn: compacted, and what was preserved is written once more.
    t.prompt("Write the changelog entry.")
    t.answer(call("toolu_05", "mcp__memo__memo_recall", query="changelog style"), stop="tool_use")
    t.result("toolu_05", [{"type": "tool_reference", "tool_name": "mcp__memo__memo_recall"}, say("One line, present tense.")])
    kept = t.lines[-3:]
    t.system(
        "compact_boundary",
        parent=None,
        logicalParentUuid=t.leaf,
        content="Conversation compacted",
        compactMetadata={
            "trigger": "auto",
            "preTokens": 155000,
            "postTokens": 9000,
            "preservedMessages": {"uuids": [line["uuid"] for line in kept], "allUuids": [line["uuid"] for line in kept]},
        },
    )
    summary = "This session is being continued from a previous conversation. Prices became integers."
    anchor = t.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)
    t.lines += [{**kept[0], "parentUuid": anchor}, *kept[1:]]
    t.leaf = str(kept[-1]["uuid"])
    t.attachment("file", filename=f"{CWD}/CHANGELOG.md", displayPath="CHANGELOG.md", content={"file": {"content": "# Changes"}})
    t.answer(say("Prices are integers, in cents."))
    t.finished()

    # The machine goes down; the client comes back.
    t.prompt("Run all tests.")
    t.answer(call("toolu_06", "Bash", command="pytest -q"), stop="tool_use")
    t.line(
        "assistant",
        message={
            "id": made("synthetic"),
            "model": "<synthetic>",
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "content": [say("No response requested.")],
        },
        isApiErrorMessage=False,
        madeBy="other",
    )
    t.prompt("Run all tests again.")
    limit = {"id": made("limit"), "model": "<synthetic>", "role": "assistant", "stop_reason": "stop_sequence"}
    t.line("assistant", message={**limit, "content": [say("You've hit your limit")]}, isApiErrorMessage=True, error="rate_limit")
    t.loose("custom-title", customTitle="Prices in cents")

    # The user looks at the cost: no prompt. Then a line of a kind of next year, and one that was never finished.
    t.user("<local-command-caveat>The command below was run directly in Claude Code.</local-command-caveat>", isMeta=True)
    t.user(
        "<command-name>/cost</command-name>\n            <command-message>cost</command-message>\n<command-args></command-args>"
    )
    t.user("<local-command-stdout>Total cost: $0.20</local-command-stdout>")
    t.loose("hologram-state", hologram=True)
    return [*t.lines, '{"parentUuid":"8a9a4a44-1f39-47e9-bf11-0668d9c6599f","isSidechain":fal']


def copy_lines() -> list[Line]:
    """What `--fork-session` does: the sessionId is another, all else is the same."""
    t = Talk(MAIN)
    first_turn(t)
    t.lines = [{**line, "sessionId": COPY} for line in t.lines if "uuid" in line]
    t.session, t._second = COPY, 40 * 60
    t.prompt("What if we used Decimal?")
    t.answer(say("Decimal would work, at some cost."))
    t.finished()
    return t.lines


def branch_lines() -> list[Line]:
    t = Talk(MAIN)
    first_turn(t)
    parts = [line for line in t.lines if "uuid" in line]
    copies = [
        {
            **line,
            "uuid": made(f"branch {line['uuid']}"),
            "parentUuid": line["parentUuid"] and made(f"branch {line['parentUuid']}"),
            "sessionId": BRANCH,
            "forkedFrom": {"sessionId": MAIN, "messageUuid": line["uuid"]},
        }
        for line in parts
    ]
    new = Talk(BRANCH, minute=50)
    new.lines, new.leaf = copies, str(copies[-1]["uuid"])
    new.prompt("And in the cart?")
    new.answer(say("The cart sums floats, too."))
    new.loose("custom-title", customTitle="Failing price test (fork)")
    return new.lines


def helper_lines() -> list[Line]:
    t = Talk(MAIN, sidechain=HELPER.rpartition("agent-")[2], minute=1)
    t.prompt("Find every float price.")
    t.answer(call("toolu_h1", "Grep", pattern="float"), stop="tool_use")
    t.result("toolu_h1", "price.py:12\ncart.py:40")
    t.answer(say("Two places: price.py:12, cart.py:40."))
    return t.lines


def old_lines() -> list[Line]:
    t = Talk(OLD, version="2.0.55", minute=20)
    t.loose("summary", summary="Fixing the login page", leafUuid=made("of another session"))
    del t.lines[-1]["sessionId"]
    t.prompt("Explain the cart.")
    t.answer(call("toolu_o1", "Task", prompt="Read cart.py"), stop=None)
    for line in _aside(t):
        t.lines.append(line)
    t.result("toolu_o1", "It sums prices.", outcome={"exitCode": 0, "stdout": ""})
    t.answer(say("The cart sums prices."), stop=None)
    t.system("turn_duration", durationMs=3200)
    before = t.leaf
    start = len(t.lines)
    t.prompt("And the tax?")
    t.answer(say("Tax is added last."), stop=None)
    repeated = t.lines[start:]
    t.system(
        "compact_boundary", parent=None, content="Conversation compacted", compactMetadata={"trigger": "auto", "preTokens": 1}
    )
    anchor = t.user("This session is being continued. The cart sums prices.", isCompactSummary=True)
    parent: str | None = before
    for line in repeated:
        uuid = made(f"again {line['uuid']}")
        t.lines.append({**line, "uuid": uuid, "parentUuid": parent})
        parent = uuid
    t.leaf = anchor
    t.prompt("Thanks. Anything else?")
    t.answer(say("No."), stop=None)
    t.system("turn_duration", durationMs=900)
    return t.lines


def _aside(t: Talk) -> list[Line]:
    """A subagent's talk, as old clients wrote it between the lines of the session."""
    inner = Talk(OLD, version="2.0.55", sidechain="inside", minute=21)
    inner.prompt("Read cart.py")
    inner.answer(say("cart.py sums prices."), stop="end_turn")
    return [{key: value for key, value in line.items() if key != "agentId"} for line in inner.lines]


def old_helper_lines() -> list[Line]:
    t = Talk(OLD, version="2.0.55", sidechain=OLD_HELPER.rpartition("agent-")[2], minute=22)
    t.prompt("List the tests.")
    t.answer(say("There are three tests."), stop="end_turn")
    return t.lines


def log_text() -> str:
    """More than one frame's worth."""
    return "".join(f"commit {n:05} " + f"the price of pear {n}, as an integer, in cents; " * 80 + "\n" for n in range(90))


def result_files() -> dict[str, bytes]:
    failed = "Exit code 1\nE  assert 0.30000000000000004 == 0.3"
    words = (log_text(), "A note on quinces,\n\u00fcbrigens ohne Ende", failed, "price.py:12\ncart.py:40\n")
    return dict(zip(RESULTS, [*(one.encode() for one in words), b"%PDF-1.7\n\0\xff\xfe\n%%EOF"], strict=True))


def text_of(lines: Iterable[Line | str]) -> str:
    return "".join((line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))) + "\n" for line in lines)


def files() -> dict[str, str]:
    """Path below the home → text."""
    project = ".claude/projects/-home-dev-shop"
    return {
        f"{project}/{MAIN}.jsonl": text_of(main_lines()),
        f"{project}/{MAIN}/subagents/{HELPER.rpartition('/')[2]}.jsonl": text_of(helper_lines()),
        f"{project}/{MAIN}/subagents/{HELPER.rpartition('/')[2]}.meta.json": '{"agentType":"Explore","toolUseId":"toolu_02"}',
        f"{project}/{MAIN}/subagents/workflows/wf_1/journal.jsonl": '{"event":"started"}\n',
        f"{project}/{COPY}.jsonl": text_of(copy_lines()),
        f"{project}/{BRANCH}.jsonl": text_of(branch_lines()),
        f"{project}/{OLD}.jsonl": text_of(old_lines()),
        f"{project}/{OLD_HELPER.rpartition('/')[2]}.jsonl": text_of(old_helper_lines()),
        ".claude/history.jsonl": '{"display":"Run all tests.","project":"/home/dev/shop"}\n',
    }


def write(home: Path) -> None:
    for name, content in files().items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for name, data in result_files().items():
        path = home / ".claude/projects/-home-dev-shop" / MAIN / "tool-results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


_FIRST_CALLS = [{"name": "Bash", "error": True}, {"name": "Task", "error": False}]
#: Both say the first turns again, and then one of their own.
_FORKED: dict[str, Any] = {
    "roles": roles(user=3, assistant=5, tool=2, reasoning=1, system=3),
    "tool_calls": _FIRST_CALLS,
    "lineage": [{"kind": "fork", "session": f"claude:{MAIN}"}],
    "marks": {"copied": 12},
}

#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("pytest -q tests/test_price.py", True), ("git log", False), ("pytest -q", None)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"claude:{MAIN}",
            "Prices in cents",
            CWD,
            turns=[
                ("Why does the price test fail?\n[image]", "completed"),
                ("/review src/price.py", "cancelled"),
                ("Store prices as strings.", "completed"),
                ("Store prices as integers, in cents.", "completed"),
                ("Write the changelog entry.", "completed"),
                ("Run all tests.", "interrupted"),
                ("Run all tests again.", "failed"),
            ],
            roles=roles(user=9, assistant=15, tool=9, reasoning=1, summary=1, system=8),
            tool_calls=[
                *_FIRST_CALLS,
                {"name": "Edit", "error": True},
                {"name": "Write", "error": False},
                {"name": "Bash", "error": False},
                {"name": "mcp__memo__memo_list", "error": False},
                {"name": "mcp__memo__memo_recall", "error": False},
                {"name": "Bash", "error": False},
            ],
            compactions=[compaction("auto")],
            segments=2,
            marks={"injected": 1, "hook": 1, "meta": 6, "synthetic": 3, "rewound": 2},
            unknown={"hologram-state": 1, "tool-results/pdf": 1},
            odd=1,
        ),
        session(
            f"claude:{HELPER}",
            "Find every float price.",
            CWD,
            turns=completed("Find every float price."),
            roles=roles(user=1, assistant=2, tool=1),
            tool_calls=[{"name": "Grep", "error": False}],
            lineage=[{"kind": "subagent", "session": f"claude:{MAIN}"}],
        ),
        session(
            f"claude:{COPY}",
            "What if we used Decimal?",
            CWD,
            turns=completed("What if we used Decimal?"),
            **_FORKED,
        ),
        session(
            f"claude:{BRANCH}",
            "Failing price test (fork)",
            CWD,
            turns=completed("And in the cart?"),
            **_FORKED,
        ),
        session(
            f"claude:{OLD}",
            "Explain the cart.",
            CWD,
            turns=[
                ("Explain the cart.", "completed"),
                # Nothing ends it but an answer in words, and the next prompt behind it.
                ("And the tax?", "completed"),
                ("Thanks. Anything else?", "completed"),
            ],
            roles=roles(user=4, assistant=5, tool=1, summary=1),
            tool_calls=[{"name": "Task", "error": False}],
            compactions=[compaction("auto")],
            segments=2,
            marks={"meta": 2},
        ),
        session(
            f"claude:{OLD_HELPER}",
            "List the tests.",
            CWD,
            turns=completed("List the tests."),
            roles=roles(user=1, assistant=1),
            lineage=[{"kind": "subagent", "session": f"claude:{OLD}"}],
        ),
    ]
}
