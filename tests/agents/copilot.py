"""A home folder as Copilot CLI writes it, by the published schema of its events; what we saw ourselves is said in the reader.

One session: tools that work and fail, a hook's words, a subagent inside, a cancelled turn, a compaction, one that was called
off, a crash and a resume, a kind of event that nobody knows. Another one is detached from it.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from tests.agents.expected import compaction, roles, session

MAIN = "4a6e1c1e-0000-4000-8000-0000000000a1"
DETACHED = "4a6e1c1e-0000-4000-8000-0000000000a2"
CWD = "/home/dev/bees"


WORKSPACES = {
    MAIN: f'id: {MAIN}\ncwd: {CWD}\nbranch: spring\nsummary_count: 0\nname: "Hives: \\"spring\\""\nuser_named: true\n',
    DETACHED: f"id: {DETACHED}\ncwd: {CWD}\nname: |-\n  over\n  lines\nmc_last_event_id: '7'\n",
}


class Events:
    def __init__(self, session: str) -> None:
        self.lines: list[str] = []
        self._session = session

    def put(self, kind: str, agent: str = "", **data: Any) -> str:
        n = len(self.lines)
        own = f"{self._session[:-12]}{n:012x}"
        line = {"type": kind, "data": data, "id": own, "timestamp": f"2026-10-04T08:{n // 60:02}:{n % 60:02}.500Z"}
        parent = json.loads(self.lines[-1])["id"] if self.lines else None
        self.lines.append(json.dumps({**line, "parentId": parent, **({"agentId": agent} if agent else {})}))
        return own

    def start(self, **more: Any) -> None:
        context = {"cwd": CWD, "branch": "main", "repository": "dev/bees"}
        self.put(
            "session.start",
            sessionId=self._session,
            version=1,
            producer="copilot-agent",
            copilotVersion="1.0.9",
            context=context,
            selectedModel="test-model",
            **more,
        )

    def step(self, n: int, words: str, calls: tuple[tuple[str, str, Any], ...] = (), thought: str = "") -> None:
        self.put("assistant.turn_start", turnId=str(n))
        asked = [{"toolCallId": own, "name": name, "arguments": arguments, "type": "function"} for own, name, arguments in calls]
        more = {"reasoningText": thought} if thought else {}
        self.put("assistant.message", messageId=f"m{len(self.lines)}", content=words, toolRequests=asked, **more)
        for own, name, arguments in calls:
            self.put("tool.execution_start", toolCallId=own, toolName=name, arguments=arguments)

    def end(self, n: int) -> None:
        self.put("assistant.turn_end", turnId=str(n))


def main() -> list[str]:
    e = Events(MAIN)
    e.start()
    e.put("system.message", role="system", content="You are the Copilot CLI.")
    e.put("hook.start", hookInvocationId="h1", hookType="sessionStart", input={"cwd": CWD})
    e.put("hook.end", hookInvocationId="h1", hookType="sessionStart", success=True, output={"additionalContext": "Be brief."})
    e.put("user.message", content="How many hives are in the list?", transformedContent="<now/>How many…", interactionId="i1")
    e.step(0, "", (("t1", "bash", {"command": "wc -l hives.csv"}), ("t2", "memo-recall", {"query": "hives"})), "Count the lines.")
    terminal = [{"type": "terminal", "text": "12 hives.csv\n", "exitCode": 0}]
    e.put("tool.execution_complete", toolCallId="t1", success=True, result={"content": "12 hives.csv\n", "contents": terminal})
    e.put("tool.execution_complete", toolCallId="t2", success=False, error={"message": "no such server", "code": "mcp"})
    e.end(0)
    e.step(1, "Twelve.")
    e.end(1)
    e.put("user.message", content="Ask the helper to look for more.", interactionId="i2")
    e.step(0, "I ask it.", (("t3", "task", {"agent": "explore"}),))
    e.put("subagent.started", toolCallId="t3", agentName="explore", agentDisplayName="Explore", agentDescription="looks")
    e.put("user.message", "agent-1", content="Look for more hives.", parentAgentTaskId="t3")
    e.put("assistant.message", "agent-1", messageId="m9", content="None found.", toolRequests=[])
    e.put("assistant.turn_end", "agent-1", turnId="0")
    e.put("subagent.completed", toolCallId="t3", agentName="explore", agentDisplayName="Explore")
    e.put("tool.execution_complete", toolCallId="t3", success=True, result={"content": "None found."})
    e.put("abort", reason="user_initiated")
    e.put("session.compaction_start", trigger="manual", conversationTokens=900)
    e.put(
        "session.compaction_complete",
        success=True,
        preCompactionTokens=900,
        postCompactionTokens=300,
        trigger="manual",
        preCompactionMessagesLength=12,
        messagesRemoved=9,
        summaryContent="There are twelve hives.",
    )
    e.put("session.honey_level", grams=400)
    e.put("user.message", content="Name them.", interactionId="i3")
    e.step(0, "", (("t4", "bash", {"command": "cat hives.csv"}),))
    e.put("session.resume", resumeTime="2026-10-04T09:00:00Z", eventCount=30, context={"cwd": CWD})
    e.put("user.message", content="Name them, please.", interactionId="i4")
    e.step(0, "Alder, Birch, Cedar.")
    e.end(0)
    e.put("session.compaction_start", trigger="threshold")
    e.put("session.compaction_complete", success=False, outcome="cancelled", trigger="threshold")
    e.put("session.shutdown", shutdownType="routine", totalApiDurationMs=5)
    return e.lines


def detached() -> list[str]:
    e = Events(DETACHED)
    e.start(detachedFromSpawningParentSessionId=MAIN)
    e.put("user.message", content="Tidy up after the session.", source="system")
    e.put("user.message", content="Go on.", isAutopilotContinuation=True)
    e.step(0, "Nothing to tidy.")
    e.end(0)
    return e.lines


def write(home: pathlib.Path) -> None:
    for native, lines in ((MAIN, main()), (DETACHED, detached())):
        folder = home / ".copilot" / "session-state" / native
        folder.mkdir(parents=True)
        (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
        (folder / "workspace.yaml").write_text(WORKSPACES[native])
    folder = home / ".copilot" / "session-state" / "empty"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("id: empty\nname: Nobody spoke here\ncwd: /home/dev\n")


#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("wc -l hives.csv", False), ("cat hives.csv", None)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"copilot:{MAIN}",
            'Hives: "spring"',
            CWD,
            turns=[
                ("How many hives are in the list?", "completed"),
                ("Ask the helper to look for more.", "cancelled"),
                ("Name them.", "interrupted"),
                ("Name them, please.", "completed"),
            ],
            roles=roles(user=5, assistant=8, tool=3, reasoning=1, summary=1, system=2),
            tool_calls=[
                {"name": "bash", "error": False},
                {"name": "memo-recall", "error": True},
                {"name": "task", "error": False},
                {"name": "bash", "error": False},
            ],
            # Those that count; the one that was called off does not.
            compactions=[compaction("manual")],
            segments=2,
            marks={"meta": 2, "hook": 1},
            unknown={"session.honey_level": 1},
        ),
        session(
            f"copilot:{DETACHED}",
            "",
            CWD,
            turns=[],
            roles=roles(user=2, assistant=1),
            lineage=[{"kind": "continuation", "session": f"copilot:{MAIN}"}],
            marks={"meta": 2},
        ),
    ]
}
