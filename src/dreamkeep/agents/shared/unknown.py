"""The reader for agents that have none of their own: every record is kept raw, and shown as unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dreamkeep.agents.facts import Fact, Record, UnknownRecord
from dreamkeep.agents.shared.values import table, text


class Reader:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def read(self, record: Record) -> Iterator[Fact]:
        if record.data is not None or record.text.strip():
            yield UnknownRecord(text(table(record.data).get("type")) or record.name or record.channel)
