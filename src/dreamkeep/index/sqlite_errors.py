"""What SQLite says → our words for it: damaged, busy, full, not ours. And answers that nobody of ours can have written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import apsw

from dreamkeep.errors import Busy, DreamkeepError, Failed, NoSpace, NotDurable, ReadOnly


class Unusable(DreamkeepError):
    """The file is no index of ours, damaged, or of another version: to be rebuilt, never to be believed."""


class OtherVersion(Unusable):
    """Made by an older or newer dreamkeep, or not made yet: no damage."""


@contextmanager
def translated(path: str) -> Iterator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SchemaChangeError) as problem:
        raise Unusable(f"the index is damaged ({problem})", where=path, next="It will be rebuilt.") from problem
    except (apsw.SQLError, apsw.ConstraintError, apsw.MismatchError) as problem:
        # Our statements fit our tables: these are others.
        raise Unusable(f"the index can't be read ({problem})", where=path, next="It will be rebuilt.") from problem
    except (apsw.BusyError, apsw.LockedError) as problem:
        raise Busy("another program keeps the index locked", where=path, next="Close it, then try again.") from problem
    except apsw.FullError as problem:
        raise NoSpace("the disk is full", where=path, next="Free space; the journal is not affected.") from problem
    except (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError) as problem:
        raise ReadOnly(
            f"the index can't be opened for writing ({problem})", where=path, next="Check its permissions."
        ) from problem
    except apsw.IOError as problem:
        # A full disk shows in many ways here, and so does a dying one.
        raise NotDurable(f"the index can't be used ({problem})", where=path, next="Check space and disk.") from problem
    except apsw.Error as problem:
        # Never "empty": an answer that can't be had is an error.
        raise Failed(
            f"the index can't be read ({problem})", where=path, next="Run `dreamkeep reindex --from-zero`; nothing is lost."
        ) from problem


#: What answers that nobody of ours can have written do to code that believes them.
STRANGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class _Placed(Protocol):
    path: str


P = ParamSpec("P")
S = TypeVar("S", bound=_Placed)
T = TypeVar("T")


def understood(ask: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A question whose answer nobody of ours can have written shows damage that SQLite does not see."""

    @wraps(ask)
    def asked(store: S, /, *words: P.args, **named: P.kwargs) -> T:
        try:
            return ask(store, *words, **named)
        except UnicodeEncodeError:
            raise  # what was asked for, not what was answered
        except STRANGE as problem:
            what = f"the index holds unexpected data ({problem})"
            raise Unusable(what, where=store.path, next="It will be rebuilt.") from problem

    return asked
