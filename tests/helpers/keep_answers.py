"""All that a keep answers, to compare two of them."""

from __future__ import annotations

import json

from dreamkeep import Keep


def answers(keep: Keep) -> str:
    """Every answer there is, as bytes."""
    sessions = keep.sessions()
    return json.dumps(
        {
            "sessions": [keep.as_json(s) for s in sessions],
            "show": [keep.show(s.id) for s in sessions],
            "search": [keep.search(q) for q in ("build", "odd", "x", "lock OR file", "it passes")],
            "status": {**keep.status(), "turns_running": 0, "turns_interrupted": 0},
        },
        sort_keys=True,
    )
