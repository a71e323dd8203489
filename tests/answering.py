"""A dream whose requests a test answers: through the folder of `dream --export` and `--import`, as any model would."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from dreamkeep import Keep

#: A request, as its file has it → the JSON object that answers it.
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def item(note: str, words: str, place: str = "2", **more: Any) -> dict[str, Any]:
    """One that the user typed, and that is clear."""
    quotes = [{"place": place, "words": words, "speaker": "user"}]
    known = {"kind": "decision", "strength": "clear", "typed": True, "scope": "project", "task": ""}
    return {"note": note, "quotes": quotes, **known, **more}


class Reader:
    """Gives each item to the session whose request holds its words, keeps all in the challenge, and merges as it is told.

    `verdicts`: by note, what the challenge says; else `keep`, and `suggest` of what the reader was not sure of.
    `operations`: by note, (operation, the other's text or name, why).
    """

    def __init__(self, *items: Mapping[str, Any]) -> None:
        self.items = list(items)
        self.verdicts: dict[str, str] = {}
        self.operations: dict[str, tuple[str, str, str]] = {}
        #: The requests that were answered.
        self.asked: list[Mapping[str, Any]] = []

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(request)
        return {"read": self._read, "challenge": self._challenge, "merge": self._merge}[request["kind"]](request["user"])

    def of(self, kind: str) -> list[str]:
        return [str(one["user"]) for one in self.asked if one["kind"] == kind]

    def _read(self, shown: str) -> Mapping[str, Any]:
        found = []
        for one in self.items:
            place = next((line for line in shown.splitlines() if one["quotes"][0]["words"] in line and line.startswith("[")), "")
            if place:
                quote = {**one["quotes"][0], "place": place[1:].partition("]")[0]}
                found.append({**one, "quotes": [quote]})
        return {"items": found}

    def _challenge(self, shown: str) -> Mapping[str, Any]:
        doubted = {str(one["note"]): "suggest" for one in self.items if one["strength"] == "maybe"}
        said = {**doubted, **self.verdicts}
        notes = _marked(shown, " note ")
        return {"verdicts": [{"item": n, "verdict": said.get(text, "keep"), "why": "w", "note": ""} for n, text in notes]}

    def _merge(self, shown: str) -> Mapping[str, Any]:
        names = {}
        lines = shown.splitlines()
        for line, text in pairwise(lines):
            if " near it: " in line:
                names[text] = line.partition(" near it: ")[2].partition(",")[0]
        made = []
        for n, text in _marked(shown, " new note "):
            operation, other, why = self.operations.get(text, ("new", "", ""))
            made.append({"item": n, "operation": operation, "other": names.get(other, other), "why": why})
        return {"operations": made}


def _marked(shown: str, sign: str) -> list[tuple[int, str]]:
    lines = shown.splitlines()
    pairs = pairwise(lines)
    return [(int(line.partition(sign)[2].partition(",")[0]), text) for line, text in pairs if sign in line and "==" in line[:3]]


def dream(keep: Keep, folder: Path, answer: Answer) -> dict[str, Any]:
    """Exports, answers and imports until nothing is left to be asked; the last report, with the notes of all of them counted."""
    keep.dream_export(str(folder))
    notes: dict[str, int] = {}
    for _ in range(9):
        for file in (folder / "requests").glob("*.json"):
            request = json.loads(file.read_text())
            (folder / "answers" / file.name).write_text(json.dumps(answer(request)))
        made = keep.dream_import(str(folder))
        notes = {key: notes.get(key, 0) + count for key, count in made["notes"].items()}
        if not made["requests"]:
            return {**made, "notes": notes}
    raise AssertionError("it is asked again and again")
