"""A model whose answers are recorded: it answers a dream's exported requests through files, as anybody might."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dreamkeep import Keep

Answers = Callable[[Mapping[str, Any]], object]
_NOTE = re.compile(r"^==\w+== note (\d+),", re.MULTILINE)


def item(note: str, place: str, words: str, **more: Any) -> dict[str, Any]:
    quotes = [{"place": place, "words": words, "speaker": "user"}]
    found = {"kind": "decision", "note": note, "quotes": quotes, "strength": "clear", "typed": True}
    return {**found, "scope": "project", "task": "", **more}


def place_of(user: str, words: str) -> str:
    """Where a line of a request says these words."""
    found = re.search(rf"^\[([\w.]+)\] user[^:\n]*: .*{re.escape(words)}", user, re.MULTILINE)
    assert found, f"{words!r} is in no line of the request"
    return found[1]


def keep_all(request: Mapping[str, Any]) -> object:
    """A challenge that keeps every note."""
    numbers = _NOTE.findall(request["user"])
    return {"verdicts": [{"item": int(n), "verdict": "keep", "why": "it holds", "note": ""} for n in numbers]}


def suggest_all(request: Mapping[str, Any]) -> object:
    """A challenge that is sure of nothing."""
    numbers = _NOTE.findall(request["user"])
    return {"verdicts": [{"item": int(n), "verdict": "suggest", "why": "people differ", "note": ""} for n in numbers]}


def all_new(request: Mapping[str, Any]) -> object:
    numbers = re.findall(r"^==\w+== new note (\d+),", request["user"], re.MULTILINE)
    return {"operations": [{"item": int(n), "operation": "new", "other": "", "why": ""} for n in numbers]}


def dream(keep: Keep, folder: Path, read: Answers, *, challenge: Answers = keep_all, merge: Answers = all_new) -> dict[str, Any]:
    """Export, answer and import until nothing is left to answer. The last report."""
    answers = {"read": read, "challenge": challenge, "merge": merge}
    keep.dream_export(str(folder))
    for _ in range(6):
        for path in (folder / "requests").glob("*.json"):
            request = json.loads(path.read_text())
            (folder / "answers" / path.name).write_text(json.dumps(answers[request["kind"]](request)))
        report = keep.dream_import(str(folder))
        if not report["requests"]:
            return report
    raise AssertionError("it asks without an end")
