"""What an index must answer, whichever database holds it. `tests/helpers/store_suite.py` is the law in full."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dreamkeep.index.searching import Searchable
from dreamkeep.journal.reader import JournalDefect, Position
from dreamkeep.session.messages import Message, Taken
from dreamkeep.session.summary import Summary
from dreamkeep.session.turns import TurnView

if TYPE_CHECKING:
    from dreamkeep.session import folders


class FolderMark(NamedTuple):
    """How a journal's folder looked when it was last read: whether it changed is told by two stats."""

    part: int
    size: int
    part_mtime_ns: int
    part_inode: int
    folder_mtime_ns: int


class JournalPlace(NamedTuple):
    """Up to where a journal is indexed. `name` is its folder, relative to the keep. `looks`, `sums`, `sources`:
    part_fingerprints.py."""

    name: str
    session: str
    position: Position
    mark: FolderMark
    looks: str = ""
    sums: str = ""
    sources: str = ""


#: Of a journal: its name, the part up to which it is indexed, its sums; whether it is plain: one part, indexed to its end, and no
#: other file beside it; its Mark; then the seq and checksum of the frame that was indexed last. A bare row, because of thousands
#: most are only ever compared.
Standing = tuple[str, int, str, int, int, int, int, int, int, int, str]


class IndexBatch(NamedTuple):
    """A stretch of one session's journal as rows, to be stored all or not at all."""

    place: JournalPlace
    summary: Summary
    turns: Sequence[TurnView]
    messages: Sequence[Message]
    #: None: as they were.
    faults: Sequence[JournalDefect] | None = None
    #: What the fold of captured events remembers, as JSON text.
    state: str = "{}"
    #: Where the message is that has this key; two keys may lead to one message.
    keys: Mapping[str, tuple[int, int]] = MappingProxyType({})
    #: What is the same of a message on every channel.
    twins: Mapping[tuple[int, int], str] = MappingProxyType({})
    #: Messages of earlier batches that turned out to be others.
    removed: Collection[tuple[int, int]] = ()
    #: What of earlier batches the user took back, or got back, in this order.
    taken: Sequence[Taken] = ()


class IndexCounts(NamedTuple):
    sessions: int
    turns: int
    messages: int
    bytes: int
    faults: int


class Store(Searchable, Protocol):
    def close(self) -> None: ...

    def writing(self) -> AbstractContextManager[None]:
        """A transaction: others see all of it or nothing, and no other writer comes in between."""

    def reading(self) -> AbstractContextManager[None]:
        """Several answers that belong together: what others write meanwhile is not seen in between."""

    # following the journal
    def places(self) -> dict[str, JournalPlace]: ...

    def place(self, name: str) -> JournalPlace | None: ...

    def standings(self) -> list[Standing]:
        """How all journals looked when they were indexed."""

    def sources(self) -> dict[str, str]:
        """By journal, what each that comes from files carries of them."""

    def put(self, batch: IndexBatch) -> None: ...

    def put_place(self, place: JournalPlace, faults: Sequence[JournalDefect] | None) -> None:
        """For a journal that has no rows: the keep's own. Its faults (None: as they were) are listed under the session ""."""

    def forget(self, name: str) -> None:
        """Drop all that came from that journal."""

    def clear(self) -> None:
        """Drop everything, to be read anew."""

    def shred(self, sleep: Callable[[float], None]) -> None:
        """Leave no byte of what was forgotten in the store's files. `sleep`: how to wait for others who are at them."""

    def mark_deleted(self, session: str, at: str) -> None:
        """Remember a tombstone."""

    def lift(self, session: str) -> None: ...

    def accept(self, faults: Iterable[str], *, anew: bool) -> None:
        """Remember ids of faults that the user accepted; `anew`: and no others."""

    def remember(self, changed: Mapping[tuple[str, str], Mapping[str, Any] | None], *, anew: bool) -> None:
        """Rows of memory, by table and id (None: gone); `anew`: and no others. Notes and insights are searched by their texts.
        `projects` says under which name a session's project is shown: also of sessions that are here already."""

    # answers, each in an order that does not depend on when or how often the index was built
    def tombstones(self) -> dict[str, str]: ...

    def memory(self) -> list[tuple[str, str, dict[str, Any]]]:
        """All rows of memory: table, id, and what was put."""

    def memory_row(self, table: str, id: str) -> dict[str, Any] | None: ...

    def memory_table(self, table: str) -> list[tuple[str, dict[str, Any]]]:
        """(id, row) of all of one table."""

    def accepted(self) -> set[str]:
        """Ids of faults that the user accepted."""

    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        """Newest first."""

    def session(self, session: str) -> Summary | None: ...

    def session_places(self) -> list[folders.SessionPlace]:
        """Where each session ran, in the order of their ids."""

    def matching(self, text: str) -> list[str]:
        """Session ids that are `text`, or whose native id is, or that begin with it; exact ones alone if there are any."""

    def turns(self, session: str, ids: Iterable[str] | None = None) -> list[TurnView]: ...

    def last_turns(self, session: str, count: int) -> list[TurnView]:
        """The last ones, in the order of their beginning."""

    def state(self, session: str) -> str:
        """What the fold remembered after the last batch; "{}" when there was none."""

    def message(self, session: str, key: str) -> Message | None: ...

    def twin(self, session: str, twin: str, not_heard: int, after: tuple[int, int]) -> Message | None:
        """The first message behind `after` that has this twin, and was not heard on channel `not_heard`."""

    def unsettled(self, *, owned: bool = False) -> list[tuple[str, TurnView]]:
        """Turns that nobody has settled, with their sessions; `owned`: only those that somebody once called his."""

    def ended(self) -> list[tuple[str, int]]:
        """Sessions that ended, oldest end first, with the seq of their last message."""

    def compacting(self) -> list[str]:
        """Sessions in which a compaction began and did not end; perhaps some others, too: their state tells."""

    def check(self) -> str:
        """What is wrong with the store as such, whatever it holds; "" when it is sound. Reads all of it."""

    def incomplete(self, *, rows: bool) -> list[str]:
        """Sessions of which something is missing in the store itself; `rows`: count them all, too. "" where it is nobody's."""

    def messages(self, session: str) -> list[Message]: ...

    def last_messages(self, session: str, count: int) -> list[Message]:
        """The last ones that were captured, in their order; at the cost of these, however long the session is."""

    def faults(self) -> list[tuple[str, JournalDefect]]: ...

    def counts(self) -> IndexCounts: ...
