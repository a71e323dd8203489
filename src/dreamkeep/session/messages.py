"""The messages an event holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.event import Event, Kind

USER = "user"


class Message(NamedTuple):
    """`n` is 0 where the frame holds one message, else its number in the frame, from 1: seq 7, or seq 7.1, 7.2, …"""

    seq: int
    n: int
    role: str
    text: str
    at: str
    turn: str | None
    tool: Mapping[str, Any] | None = None


def messages(seq: int, event: Event) -> list[Message]:
    body = event.body
    if event.kind == Kind.MESSAGE_ADDED:
        return [Message(seq, 0, body["role"], body["text"], event.at, body.get("turn"), body.get("tool"))]
    if event.kind == Kind.TURN_SUBMITTED:
        return [Message(seq, 0, USER, body["prompt"], event.at, body["turn"])]
    if event.kind == Kind.TURN_RECORDED:
        said = [{"role": USER, "text": body["prompt"]}, *body["messages"]]
        return [Message(seq, n, m["role"], m["text"], event.at, body["turn"], m.get("tool")) for n, m in enumerate(said, 1)]
    return []
