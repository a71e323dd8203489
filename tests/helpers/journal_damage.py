"""What can happen to a journal, each done for real, with the class of the fault that an audit must report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from dreamkeep import Keep
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal import parts
from dreamkeep.journal.frame import draft, parse, place
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.audit.audit import AuditReport, audit
from dreamkeep.recovery.faults import Fault
from tests.helpers.journals import part

HOST = RealHost()
IDS = Ids(HOST.now, HOST.random)
PART_SIZE = 3_000


class HealthyKeep:
    """A keep with a few sessions, its index up to date and nothing wrong; and a home without any agent."""

    def __init__(self, root: str, home: Path) -> None:
        self.root = root
        self.home = home
        self.session = "python:s0"
        self.folder = f"{root}/{folder_of(self.session)}"

    def fill(self, sessions: int = 3, messages: int = 40) -> None:
        journals = JournalWriters(HOST, self.root, IDS, part_size=PART_SIZE)
        for n in range(sessions):
            say(journals, f"python:s{n}", "session.opened", {"session": f"python:s{n}"})
            for m in range(messages):
                say(journals, f"python:s{n}", Kind.MESSAGE_ADDED, {"role": "user", "text": f"{m} " + "x" * 200})
        journals.close()
        self.index()

    def index(self) -> None:
        with Keep.open(self.root) as keep:
            keep.sessions()

    def audit(self, *, deep: bool = False, host: RealHost | None = None) -> AuditReport:
        around = {"XDG_RUNTIME_DIR": str(self.home)}
        return audit(host or HOST, self.root, home=str(self.home), environment={}, deep=deep, around=around)

    def faults(self, *, deep: bool = False) -> list[Fault]:
        return self.audit(deep=deep).faults

    def classes(self, *, deep: bool = False) -> list[str]:
        return [one.cls for one in self.faults(deep=deep)]


def say(journals: JournalWriters, session: str, kind: str, body: dict[str, Any]) -> None:
    journals.append(session, [Event(IDS.new(), kind, rfc3339(HOST.now()), body)])


@pytest.fixture
def world(root: str, tmp_path: Path) -> HealthyKeep:
    home = tmp_path / "home"
    home.mkdir()
    made = HealthyKeep(root, home)
    with Keep.open(root) as keep:
        keep.session("first").record("hello", ("assistant", "there"))
    made.fill()
    return made


def append_half_a_frame(folder: str) -> None:
    with part(folder, last_part(folder)).open("ab") as file:
        file.write(b'{"id":"half a fra')


def drop_last_line_feed(folder: str) -> None:
    file = part(folder, last_part(folder))
    file.write_bytes(file.read_bytes()[:-1])


def flip_bit(folder: str) -> None:
    file = part(folder, 2)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


def write_nuls(folder: str) -> None:
    """As a power cut leaves it."""
    file = part(folder, 2)
    data = bytearray(file.read_bytes())
    data[600:900] = bytes(300)
    file.write_bytes(data)


def change_lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[str], None]:
    def act(folder: str) -> None:
        file = part(folder, 2)
        file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))

    return act


def drop_last_frame_before_the_last_part(folder: str) -> None:
    file = part(folder, last_part(folder) - 1)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def reuse_seq(folder: str) -> None:
    """Another good frame with a seq that is used: the lines after it still link to the first."""
    file = part(folder, 2)
    rows = file.read_bytes().splitlines(keepends=True)
    before = frame_of(rows[2])
    other, _ = place(
        draft(Event(IDS.new(), Kind.MESSAGE_ADDED, "t", {"role": "user", "text": "?"})), before["seq"], before["crc"]
    )
    file.write_bytes(b"".join([*rows[:4], other, *rows[4:]]))


def break_link(folder: str) -> None:
    """A good frame in the last part that names another one as the one before it."""
    file = part(folder, last_part(folder))
    end = frame_of(file.read_bytes().splitlines()[-1] + b"\n")
    line, _ = place(draft(Event(IDS.new(), Kind.MESSAGE_ADDED, "t", {"role": "user", "text": "?"})), end["seq"], "deadbeef")
    with file.open("ab") as out:
        out.write(line)


def append_frame(kind: str, body: dict[str, Any]) -> Callable[[str], None]:
    """A frame whose checksum is right, at the end."""

    def act(folder: str) -> None:
        file = part(folder, last_part(folder))
        end = frame_of(file.read_bytes().splitlines()[-1] + b"\n")
        line, _ = place(draft(Event(IDS.new(), kind, rfc3339(HOST.now()), body)), end["seq"], end["crc"])
        with file.open("ab") as out:
            out.write(line)

    return act


def change_a_piece(folder: str) -> None:
    """A long event of which one piece holds other text; every line and every link is good."""
    file = part(folder, last_part(folder))
    end = frame_of(file.read_bytes().splitlines()[-1] + b"\n")
    drafts = draft(Event(IDS.new(), Kind.MESSAGE_ADDED, "t", {"role": "user", "text": "x" * 1_200_000}))
    head = drafts[1].head.replace(b"xx", b"yy", 1)
    drafts[1] = drafts[1]._replace(head=head, crc=crc32(head))
    lines, _ = place(drafts, end["seq"], end["crc"])
    with file.open("ab") as out:
        out.write(lines)


def remove_part(folder: str) -> None:
    part(folder, 2).unlink()


def keep_both_forms(folder: str) -> None:
    plain = part(folder, 2).read_bytes()
    assert parts.compress(HOST, folder, 2)
    part(folder, 2).write_bytes(plain)


def write_differing_forms(folder: str) -> None:
    shutil.copyfile(part(folder, 3), f"{folder}/copy")
    assert parts.compress(HOST, folder, 2)
    os.replace(f"{folder}/copy", part(folder, 3))
    part(folder, 3).with_suffix(".jsonl.zst").write_bytes(part(folder, 2).with_suffix(".jsonl.zst").read_bytes())


def flip_bit_of_last_cold_part(folder: str) -> None:
    """The last part, so that no frame behind it tells what was in it."""
    end = last_part(folder)
    assert parts.compress(HOST, folder, end, last=True)
    cold = part(folder, end).with_suffix(".jsonl.zst")
    data = bytearray(cold.read_bytes())
    data[len(data) // 2] ^= 4
    cold.write_bytes(data)


def cut_first_cold_part(folder: str) -> None:
    """The first part of several, of which nothing can be read."""
    assert parts.compress(HOST, folder, 1)
    cold = part(folder, 1).with_suffix(".jsonl.zst")
    cold.write_bytes(cold.read_bytes()[:20])


def cut_cold_part(folder: str) -> None:
    assert parts.compress(HOST, folder, 2)
    cold = part(folder, 2).with_suffix(".jsonl.zst")
    cold.write_bytes(cold.read_bytes()[:-20])


def replace_folder_by_file(folder: str) -> None:
    shutil.rmtree(folder)
    Path(folder).write_text("no folder")


def replace_part_by_folder(folder: str) -> None:
    part(folder, last_part(folder)).unlink()
    part(folder, last_part(folder) + 1).mkdir()


def write_newer_format(folder: str) -> None:
    shutil.rmtree(folder)
    Path(folder).mkdir()
    body = {"format": 99, "journal": "python:s0", "part": 1, "carry": {}}
    line, _ = place(draft(Event("i", Kind.PART_OPENED, "t", body)), 0, "00000000")
    part(folder, 1).write_bytes(line)


def last_part(folder: str) -> int:
    return parts.numbers(HOST, folder)[-1]


def frame_of(line: bytes) -> dict[str, Any]:
    frame = parse(line.removesuffix(b"\n"))
    assert frame is not None
    return frame


JOURNAL_DAMAGE: dict[str, tuple[str, Callable[[str], None]]] = {
    "a torn append": ("journal_tail", append_half_a_frame),
    "a line feed missing": ("journal_tail", drop_last_line_feed),
    "a bit flipped": ("journal_damage", flip_bit),
    "NULs in the middle": ("journal_damage", write_nuls),
    "a cold part cut short": ("journal_damage", cut_cold_part),
    "a bit of the last cold part flipped": ("journal_damage", flip_bit_of_last_cold_part),
    "the first cold part cut short": ("journal_damage", cut_first_cold_part),
    "a line removed": ("journal_gap", change_lines(lambda rows: rows[:3] + rows[4:])),
    "a line doubled": ("journal_duplicate", change_lines(lambda rows: rows[:4] + rows[3:])),
    "lines swapped": ("journal_disorder", change_lines(lambda rows: [*rows[:3], rows[4], rows[3], *rows[5:]])),
    "the last frame of a part": ("journal_gap", drop_last_frame_before_the_last_part),
    "a seq reused": ("journal_reused", reuse_seq),
    "a link to nothing": ("journal_link", break_link),
    "a part missing": ("journal_missing_part", remove_part),
    "a piece of a long event": ("journal_chunks", change_a_piece),
    "a body that is none": ("journal_strange", append_frame(Kind.TURN_SUBMITTED, {"turn": 7})),
    "a part in both forms": ("journal_twice", keep_both_forms),
    "two forms that differ": ("journal_differs", write_differing_forms),
    "a file for a folder": ("journal_unreadable", replace_folder_by_file),
    "a folder for a part": ("journal_unreadable", replace_part_by_folder),
    "a format of tomorrow": ("journal_unreadable", write_newer_format),
    "a piece that is nobody's": ("journal_chunks", append_frame(Kind.CHUNK, {"no": "of"})),
}
