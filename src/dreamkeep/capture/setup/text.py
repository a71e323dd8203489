"""A settings file's bytes as text and back, byte for byte."""

from __future__ import annotations

from typing import NamedTuple

from dreamkeep.host import Host, read_file

_BYTE_ORDER_MARK = "\ufeff"


class UnreadableFile(ValueError):
    """The file can't be edited safely, so it is left alone. The message says what is wrong, and where in the file."""


class Text(NamedTuple):
    """`mark`: the byte order mark that some editors put at the beginning, kept apart because parsers trip over it."""

    mark: str
    body: str

    def bytes_with(self, body: str) -> bytes:
        return (self.mark + body).encode()


def bytes_at(host: Host, path: str) -> bytes | None:
    """None if there is no such file."""
    stat = host.stat(path)
    return read_file(host, path) if stat is not None and not stat.is_folder else None


def text_of(data: bytes) -> Text:
    try:
        whole = data.decode()
    except UnicodeDecodeError as problem:
        raise UnreadableFile(f"byte {problem.start}: not UTF-8") from problem
    return Text(_BYTE_ORDER_MARK, whole[1:]) if whole.startswith(_BYTE_ORDER_MARK) else Text("", whole)


def eol_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
