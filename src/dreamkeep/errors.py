"""The tree of our errors. Each says what, where, and what to do next.

DreamkeepError
├── BadUsage            the caller asked for something that makes no sense       exit 2
│   ├── BadConfig       a setting is unknown or out of range
│   └── Refused         a value that may not be written (a view, a bad id, …)
├── NotFound            nothing has that name, or several things do              exit 1
├── Busy                somebody else holds it; try again                        exit 4
└── Failed              a promise can't be kept                                  exit 3
    ├── NotDurable      the disk did not take it
    │   ├── NoSpace     … because it is full
    │   └── ReadOnly    … because we may not write there
    ├── Deleted         the session was deleted; nothing brings it back
    ├── NewerFormat     a newer dreamkeep wrote this
    ├── NoAnswer        a model did not answer, or nothing that can be used
    │   └── Unanswered  … but somebody may answer it later
    ├── OverBudget      a run may not spend more
    └── Unsupported     this platform or store can't do it
"""

from __future__ import annotations

import errno


class DreamkeepError(Exception):
    """Says what happened, where, and what to do next."""

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", next: str = "") -> None:
        self.what = what
        self.where = where
        self.next = next
        super().__init__(self.__str__())

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        step = f" {self.next}" if self.next else ""
        return f"{self.what}{where}.{step}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments would be lost by the default pickling of exceptions, and errors cross process pools.
        return _rebuild, (type(self), self.what, self.where, self.next)


def _rebuild(kind: type[DreamkeepError], what: str, where: str, step: str) -> DreamkeepError:
    return kind(what, where=where, next=step)


class BadUsage(DreamkeepError):
    exit_code = 2


class BadConfig(BadUsage):
    pass


class Refused(BadUsage):
    pass


class NotFound(DreamkeepError):
    exit_code = 1


class Busy(DreamkeepError):
    exit_code = 4


class Failed(DreamkeepError):
    exit_code = 3


class NotDurable(Failed):
    pass


class NoSpace(NotDurable):
    pass


class ReadOnly(NotDurable):
    pass


class Deleted(Failed):
    pass


class NewerFormat(Failed):
    pass


class NoAnswer(Failed):
    #: What was spent until then (`dreamkeep.dream.backends.api.Usage`), where somebody counts it.
    usage: object = None
    #: The model answers no request at all: no session is to blame, and asking about others is useless until that is fixed.
    nobody: bool = False


class Unanswered(NoAnswer):
    """The request may be answered later: the session waits, and this is no failure."""


class OverBudget(Failed):
    #: As NoAnswer's.
    usage: object = None
    #: Even the whole budget of a run is not enough: the next run would end the same way.
    never: bool = False
    #: The limit of a day is reached: tomorrow there is room again.
    today: bool = False


class Unsupported(Failed):
    pass


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


def cannot_read(problem: OSError, where: str) -> Failed:
    """The error for a read that failed. Nothing is lost."""
    return Failed(
        f"can't be read ({problem.strerror or type(problem).__name__})",
        where=str(problem.filename or where),
        next="Check that it exists and that this user can read it.",
    )


def from_os(problem: OSError, doing: str, where: str) -> NotDurable:
    """The error for a write that the operating system refused: the promised durability can't be kept."""
    reason = problem.strerror or type(problem).__name__
    if problem.errno in _FULL:
        return NoSpace(
            f"no space: {doing} failed ({reason})",
            where=where,
            next="Free space (or raise the quota or file size limit), then try again; nothing acknowledged is lost.",
        )
    if problem.errno in _FORBIDDEN:
        return ReadOnly(
            f"not allowed: {doing} failed ({reason})",
            where=where,
            next="Make the keep writable for this user, or choose another with --keep.",
        )
    return NotDurable(
        f"{doing} failed ({reason})",
        where=where,
        next="Check the disk (`dreamkeep doctor`), then try again; nothing acknowledged is lost.",
    )
