"""What the index holds ⇄ the columns that SQLite keeps of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dreamkeep.event import disarm, encode_body
from dreamkeep.index.store import FolderMark, JournalPlace
from dreamkeep.journal.reader import Position, SeqRange
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary
from dreamkeep.session.turns import TurnView


def place(row: Any) -> JournalPlace:
    # `_make`: there are thousands of them, and it takes half the time.
    return JournalPlace(row[0], row[1], Position._make(row[2:6]), FolderMark._make(row[6:11]), row[11], row[12], row[13])


def summary(row: Any) -> Summary:
    found = Summary(*map(restored, row))
    return found._replace(lineage=tuple(tuple(edge) for edge in restored_data(row[-1]) or ()))


def lineage_text(lineage: tuple[tuple[str, str], ...]) -> str | bytes | None:
    if not lineage:
        return None
    text = stored_data({"": lineage})  # armour is for objects
    return text if isinstance(text, bytes) else text[4:-1] if text else None


def message(row: Any) -> Message:
    seq, n, role, text, at, turn = map(restored, row[:6])
    base = None if (row[9], row[10]) == (seq, n) else (row[9], row[10])
    return Message(seq, n, role, text, at, turn, restored_data(row[6]), row[7], row[8], base)


def turn(row: Any) -> TurnView:
    return TurnView(*map(restored, row))


def stored(value: Any) -> Any:
    """SQLite's text is UTF-8; what isn't (lone surrogates) is kept as bytes. Numbers and None as they are."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def restored(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def stored_data(data: Mapping[str, Any] | None) -> str | bytes | None:
    """JSON text; as bytes where it had to be armoured."""
    if data is None:
        return None
    text, armoured = encode_body(data)
    return text if armoured else text.decode()


def restored_data(value: str | bytes | None) -> Any:
    import orjson

    if value is None:
        return None
    return disarm(orjson.loads(value)) if isinstance(value, bytes) else orjson.loads(value)


def spans_text(spans: Iterable[SeqRange]) -> str:
    return ",".join(f"{a}-{b}" for a, b in spans)


def spans(text: str) -> tuple[SeqRange, ...]:
    return tuple(SeqRange(*map(int, pair.split("-"))) for pair in text.split(",")) if text else ()
