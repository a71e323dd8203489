"""An insight: a typed event about the work, with its evidence. Pure.

Its id is made of what it says and where that was said: found again (a second run, a crash in between) it is the same insight.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

DECISION, REJECTION, FINDING, EVIDENCE = "decision", "rejection", "finding", "evidence"
CONSTRAINT, CORRECTION, PREFERENCE, HYPOTHESIS = "constraint", "correction", "preference", "hypothesis"
PROCEDURE, FAILURE_FIX, OPEN_LOOP = "procedure", "failure_fix", "open_loop"
TYPES = (
    *(DECISION, REJECTION, FINDING, EVIDENCE, CONSTRAINT, CORRECTION),
    *(PREFERENCE, HYPOTHESIS, PROCEDURE, FAILURE_FIX, OPEN_LOOP),
)

SUGGESTED, CONFIRMED, REJECTED, EXPIRED = "suggested", "confirmed", "rejected", "expired"
USER, AGENT = "user", "agent"


class Quote(NamedTuple):
    """Verbatim words and where they stand: `seq` as `show` writes it (7, or 7.2 where a frame holds several)."""

    session: str
    seq: str
    turn: str | None
    quote: str

    def as_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Quote:
        turn = body.get("turn")
        return cls(str(body["session"]), str(body["seq"]), str(turn) if turn is not None else None, str(body["quote"]))


class Insight(NamedTuple):
    """`author`: who said it, a user or an agent. `source`: how it came here. `said_at`: when it was said, by the record."""

    id: str
    type: str
    text: str
    project: str
    evidence: tuple[Quote, ...]
    said_at: str | None
    confidence: float = 0.5
    state: str = SUGGESTED
    author: str = AGENT
    source: str = "dream"
    task: str = ""
    run: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "evidence": [one.as_json() for one in self.evidence]}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Insight:
        """From an event's body, which other programs may have written: what is missing or of a wrong type raises."""
        if body["type"] not in TYPES:
            raise ValueError(f"{body['type']!r} is no type of insight")
        said_at = body.get("said_at")
        return cls(
            str(body["id"]),
            str(body["type"]),
            str(body["text"]),
            str(body.get("project") or ""),
            tuple(Quote.of(one) for one in body["evidence"]),
            str(said_at) if said_at is not None else None,
            float(body.get("confidence", 0.5)),
            str(body.get("state", SUGGESTED)),
            str(body.get("author", AGENT)),
            str(body.get("source", "dream")),
            str(body.get("task") or ""),
            str(body.get("run") or ""),
        )


def normal(text: str) -> str:
    """Two wordings that differ only in case, spaces or the stop at the end are one."""
    return " ".join(text.casefold().split()).rstrip(".!?;:, ")


def insight_id(session: str, type: str, quote: str) -> str:
    return f"i-{digest(session, type, normal(quote))[:16]}"


def note_id(project: str, kind: str, text: str) -> str:
    return f"n-{digest(project, kind, normal(text))[:12]}"


def task_id(session: str) -> str:
    """By what opened it alone: a project may be renamed."""
    return f"t-{digest(session)[:12]}"


def digest(*words: str) -> str:
    return sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
