"""A talk as Codex CLI's rollout: `sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`, `{timestamp, type, payload}` a line.

* `response_item`s are what the model sees after a resume, `event_msg`s what the user sees: words stand in both, as in the
  client's own files (its older form, without ordinals, which every version reads).
* Resume begins at the last `compacted`, with its `replacement_history`: the summary.
* Thoughts are sealed by the model that had them; foreign ones are shown to the user only (`agent_reasoning`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dreamkeep.agents.shared import talk as t
from dreamkeep.agents.shared.talk import Conversion, RestoredFile, Talk, TalkStep, WrittenFile, converted
from dreamkeep.host import Host

#: The lines look like those of this client.
_VERSION = "0.166.0"
#: How the client begins a summary for the model; it recognises the summary by these words.
_HANDED_ON = (
    "Another language model started to solve this problem and produced a summary of its thinking process. You also have access"
    " to the state of the tools that were used by that language model. Use this to build on the work that has already been done"
    " and avoid duplicating work. Here is the summary produced by the other language model, use the information in this summary"
    " to assist with your own analysis:"
)

#: What this format can't hold.
THOUGHTS = "thoughts are shown to the user, but not to the model: only the model that wrote them can sign them"


def write(talk: Talk) -> WrittenFile:
    return _CodexLines(talk).written()


def convert(host: Host, place: str, talk: Talk) -> Conversion:
    return converted(place, talk, write(talk))


def beside(host: Host, files: list[RestoredFile], cwd: str, moved: bool) -> list[RestoredFile]:
    return files  # the agent needs nothing else


def usual_path(native: str, cwd: str, started_at: str) -> str:
    return path(started_at, native)


def path(at: str, thread: str) -> str:
    day, clock = at[:10], at[11:19].replace(":", "-")
    return f"sessions/{day.replace('-', '/')}/rollout-{day}T{clock}-{thread}.jsonl"


class _CodexLines:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._native = t.uuid7(talk.started_at, talk.session, "codex")
        self._lines: list[Mapping[str, Any]] = []
        self._turn = ""
        self._answer = ""
        self._lost: t.Losses = Counter()

    def written(self) -> WrittenFile:
        talk = self._talk
        self._meta()
        at = talk.started_at
        for step in talk.steps:
            self._step(step)
            at = step.at
        self._ends(at)
        if talk.title:
            self._event(at, "thread_name_updated", thread_id=self._native, thread_name=talk.title)
        data = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in self._lines)
        return WrittenFile(path(talk.started_at, self._native), data.encode(), self._native, self._lost)

    def _meta(self) -> None:
        talk = self._talk
        about: dict[str, Any] = {
            "id": self._native,
            "session_id": self._native,
            "timestamp": t.to_ms(talk.started_at),
            "cwd": talk.cwd,
            "originator": "dreamkeep",
            "cli_version": _VERSION,
            "source": "cli",
        }
        if talk.branch:
            about["git"] = {"branch": talk.branch}
        self._line(talk.started_at, "session_meta", about)

    def _step(self, step: TalkStep) -> None:
        if step.kind == t.USER:
            self._begins(step)
            self._message(step, "user", "input_text", "user.text")
            self._event(step.at, "user_message", message=step.text, images=[], local_images=[], text_elements=[])
        elif step.kind == t.ASSISTANT:
            self._message(step, "assistant", "output_text", "unknown")
            self._event(step.at, "agent_message", message=step.text)
            self._answer = step.text
        elif step.kind == t.CALL:
            given = json.dumps(step.input, ensure_ascii=False, separators=(",", ":"))
            self._item(step, {"type": "function_call", "name": step.name, "arguments": given, "call_id": step.id})
        elif step.kind == t.RESULT:
            self._lost[t.FAILED] += step.failed and step.text != t.NO_RESULT
            self._item(step, {"type": "function_call_output", "call_id": step.id, "output": step.text})
        elif step.kind == t.REASONING:
            self._lost[THOUGHTS] += 1
            self._event(step.at, "agent_reasoning", text=step.text)
        else:
            self._compacted(step)

    def _begins(self, step: TalkStep) -> None:
        self._ends(step.at)
        self._turn = t.uuid7(step.at, self._talk.session, "turn", len(self._lines))
        self._event(step.at, "task_started", turn_id=self._turn, model_context_window=None, collaboration_mode_kind="default")

    def _ends(self, at: str) -> None:
        if self._turn and self._answer:
            self._event(at, "task_complete", turn_id=self._turn, last_agent_message=self._answer)
        self._turn = self._answer = ""

    def _compacted(self, step: TalkStep) -> None:
        self._ends(step.at)
        words = step.text if step.text.startswith(_HANDED_ON[:40]) else f"{_HANDED_ON}\n{step.text}"
        kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
        self._line(step.at, "compacted", {"message": step.text, "replacement_history": [kept]})
        self._event(step.at, "context_compacted")

    def _message(self, step: TalkStep, role: str, form: str, kind: str) -> None:
        self._item(step, {"type": "message", "role": role, "content": [{"type": form, "text": step.text}]}, kind)

    def _item(self, step: TalkStep, item: dict[str, Any], kind: str = "") -> None:
        inside: dict[str, Any] = {"turn_id": self._turn} if self._turn else {}
        if kind:
            inside["content_item_kinds"] = [kind]
        self._line(step.at, "response_item", {**item, "internal_chat_message_metadata_passthrough": inside} if inside else item)

    def _event(self, at: str, kind: str, **more: Any) -> None:
        self._line(at, "event_msg", {"type": kind, **more})

    def _line(self, at: str, kind: str, payload: Mapping[str, Any]) -> None:
        self._lines.append({"timestamp": t.to_ms(at), "type": kind, "payload": payload})
