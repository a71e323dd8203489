"""What a backend is given, and what it answers. Public: anything with `backfill(Given) -> Answer` can be plugged in. Pure.

A backend proposes, and is never believed: each proposal is checked by itself (its type, its task, its quote, which must stand
where it says), and what does not hold is dropped and counted. Times come from the records, whatever a backend says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dreamkeep.agents import facts as f
from dreamkeep.memory import insight as i
from dreamkeep.session.reading.origin import origin_at, split_origins


class GivenMessage(NamedTuple):
    """One message. `seq` as `show` writes it. `role`: user, assistant, tool, reasoning, summary, system. `mark`: not the words of
    user or model, though it looks so (agents/facts.py): never evidence. `tool`: id, name, input; of a result: error, exit_code
    """

    seq: str
    role: str
    text: str
    at: str | None = None
    tool: Mapping[str, Any] | None = None
    mark: str = ""


def said_by(said: GivenMessage, words: str, *, answered: bool = False) -> tuple[str, str]:
    """Who said these words of a message, and how they came there: (author, origin). `answered`: it is known that they are the
    user's answer, which the agent's client wrote into a tool's result. Nothing else decides this."""
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
    """A prompt and what came of it. `known`: it was given before (for context): nothing in it is to be proposed again."""

    id: str
    state: str
    messages: tuple[GivenMessage, ...]
    known: bool = False


class TaskGiven(NamedTuple):
    """A task that proposals may belong to, with what is known of it: (type, text)."""

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
    """`dropped`: what the backend itself could make nothing of: why, and how many."""

    proposals: Sequence[Proposal] = ()
    usage: Usage = Usage()
    dropped: Mapping[str, int] = {}


class Backend(Protocol):
    def backfill(self, given: Given) -> Answer | Iterable[Proposal]:
        """May raise: then this chunk is tried again later, and nothing else is lost. What it had spent by then, the error may
        tell: a `Usage` as its `usage`."""


def spent_before(problem: Exception) -> Usage:
    """What a backend had spent when it raised this, as far as it tells."""
    told = getattr(problem, "usage", None)
    return told if isinstance(told, Usage) else Usage()
