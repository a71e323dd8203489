"""An answer as it may leave, for a model or on a terminal: without secrets, and no text of it longer than asked. Pure.

All its texts are searched together and in order: what is found once is masked everywhere. They are masked first and cut second,
for half a secret looks like none. Ids, times, kinds and states are dreamkeep's own words and stay as they are, so that a caller
can pass them back; inside a tool's `input` nothing is our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dreamkeep.secrets.redact import MARK, named_secret, redact_all

#: The names of fields whose values are our own words.
_OURS = frozenset(
    (
        *("id", "session", "seq", "n", "turn", "segment", "run", "task", "insights", "artifact_refs", "native_id", "origin"),
        *("kind", "kinds", "state", "status", "role", "mark", "type", "agent", "author", "source", "eligibility", "lock"),
        *("at", "started_at", "last_at", "ended_at", "submitted_at", "settled_at", "said_at", "first_at", "completed_at"),
        *("last_attempt_at", "finished_at", "completion_recorded_at", "last_successful_run_at"),
    )
)
_FOREIGN = "input"
_DEEPEST = 40
#: So much is searched beyond what is shown, and so much of that may be half a secret.
_BEYOND, _EDGE = 4_096, 512

Change = Callable[[str, str], str]


def outward(answer: Any, *, longest: int | None = None, mask: bool = True) -> Any:
    """`longest`: how long a text may be; None for any length."""
    texts: list[str] = []
    known: set[str] = set()

    def collect(name: str, text: str) -> str:
        texts.append(text if longest is None else text[: longest + _BEYOND])
        if mask and named_secret(name, text):
            known.add(text)
        return text

    _walk("", answer, collect, ours=True, depth=0)
    masked = iter(redact_all(texts, known)[0] if mask else texts)

    def replaced(name: str, text: str) -> str:
        own = next(masked)
        if mask and own == text and named_secret(name, text):
            return MARK  # a short one is masked only here, where its name betrays it
        if longest is None or len(text) <= longest:
            return own
        kept = (own[:-_EDGE] if len(text) > longest + _BEYOND else own)[:longest]
        return f"{kept}… [{len(text) - longest} more characters]"

    return _walk("", answer, replaced, ours=True, depth=0)


def _walk(name: str, value: Any, change: Change, *, ours: bool, depth: int) -> Any:
    if isinstance(value, str):
        return value if ours and name in _OURS else change(name, value)
    if depth > _DEEPEST:
        return None
    if isinstance(value, Mapping):
        inner = {}
        for key, one in value.items():
            shown = key if ours else change("", str(key))
            inner[shown] = _walk(str(key), one, change, ours=ours and key != _FOREIGN, depth=depth + 1)
        return inner
    if isinstance(value, (list, tuple)):
        return [_walk(name, one, change, ours=ours, depth=depth + 1) for one in value]
    return value
