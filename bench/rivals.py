"""Other stores, for information: what one durable message costs there, and what is read back how fast.

Each is used as its own documentation does, with its own defaults; how durable that is, is asked of the database itself.
A store that is not installed is left out.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import apsw
import orjson

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class Rival(NamedTuple):
    name: str
    promise: str
    add: Callable[[str], object]
    read: Callable[[], Sequence[Any]]
    #: What reading is called there; "" where it is not comparable.
    reads: str
    close: Callable[[], None]


def all_rivals(folder: str) -> list[Rival]:
    found = [sqlite(f"{folder}/plain.sqlite")]
    for make, file in ((agents_session, "agents.sqlite"), (langgraph_saver, "langgraph.sqlite")):
        try:
            found.append(make(f"{folder}/{file}"))
        except ImportError as problem:
            print(f"Left out: {problem}")
    return found


def sqlite(path: str) -> Rival:
    db = apsw.Connection(path)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", 2)
    db.execute("CREATE TABLE messages(no INTEGER PRIMARY KEY, session TEXT, body TEXT)")
    promise = _promise(db.pragma("journal_mode"), db.pragma("synchronous"))

    def add(text: str) -> None:
        body = orjson.dumps({"role": "assistant", "text": text}).decode()
        db.execute("INSERT INTO messages(session, body) VALUES ('bench', ?)", (body,))

    def read() -> Sequence[Any]:
        rows = db.execute("SELECT body FROM messages WHERE session = 'bench' ORDER BY no")
        return [orjson.loads(body) for (body,) in rows]

    return Rival("SQLite insert+commit", promise, add, read, "SQLite select + orjson.loads", db.close)


def agents_session(path: str) -> Rival:
    from agents import SQLiteSession  # only `make bench` and the extra `dev` install it

    session = SQLiteSession("bench", path)
    loop = asyncio.new_event_loop()

    def add(text: str) -> None:
        loop.run_until_complete(session.add_items([{"role": "assistant", "content": text}]))

    def read() -> Sequence[Any]:
        items: Sequence[Any] = loop.run_until_complete(session.get_items())
        return items

    def close() -> None:
        session.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    # It sets the journal mode and leaves the rest at what Python's sqlite3 has: a connection like its own tells.
    return Rival(
        "OpenAI Agents SQLiteSession.add_items",
        _ask(sqlite3.connect(path)),
        add,
        read,
        "OpenAI Agents SQLiteSession.get_items",
        close,
    )


def langgraph_saver(path: str) -> Rival:
    from langgraph.checkpoint.base import empty_checkpoint  # type: ignore[import-not-found]  # only `make bench` installs it
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]  # likewise

    db = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(db)
    saver.setup()
    config = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}

    def add(text: str) -> None:
        values = {"messages": [{"role": "assistant", "content": text}]}
        saver.put(config, {**empty_checkpoint(), "channel_values": values}, {"source": "loop", "step": 1, "parents": {}}, {})

    # A checkpoint is a whole state, not a message: reading all of them back is nothing that anybody does.
    return Rival("LangGraph SqliteSaver.put, no history", _ask(db, close=False), add, list, "", db.close)


def _ask(db: sqlite3.Connection, *, close: bool = True) -> str:
    mode, synchronous = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
    if close:
        db.close()
    return _promise(mode, synchronous)


def _promise(mode: object, synchronous: object) -> str:
    number = int(str(synchronous))
    safe = "a sync per commit" if number >= 2 else "power loss may take the newest commits"
    return f"{str(mode).upper()}, synchronous={_SYNCHRONOUS[number]}, {safe}"
