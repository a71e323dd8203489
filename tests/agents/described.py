"""A session as `show` gives it, boiled down to the form of tests/expected/*.json and of the generators' EXPECTED."""

from __future__ import annotations

from collections import Counter
from typing import Any


def described(shown: dict[str, Any]) -> dict[str, Any]:
    session = shown["session"]
    calls = [m for m in shown["messages"] if m.get("tool") and m["role"] == "assistant"]
    failed = {m["tool"].get("id") for m in shown["messages"] if m.get("tool") and m["role"] == "tool" and m["tool"].get("error")}
    return {
        "id": session["id"],
        "title": session["title"],
        "cwd": session["cwd"],
        "turns": [{"prompt": t["prompt"], "state": t["state"]} for t in shown["turns"]],
        "roles": dict(Counter(m["role"] for m in shown["messages"])),
        "tool_calls": [{"name": m["tool"].get("name"), "error": m["tool"].get("id") in failed} for m in calls],
        "compactions": [
            {"state": c["state"], "reason": c["reason"] or "", "sources": c["sources"]}
            for c in shown["compactions"]
            if c.get("counted", True)
        ],
        "segments": len(shown["segments"]),
        "lineage": session["lineage"],
        "marks": dict(Counter(m["mark"] for m in shown["messages"] if m.get("mark"))),
        "unknown": shown.get("unknown", {}),
        "odd": shown.get("odd", {}).get("count", 0),
    }


def differences(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Only what the expectation speaks of; roles that are expected 0 times may be left out."""
    wrong = {}
    for key, wanted in expected.items():
        got = found.get(key)
        if key in ("roles", "marks", "unknown"):
            wanted, got = ({k: n for k, n in (side or {}).items() if n} for side in (wanted, got))
        if key == "lineage":
            wanted, got = ([{"kind": e["kind"], "session": e["session"]} for e in side or []] for side in (wanted, got))
        if wanted != got:
            wrong[key] = {"wanted": wanted, "got": got}
    return wrong
