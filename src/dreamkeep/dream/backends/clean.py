"""Masks secrets in what a backend is given. Pure.

All of a session's words are searched together and in order, before anything is cut: a secret split over two messages is found,
and what was found once is masked everywhere. So quotes are checked against these texts, not against the journal's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dreamkeep.dream.backends.api import TurnGiven
from dreamkeep.secrets.redact import MARK, named_secret, redact_all
from dreamkeep.session.messages import Message

#: No tool's input is nested deeper.
_DEEPEST = 40


Change = Callable[[str, str], str]
Walked = TypeVar("Walked")


def clean_turns(turns: Sequence[TurnGiven], known: Iterable[str] = ()) -> tuple[TurnGiven, ...]:
    """A session's turns, before they are cut into chunks. `known`: secrets to mask wherever they stand (our own key)."""
    return _cleaned(lambda change: tuple(_turn(turn, change) for turn in turns), known)


def clean_messages(messages: Sequence[Message], known: Iterable[str] = ()) -> list[Message]:
    """A session's messages, before anything of them is shortened."""
    return clean_session(messages, (), known)[0]


def clean_session(
    messages: Sequence[Message], beside: Sequence[str], known: Iterable[str] = ()
) -> tuple[list[Message], list[str]]:
    """The same, with texts that are shown beside them: titles repeat what was said."""

    def walked(change: Change) -> tuple[list[Message], list[str]]:
        texts = [change("", text) for text in beside]
        return [one._replace(text=change("", one.text), tool=_tool(one.tool, change)) for one in messages], texts

    return _cleaned(walked, known)


def _cleaned(walk: Callable[[Change], Walked], known: Iterable[str]) -> Walked:
    """`walk` applies a change to every text, always in the same order: first to collect them, then to mask them."""
    texts: list[str] = []
    secrets: set[str] = set(known)

    def collect(name: str, text: str) -> str:
        if named_secret(name, text):
            secrets.add(text)
        texts.append(text)
        return text

    walk(collect)
    masked = iter(redact_all(texts, secrets)[0])

    def replaced(name: str, text: str) -> str:
        # A short secret is not masked everywhere, but it is here, where its name says what it is.
        own = next(masked)
        return MARK if own == text and named_secret(name, text) else own

    return walk(replaced)


def _turn(turn: TurnGiven, change: Change) -> TurnGiven:
    said = (one._replace(text=change("", one.text), tool=_tool(one.tool, change)) for one in turn.messages)
    return turn._replace(messages=tuple(said))


def _tool(tool: Mapping[str, Any] | None, change: Change) -> Any:
    return None if tool is None else _value("", tool, change, 0)


def _value(name: str, value: Any, change: Change, depth: int) -> Any:
    if isinstance(value, str):
        return change(name, value)
    if depth > _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {change("", str(key)): _value(str(key), inner, change, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(name, inner, change, depth + 1) for inner in value]
    return value
