"""Somebody who answers requests of a dream: keeps what the user typed with "always" or "never", and doubts nothing.

He sees nothing but the request, as a model does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dreamkeep import Keep

_LINE = re.compile(r"^\[(?P<place>[A-Z]?[\d.]+)\] user: (?P<words>.*\b(?:always|never)\b.*)$", re.MULTILINE | re.IGNORECASE)


def talk(root: Path | str, id: str, *prompts: str, end: bool = True, cwd: str = "/") -> None:
    with Keep.open(root) as keep:
        session = keep.session(id, cwd=cwd)
        for prompt in prompts:
            session.record(prompt)
        if end:
            session.end()


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    text = str(request["user"])
    if request["kind"] == "read":
        return {"items": [_item(one["place"], one["words"]) for one in _LINE.finditer(text)]}
    count = len(re.findall(r"^==\w+== (?:new )?note \d+, ", text, re.MULTILINE))
    if request["kind"] == "challenge":
        return {"verdicts": [{"item": n, "verdict": "keep", "why": "he said so", "note": ""} for n in range(1, count + 1)]}
    return {"operations": [{"item": n, "operation": "new", "other": "", "why": ""} for n in range(1, count + 1)]}


def kind_of(text: str) -> str:
    """What a request of these words asks for."""
    return "read" if "You read finished sessions" in text else "challenge" if "You check notes" in text else "merge"


def _item(place: str, words: str) -> dict[str, Any]:
    quote = {"place": place, "words": words[:300], "speaker": "user"}
    found = {"kind": "constraint", "note": f"{words[0].upper()}{words[1:300]}", "quotes": [quote], "strength": "clear"}
    return {**found, "typed": True, "scope": "project", "task": ""}


def requests(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((folder / "requests").glob("*.json"))}


def answer_all(folder: Path) -> int:
    """How many there were."""
    found = requests(folder)
    for id, request in found.items():
        (folder / "answers" / f"{id}.json").write_text(json.dumps(answer(request)))
    return len(found)


def dream_by_files(root: Path | str, folder: Path) -> list[dict[str, Any]]:
    """From export to the end; each report."""
    reports: list[dict[str, Any]] = []
    with Keep.open(root) as keep:
        keep.dream_export(str(folder))
        for _ in range(6):
            answer_all(folder)
            reports.append(keep.dream_import(str(folder)))
            if not reports[-1]["requests"]:
                return reports
    raise AssertionError("it never ends")


def openai_line(id: str, words: str, **more: Any) -> str:
    message = {"role": "assistant", "content": words}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return json.dumps({"id": "b", "custom_id": id, "response": response, "error": None, **more})


def anthropic_line(id: str, given: Mapping[str, Any]) -> str:
    used = {"type": "tool_use", "id": "t", "name": "answer", "input": given}
    message = {
        "role": "assistant",
        "content": [used],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return json.dumps({"custom_id": id, "result": {"type": "succeeded", "message": message}})
