"""What each of its parts may use of `Keep`, said once. `Keep` has all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from dreamkeep.config import Config
    from dreamkeep.event import Event, Ids
    from dreamkeep.host import Host
    from dreamkeep.index.build import Progress
    from dreamkeep.index.store import Store
    from dreamkeep.journal.pool import Journals
    from dreamkeep.session.summary import Summary

T = TypeVar("T")


class Part:
    """Verbs of `Keep` that have one reason to change."""

    root: str
    config: Config
    _host: Host
    _ids: Ids
    _environment: Mapping[str, str]
    progress: Progress | None
    warn: Callable[[str], None]

    if TYPE_CHECKING:

        def exists(self) -> bool: ...

        def is_off(self) -> bool: ...

        def resolve(self, text: str) -> str: ...

        def summary(self, session: str) -> Summary: ...

        def compress(self, *, everything: bool = False, least: int = 0) -> int: ...

        def _ask(self, act: Callable[[Store], T]) -> T: ...

        def _look(self, act: Callable[[Store], T]) -> T: ...

        def _glance(self, act: Callable[[Store], T]) -> T: ...

        def _with_index(self, act: Callable[[Store], T], *, follow: bool = True) -> T: ...

        def _journals(self) -> Journals: ...

        def _mask(self) -> Callable[[Event], Event] | None: ...

        def _alive(self, owner: str) -> bool: ...

        def _home(self, home: str | os.PathLike[str] | None) -> tuple[str, Mapping[str, str]]: ...
