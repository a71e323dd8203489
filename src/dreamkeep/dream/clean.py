"""What a backend is given, without secrets. Pure.

All of a session's words are looked at together and in order, before anything is cut: a secret that two messages share is seen,
and what was seen once is masked everywhere. Quotes are therefore checked against these texts, not against the journal's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dreamkeep.dream.given import Given, Said, TaskGiven, TurnGiven
from dreamkeep.memory.outward import named_secret
from dreamkeep.memory.redact import MARK, redact_all
from dreamkeep.session.messages import Message

#: Deeper than any tool's input is meant to be.
_DEEPEST = 40


Change = Callable[[str, str], str]


def clean_turns(turns: Sequence[TurnGiven], known: Iterable[str] = ()) -> tuple[TurnGiven, ...]:
    """A session's turns, before they are cut into chunks."""
    return clean(Given("", "", "", "", "", (), tuple(turns)), known)[0].turns


def clean_messages(messages: Sequence[Message], known: Iterable[str] = ()) -> list[Message]:
    """A session's messages without secrets, before anything of them is shortened."""
    texts: list[str] = []
    told: set[str] = set(known)

    def collect(name: str, text: str) -> str:
        if named_secret(name, text):
            told.add(text)
        texts.append(text)
        return text

    for one in messages:
        _masked(one, collect)
    again = iter(redact_all(texts, told)[0])

    def replaced(name: str, text: str) -> str:
        own = next(again)
        return MARK if own == text and named_secret(name, text) else own

    return [_masked(one, replaced) for one in messages]


def _masked(message: Message, change: Change) -> Message:
    text = change("", message.text)
    return message._replace(text=text, tool=None if message.tool is None else _value("", message.tool, change, 0))


def clean(given: Given, known: Iterable[str] = ()) -> tuple[Given, int]:
    """`known`: secrets to mask wherever they stand (our own key). How many were masked comes along."""
    texts: list[str] = []
    told: set[str] = set(known)

    def collect(name: str, text: str) -> str:
        if named_secret(name, text):
            told.add(text)
        texts.append(text)
        return text

    _walk(given, collect)
    masked, count = redact_all(texts, told)
    again = iter(masked)

    def replaced(name: str, text: str) -> str:
        # A short one is not masked everywhere, but it is here, where its name tells what it is.
        own = next(again)
        return MARK if own == text and named_secret(name, text) else own

    return _walk(given, replaced), count


def _walk(given: Given, change: Change) -> Given:
    """Every text of it in the order in which it was said, through `change`. Ids, roles and states are ours."""
    head = [change("", text) for text in (given.project, given.cwd, given.title)]
    tasks = tuple(
        TaskGiven(task.id, change("", task.title), tuple((type, change("", text)) for type, text in task.insights))
        for task in given.tasks
    )
    turns = tuple(turn._replace(messages=tuple(_message(said, change) for said in turn.messages)) for turn in given.turns)
    return given._replace(project=head[0], cwd=head[1], title=head[2], tasks=tasks, turns=turns)


def _message(said: Said, change: Change) -> Said:
    text = change("", said.text)
    return said._replace(text=text, tool=_value("", said.tool, change, 0)) if said.tool is not None else said._replace(text=text)


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
