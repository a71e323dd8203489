"""For agents that write one text twice, in two kinds of record with different ids: it is said once, whichever comes first. Pure.

What one kind of record said waits here for its twin of another kind, which then is not said again. "ok" said twice by both
kinds stays two, and what only one of them has is never lost. Only the last few wait: twins stand close together.
"""

from __future__ import annotations

from typing import Any

from dreamkeep.agents.shared.values import digest

_WAITING = 32
_REMEMBERED = 64


def fresh(state: dict[str, Any], source: str, role: str, text: str) -> bool:
    """False when another source has just said this; white space does not count."""
    mine = digest(role, "".join(text.split()))
    waiting: list[list[str]] = state.setdefault("twins", [])
    for n, (other, words) in enumerate(waiting):
        if other != source and words == mine:
            del waiting[n]
            return False
    waiting.append([source, mine])
    del waiting[:-_WAITING]
    return True


def remember(state: dict[str, Any], what: str, name: str, value: Any) -> None:
    """`state[what][name] = value`, of which only the last few are kept."""
    known: dict[str, Any] = state.setdefault(what, {})
    known.pop(name, None)
    known[name] = value
    while len(known) > _REMEMBERED:
        del known[next(iter(known))]
