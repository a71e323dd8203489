"""A settings file's bytes as text and back, byte for byte."""

from __future__ import annotations

from typing import NamedTuple

from dreamkeep.host import Host, read_file

_MARK = "\ufeff"


class UnreadableFile(ValueError):
    """A file, or what is in it, is not what it should be: it is left alone. Says what, and where in the file."""


class Text(NamedTuple):
    """`mark`: the byte order mark that some editors put at the beginning, kept apart because parsers trip over it."""

    mark: str
    body: str

    def bytes_with(self, body: str) -> bytes:
        return (self.mark + body).encode()


def bytes_at(host: Host, path: str) -> bytes | None:
    """None where no file is."""
    seen = host.stat(path)
    return read_file(host, path) if seen is not None and not seen.is_folder else None


def text_of(data: bytes) -> Text:
    try:
        whole = data.decode()
    except UnicodeDecodeError as problem:
        raise UnreadableFile(f"byte {problem.start}: not UTF-8") from problem
    return Text(_MARK, whole[1:]) if whole.startswith(_MARK) else Text("", whole)


def eol_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
