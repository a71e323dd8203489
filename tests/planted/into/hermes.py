"""Hermes: rows of `state.db`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.agents.hermes import Hermes
from tests.planted import written as w
from tests.planted.into.clock import Clock

_BLOCKED = "BLOCKED: User denied this potentially dangerous command. Do NOT retry - the user has explicitly rejected it."


class _Talk:
    def __init__(self, db: Hermes, session: w.Written, key: str, clock: Clock) -> None:
        self.db = db
        self.about = session
        self.key = key
        self.clock = clock
        self._held: list[str] = []
        self._thought: dict[str, str] = {}
        self._calls = 0

    def _say(self, role: str, words: str, **columns: Any) -> None:
        self.db.now = self.clock.tick(2).timestamp()
        self.db.say(self.key, role, words, after_s=0, **columns, **self._thought)
        self._thought = {}

    def turn(self, turn: w.Turn) -> None:
        self.clock.turn(turn)
        self._say("user", turn.prompt)
        for step in turn.steps:
            self.clock.tick(4)
            self.step(step)
        words = "\n".join(self._held)
        self._held = []
        if turn.end == "completed":
            self._say("assistant", words, finish_reason="stop")
        else:
            self._say("assistant", words, finish_reason="interrupted")

    def step(self, step: w.Step) -> None:
        match step:
            case w.Say(text):
                self._held.append(text)
            case w.Think(text):
                self._thought = {"reasoning": text}
            case w.Compaction(summary):
                self.db.now = self.clock.tick().timestamp()
                self.db.compact(self.key, summary, head=1, tail=1)
                self.clock.tick(5)
            case w.Subagent():
                self._subagent(step)
            case _:
                name, given, result = called(step)
                self._call(name, given, result)

    def _call(self, name: str, given: Any, result: object) -> None:
        self._calls += 1
        call = f"call_{self.key[-6:]}{self._calls:06}"
        asked = {"id": call, "call_id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        words = "\n".join(self._held)
        self._held = []
        self._say("assistant", words, tool_calls=json.dumps([asked]), finish_reason="tool_calls")
        told = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        self._say("tool", told, tool_call_id=call, tool_name=name)

    def _subagent(self, step: w.Subagent) -> None:
        child = f"{self.clock.at.strftime('%Y%m%d_%H%M%S')}_{self._calls:06x}"
        self.db.now = self.clock.tick().timestamp()
        about = {"source": "tool", "parent_session_id": self.key, "cwd": self.about.cwd}
        self.db.session(child, **about, model_config=json.dumps({"_delegate_from": self.key}))
        inner = _Talk(self.db, self.about, child, Clock(self.clock.at))
        inner.turn(w.Turn(step.task, None, step.steps, "completed"))
        self._call("delegate_task", {"goal": step.task}, {"results": [{"status": "completed", "summary": step.result}]})


def called(step: w.Step) -> tuple[str, Any, object]:
    match step:
        case w.Run(command, output, code):
            return "terminal", {"command": command}, {"output": output, "exit_code": code, "error": None}
        case w.Edit(path, diff):
            given = {"mode": "replace", "path": path, "old_string": step.old, "new_string": step.new}
            return "patch", given, {"success": True, "diff": diff, "files_modified": [path]}
        case w.Read(path, output):
            numbered = "\n".join(f"{n}|{line}" for n, line in enumerate(output.splitlines(), 1))
            return "read_file", {"path": path}, {"content": numbered, "total_lines": len(output.splitlines())}
        case w.Tool(name, given, output, error):
            return name, dict(given), {"error": output} if error else output
        case w.Rejected(_, given, _):
            return "terminal", dict(given), {"output": "", "exit_code": -1, "error": _BLOCKED, "status": "blocked"}
        case w.Ask(question, options, answer):
            offered = list(options)
            told = {"question": question, "choices_offered": offered, "user_response": answer}
            return "clarify", {"question": question, "choices": offered}, told
        case w.Todo(entries):
            todos = [{"id": str(n), "content": text, "status": status} for n, (text, status) in enumerate(entries, 1)]
            return "todo", {"todos": todos}, {"todos": todos, "summary": {"total": len(todos)}}
    raise ValueError(f"no form for {step}")


def write(sessions: Iterable[w.Written], home: Path) -> None:
    db = Hermes(home / ".hermes" / "state.db")
    for session in sessions:
        clock = Clock(session.started_at)
        named = {"title": session.title} if session.title else {}
        db.now = clock.at.timestamp() - 30
        db.session(session.session, cwd=session.cwd, **named)
        talk = _Talk(db, session, session.session, clock)
        for turn in session.turns:
            talk.turn(turn)
    db.close()
