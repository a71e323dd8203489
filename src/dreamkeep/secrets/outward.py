"""An answer as it may leave, for a model or on a terminal: without secrets, and no text of it longer than asked. Pure.

All its texts are looked at together and in order: what is found once is masked everywhere. Masked first and cut second, for half
a secret looks like none. Ids, times and words of ours (kinds, states) stay as they are, so that they can be given back to us;
inside a tool's `input` nothing is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dreamkeep.secrets.redact import MARK, redact, redact_all
from dreamkeep.secrets.words import telling

_OURS = frozenset(
    (
        *("id", "session", "seq", "n", "turn", "segment", "run", "task", "insights", "artifact_refs", "native_id"),
        *("kind", "kinds", "state", "status", "role", "mark", "type", "agent", "author", "source", "eligibility", "lock"),
        "origin",
        *("at", "started_at", "last_at", "ended_at", "submitted_at", "settled_at", "said_at", "first_at", "completed_at"),
        *("last_attempt_at", "finished_at", "completion_recorded_at", "last_successful_run_at"),
    )
)
_FOREIGN = "input"
_DEEPEST = 40
#: What is looked at beyond what is shown, and what of that may be half a secret.
_BEYOND, _EDGE = 4_096, 512

Change = Callable[[str, str], str]


def outward(answer: Any, *, longest: int | None = None, mask: bool = True) -> Any:
    """`longest`: how long a text may be; None for any length."""
    texts: list[str] = []
    told: set[str] = set()

    def collect(name: str, text: str) -> str:
        texts.append(text if longest is None else text[: longest + _BEYOND])
        if mask and named_secret(name, text):
            told.add(text)
        return text

    _walk("", answer, collect, ours=True, depth=0)
    masked = iter(redact_all(texts, told)[0] if mask else texts)

    def replaced(name: str, text: str) -> str:
        own = next(masked)
        if mask and own == text and named_secret(name, text):
            return MARK  # a short one is not masked everywhere, but it is here, where its name tells what it is
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


def named_secret(name: str, value: str) -> bool:
    """`{"password": "…"}`: the name is what betrays it."""
    if not name or not telling(name) or not value or len(value) > 500 or any(sign.isspace() for sign in value):
        return False
    masked, count = redact(f"{name}={value}")
    return count > 0 and masked.startswith(f"{name}={MARK}")
