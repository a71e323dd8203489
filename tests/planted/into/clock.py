"""When things were said: a few seconds for each line, minutes between turns, or the time that the turn names."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.planted.written import Turn


class Clock:
    def __init__(self, start: datetime) -> None:
        self.at = start

    def tick(self, seconds: float = 3) -> datetime:
        self.at += timedelta(seconds=seconds)
        return self.at

    def text(self, seconds: float = 3) -> str:
        return self.tick(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def turn(self, turn: Turn) -> None:
        self.tick(150)
        if turn.at and turn.at > self.at:
            self.at = turn.at
