"""Gemini CLI: a file of patches a session, a folder of files for its subagents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.gemini import Chat
from tests.planted import written as w
from tests.planted.into.clock import Clock

_REFUSED = "[Operation Cancelled] Reason: User did not allow tool call"
_ACKNOWLEDGED = "Got it. Thanks for the additional context!"

Call = tuple[str, dict[str, Any], str, bool]


class _Chat(Chat):
    def __init__(self, session: w.Written, clock: Clock, native: str, kind: str = "main") -> None:
        self.clock = clock
        self.about = session
        self.files: dict[str, str] = {}
        self._held: list[str] = []
        self._thoughts: list[dict[str, str]] = []
        self._calls = 0
        super().__init__(native, kind, minute=session.started_at.minute)
        self._name = f"{native[:6]}{kind[0]}"

    def now(self) -> str:
        return self.clock.text(1)

    def context(self) -> dict[str, Any]:
        folder = f"- **Workspace Directories:**\n  - {self.about.cwd}"
        text = f"<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n{folder}"
        return self.message("user", [{"text": text + "\n\n</session_context>"}])

    def turn(self, turn: w.Turn) -> None:
        self.clock.turn(turn)
        asked = self.prompt(turn.prompt, *(one.text for one in turn.steps if isinstance(one, w.Pack)))
        for step in turn.steps:
            self.clock.tick(4)
            self.step(step, asked)
        self.flush()
        if turn.end != "completed":
            self.say("info", "Request cancelled.")

    def flush(self) -> None:
        """Words that no call follows."""
        for words in self._held:
            self.answer(words)
        self._held = []

    def answer(self, words: str, thoughts: list[dict[str, str]] | None = None) -> dict[str, Any]:
        thoughts, self._thoughts = self._thoughts, []
        return super().answer(words, thoughts)

    def step(self, step: w.Step, asked: dict[str, Any]) -> None:
        match step:
            case w.Say(text):
                self._held.append(text)
            case w.Think(text):
                self._thoughts.append({"subject": "Thinking", "description": text, "timestamp": self.now()})
            case w.Compaction(summary):
                self._compact(summary, asked)
            case w.Subagent():
                self._subagent(step)
            case w.Rejected(name, given, _):
                named = "run_shell_command" if name == "Bash" else name
                self._call((named, dict(given), _REFUSED, True), "cancelled")
            case w.Pack():
                pass
            case _:
                made = called(step)
                self._call(made, "error" if made[3] else "success")

    def _call(self, made: Call, status: str) -> None:
        self._calls += 1
        name, given, output, failed = made
        words = "\n".join(self._held)
        self._held = []
        response = {"error" if failed else "output": output}
        self.calls(words, (f"{name}__{self._calls}", name, given, response, status))

    def _subagent(self, step: w.Subagent) -> None:
        native = f"generalist-{self._calls:02}{abs(hash_of(step.task)):08x}"
        inner = _Chat(self.about, Clock(self.clock.at), native, "subagent")
        inner.record(inner.message("user", [{"text": step.task}]))
        for one in step.steps:
            inner.step(one, {})
        inner.flush()
        self.files[native] = "\n".join(inner.lines) + "\n"
        self._call(("generalist", {"request": step.task}, step.result, False), "success")

    def _compact(self, summary: str, asked: dict[str, Any]) -> None:
        """The prompt is repeated under a new id, all at one time."""
        self.flush()
        self.set(sessionId=self.about.session)
        told = self.message("user", [{"text": f"<state_snapshot>\n{summary}\n</state_snapshot>"}])
        new = [told, self.message("gemini", [{"text": _ACKNOWLEDGED}]), self.message("user", asked["content"])]
        at = new[-1]["timestamp"]
        self.listed([self.context(), *(one | {"timestamp": at} for one in new)])


def hash_of(text: str) -> int:
    return sum(n * ord(letter) for n, letter in enumerate(text, 1)) & 0xFFFFFFFF


def called(step: w.Step) -> Call:
    match step:
        case w.Run(command, output, code):
            lines = [f"Output: {output or '(empty)'}", *([f"Exit Code: {code}"] if code else []), "Process Group PGID: 48213"]
            return "run_shell_command", {"command": command}, "\n".join(lines), False
        case w.Edit(path, _):
            given = {"file_path": path, "instruction": "Change it.", "old_string": step.old, "new_string": step.new}
            return "replace", given, f"Successfully modified file: {path} (1 replacements).", False
        case w.Read(path, output):
            return "read_file", {"file_path": path}, output, False
        case w.Tool(name, given, output, error):
            return name, dict(given), output, error
        case w.Ask(question, options, answer):
            shown = [{"label": one, "description": ""} for one in options]
            asked: dict[str, Any] = {
                "questions": [{"question": question, "header": "Choice", "type": "choice", "options": shown}]
            }
            return "ask_user", asked, json.dumps({"answers": {"0": answer}}, ensure_ascii=False), False
        case w.Todo(entries):
            todos = [{"description": text, "status": status} for text, status in entries]
            lines = [f"{n}. [{status}] {text}" for n, (text, status) in enumerate(entries, 1)]
            told = "Successfully updated the todo list. The current list is now:\n" + "\n".join(lines)
            return "write_todos", {"todos": todos}, told, False
    raise ValueError(f"no form for {step}")


def write(session: w.Written, home: Path) -> None:
    chat = _Chat(session, Clock(session.started_at), session.session)
    chat.listed([chat.context()])
    for turn in session.turns:
        chat.turn(turn)
    if session.title:
        chat.set(summary=session.title)
    slug = session.cwd.rpartition("/")[2]
    chats = home / ".gemini" / "tmp" / slug / "chats"
    chats.mkdir(parents=True, exist_ok=True)
    known = home / ".gemini" / "projects.json"
    projects = json.loads(known.read_text())["projects"] if known.exists() else {}
    known.write_text(json.dumps({"projects": {**projects, session.cwd: slug}}))
    name = f"session-{session.started_at.strftime('%Y-%m-%dT%H-%M')}-{session.session[:8]}.jsonl"
    (chats / name).write_text("\n".join(chat.lines) + "\n", encoding="utf-8")
    for native, text in chat.files.items():
        beside = chats / session.session
        beside.mkdir(exist_ok=True)
        (beside / f"{native}.jsonl").write_text(text, encoding="utf-8")
