"""Hosts on the real disk that notice when a file is opened for reading: they remember, count or refuse it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import BinaryIO

from dreamkeep.host import RealHost


class Noticing(RealHost):
    def notice(self, path: str) -> None:
        """Before the file is opened; what it raises is raised."""
        raise NotImplementedError

    def open_read(self, path: str) -> int:
        self.notice(path)
        return super().open_read(path)

    def open_stream(self, path: str) -> BinaryIO:
        self.notice(path)
        return super().open_stream(path)


class Watching(Noticing):
    """Remembers what was opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def notice(self, path: str) -> None:
        self.opened.append(path)

    def parts(self) -> list[str]:
        return [path for path in self.opened if ".jsonl" in path]


class CountingHost(RealHost):
    """Remembers what was opened and how many bytes of it were read."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.bytes: Counter[str] = Counter()
        self._names: dict[int, str] = {}

    def open_read(self, path: str) -> int:
        handle = super().open_read(path)
        self.opened.append(path)
        self._names[handle] = path
        return handle

    def read(self, handle: int, size: int, offset: int) -> bytes:
        found = super().read(handle, size, offset)
        self.bytes[self._names.get(handle, "")] += len(found)
        return found


class MeddlingHost(RealHost):
    """Somebody does something just when the sessions are listed."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def names(self, folder: str) -> list[str]:
        if folder.endswith("/journal/sessions/python") and self._act:
            act, self._act = self._act, None
            found = super().names(folder)
            act()
            return found
        return super().names(folder)
