"""What can happen to a captured transcript, each done for real, with the class of the fault that an audit must report."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from dreamkeep import Keep
from dreamkeep.host import RealHost
from dreamkeep.recovery.audit.sources import audit_sources
from dreamkeep.recovery.faults import Fault
from tests.helpers.claude_home import record

SID = "5f0c2d1e-0000-4000-8000-0000000000{:02d}"
LINES = b"".join(record(n) for n in range(1, 9))


def ingest(root: str, home: Path) -> None:
    with Keep.open(root) as keep:
        assert not [one.problem for one in keep.ingest(home=home) if one.problem]


def audit(root: str, home: Path, *, deep: bool = False, host: Any = None) -> list[Fault]:
    return list(audit_sources(host or RealHost(), root, str(home), {}, deep))


def classes(found: list[Fault]) -> list[str]:
    return [one.cls for one in found]


def cut_lines(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]))


def tear_last_line(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def blank_a_third(file: Path) -> None:
    whole = file.read_bytes()
    third = len(whole) // 3
    file.write_bytes(whole[:third] + bytes(third) + whole[2 * third :])


def blank_and_append(file: Path) -> None:
    blank_a_third(file)
    file.write_bytes(file.read_bytes() + record(9))


def edit_in_place(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"question 3", b"QUESTION 3"))


def replace_file(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_bytes(file.read_bytes().replace(b"answer 4", b"something longer than it was before"))
    os.replace(other, file)


def replace_with_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def replace_with_loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def replace_with_dangling_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/not-mounted/transcript.jsonl")


def append_malformed_lines(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b'{"type":"user","mess\n[1]\n' + record(9))


def append_nuls(file: Path) -> None:
    file.write_bytes(file.read_bytes() + bytes(30) + b"\n" + record(9))


def drop_middle_lines(file: Path) -> None:
    """Lines from its middle are gone: what is left is no beginning of what it was."""
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], *lines[4:]]))


def cut_and_append(file: Path) -> None:
    cut_lines(file)
    file.write_bytes(file.read_bytes() + record(9))


TRANSCRIPT_DAMAGE: dict[str, list[Callable[[Path], None]]] = {
    "source_shrank": [cut_lines, tear_last_line, empty, drop_middle_lines, cut_and_append],
    "source_blanked": [blank_a_third, blank_and_append],
    "source_changed": [edit_in_place, replace_file],
    "source_vanished": [Path.unlink, replace_with_dangling_link],
    "source_unreadable": [replace_with_folder, replace_with_loop],
    "source_malformed": [append_malformed_lines, append_nuls],
}
_TICKS = count()


def make_old(file: Path) -> None:
    """Nobody has written to it for a while."""
    if file.is_file():
        when = 1_700_000_000 + next(_TICKS)
        os.utime(file, (when, when))
