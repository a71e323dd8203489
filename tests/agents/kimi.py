"""A home folder as Kimi Code writes it, by its published sources; what we saw ourselves is said in the reader.

One session: steps with thoughts, tools that work and fail, a reminder and a hook's words, a skill, a manual compaction and an
automatic one that was called off, an undone turn, a cancelled one, a crash, a kind of record that nobody knows; and a subagent.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from tests.agents.expected import compaction, completed, roles, session

MAIN = "session_7c1f0000-0000-4000-8000-0000000000b1"
HELPER = f"{MAIN}/agent-0"
CWD = "/home/dev/bread"
_T0 = 1_790_000_000_000


class Wire:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.put("metadata", protocol_version="1.5", created_at=_T0)

    def put(self, kind: str, /, **more: Any) -> None:
        self.lines.append(json.dumps({"type": kind, **more, "time": _T0 + len(self.lines) * 1000}))

    def message(self, words: str, origin: dict[str, Any]) -> None:
        content = [{"type": "text", "text": words}]
        self.put("context.append_message", message={"role": "user", "content": content, "toolCalls": [], "origin": origin})

    def asks(self, words: str, **origin: Any) -> None:
        origin = origin or {"kind": "user"}
        self.put("turn.prompt", input=[{"type": "text", "text": words}], origin=origin)
        self.message(words, origin)

    def loop(self, kind: str, /, **more: Any) -> None:
        self.put("context.append_loop_event", event={"type": kind, **more})

    def step(self, own: str, turn: int, *parts: dict[str, Any], calls: tuple[tuple[str, str, Any, str, bool], ...] = ()) -> None:
        self.loop("step.begin", uuid=own, turnId=str(turn), step=1)
        for part in parts:
            self.loop("content.part", stepUuid=own, turnId=str(turn), part=part)
        for call, name, args, output, failed in calls:
            self.loop("tool.call", stepUuid=own, turnId=str(turn), toolCallId=call, name=name, args=args)
            self.loop("tool.result", toolCallId=call, result={"output": output, "isError": failed})
        self.loop("step.end", uuid=own, turnId=str(turn), finishReason="tool_use" if calls else "end_turn")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def main() -> list[str]:
    w = Wire()
    w.put("config.update", modelAlias="kimi-test", profileName="agent")
    w.message("<system-reminder>\nYou are in a git repository.\n</system-reminder>", {"kind": "injection", "variant": "git"})
    w.message("Remember: grams, not cups.", {"kind": "hook_result", "event": "SessionStart"})
    w.asks("How much water does the dough need?")
    w.put("llm.request", kind="loop", provider="moonshot", model="kimi-test")
    calls = (("functions.Shell:0", "Shell", {"command": "cat dough.txt"}, "flour 500 g\n", False),)
    w.step("s1", 0, {"type": "think", "think": "Read the recipe."}, calls=calls)
    w.step("s2", 0, calls=(("functions.Shell:1", "Shell", '{"command":"cat water.txt"}', "no such file", True),))
    w.step("s3", 0, text("350 g, for 70 %."))
    w.put("turn.ended", turnId=0, reason="completed", durationMs=900)
    w.put("full_compaction.begin", source="manual", instruction="keep numbers")
    w.put("context.apply_compaction", summary="Flour 500 g, water 350 g.", compactedCount=6, tokensBefore=800, tokensAfter=200)
    w.put("full_compaction.complete")
    w.asks("Explain baking to me.", kind="skill_activation", skillName="teach", skillArgs="baking", trigger="user-slash")
    w.step("s4", 1, text("Heat changes dough."))
    w.put("sourdough.fed", grams=50)
    w.asks("Add a kilo of salt.")
    w.step("s5", 2, text("Added."))
    w.put("turn.ended", turnId=2, reason="completed")
    w.put("context.undo", count=1)
    w.asks("Add ten grams of salt.")
    w.put("full_compaction.begin", source="auto")
    w.put("full_compaction.cancel")
    w.put("turn.cancel", turnId=3, reason="user_cancelled")
    w.asks("Bake it.")
    w.loop("step.begin", uuid="s6", turnId="4", step=1)
    w.loop("tool.call", stepUuid="s6", turnId="4", toolCallId="functions.Shell:2", name="Shell", args={"command": "bake"})
    return w.lines


def helper() -> list[str]:
    w = Wire()
    w.asks("Find all recipes.", kind="system_trigger", name="agent")
    w.step("h1", 0, text("dough.txt"))
    return w.lines


def write(home: pathlib.Path) -> None:
    folder = home / ".kimi-code" / "sessions" / "wd_bread_0123456789ab" / MAIN
    for agent, lines in (("main", main()), ("agent-0", helper())):
        (folder / "agents" / agent).mkdir(parents=True)
        (folder / "agents" / agent / "wire.jsonl").write_text("".join(f"{line}\n" for line in lines))
    agents = {"main": {"type": "main"}, "agent-0": {"type": "sub", "parentAgentId": "main"}}
    state = {"title": "Dough and water", "isCustomTitle": False, "cwd": CWD, "agents": agents, "createdAt": _T0}
    (folder / "state.json").write_text(json.dumps(state))
    (home / ".kimi-code" / "sessions" / ".index-cache" / "x" / "agents" / "main").mkdir(parents=True)
    (home / ".kimi-code" / "sessions" / ".index-cache" / "x" / "agents" / "main" / "wire.jsonl").write_text("{}\n")


#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("cat dough.txt", False), ("cat water.txt", True), ("bake", None)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"kimi:{MAIN}",
            "Dough and water",
            CWD,
            turns=[
                ("How much water does the dough need?", "completed"),
                ("/teach baking", "completed"),
                ("Add a kilo of salt.", "completed"),
                ("Add ten grams of salt.", "cancelled"),
                ("Bake it.", "open"),
            ],
            roles=roles(user=7, assistant=6, tool=2, reasoning=1, summary=1),
            tool_calls=[
                {"name": "Shell", "error": False},
                {"name": "Shell", "error": True},
                {"name": "Shell", "error": False},
            ],
            # Those that count; the one that was called off does not.
            compactions=[compaction("manual")],
            segments=2,
            marks={"meta": 2, "hook": 1, "rewound": 2},
            unknown={"sourdough.fed": 1},
        ),
        session(
            f"kimi:{HELPER}",
            "Find all recipes.",
            "",
            turns=completed("Find all recipes."),
            roles=roles(user=1, assistant=1),
            lineage=[{"kind": "subagent", "session": f"kimi:{MAIN}"}],
        ),
    ]
}
