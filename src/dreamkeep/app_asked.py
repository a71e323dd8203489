"""Part of app: what a caller hands in, checked, with an error that says what would be right."""

from __future__ import annotations

from collections.abc import Sequence

from dreamkeep.errors import BadUsage, NotFound


def at_least_one(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadUsage(f"{name} must be at least 1, not {value!r}", where=name, next="Give a number from 1 on.")


def the_one(matches: Sequence[str], text: str, what: str) -> str:
    if not text:
        raise BadUsage(f"which {what}? The id is empty", next="`dreamkeep sessions` lists them.")
    if not matches:
        raise NotFound(f"there is no {what} {text!r}", next="`dreamkeep sessions` lists what there is.")
    if len(matches) > 1:
        some = ", ".join(matches[:5]) + (", …" if len(matches) > 5 else "")
        raise NotFound(f"{text!r} is not one {what} but {len(matches)}", where=some, next="Give more of the id.")
    return matches[0]
