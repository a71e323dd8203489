"""One's own Python agent, through the Keep. Times are those of the recording."""

from __future__ import annotations

from typing import Any

from dreamkeep import Keep
from dreamkeep.capture.python import Turn
from tests.planted import written as w

_ENDS = {"completed": "completed", "interrupted": "cancelled"}


def record(session: w.Written, keep: Keep) -> None:
    handle = keep.session(session.session, cwd=session.cwd, title=session.title)
    calls = 0
    for turn in session.turns:
        one = handle.submit(turn.prompt)
        one.start()
        for step in turn.steps:
            calls += 1
            _step(one, step, f"call-{calls}")
        one.settle(_ENDS[turn.end])
    handle.end()


def _step(turn: Turn, step: w.Step, call: str) -> None:
    match step:
        case w.Say(text):
            turn.add("assistant", text)
        case w.Think(text):
            turn.add("reasoning", text)
        case w.Pack(text):
            turn.add("system", text)
        case w.Compaction(text):
            turn.add("summary", text)
        case w.Run(command, output, code):
            told = {"exit_code": code, "error": code != 0}
            _called(turn, call, "shell", {"command": command}, output, told)
        case w.Edit(path, _):
            _called(turn, call, "edit", {"path": path, "old": step.old, "new": step.new}, f"changed {path}", {"error": False})
        case w.Read(path, output):
            _called(turn, call, "read", {"path": path}, output, {"error": False})
        case w.Tool(name, given, output, error):
            _called(turn, call, name, given, output, {"error": error})
        case w.Rejected(name, given, said):
            _called(turn, call, name, given, f"The user rejected this call. {said}".strip(), {"error": True})
        case w.Todo(entries):
            todos = [{"text": text, "status": status} for text, status in entries]
            _called(turn, call, "todo", {"todos": todos}, "noted", {"error": False})
        case _:
            raise ValueError(f"no form for {step}")


def _called(turn: Turn, call: str, name: str, given: Any, output: str, told: dict[str, Any]) -> None:
    turn.add("assistant", "", tool={"id": call, "name": name, "input": dict(given)})
    turn.add("tool", output, tool={"id": call, "name": name, **told})
