"""R7: a keep that version 0.1.0 wrote is read for ever: compressed part, failed sync, hole, set-aside tail, armour and all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from dreamkeep import Keep

DATA = Path(__file__).parent / "data"


def answers(keep: Keep) -> Any:
    sessions = keep.sessions()
    found = {"sessions": [keep.as_json(s) for s in sessions], "show": {s.id: keep.show(s.id) for s in sessions}}
    return json.loads(json.dumps(found))


def holds(now: Any, before: Any) -> bool:
    """Everything that was said is said; newer programs may say more."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(key in now and holds(now[key], value) for key, value in before.items())
    if isinstance(before, list):
        return isinstance(now, list) and len(now) == len(before) and all(map(holds, now, before))
    return json.dumps(now) == json.dumps(before)  # NaN, too


def test_a_keep_of_format_1_gives_the_answers_it_gave(tmp_path: Path) -> None:
    """W4 T11 D34: also after everything that can be rebuilt is gone, and after an append to each session."""
    shutil.copytree(DATA / "keep-format-1", tmp_path / "keep")
    expected = json.loads((DATA / "keep-format-1.json").read_text())
    with Keep.open(tmp_path / "keep") as keep:
        assert holds(answers(keep), expected)
        for session in expected["sessions"]:
            keep.session(session["native_id"], agent=session["agent"]).record("goes on")
        for session_id, before in expected["show"].items():
            shown = answers(keep)["show"][session_id]
            assert shown["messages"][: len(before["messages"])] == before["messages"]
            assert shown["messages"][-1]["text"] == "goes on"
            assert holds(shown["faults"], before["faults"])
