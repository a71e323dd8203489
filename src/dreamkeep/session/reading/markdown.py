"""A session as a page for people. Pure: from the contract's JSON of one session."""

from __future__ import annotations

import json
from typing import Any

from dreamkeep.event import printable


def markdown(data: dict[str, Any]) -> str:
    """A session for people to read or pass on. Agents' words are fenced, so that they don't look like ours."""
    s = data["session"]
    lines = [
        f"# {_escaped(s['title'] or s['id'])}",
        "",
        f"{_escaped(s['id'])} · {s['turns']} turns · {s['started_at'] or ''} – {s['last_at'] or ''}",
    ]
    segment = turn = None
    turns = {t["id"]: t for t in data["turns"]}
    for m in data["messages"]:
        if segment is not None and m["segment"] != segment:
            lines += ["", "---", "*Here the agent's context was cut.*"]
        segment = m["segment"]
        if m["turn"] != turn and m["turn"] in turns:
            turn = m["turn"]
            lines += ["", f"## Turn · {turns[turn]['state']}"]
        mark = f" ({m['mark']})" if m.get("mark") else ""
        name = f" · {_escaped(str(m['tool'].get('name', 'tool')))}" if m.get("tool") else ""
        lines += ["", f"**{_escaped(m['role'])}{name}**{mark}"]
        if m["text"]:
            lines += ["", *_fenced(printable(m["text"]))]
        elif m.get("tool"):
            lines += ["", *_fenced(json.dumps(m["tool"].get("input"), separators=(",", ":")))]
    return "\n".join(lines)


def _escaped(words: str) -> str:
    return "".join(f"\\{c}" if c in "\\`*_[]<>#|" else c for c in printable(words).replace("\n", "\\n").replace("\t", "\\t"))


def _fenced(words: str) -> list[str]:
    longest = run = 0
    for c in words:
        run = run + 1 if c == "`" else 0
        longest = max(longest, run)
    fence = "`" * max(3, longest + 1)
    return [fence, words, fence]
