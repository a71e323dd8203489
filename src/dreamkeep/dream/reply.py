"""A model's words → proposals, one by one: what is not of the right shape is dropped and counted, the rest stays. Pure.

Whether a proposal is true (its quote stands where it says, its task was given) is checked later, for every backend alike.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.dream.given import Proposal
from dreamkeep.dream.prompt import MOST_INSIGHTS
from dreamkeep.memory.insight import TYPES

_LONGEST = {"text": 1000, "quote": 2000, "seq": 40, "task": 200}
#: Places where an object may begin that are tried before giving up: words around it may hold braces too.
_TRIES = 20


class Read(NamedTuple):
    proposals: tuple[Proposal, ...]
    dropped: Mapping[str, int]


class Unreadable(ValueError):
    """There is no answer in it: what it is instead, in our words and never in its own."""


def read(found: Any, *, cut: bool = False) -> Read:
    """`found`: what the model answered, as text or parsed. `cut`: it was stopped; then what is whole counts."""
    listed = _listed(found, cut)
    if listed and not any(map(_is_shaped, listed)):
        # An agent's own events, an error, words: nobody said that there is nothing to find, so it is to be asked again.
        raise Unreadable("an answer whose list has no insight in it")
    proposals: list[Proposal] = []
    dropped: Counter[str] = Counter()
    for one in listed:
        proposal = _proposal(one)
        if isinstance(proposal, str):
            dropped[proposal] += 1
        elif proposal in proposals:
            dropped["said twice in one answer"] += 1
        elif len(proposals) >= MOST_INSIGHTS:
            dropped["more than were asked for"] += 1
        else:
            proposals.append(proposal)
    if cut:
        dropped["the answer was cut off"] += 1
    return Read(tuple(proposals), dict(dropped))


def _is_shaped(one: Any) -> bool:
    """Whether it is meant as an insight, however wrong."""
    return isinstance(one, dict) and "type" in one and "quote" in one


def _proposal(one: Any) -> Proposal | str:
    """The proposal, or why it is none."""
    if not isinstance(one, dict):
        return "not an object"
    if one.get("type") not in TYPES:
        return "a type that there is not"
    seq = one.get("seq")
    fields = {**one, "seq": str(seq) if isinstance(seq, (int, float)) and not isinstance(seq, bool) else seq}
    words = {}
    for name, most in _LONGEST.items():
        value = fields.get(name, "")
        if value is None and name == "task":
            value = ""
        if not isinstance(value, str) or len(value) > most:
            return f"{name} is not a text of a sensible length"
        words[name] = value
    text = _plain(words["text"])
    if not text or not words["seq"].strip() or not words["quote"].strip():
        return "text, seq or quote is missing"
    author = "user" if one.get("author") == "user" else "agent"
    return Proposal(one["type"], text, words["seq"].strip(), words["quote"], words["task"].strip(), author, _confidence(one))


def _confidence(one: Mapping[str, Any]) -> float:
    value = one.get("confidence", 0.5)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return 0.5
    return min(1.0, max(0.0, float(value)))


def _plain(text: str) -> str:
    """One line, without signs that a terminal or a page would act upon."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


# -- where the answer is


def _listed(found: Any, cut: bool) -> list[Any]:
    if isinstance(found, str):
        found = _parsed(found, cut)
    if isinstance(found, dict) and isinstance(found.get("insights"), str):
        found = {"insights": _parsed(found["insights"], cut)}  # some put the list into quotes
    if isinstance(found, dict) and isinstance(found.get("insights"), dict):
        found = found["insights"]
    listed = found.get("insights") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        if cut:
            return []
        raise Unreadable("an answer without a list of insights")
    return listed


def _parsed(text: str, cut: bool) -> Any:
    stripped = text.strip()
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        pass  # words around it, a fence of Markdown, or cut off
    decoder = json.JSONDecoder()
    at = -1
    for _ in range(_TRIES):
        at = min((place for sign in "{[" if (place := stripped.find(sign, at + 1)) >= 0), default=-1)
        if at < 0:
            break
        try:
            value, _end = decoder.raw_decode(stripped, at)
        except (ValueError, RecursionError):
            continue
        if (isinstance(value, dict) and "insights" in value) or (
            isinstance(value, list) and value and isinstance(value[0], dict)
        ):
            return value
    if cut:
        return _whole_ones(stripped)
    raise Unreadable("an answer that is not JSON" if stripped else "an empty answer")


def _whole_ones(text: str) -> list[Any]:
    """Of a list that was cut off: the objects that are complete."""
    decoder = json.JSONDecoder()
    at = text.find("[")
    found: list[Any] = []
    while at >= 0:
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found
