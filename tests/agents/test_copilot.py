"""Copilot CLI: what its events say."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.copilot import discovery as places
from dreamkeep.agents.copilot.reader import Reader
from dreamkeep.host import RealHost
from tests.agents import anything, copilot, crude

MADE = {copilot.MAIN: copilot.main, copilot.DETACHED: copilot.detached}


def events(*made: tuple[str, dict[str, Any]]) -> list[str]:
    return [json.dumps({"type": kind, "data": data, "id": f"e{n}"}) for n, (kind, data) in enumerate(made)]


@pytest.mark.parametrize("wanted", copilot.EXPECTED["sessions"], ids=["main", "detached"])
def test_each_made_session_reads_as_expected_also_when_reading_stops_after_every_event(wanted: dict[str, Any]) -> None:
    lines = MADE[wanted["id"].removeprefix("copilot:")]()
    found = crude.read(Reader, lines)
    assert crude.read(Reader, lines, rest=True) == found
    seen = crude.fold(found, "copilot")
    seen["compactions"] = [one for one in seen["compactions"] if one["state"] == "completed"]
    assert seen == {key: wanted[key] for key in seen}


def test_a_compaction_that_was_called_off_is_cancelled() -> None:
    states = [(one["state"], one["reason"]) for one in crude.fold(crude.read(Reader, copilot.main()))["compactions"]]
    assert states == [("completed", "manual"), ("cancelled", "auto")]


def test_the_same_file_read_again_says_nothing_new() -> None:
    """W14."""
    lines = [line for line in copilot.main() if "honey" not in line]
    once, twice = crude.read(Reader, lines), [*crude.read(Reader, lines), *crude.read(Reader, lines)]
    assert crude.fold(twice) == crude.fold(once)


def test_a_turn_is_not_over_while_the_model_still_calls_tools() -> None:
    asked = {"content": "wait", "toolRequests": [{"toolCallId": "t", "name": "bash"}]}
    lines = events(("user.message", {"content": "go"}), ("assistant.message", asked), ("assistant.turn_end", {"turnId": "0"}))
    assert crude.fold(crude.read(Reader, lines))["turns"] == [{"prompt": "go", "state": "open"}]


def test_a_steering_message_does_not_begin_a_turn() -> None:
    lines = events(("user.message", {"content": "go"}), ("user.message", {"content": "left", "delivery": "steering"}))
    seen = crude.fold(crude.read(Reader, lines))
    assert [turn["prompt"] for turn in seen["turns"]] == ["go"]
    assert seen["roles"]["user"] == 2


def test_what_was_rewound_is_marked_and_kept() -> None:
    lines = events(
        ("user.message", {"content": "a"}), ("user.message", {"content": "b"}), ("assistant.message", {"content": "c"})
    )
    lines += events(("session.snapshot_rewind", {"upToEventId": "e1", "eventsRemoved": 2}))
    assert crude.fold(crude.read(Reader, lines))["marks"] == {"rewound": 2}


def test_thoughts_that_stand_twice_are_said_once() -> None:
    lines = events(("assistant.reasoning", {"content": "hm", "reasoningId": "r"}), ("assistant.message", {"reasoningText": "hm"}))
    assert crude.fold(crude.read(Reader, lines))["roles"]["reasoning"] == 1


def test_our_own_pack_is_marked_as_such() -> None:
    output = {"hookSpecificOutput": {"additionalContext": "<!-- dreamkeep:pack 1 -->\nx"}}
    assert crude.fold(crude.read(Reader, events(("hook.end", {"output": output}))))["marks"] == {"injected": 1}


def test_a_compaction_without_its_start_still_counts() -> None:
    (signal,) = crude.read(Reader, events(("session.compaction_complete", {"success": True, "preCompactionTokens": 9})))
    assert isinstance(signal, f.Signal)
    assert (signal.phase, signal.before) == ("completed", {"tokens": 9})


def test_any_change_to_a_line_is_survived() -> None:
    anything.read_changed(Reader, copilot.main(), seed=6, times=60)


def test_what_is_found_is_what_was_written(tmp_path: pathlib.Path) -> None:
    copilot.write(tmp_path)
    (place,) = places.homes(str(tmp_path), {})
    found = list(places.discover(RealHost(), place))
    assert {f"copilot:{source.session}" for source in found} == {one["id"] for one in copilot.EXPECTED["sessions"]}
    for source in found:
        assert places.claims(source.path) == source
        assert source.role == ("workspace" if source.path.endswith(".yaml") else "main")
        if source.role == "main":
            assert places.identify("copy.txt", pathlib.Path(source.path).read_bytes()[:65536]) == source.session


def test_the_environment_moves_the_home() -> None:
    assert places.homes("/h", {"COPILOT_HOME": "/c", "XDG_STATE_HOME": "/s"}) == ["/c", "/h/.copilot", "/s/.copilot"]
    assert list(places.discover(RealHost(), "/nowhere/at/all")) == []
    assert places.claims("/h/.copilot/session-state/abc.jsonl") is not None
    assert places.claims("/h/.copilot/logs/events.jsonl") is None
