"""OpenCode: rows of `opencode.db`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.agents.opencode import Data, OpenCode, text
from tests.planted import written as w
from tests.planted.into.clock import Clock

_REJECTED = "The user rejected permission to use this specific tool call"
_CONTINUE = "Continue if you have next steps."


class _Talk:
    def __init__(self, db: OpenCode, session: w.Written, key: str, clock: Clock) -> None:
        self.db = db
        self.about = session
        self.key = key
        self.clock = clock
        self._held: list[Data] = []
        self._prompt = ""
        self._calls = 0

    def _now(self, seconds: float = 4) -> None:
        self.db.now = max(self.db.now + 1, int(self.clock.tick(seconds).timestamp() * 1000))

    def turn(self, turn: w.Turn) -> None:
        self.clock.turn(turn)
        self._now()
        self._prompt = self.db.ask(self.key, turn.prompt)
        for step in turn.steps:
            self._now()
            self.step(step)
        if turn.end == "completed":
            self._answer("stop")
        else:
            aborted = {"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}
            self._answer("", error=aborted, time={"created": self.db.now, "completed": self.db.now + 80})

    def _answer(self, finish: str, **more: Any) -> None:
        self.db.answer(self.key, self._prompt, self._held, finish, **more)
        self._held = []

    def step(self, step: w.Step) -> None:
        match step:
            case w.Say(words):
                self._held.append(text(words))
            case w.Think(words):
                self._held.append({"type": "reasoning", "text": words, "time": {"start": 1}})
            case w.Compaction(summary):
                self._compact(summary)
            case w.Subagent():
                self._subagent(step)
            case _:
                self._call(*called(step))

    def _call(self, name: str, given: Any, output: str, code: int | None = None, error: str = "") -> None:
        self._calls += 1
        state: Data = {"status": "completed", "input": given, "output": output, "title": name, "time": {"start": self.db.now}}
        state["metadata"] = {"exit": code} if code is not None else {}
        if error:
            state = {"status": "error", "input": given, "error": error, "time": {"start": self.db.now}}
        call = f"call_{self.key[-6:]}_{self._calls:04}"
        self._held.append({"type": "tool", "tool": name, "callID": call, "state": state})
        self._answer("tool-calls")

    def _compact(self, summary: str) -> None:
        if self._held:
            self._answer("tool-calls")
        squeeze = self.db.message(self.key, {"role": "user", "agent": "build"})
        self.db.part(self.key, squeeze, {"type": "compaction", "auto": True, "overflow": False})
        self.db.answer(self.key, squeeze, [text(summary)], summary=True, mode="compaction")
        self._prompt = self.db.message(self.key, {"role": "user", "agent": "build"})
        again = text(_CONTINUE) | {"synthetic": True, "metadata": {"compaction_continue": True}}
        self.db.part(self.key, self._prompt, again)

    def _subagent(self, step: w.Subagent) -> None:
        child = f"{self.key}c{self._calls}"
        self.db.session(child, f"{step.task[:40]} (@general subagent)", self.key, self.about.cwd)
        inner = _Talk(self.db, self.about, child, Clock(self.clock.at))
        inner.turn(w.Turn(step.task, None, step.steps, "completed"))
        self._call("task", {"description": step.task[:30], "prompt": step.task, "subagent_type": "general"}, step.result)


def called(step: w.Step) -> tuple[str, Any, str, int | None, str]:
    match step:
        case w.Run(command, output, code):
            return "bash", {"command": command, "description": "Run it"}, output, code, ""
        case w.Edit(path, _):
            return (
                "edit",
                {"filePath": path, "oldString": step.old, "newString": step.new},
                "Edit applied successfully.",
                None,
                "",
            )
        case w.Read(path, output):
            numbered = "\n".join(f"{n:05}| {line}" for n, line in enumerate(output.splitlines(), 1))
            return "read", {"filePath": path}, f"<file>\n{numbered}\n</file>", None, ""
        case w.Tool(name, given, output, error):
            return name, dict(given), "" if error else output, None, output if error else ""
        case w.Rejected(name, given, said):
            told = f"{_REJECTED} with the following feedback: {said}" if said else f"{_REJECTED}."
            return name.lower(), dict(given), "", None, told
        case w.Ask(question, options, answer):
            shown = [{"label": one, "description": ""} for one in options]
            given = {"questions": [{"question": question, "header": "Choice", "options": shown}]}
            told = f'User has answered your questions: "{question}"="{answer}".'
            return "question", given, f"{told} You can now continue with the user's answers in mind.", None, ""
        case w.Todo(entries):
            todos = [{"content": words, "status": status, "priority": "medium"} for words, status in entries]
            return "todowrite", {"todos": todos}, "\n".join(words for words, _ in entries), None, ""
    raise ValueError(f"no form for {step}")


def write(sessions: Iterable[w.Written], home: Path) -> None:
    db = OpenCode(home / ".local" / "share" / "opencode" / "opencode.db")
    db.now = 1_700_000_000_000
    # Ids are made of the time, and must ascend.
    for session in sorted(sessions, key=lambda one: one.started_at):
        clock = Clock(session.started_at)
        db.now = max(db.now, int(clock.at.timestamp() * 1000) - 60_000)
        db.session(session.session, session.title, None, session.cwd)
        talk = _Talk(db, session, session.session, clock)
        for turn in session.turns:
            talk.turn(turn)
    db.close()
