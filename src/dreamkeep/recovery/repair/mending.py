"""What every repair is given, and what it answers.

A module `mend_*.py` offers `ACTIONS: dict[str, Callable[[Mending, Fault], Done]]`, by the names in `faults.py`, and may offer
`CHECKS: dict[str, Callable[[Looking, Fault], str]]` by the same names: why a repair can't be promised ("" when it can), found out
without writing anything, for the plan.

An action changes files only through `mending.ledger` (`publish`, `replace`, `remove`, `make_folders`, `remove_folder`,
`set_mode`) and journals only through `mending.journals`: then what was there is kept first, and `repair --undo` knows the way
back. An action must end right when it is run again after a crash at any step of it, and must look again: what the audit saw may
have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dreamkeep.event import Ids
    from dreamkeep.host import Host
    from dreamkeep.journal.writers import JournalWriters
    from dreamkeep.recovery.repair.ledger import Ledger


class MendResult(NamedTuple):
    """`mended`, or left alone, and `why`."""

    mended: bool
    why: str = ""


MENDED = MendResult(True)


def left(why: str) -> MendResult:
    return MendResult(False, why)


@dataclass(frozen=True)
class Looking:
    """For a plan: enough to look, nothing to write with. `home`, `environment`: where agents' stores are looked for."""

    host: Host
    root: str
    home: str
    environment: Mapping[str, str]
    exclude: Sequence[str]


@dataclass(frozen=True)
class Mending(Looking):
    """`journals` and `ids` are this repair's own: what they write is known again by `undo`."""

    journals: JournalWriters
    ids: Ids
    ledger: Ledger
    #: Whether the process that owns a turn lives.
    alive: Callable[[str], bool]
    #: Throw the index away and build it again.
    rebuild: Callable[[], None]
    #: Capture is switched off.
    off: bool = False
