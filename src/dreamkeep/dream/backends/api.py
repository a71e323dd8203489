"""What a backend is given, and what it answers. Public: anything with `backfill(Given) -> Answer` can be plugged in. Pure.

A backend only proposes. Each proposal is checked by itself: its type, its task, and its quote, which must stand at the place that
it names. What fails is dropped and counted. Times come from the records, whatever a backend says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dreamkeep.agents import facts as f
from dreamkeep.memory import insight as i
from dreamkeep.session.reading.origin import origin_at, split_origins


class GivenMessage(NamedTuple):
    """One message. `seq` as `show` writes it. `role`: user, assistant, tool, reasoning, summary, system. `mark`: it only looks
    like words of the user or model (agents/facts.py), and is never evidence. `tool`: id, name, input; of a result: error,
    exit_code.
    """

    seq: str
    role: str
    text: str
    at: str | None = None
    tool: Mapping[str, Any] | None = None
    mark: str = ""


def said_by(said: GivenMessage, words: str, *, answered: bool = False) -> tuple[str, str]:
    """Who said these words of a message, and how they came there: (author, origin). `answered`: they are the user's answer, which
    the agent's client wrote into a tool's result. This function alone decides that."""
    if said.role == i.USER:
        return i.USER, i.INJECTED if said.mark in (f.INJECTED, f.HOOK, f.META) else _origin(said.text, words)
    if answered:
        return i.USER, i.ANSWER
    if said.role == i.TOOL and words in said.text:
        return i.TOOL, i.PRINTED
    return i.AGENT, i.TYPED


def _origin(text: str, words: str) -> str:
    """Whether the user typed these words of his message, or pasted them."""
    at = text.find(words)
    return origin_at(split_origins(text), at, at + len(words)) if at >= 0 else i.TYPED


class TurnGiven(NamedTuple):
    """A prompt and what followed. `known`: it was given before and is context; nothing in it is to be proposed again."""

    id: str
    state: str
    messages: tuple[GivenMessage, ...]
    known: bool = False


class TaskGiven(NamedTuple):
    """A task that proposals may belong to, with its known insights: (type, text)."""

    id: str
    title: str
    insights: tuple[tuple[str, str], ...] = ()


class Given(NamedTuple):
    """A stretch of one session, on turn boundaries. `chunk`: which of how many."""

    session: str
    agent: str
    project: str
    cwd: str
    title: str
    tasks: tuple[TaskGiven, ...]
    turns: tuple[TurnGiven, ...]
    chunk: tuple[int, int] = (1, 1)


class Proposal(NamedTuple):
    """`quote` must stand word for word in message `seq`. `author`: who said it. `confidence` from 0 to 1."""

    type: str
    text: str
    seq: str
    quote: str
    task: str = ""
    author: str = "user"
    confidence: float = 0.5
    #: Further places where the same is shown: (seq, quote).
    more: tuple[tuple[str, str], ...] = ()


class Usage(NamedTuple):
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0

    def plus(self, other: Usage) -> Usage:
        calls, tokens_in = self.calls + other.calls, self.tokens_in + other.tokens_in
        return Usage(calls, tokens_in, self.tokens_out + other.tokens_out, self.usd + other.usd)

    def minus(self, other: Usage) -> Usage:
        calls, tokens_in = self.calls - other.calls, self.tokens_in - other.tokens_in
        return Usage(calls, tokens_in, self.tokens_out - other.tokens_out, self.usd - other.usd)


class Answer(NamedTuple):
    """`dropped`: what the backend itself discarded: the reason, and how many."""

    proposals: Sequence[Proposal] = ()
    usage: Usage = Usage()
    dropped: Mapping[str, int] = {}


class Backend(Protocol):
    def backfill(self, given: Given) -> Answer | Iterable[Proposal]:
        """May raise: then this chunk is tried again later, and nothing else is lost. The error may have a `usage` that says
        what was spent by then."""


def spent_before(problem: Exception) -> Usage:
    """What a backend had spent when it raised this, as far as the error says."""
    usage = getattr(problem, "usage", None)
    return usage if isinstance(usage, Usage) else Usage()
