"""Sessions to measure on: texts, long sessions built fast, and where their bytes lie."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

from dreamkeep import Keep
from dreamkeep.capture.python import Session, Turn
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal import parts
from dreamkeep.journal.places import folder_of, session_id
from dreamkeep.journal.writer import Writer

_chance = random.Random(2)
_WORDS = ["".join(_chance.choices("etaoinshrdlu", k=_chance.randint(2, 10))) for _ in range(5_000)]
_AT_ONCE = 2_000


def text_of(size: int) -> str:
    """Words, so that a full-text index has its usual work; exactly `size` bytes."""
    return " ".join(_chance.choices(_WORDS, k=size // 3 + 1))[:size]


def texts_of(size: int, count: int = 200) -> Callable[[], str]:
    """Another text at each call, made beforehand: making them must not be measured."""
    stock = [text_of(size) for _ in range(count)]
    return lambda: _chance.choice(stock)


def open_turn(keep: Keep, name: str) -> tuple[Session, Turn]:
    session = keep.session(name)
    return session, session.submit("go")


def fill(root: str, name: str, events: int, text: Callable[[], str]) -> None:
    """Lengthen a session by so many messages, thousands to a sync, as another process would."""
    host = RealHost()
    ids = Ids(host.now, host.random)
    session = session_id("python", name)
    writer = Writer(host, f"{root}/{folder_of(session)}", journal=session, aside=f"{root}/aside", new_id=ids.new)
    turn = ids.new()
    for begin in range(0, events, _AT_ONCE):
        count = min(_AT_ONCE, events - begin)
        writer.append([_message(host, ids, turn, text()) for _ in range(count)])
    writer.park()


def _message(host: RealHost, ids: Ids, turn: str, text: str) -> Event:
    body = {"turn": turn, "role": "assistant", "text": text}
    return Event(ids.new(), Kind.MESSAGE_ADDED, rfc3339(host.now()), body)


def folder(root: str, session: Session) -> str:
    return f"{root}/{folder_of(session.id)}"


def part_files(journal: str) -> list[str]:
    return [f"{journal}/{parts.name(n)}" for n in parts.numbers(RealHost(), journal)]


def last_line(journal: str) -> bytes:
    """The bytes of the newest frame, with its line feed: what one append really wrote."""
    with open(part_files(journal)[-1], "rb") as part:
        part.seek(max(0, os.path.getsize(part.name) - (1 << 20)))
        return part.read().splitlines(keepends=True)[-1]


def raw_files(parent: str, count: int) -> Iterator[int]:
    """Handles of new files to append to."""
    os.makedirs(parent, exist_ok=True)
    for n in range(count):
        yield os.open(f"{parent}/{n}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
