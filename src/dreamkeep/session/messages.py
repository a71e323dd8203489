"""The messages an event holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.agents.facts import REWOUND
from dreamkeep.event import Event, Kind, text_in

USER = "user"

Order = tuple[int, int, int, int]


class Message(NamedTuple):
    """`n` is 0 where the frame holds one message, else its number in the frame, from 1: seq 7, or seq 7.1, 7.2, …

    `base`: where it belongs, if not at its own place: a transcript may be read after a hook has reported some of its messages,
    and shows what lay between them.
    `mark`: words that look like the user's or the model's, and are not (agents/facts.py). `heard`: its channels, as bits.
    """

    seq: int
    n: int
    role: str
    text: str
    at: str | None
    turn: str | None
    tool: Mapping[str, Any] | None = None
    mark: str = ""
    heard: int = 0
    base: tuple[int, int] | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.base or (self.seq, self.n)

    @property
    def order(self) -> Order:
        """The order in which messages are shown: at one place, as they came."""
        return *self.place, self.seq, self.n


class Taken(NamedTuple):
    """A stretch of messages that the user took back, or (`back` False) restored; without `end`: all from `start` on."""

    start: Order
    end: Order | None = None
    back: bool = True

    @property
    def before(self) -> str:
        """The mark of the messages that change; those with another mark keep it."""
        return "" if self.back else REWOUND

    @property
    def after(self) -> str:
        return REWOUND if self.back else ""

    def applied(self, message: Message) -> Message:
        inside = message.order >= self.start and (self.end is None or message.order < self.end)
        return message._replace(mark=self.after) if inside and message.mark == self.before else message


def messages(seq: int, event: Event) -> list[Message]:
    """Raises KeyError or TypeError when the body is not what its kind promises."""
    body = event.body
    if event.kind == Kind.MESSAGE_ADDED:
        return [_message(seq, 0, body, event.at, text_in(body, "turn", "") or None)]
    if event.kind == Kind.TURN_SUBMITTED:
        return [Message(seq, 0, USER, text_in(body, "prompt"), event.at, text_in(body, "turn"))]
    if event.kind == Kind.TURN_RECORDED:
        turn = text_in(body, "turn")
        said = [{"role": USER, "text": body["prompt"]}, *body["messages"]]
        return [_message(seq, n, m, event.at, turn) for n, m in enumerate(said, 1)]
    return []


def _message(seq: int, n: int, said: Mapping[str, Any], at: str, turn: str | None) -> Message:
    tool = said.get("tool")
    if tool is not None and not isinstance(tool, Mapping):
        raise TypeError("tool is no object")
    return Message(seq, n, text_in(said, "role"), text_in(said, "text"), at, turn, tool)
