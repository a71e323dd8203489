"""A dream whose requests a test answers: through the folder of `dream --export` and `--import`, as any model would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dreamkeep import Keep
from dreamkeep.host import RealHost
from dreamkeep.sample.recorded import Answer, Answers, lay_answers


def item(note: str, words: str, place: str = "2", **more: Any) -> dict[str, Any]:
    """One that the user typed, and that is clear."""
    quotes = [{"place": place, "words": words, "speaker": "user"}]
    known = {"kind": "decision", "strength": "clear", "typed": True, "scope": "project", "task": ""}
    return {"note": note, "quotes": quotes, **known, **more}


class Reader:
    """Answers with these items, keeps them in the challenge or suggests what is only "maybe", and merges as it is told.

    `operations`: by note, (operation, the other's text or name, why).
    """

    def __init__(self, *items: Mapping[str, Any]) -> None:
        self.items = list(items)
        self.operations: dict[str, tuple[str, str, str]] = {}
        #: The requests that were answered.
        self.asked: list[Mapping[str, Any]] = []

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(request)
        names = ("operation", "other", "why")
        operations = {note: dict(zip(names, told, strict=True)) for note, told in self.operations.items()}
        return Answers(self.items, operations=operations).answer(request)

    def of(self, kind: str) -> list[str]:
        return [str(one["user"]) for one in self.asked if one["kind"] == kind]


def dream(keep: Keep, folder: Path, answer: Answer) -> dict[str, Any]:
    """Exports, answers and imports until nothing is left to be asked; the last report, with the notes of all of them counted."""
    keep.dream_export(str(folder))
    notes: dict[str, int] = {}
    for _ in range(9):
        lay_answers(RealHost(), str(folder), answer)
        made = keep.dream_import(str(folder))
        notes = {key: notes.get(key, 0) + count for key, count in made["notes"].items()}
        if not made["requests"]:
            return {**made, "notes": notes}
    raise AssertionError("it is asked again and again")
