"""Hosts on the real disk that notice when a file is opened to be read: to remember it, or to refuse."""

from __future__ import annotations

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
