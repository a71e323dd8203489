"""Claude Code: one file a session, one beside it for each subagent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.agents.claude import Line, Talk, call, made, say, text_of, think
from tests.planted import written as w
from tests.planted.into.clock import Clock

_REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the new_string"
    " was NOT written to the file). "
)
_STOP = "STOP what you are doing and wait for the user to tell you how to proceed."
_WHY = "To tell you how to proceed, the user said:\n"
_APPROVED = "User has approved your plan. You can now start coding. Start with updating your todo list if applicable\n\n"
_TODOS = (
    "Todos have been modified successfully. Ensure that you continue to use the todo list to track your progress. Please proceed"
    " with the current tasks if applicable"
)


class _Session(Talk):
    """Its own folder and its own times; words are held back until the call that they stand before."""

    def __init__(self, session: w.Written, clock: Clock, agent: str = "") -> None:
        super().__init__(session.session, sidechain=agent)
        self.about = session
        self.clock = clock
        self.files: dict[str, str] = {}
        self._blocks: list[Line] = []
        self._calls = 0
        self._name = agent

    def now(self) -> str:
        return self.clock.text()

    def line(self, kind: str, *, parent: str | None = "", **more: Any) -> str:
        uuid = super().line(kind, parent=parent, **more)
        self.lines[-1]["cwd"] = self.about.cwd
        return uuid

    def turn(self, turn: w.Turn) -> None:
        self.clock.turn(turn)
        self.prompt(turn.prompt)
        for step in turn.steps:
            self.step(step)
        self._flush("end_turn" if turn.end == "completed" else None)
        if turn.end == "completed":
            self.finished()
        elif turn.end == "crashed":
            self._crashed()
        else:
            refused = isinstance(turn.steps[-1], (w.Rejected, w.Plan)) if turn.steps else False
            self.user([say(f"[Request interrupted by user{' for tool use' if refused else ''}]")])

    def _crashed(self) -> None:
        message = {"id": made(f"synthetic {len(self.lines)}"), "model": "<synthetic>", "role": "assistant"}
        told = {**message, "stop_reason": "stop_sequence", "content": [say("No response requested.")]}
        self.line("assistant", message=told, isApiErrorMessage=False, madeBy="other")

    def _flush(self, stop: str | None) -> None:
        if self._blocks:
            self.answer(*self._blocks, stop=stop)
        self._blocks = []

    def _call(self, name: str, given: Any, output: object, *, error: bool = False, outcome: object = None) -> str:
        self._calls += 1
        tool = f"toolu_{made(f'{self.session}{self._name}{self._calls}').replace('-', '')[:22]}"
        self._blocks.append(call(tool, name, **given))
        self._flush("tool_use")
        self.clock.tick(5)
        self.result(tool, output, error=error, outcome=outcome)
        return tool

    def step(self, step: w.Step) -> None:
        match step:
            case w.Say(text):
                self._blocks.append(say(text))
            case w.Think(text):
                self._blocks.append(think(text))
            case w.Run(command, output, code):
                self._run(command, output, code)
            case w.Edit(path, _):
                place = f"{self.about.cwd}/{path}"
                given = {"file_path": place, "old_string": step.old, "new_string": step.new, "replace_all": False}
                self._call("Edit", given, f"The file {place} has been updated successfully.", outcome={"filePath": place})
            case w.Read(path, output):
                numbered = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(output.splitlines(), 1))
                self._call("Read", {"file_path": f"{self.about.cwd}/{path}"}, numbered)
            case w.Tool(name, given, output, error):
                self._call(name, given, output, error=error)
            case w.Rejected(name, given, said):
                self._refused(name, given, said)
            case w.Plan(text, approved, said):
                self._plan(text, approved, said)
            case w.Ask():
                self._ask(step)
            case w.Todo(entries):
                todos = [{"content": text, "status": status, "activeForm": text} for text, status in entries]
                self._call("TodoWrite", {"todos": todos}, _TODOS, outcome={"oldTodos": [], "newTodos": todos})
            case w.Subagent():
                self._subagent(step)
            case w.Compaction(summary):
                self._compact(summary)
            case w.Pack(text):
                self.attachment(
                    "hook_additional_context", hookName="UserPromptSubmit", hookEvent="UserPromptSubmit", content=[text]
                )

    def _run(self, command: str, output: str, code: int) -> None:
        given = {"command": command, "description": "Run it"}
        if code:
            told = f"Exit code {code}\n{output}"
            self._call("Bash", given, told, error=True, outcome=f"Error: {told}")
        else:
            self._call("Bash", given, output, outcome={"stdout": output, "stderr": "", "interrupted": False, "isImage": False})

    def _refused(self, name: str, given: Any, said: str) -> None:
        told = _REJECTED + (_WHY + said if said else _STOP)
        self._call(name, given, told, error=True, outcome=f"Error: {told}" if said else "User rejected tool use")

    def _plan(self, text: str, approved: bool, said: str) -> None:
        place = f"/home/dev/.claude/plans/{made(text)[:8]}.md"
        if not approved:
            self._refused("ExitPlanMode", {"plan": text}, said)
            return
        saved = f"Your plan has been saved to: {place}\nYou can refer back to it if needed during implementation.\n\n"
        told = f"{_APPROVED}{saved}## Approved Plan:\n{text}"
        self._call("ExitPlanMode", {"plan": text}, told, outcome={"plan": text, "isAgent": False, "filePath": place})

    def _ask(self, step: w.Ask) -> None:
        options = [{"label": one, "description": ""} for one in step.options]
        asked = [{"question": step.question, "header": "Choice", "options": options, "multiSelect": False}]
        told = f'User has answered your questions: "{step.question}"="{step.answer}".'
        outcome = {"questions": asked, "answers": {step.question: step.answer}}
        self._call(
            "AskUserQuestion",
            {"questions": asked},
            f"{told} You can now continue with the user's answers in mind.",
            outcome=outcome,
        )

    def _subagent(self, step: w.Subagent) -> None:
        name = f"a{made(f'{self.session} {step.task}').replace('-', '')[:16]}"
        given = {"description": step.task[:30], "prompt": step.task, "subagent_type": "general-purpose"}
        tool = self._call("Task", given, [say(step.result)], outcome={"status": "completed", "agentId": name})
        inner = _Session(self.about, Clock(self.clock.at), name)
        inner.prompt(step.task)
        for one in step.steps:
            inner.step(one)
        inner._flush("end_turn")
        self.files[f"agent-{name}.jsonl"] = text_of(inner.lines)
        self.files[f"agent-{name}.meta.json"] = json.dumps({"agentType": "general-purpose", "toolUseId": tool})

    def _compact(self, summary: str) -> None:
        self._flush(None)
        about = {"trigger": "auto", "preTokens": 161000, "postTokens": 8200}
        before = self.leaf
        self.system(
            "compact_boundary", parent=None, logicalParentUuid=before, content="Conversation compacted", compactMetadata=about
        )
        head = "This session is being continued from a previous conversation that ran out of context. The summary is below:\n"
        self.user(head + summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)


def write(session: w.Written, home: Path) -> None:
    talk = _Session(session, Clock(session.started_at))
    for turn in session.turns:
        talk.turn(turn)
    if session.title:
        talk.loose("ai-title", aiTitle=session.title)
    folder = home / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", session.cwd)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{session.session}.jsonl").write_text(text_of(talk.lines))
    for name, text in talk.files.items():
        beside = folder / session.session / "subagents"
        beside.mkdir(parents=True, exist_ok=True)
        (beside / name).write_text(text)
