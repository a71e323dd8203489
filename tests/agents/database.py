"""An agent's SQLite file, as the generators write it: made with its schema where it is missing, small pages, write-ahead log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw


class Database:
    def __init__(self, path: Path, schema: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.fresh = not path.exists()
        self.db = apsw.Connection(str(path))
        self.db.execute("PRAGMA page_size=1024; PRAGMA journal_mode=WAL")
        if self.fresh:
            self.db.execute(schema)

    def close(self) -> None:
        self.db.close()

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        marks = ",".join("?" * len(row))
        self.db.execute(f"INSERT INTO {table}({','.join(row)}) VALUES ({marks})", tuple(row.values()))
