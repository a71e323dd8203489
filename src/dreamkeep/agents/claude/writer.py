"""A talk as Claude Code's transcript: `projects/<folder>/<session>.jsonl`, one block a line, a chain by `parentUuid`.

* Resume walks the chain back from its end to the last `compact_boundary`: so it sees summary and what follows, while the lines
  before it stay in the file.
* Thoughts are signed by the model that had them, and the interface refuses any others. They stand beside the chain (no line has
  them as its parent): kept in the file, never sent.
* One message of the model is several lines with one `message.id`.
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
_VERSION = "2.1.197"
_MODEL = "<converted>"
_LONGEST_FOLDER = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

#: What this format can't hold.
THOUGHTS = "thoughts are kept in the file, but not shown to the model: only the model that wrote them can sign them"


def write(talk: Talk) -> WrittenFile:
    return _ClaudeLines(talk).written()


def convert(host: Host, place: str, talk: Talk) -> Conversion:
    return converted(place, talk, write(talk))


def beside(host: Host, files: list[RestoredFile], cwd: str, moved: bool) -> list[RestoredFile]:
    return files  # the agent needs nothing else


def usual_path(native: str, cwd: str, started_at: str) -> str:
    return f"{folder(cwd)}/{native}.jsonl"


def folder(cwd: str) -> str:
    """The name of a project's folder. It is lossy: the `cwd` of the lines counts."""
    units = cwd.encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(units[n : n + 2], "little") for n in range(0, len(units), 2)]
    named = "".join(chr(code) if code < 128 and chr(code).isalnum() else "-" for code in codes)
    if len(named) <= _LONGEST_FOLDER:
        return named
    hashed = 0
    for code in codes:
        hashed = (hashed * 31 + code) & 0xFFFFFFFF
    number = abs(hashed - (1 << 32) if hashed >> 31 else hashed)
    return f"{named[:_LONGEST_FOLDER]}-{_base36(number)}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


class _ClaudeLines:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._native = t.uuid4(talk.session, "claude")
        self._lines: list[Mapping[str, Any]] = []
        self._leaf: str | None = None
        self._message = 0
        self._lost: t.Losses = Counter()

    def written(self) -> WrittenFile:
        talk = self._talk
        before = ""
        for step, last in zip(talk.steps, self._lasts(), strict=True):
            if step.kind in (t.ASSISTANT, t.CALL) and before not in (t.ASSISTANT, t.CALL):
                self._message += 1
            self._step(step, last)
            before = before if step.kind == t.REASONING else step.kind
        if talk.title:
            self._lines.append({"type": "custom-title", "customTitle": talk.title, "sessionId": self._native})
        data = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in self._lines)
        return WrittenFile(f"{folder(talk.cwd)}/{self._native}.jsonl", data.encode(), self._native, self._lost)

    def _lasts(self) -> list[bool]:
        """For each step, whether the model says nothing after it in its turn."""
        found, following = [], t.USER
        for step in reversed(self._talk.steps):
            found.append(following in (t.USER, t.SUMMARY))
            following = following if step.kind == t.REASONING else step.kind
        return found[::-1]

    def _step(self, step: TalkStep, last: bool) -> None:
        if step.kind == t.USER:
            self._line("user", step, message={"role": "user", "content": step.text})
        elif step.kind == t.ASSISTANT:
            self._write_message(step, {"type": "text", "text": step.text}, "end_turn" if last else "tool_use")
        elif step.kind == t.CALL:
            self._write_message(step, {"type": "tool_use", "id": step.id, "name": step.name, "input": step.input}, "tool_use")
        elif step.kind == t.RESULT:
            result = {"tool_use_id": step.id, "type": "tool_result", "content": step.text, "is_error": step.failed}
            self._line("user", step, message={"role": "user", "content": [result]}, toolUseResult=step.text)
        elif step.kind == t.REASONING:
            self._thought(step)
        else:
            self._compacted(step)

    def _write_message(self, step: TalkStep, block: Mapping[str, Any], stop: str) -> None:
        self._line("assistant", step, message=self._answer(block, stop, f"{self._message}"))

    def _answer(self, block: Mapping[str, Any], stop: str | None, name: str) -> Mapping[str, Any]:
        return {
            "id": f"msg_{t.chance(self._talk.session, 'message', name).hex()[:24]}",
            "type": "message",
            "role": "assistant",
            "model": self._talk.model or _MODEL,
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def _thought(self, step: TalkStep) -> None:
        self._lost[THOUGHTS] += 1
        leaf = self._leaf
        block = {"type": "thinking", "thinking": step.text, "signature": ""}
        self._line("assistant", step, message=self._answer(block, None, f"thought {len(self._lines)}"))
        self._leaf = leaf

    def _compacted(self, step: TalkStep) -> None:
        before, self._leaf = self._leaf, None
        self._line(
            "system",
            step,
            subtype="compact_boundary",
            content="Conversation compacted",
            level="info",
            isMeta=False,
            logicalParentUuid=before,
            compactMetadata={"trigger": "auto", "preTokens": 0},
        )
        self._line(
            "user",
            step,
            message={"role": "user", "content": step.text},
            isCompactSummary=True,
            isVisibleInTranscriptOnly=True,
        )

    def _line(self, kind: str, step: TalkStep, **more: Any) -> None:
        talk = self._talk
        own = t.uuid4(talk.session, "line", len(self._lines))
        self._lines.append(
            {
                "parentUuid": self._leaf,
                "isSidechain": False,
                "type": kind,
                **more,
                "uuid": own,
                "timestamp": t.to_ms(step.at),
                "userType": "external",
                "entrypoint": "cli",
                "cwd": talk.cwd,
                "sessionId": self._native,
                "version": _VERSION,
                "gitBranch": talk.branch,
            }
        )
        self._leaf = own
