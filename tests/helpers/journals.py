"""Small helpers for tests of the journal on a real disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dreamkeep.event import Carry, Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal.reader import JournalDefect, Reading, Tail
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.writer import PART_SIZE, Writer

HOST = RealHost()
IDS = Ids(HOST.now, HOST.random)


def writer(folder: Path | str, part_size: int = PART_SIZE, may_begin: Callable[[], None] = lambda: None) -> Writer:
    aside = f"{os.path.dirname(str(folder))}/aside"
    return Writer(HOST, str(folder), journal="python:x", aside=aside, new_id=IDS.new, part_size=part_size, may_begin=may_begin)


def event(text: str, carry: Carry | None = None, kind: str = Kind.MESSAGE_ADDED) -> Event:
    return Event(IDS.new(), kind, rfc3339(HOST.now()), {"role": "user", "text": text}, carry)


def append(folder: Path | str, *texts: str, part_size: int = PART_SIZE) -> None:
    """As a process of its own would: opens, appends, goes."""
    w = writer(folder, part_size)
    for text in texts:
        w.append([event(text)])
    w.park()


def texts(folder: Path | str) -> list[str]:
    return [e.body["text"] for _, e in read_events(HOST, str(folder))]


def faults(folder: Path | str) -> list[JournalDefect]:
    return read(folder)[0]


def read(folder: Path | str) -> tuple[list[JournalDefect], Tail | None]:
    reading = Reading(HOST, str(folder))
    for _ in reading:
        pass
    return reading.defects, reading.tail


def part(folder: Path | str, number: int = 1) -> Path:
    return Path(folder) / f"{number:06d}.jsonl"


def lines(folder: Path | str, number: int = 1) -> list[bytes]:
    return part(folder, number).read_bytes().splitlines(keepends=True)


def aside(folder: Path | str) -> dict[str, bytes]:
    place = Path(folder).parent / "aside"
    return {p.name: p.read_bytes() for p in sorted(place.iterdir())} if place.exists() else {}
