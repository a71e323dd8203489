"""Sessions of agents captured into a keep, for tests that give them back."""

from __future__ import annotations

import json
from pathlib import Path

from dreamkeep import Keep
from dreamkeep.capture.sources import rows
from dreamkeep.host import RealHost
from tests.helpers.agent_samples import load_generator

WITH_ROWS = "hermes"


def captured(keep: Keep, agent: str, home: Path) -> None:
    load_generator(agent).write(home)
    assert [one.problem for one in keep.ingest(agents=[agent], home=home) if one.problem] == []


def rows_of(path: Path, session: str) -> dict[str, bytes]:
    return {row.key: row.line for row in rows.rows(RealHost(), WITH_ROWS, str(path), session, {})}


def claude_file(home: Path, lines: int, native: str = "11111111-1111-4111-8111-111111111111", words: str = "words") -> Path:
    path = home / ".claude" / "projects" / "-w" / f"{native}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(claude_line(n, native, words) for n in range(lines)))
    return path


def claude_line(n: int, native: str, words: str) -> str:
    return (
        json.dumps(
            {
                "parentUuid": f"u{n - 1}" if n else None,
                "isSidechain": False,
                "type": "user",
                "message": {"role": "user", "content": f"{words} {n}"},
                "uuid": f"u{n}",
                "timestamp": f"2026-01-01T00:00:{n % 60:02d}.000Z",
                "cwd": "/w",
                "sessionId": native,
                "version": "2.1.1",
            }
        )
        + "\n"
    )
