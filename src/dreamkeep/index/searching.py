"""What an index must answer for recall: which messages, notes and insights hold a word, and how they lie. Part of store.py.

A message is named by its `no`: the session's number in the upper half, a running number in the lower. Nothing follows from either
but which messages are of one session: they are given anew when an index is made anew. A note or an insight has a number, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from dreamkeep.index.words import Term

SESSION_BITS = 32

#: Marks of messages that are copies of what stands elsewhere, or words of our own: shown, and never found (D33).
NOT_SEARCHED = ("copied", "injected", "compacted")
#: Roles whose words are embedded: output of tools is found by its words.
EMBEDDED = ("user", "assistant", "summary")


def session_of(no: int) -> int:
    return no >> SESSION_BITS


def first_of(session: int) -> int:
    return session << SESSION_BITS


def last_of(session: int) -> int:
    return (session << SESSION_BITS) | ((1 << SESSION_BITS) - 1)


class Within(NamedTuple):
    """What hits must be of, each None for anything; `until` is part of what is asked for, as `since` is. Times as RFC 3339."""

    project: str | None = None
    agent: str | None = None
    session: str | None = None
    since: str | None = None
    until: str | None = None


class Head(NamedTuple):
    """What is needed of a message to judge it: of its text only beginning and end."""

    no: int
    session: str
    seq: int
    n: int
    role: str
    mark: str
    at: str | None
    turn: str | None
    project: str
    begins: str
    ends: str
    length: int


class Remembered(NamedTuple):
    """A note or an insight that may be found. `state` as it is now; `by`: the note that superseded it."""

    no: int
    kind: str
    id: str
    project: str
    at: str | None
    first_at: str | None
    session: str
    place: str
    turn: str | None
    text: str
    state: str
    by: str


class Searchable(Protocol):
    # messages by their words
    def indexed_messages(self) -> int: ...

    def holding(self, terms: Sequence[Term]) -> list[int]:
        """For each term how many messages hold it."""

    def best(self, terms: Sequence[Term], within: Within, limit: int) -> list[tuple[int, float]]:
        """Messages that hold one of the terms, best first (BM25), at most `limit`. The filter comes before the cut."""

    def holders(self, term: Term, most: int) -> list[int]:
        """The numbers of the messages that hold the term, in their order; the first `most` of them."""

    # messages by their numbers
    def around(self, nos: Collection[int], reach: int) -> dict[int, list[int]]:
        """For each the searchable messages of its session around it, itself among them, in their order: `reach` on each side."""

    def inside(self, nos: Collection[int], within: Within) -> set[int]:
        """Those of them that are `within`."""

    def sessions_within(self, within: Within) -> set[int] | None:
        """The numbers of the sessions that are; None for all of them. Times are not looked at."""

    def heads(self, nos: Collection[int]) -> list[Head]: ...

    def texts(self, nos: Collection[int]) -> dict[int, str]: ...

    def numbers(self, places: Collection[tuple[str, int, int]]) -> dict[tuple[str, int, int], int]:
        """The numbers of searchable messages by session, seq and n."""

    def session_sizes(self, sessions: Collection[int]) -> dict[int, int]:
        """How many messages each has, by its number."""

    def session_ends(self, sessions: Collection[int]) -> dict[int, str | None]:
        """When each was last heard of."""

    # notes and insights
    def remembered_holding(self, term: Term) -> list[int]:
        """All of their numbers, in any state in which they may be found."""

    def remembered_rows(self, nos: Collection[int]) -> list[Remembered]: ...

    def remembered_ids(self, ids: Collection[str]) -> list[Remembered]:
        """Of notes, by their ids."""

    def grounds(self, places: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
        """Which notes rest on what was said at (session, place)."""

    def rests_on(self, note: str, session: str) -> bool:
        """Whether something that was said in the session is a reason for the note."""

    # vectors: a view of a view, made when somebody has an embedder, and thrown away with any other
    def unembedded(self, limit: int) -> list[tuple[int, str]]:
        """Messages (and, with negative numbers, notes and insights) that have no vector yet, newest first, and their texts."""

    def unembedded_count(self) -> int: ...

    def put_vectors(self, embedder: str, made: Iterable[tuple[int, bytes, bytes]]) -> None:
        """(no, code, vector) each; those of another embedder are thrown away first. None waits any more of those."""

    def embedder(self) -> tuple[str, int]:
        """By what the vectors were made ("" if there are none), and a number that changes whenever they do."""

    def codes(self) -> list[tuple[int, bytes]]:
        """In the order of their numbers."""

    def vectors(self, nos: Collection[int]) -> Mapping[int, bytes]: ...

    def learned_vectors(self) -> Mapping[int, bytes]:
        """Of all notes and insights, by their negative numbers."""


#: Rows as SQLite gives them.
Row = tuple[Any, ...]
