"""What a dream asks of the index: how far sessions were read, which ended, what is remembered, and what a session says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.event import Event, Kind
from dreamkeep.journal.places import folder_of
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.tables import DREAMED, INSIGHTS, NOTES, PAGES, RESTS, RUNS, TASKS

if TYPE_CHECKING:
    from dreamkeep.dream.backends.api import TurnGiven
    from dreamkeep.dream.schedule import Scope
    from dreamkeep.index.store import Store
    from dreamkeep.memory.dreams import DreamProgress, DreamRun
    from dreamkeep.session.messages import Message
    from dreamkeep.session.summary import Summary


class Ended(NamedTuple):
    """A session that ended with more than what is recorded as complete. `seq`: of its last message. `subagent`: an agent is its
    user and told its parent what matters of it, so it waits for no dream and makes none due."""

    session: str
    seq: int
    subagent: bool = False

    @property
    def body(self) -> dict[str, Any]:
        return {"session": self.session, "seq": self.seq, "reason": "ended", **({"subagent": True} if self.subagent else {})}


# -- how far sessions were read


def load_life(store: Store) -> Memory:
    """How far sessions were dreamed, without what was found: that may be much, and most questions are not about it."""
    return _load(store, DREAMED)


def load_life_and_ended(store: Store) -> tuple[Memory, list[Ended]]:
    life = load_life(store)
    return life, _find_ended(store, life)


def load_runs_and_ended(store: Store) -> tuple[Memory, list[Ended]]:
    """How far sessions were dreamed, by which runs, which pages there are, and what ended without a record of it."""
    memory = _load(store, DREAMED, RUNS, PAGES)
    return memory, _find_ended(store, memory)


def _find_ended(store: Store, life: Memory) -> list[Ended]:
    found = []
    for session, seq in store.ended():
        was = life.dreamed.get(session)
        summary = store.session(session) if seq > (was.finished if was else 0) else None
        if summary is not None and not _is_our_request(summary):
            found.append(Ended(session, seq, _is_subagent(summary)))
    return found


def with_ended(memory: Memory, ended: Sequence[Ended], now: str) -> Memory:
    """As it will be once their end is recorded."""
    for one in ended:
        memory.apply(Event("", Kind.SESSION_COMPLETED, now, one.body))
    return memory


def _is_our_request(summary: Summary) -> bool:
    """Whether a dream itself asked an agent's command line, which left a session: a dream never dreams of itself."""
    from dreamkeep.dream.backends.model.requests import OURS

    return summary.title.startswith(OURS)


def _is_subagent(summary: Summary) -> bool:
    return any(kind == "subagent" for kind, _ in summary.lineage)


# -- runs and what is remembered


def load_runs(store: Store) -> dict[str, DreamRun]:
    return _load(store, RUNS).runs


def find_unended_runs(store: Store) -> list[str]:
    return [one.id for one in load_runs(store).values() if not one.is_over]


def has_unmerged(store: Store) -> bool:
    """Whether insights wait for being compared with what is remembered."""
    return any(one.is_unmerged for one in _load(store, INSIGHTS).insights.values())


def load_remembered(store: Store) -> Memory:
    """All that a run needs."""
    return _load(store, INSIGHTS, NOTES, TASKS, RESTS)


def _load(store: Store, *tables: str) -> Memory:
    return Memory.load((table, *row) for table in tables for row in store.memory_table(table))


# -- one session


def is_whole(store: Store, one: DreamProgress) -> bool:
    """Whether it is indexed as far as it is to be read: somebody may be building the index anew."""
    place = store.place(folder_of(one.session))
    return place is not None and place.session == one.session and place.position.seq >= one.finished


def load_turns(store: Store, one: DreamProgress) -> tuple[Summary, list[TurnGiven]] | None:
    """None where the session is gone. A subagent's is empty: its parent was told what matters of it."""
    summary = store.session(one.session)
    if summary is None:
        return None
    if _is_subagent(summary):
        return summary, []
    from dreamkeep.dream.backends.checks import turns_given

    return summary, turns_given(store.turns(one.session), store.messages(one.session), one.read + 1, one.finished, one.also)


def load_messages(store: Store, one: DreamProgress) -> tuple[Summary, list[Message]] | None:
    """The same with plain messages."""
    summary = store.session(one.session)
    if summary is None:
        return None
    return summary, [] if _is_subagent(summary) else store.messages(one.session)


def estimate(store: Store, scope: Scope) -> dict[str, int]:
    """How much there is to read. Tokens as they are likely counted."""
    from dreamkeep.dream.backends.chunks import turn_tokens

    turns = messages = tokens = 0
    for one in scope.sessions:
        found = load_turns(store, one)
        for turn in found[1] if found else ():
            turns += not turn.known
            messages += 0 if turn.known else len(turn.messages)
            tokens += turn_tokens(turn)
    return {"sessions": len(scope.sessions), "turns": turns, "messages": messages, "tokens": tokens}
