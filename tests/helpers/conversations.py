"""Prompts, answers and notes put into a keep, and the texts that a search finds."""

from __future__ import annotations

from typing import Any

from dreamkeep import Keep
from dreamkeep.event import Kind
from dreamkeep.recall.hits import Hit


def talk(keep: Keep, session: str, *said: str, cwd: str = "/") -> None:
    """Prompts and answers, one after the other."""
    handle = keep.session(session, cwd=cwd)
    for n in range(0, len(said), 2):
        turn = handle.submit(said[n])
        for answer in said[n + 1 : n + 2]:
            turn.add("assistant", answer)
        turn.settle("completed")


def texts(hits: list[Hit]) -> list[str]:
    return [hit.text for hit in hits]


def note(keep: Keep, id: str, text: str, *, at: str, session: str = "", seq: str = "", project: str = "p") -> None:
    quote = [{"session": session, "seq": seq, "turn": None, "quote": text}] if session else []
    about: dict[str, Any] = {"type": "decision", "project": project, "evidence": quote, "said_at": at}
    keep.context.journals().say("", Kind.INSIGHT_ADDED, {"id": f"i-{id}", "text": text, **about})
    body = {"id": id, "kind": "decision", "text": text, "project": project, "insights": [f"i-{id}"], "reason": "said"}
    keep.context.journals().say("", Kind.NOTE_ADDED, body)
