"""Codex CLI: a rollout a session, paginated; a subagent has one of its own."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.agents.codex import Rollout
from tests.planted import written as w
from tests.planted.into.clock import Clock

_REJECTED = "exec command rejected by user"


def uuid7(at: datetime, name: int) -> str:
    milliseconds = f"{int(at.timestamp() * 1000):012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7000-8000-{name:012x}"


class _Thread(Rollout):
    def __init__(self, session: w.Written, clock: Clock, thread: str) -> None:
        super().__init__()
        self.about = session
        self.clock = clock
        self.thread = thread
        self.spawned: list[_Thread] = []
        self._turns = self._calls = self._words = 0

    def put(self, kind: str, payload: dict[str, Any], *, ordinal: int | None = None, **more: Any) -> None:
        if kind == "turn_context":
            payload = {**payload, "cwd": self.about.cwd}
        line = {"timestamp": self.clock.text(1), "ordinal": self.ordinal, "type": kind, "payload": payload, **more}
        self.ordinal += 1
        self.lines.append(json.dumps(line))

    def opens(self, **more: Any) -> None:
        self.meta(self.thread, timestamp=self.clock.text(), cwd=self.about.cwd, **more)

    def turn(self, turn: w.Turn) -> None:
        self.clock.turn(turn)
        self._turns += 1
        name = uuid7(self.clock.at, self._turns)
        for n, step in enumerate(one for one in turn.steps if isinstance(one, w.Pack)):
            self.event("task_started", turn_id=name)
            self.said(name, "developer", f"msg_{name}-p{n}", step.text, "hooks.additional_context", hook=True)
        self.asks(name, turn.prompt)
        for one in turn.steps:
            self.step(name, one)
        if turn.end == "completed":
            self.ends(name)
        else:
            self.event("turn_aborted", turn_id=name, reason="interrupted")

    def _own(self) -> str:
        self._words += 1
        return f"msg_{self.thread[-6:]}_{self._words}"

    def step(self, turn: str, step: w.Step) -> None:
        self.clock.tick(4)
        match step:
            case w.Say(text):
                self.answers(turn, text, self._own())
            case w.Think(text):
                own = f"rs_{self._own()}"
                self.shown(turn, "Reasoning", own, summary_text=[text], raw_content=[])
                told = [{"type": "summary_text", "text": text}]
                self.put("response_item", {"type": "reasoning", "id": own, "summary": told, "encrypted_content": "gAAAAA=="})
            case w.Run(command, output, code):
                self.runs(turn, self._call(), command, output, code)
            case w.Read(path, output):
                self.runs(turn, self._call(), f"sed -n '1,200p' {path}", output, 0)
            case w.Edit():
                self._patch(turn, step)
            case w.Tool(name, given, output, error):
                self._function(turn, name, given, {"content": output, "success": False} if error else output)
            case w.Rejected(_, given, _):
                self._refused(turn, given)
            case w.Ask():
                self._ask(turn, step)
            case w.Todo(entries):
                plan = [{"step": text, "status": status} for text, status in entries]
                self._function(turn, "update_plan", {"plan": plan}, "Plan updated")
            case w.Subagent():
                self._subagent(turn, step)
            case w.Compaction(summary):
                self.compacts(turn, f"window-{self._own()}", summary)

    def _call(self) -> str:
        self._calls += 1
        return f"call_{self.thread[-6:]}_{self._calls:04}"

    def _function(self, turn: str, name: str, given: Any, output: object) -> None:
        call, inside = self._call(), {"turn_id": turn}
        asked = {"type": "function_call", "name": name, "arguments": json.dumps(given), "call_id": call}
        self.put("response_item", {**asked, "internal_chat_message_metadata_passthrough": inside})
        self.put("response_item", {"type": "function_call_output", "call_id": call, "output": output})

    def _patch(self, turn: str, step: w.Edit) -> None:
        call = self._call()
        patch = f"*** Begin Patch\n*** Update File: {step.path}\n@@\n{step.diff}\n*** End Patch"
        asked = {"type": "custom_tool_call", "status": "completed", "name": "apply_patch", "input": patch, "call_id": call}
        self.put("response_item", {**asked, "internal_chat_message_metadata_passthrough": {"turn_id": turn}})
        told = f"Success. Updated the following files:\nM {step.path}\n"
        changes = {f"{self.about.cwd}/{step.path}": {"type": "update", "unified_diff": step.diff, "move_path": None}}
        self.shown(turn, "FileChange", call, changes=changes, status="completed", stdout=told, stderr="")
        output = json.dumps({"output": told, "metadata": {"exit_code": 0, "duration_seconds": 0.0}})
        self.put("response_item", {"type": "custom_tool_call_output", "call_id": call, "output": output})

    def _refused(self, turn: str, given: Any) -> None:
        call, command = self._call(), given.get("command") or given["cmd"]
        asked = {"type": "function_call", "name": "exec_command", "arguments": json.dumps({"cmd": command}), "call_id": call}
        self.put("response_item", {**asked, "internal_chat_message_metadata_passthrough": {"turn_id": turn}})
        done = {"status": "declined", "aggregated_output": _REJECTED, "exit_code": -1}
        self.shown(turn, "CommandExecution", call, command=["bash", "-lc", command], **done)
        self.put("response_item", {"type": "function_call_output", "call_id": call, "output": _REJECTED})

    def _ask(self, turn: str, step: w.Ask) -> None:
        options = [{"label": one, "description": ""} for one in step.options]
        asked = {"questions": [{"id": "choice", "header": "Choice", "question": step.question, "options": options}]}
        answer = json.dumps({"answers": {"choice": {"answers": [step.answer]}}}, ensure_ascii=False)
        self._function(turn, "request_user_input", asked, answer)

    def _subagent(self, turn: str, step: w.Subagent) -> None:
        thread = uuid7(self.clock.at, 0xC0DE + len(self.spawned))
        self._function(turn, "spawn_agent", {"message": step.task}, json.dumps({"agent_id": thread, "nickname": "Otter"}))
        inner = _Thread(self.about, Clock(self.clock.at), thread)
        spawn = {"parent_thread_id": self.thread, "depth": 1, "agent_nickname": "Otter"}
        inner.opens(source={"subagent": {"thread_spawn": spawn}}, parent_thread_id=self.thread)
        inner.turn(w.Turn(step.task, None, step.steps, "completed"))
        self.spawned.append(inner)
        told = {"status": {thread: {"completed": step.result}}, "timed_out": False}
        self._function(turn, "wait_agent", {"targets": [thread]}, json.dumps(told, ensure_ascii=False))

    def save(self, home: Path, at: datetime) -> None:
        day = home / ".codex" / "sessions" / at.strftime("%Y/%m/%d")
        day.mkdir(parents=True, exist_ok=True)
        name = f"rollout-{at.strftime('%Y-%m-%dT%H-%M-%S')}-{self.thread}.jsonl"
        (day / name).write_text("".join(f"{line}\n" for line in self.lines))
        for one in self.spawned:
            one.save(home, at)


def write(session: w.Written, home: Path) -> None:
    thread = _Thread(session, Clock(session.started_at), session.session)
    thread.opens()
    for turn in session.turns:
        thread.turn(turn)
    if session.title:
        thread.event("thread_name_updated", thread_id=session.session, thread_name=session.title)
    thread.save(home, session.started_at)
