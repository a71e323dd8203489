"""The facts of one file, folded crudely, in the form of `tests/expected/*.json`: for tests of readers alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.contract import Reader
from dreamkeep.capture.sources import rows
from dreamkeep.host import RealHost


def read(
    make: Callable[[dict[str, Any]], Reader], lines: Iterable[str], *, source: str = "main", rest: bool = False
) -> list[f.Fact]:
    """All facts; with `rest` the reader stops after every record, and another one goes on from its state as JSON."""
    reader = make({})
    found: list[f.Fact] = []
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        whole = isinstance(data, dict)
        found += reader.read(f.Record("file", data if whole else None, "" if whole else line, "", source))
        if rest:
            reader = make(json.loads(json.dumps(reader.state)))
    return found


def lines_of(agent: str, path: Path, session: str, known: dict[str, str] | None = None) -> list[bytes]:
    """The rows of a session in an agent's database, as journaled. With `known`: only what an ingest at this moment would add."""
    found = list(rows.rows(RealHost(), agent, str(path), session, known or {}))
    if known is not None:
        known.update({row.key: row.version for row in found})
    return [row.line for row in found]


def read_rows(make: Callable[[dict[str, Any]], Reader], lines: Iterable[bytes], *, rest: bool = False) -> list[f.Fact]:
    """As `read`, from rows."""
    reader = make({})
    found: list[f.Fact] = []
    for line in lines:
        held = json.loads(line)
        found += reader.read(f.Record("row", held["row"], "", held["table"]))
        if rest:
            reader = make(json.loads(json.dumps(reader.state)))
    return found


def fold(found: Iterable[f.Fact], agent: str = "") -> dict[str, Any]:
    """With the agent's name, the sessions it comes from are named as a keep names them."""
    said: dict[str, f.MessageSaid] = {}
    turns: dict[str, dict[str, str]] = {}
    compactions: dict[str, dict[str, Any]] = {}
    lineage: dict[tuple[str, str], None] = {}
    unknown: Counter[str] = Counter()
    odd, current = 0, ""
    for fact in found:
        if isinstance(fact, f.MessageSaid):
            said[fact.key] = fact
        elif isinstance(fact, f.TurnBegan):
            current = fact.turn
            turns.setdefault(current, {"prompt": "", "state": "open"})["prompt"] = fact.prompt
        elif isinstance(fact, f.TurnSettled):
            turn = turns.get(fact.turn or current, {"state": ""})
            turn["state"] = fact.state if turn["state"] in ("open", "interrupted") else turn["state"]
        elif isinstance(fact, f.MessagesRewound) and fact.key in said:
            keys = list(said)
            for key in keys[keys.index(fact.key) :]:
                said[key] = said[key]._replace(mark=said[key].mark or f.REWOUND)
        elif isinstance(fact, f.Signal) and not fact.historic:
            one = compactions.setdefault(fact.id, {"state": "", "reason": "", "sources": [fact.source]})
            one["state"], one["reason"] = fact.phase, fact.reason or one["reason"]
        elif isinstance(fact, f.Edge):
            lineage[fact.kind, fact.session] = None
        elif isinstance(fact, f.UnknownRecord):
            unknown[fact.kind] += 1
        elif isinstance(fact, f.OddRecord):
            odd += 1
    results = {one.tool["id"]: one.tool for one in said.values() if one.role == f.TOOL and one.tool}
    calls = [one.tool for one in said.values() if one.role == f.ASSISTANT and one.tool]
    roles = Counter(one.role for one in said.values())
    return {
        "turns": list(turns.values()),
        "roles": {role: roles[role] for role in (f.USER, f.ASSISTANT, f.TOOL, f.REASONING, f.SUMMARY, f.SYSTEM)},
        "tool_calls": [{"name": c["name"], "error": bool(results.get(c["id"], {}).get("error"))} for c in calls],
        "compactions": list(compactions.values()),
        "lineage": [{"kind": kind, "session": f"{agent}:{session}" if agent else session} for kind, session in lineage],
        "marks": dict(Counter(one.mark for one in said.values() if one.mark)),
        "unknown": dict(unknown),
        "odd": odd,
    }
