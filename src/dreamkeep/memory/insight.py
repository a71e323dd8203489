"""An insight: a typed event about the work, with its evidence. Pure.

Its id is a hash of its words and of the place where they were said. So an insight that is found once more (by a second run,
after a crash) is the same insight.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

DECISION, REJECTION, FINDING, EVIDENCE = "decision", "rejection", "finding", "evidence"
CONSTRAINT, CORRECTION, PREFERENCE, HYPOTHESIS = "constraint", "correction", "preference", "hypothesis"
PROCEDURE, FAILURE_FIX, OPEN_LOOP, FACT = "procedure", "failure_fix", "open_loop", "fact"
TYPES = (
    *(DECISION, REJECTION, FINDING, EVIDENCE, CONSTRAINT, CORRECTION),
    *(PREFERENCE, HYPOTHESIS, PROCEDURE, FAILURE_FIX, OPEN_LOOP, FACT),
)

SUGGESTED, CONFIRMED, REJECTED, EXPIRED = "suggested", "confirmed", "rejected", "expired"
#: Who said something. A tool is nobody: its output may be anybody's words.
USER, AGENT, TOOL = "user", "agent", "tool"
#: How words came into a session: typed there by their author, pasted, as an answer to a question or in a refusal, injected by a
#: client, printed by a tool; or imported from a file.
TYPED, PASTED, ANSWER, INJECTED, PRINTED, IMPORTED = "typed", "pasted", "answer", "injected", "tool", "import"


class Quote(NamedTuple):
    """Verbatim words and where they stand: `seq` as `show` writes it (7, or 7.2 where a frame holds several). `author`: who said
    them (user, agent, tool); `origin`: how they came there. Both are "" in what older versions journaled, and then left out."""

    session: str
    seq: str
    turn: str | None
    quote: str
    author: str = ""
    origin: str = ""

    @property
    def is_own(self) -> bool:
        """The user's own words: typed, or given as an answer. What a user pastes is somebody else's."""
        return self.author == USER and self.origin in (TYPED, ANSWER)

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if value != "" or key not in ("author", "origin")}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Quote:
        turn = body.get("turn")
        known = str(body.get("author") or ""), str(body.get("origin") or "")
        return cls(str(body["session"]), str(body["seq"]), str(turn) if turn is not None else None, str(body["quote"]), *known)


#: How two insights are linked: the later one says the same, or supersedes the other; and the other way round.
SAME, SUPERSEDES, SUPERSEDED_BY = "same", "supersedes", "superseded_by"
#: Where a dream puts what a model found: on the page, or into the inbox until the user accepts it.
ACTIVE_SHELF, INBOX = "active", "inbox"
#: The source of an insight that an agent reported and that no word of the user's shows.
SUGGESTION = "suggestion"


class Insight(NamedTuple):
    """`author`: who said it, a user or an agent. `source`: how it came here. `said_at`: when it was said, by the record."""

    id: str
    type: str
    text: str
    project: str
    evidence: tuple[Quote, ...]
    said_at: str | None
    confidence: float = 0.5
    state: str = SUGGESTED
    author: str = AGENT
    source: str = "dream"
    task: str = ""
    run: str = ""
    #: "" for what no model wrote.
    shelf: str = ""
    #: (what links them, the other's id) each.
    links: tuple[tuple[str, str], ...] = ()
    #: A model was asked how it relates to what is remembered.
    merged: bool = False
    #: Why it waits in the inbox, in words; "" where only a dream found it.
    why: str = ""
    #: The file of the user's that says it already, and the line; then it becomes no note.
    known: str = ""

    @property
    def is_unmerged(self) -> bool:
        return self.by_model and not self.merged and self.state != REJECTED

    @property
    def waits(self) -> bool:
        """A suggestion that the user has not decided on: it counts neither for a note nor against one."""
        aside = self.source == SUGGESTION or self.shelf == INBOX or bool(self.known)
        return aside and self.state in (SUGGESTED, EXPIRED)

    @property
    def by_model(self) -> bool:
        """A model wrote its words, so they alone don't tell how it relates to others; the model was asked."""
        return bool(self.shelf)

    def as_json(self) -> dict[str, Any]:
        whole = {
            **self._asdict(),
            "evidence": [one.as_json() for one in self.evidence],
            "links": [list(one) for one in self.links],
        }
        return {key: value for key, value in whole.items() if value or key not in ("shelf", "links", "merged", "why", "known")}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Insight:
        """From an event's body, which other programs may have written: what is missing or of a wrong type raises."""
        if body["type"] not in TYPES:
            raise ValueError(f"{body['type']!r} is no type of insight")
        said_at = body.get("said_at")
        author = str(body.get("author", AGENT))
        return cls(
            str(body["id"]),
            str(body["type"]),
            str(body["text"]),
            str(body.get("project") or ""),
            _with_author(tuple(Quote.of(one) for one in body["evidence"]), author),
            str(said_at) if said_at is not None else None,
            float(body.get("confidence", 0.5)),
            str(body.get("state", SUGGESTED)),
            author,
            str(body.get("source", "dream")),
            str(body.get("task") or ""),
            str(body.get("run") or ""),
            str(body.get("shelf") or ""),
            tuple((str(what), str(other)) for what, other in body.get("links", ())),
            body.get("merged") is True,
            str(body.get("why") or ""),
            str(body.get("known") or ""),
        )


def _with_author(quotes: tuple[Quote, ...], author: str) -> tuple[Quote, ...]:
    """Older versions journaled no quote's author. The first quote is what made the insight a user's: that much is certain."""
    if author != USER or not quotes or quotes[0].author or not quotes[0].quote:
        return quotes
    return (quotes[0]._replace(author=USER), *quotes[1:])


def normalise(text: str) -> str:
    """Wordings that differ only in case, spaces or the stop at the end become one."""
    return " ".join(text.casefold().split()).rstrip(".!?;:, ")


def insight_id(session: str, type: str, quote: str) -> str:
    return f"i-{digest(session, type, normalise(quote))[:16]}"


def note_id(project: str, kind: str, text: str) -> str:
    return f"n-{digest(project, kind, normalise(text))[:12]}"


def task_id(session: str) -> str:
    """By the session that opened it alone: a project may be renamed."""
    return f"t-{digest(session)[:12]}"


def digest(*words: str) -> str:
    return sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
