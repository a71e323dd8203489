"""A script of appends to a journal, run until the power is cut, that knows what was promised."""

from __future__ import annotations

from dreamkeep.errors import NotDurable
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.journal import parts
from dreamkeep.journal.open_state import read_head
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.writer import Writer
from tests.helpers.faults import FragileHost

FOLDER = "/keep/journal/sessions/python/chat"


def writer(host: FragileHost, part_size: int = 1500) -> Writer:
    ids = Ids(host.now, host.random)
    return Writer(host, FOLDER, journal="python:chat", aside="/keep/aside", new_id=ids.new, part_size=part_size)


def event(host: FragileHost, n: int) -> Event:
    return Event(f"e{n}", Kind.MESSAGE_ADDED, rfc3339(host.now()), {"n": n, "text": "x" * (n * 37 % 400)}, {"source": n})


def ids_in(host: FragileHost) -> list[str]:
    return [e.id for _, e in read_events(host, FOLDER)]


class AppendScript:
    """Appends 1, 2, 3, … until told otherwise, opening the journal anew every few appends; knows what was acknowledged."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.acked: list[str] = []

    def run(self, host: FragileHost, appends: int, *, go_on: bool = False) -> None:
        w = writer(host)
        for n in range(len(self.tried) + 1, len(self.tried) + 1 + appends):
            if n % 4 == 0:
                w.park()
                w = writer(host)
            self.tried.append(f"e{n}")
            try:
                w.append([event(host, n)])
            except NotDurable:
                if not go_on:
                    raise
            else:
                self.acked.append(f"e{n}")

    def check(self, host: FragileHost) -> None:
        there = ids_in(host)
        assert [i for i in there if i in self.acked] == self.acked, "an acknowledged event is missing, doubled or out of order"
        assert set(there) <= set(self.tried), "something was invented"
        assert len(set(there)) == len(there), "something counts twice"

    def check_settled(self, host: FragileHost) -> None:
        """After an append every part has its head, the end is clean, every hole is told of; and replaying all changes nothing."""
        self.check(host)
        reading = Reading(host, FOLDER)
        seqs = [frame["seq"] for frame in reading]
        assert reading.tail is None and all(fault.recorded for fault in reading.defects)
        assert seqs == sorted(set(seqs))
        for number in parts.numbers(host, FOLDER):
            assert read_head(host, FOLDER, number), f"part {number} has no head"
        there = ids_in(host)
        w = writer(host)
        for known in self.tried:
            w.append([event(host, int(known[1:]))])
        now = ids_in(host)
        # What was tried but lost may come in again now, once; what was there may not.
        assert len(set(now)) == len(now) and set(now) >= set(there)
        newest = max(int(i[1:]) for i in there)
        assert [i for i in now if int(i[1:]) <= newest] == there, "a cursor was forgotten or ran ahead"
