"""Repair of the keep: each fault is made for real, reported, planned, mended and undone; what is not safe stays untouched.

Repairs of agents' own stores are tested beside those repairs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.errors import BadUsage, Busy, NotFound
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal import parts
from dreamkeep.journal.frame import draft, parse, place
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.audit.audit import AuditReport, audit
from dreamkeep.recovery.faults import CLASSES, Fault, MendResult
from dreamkeep.recovery.repair import keep as mend_keep
from dreamkeep.recovery.repair import repair
from dreamkeep.recovery.repair.context import PlanContext
from dreamkeep.recovery.repair.ledger import Ledger, repair_ids
from dreamkeep.recovery.repair.undo import undo as take_back
from tests.helpers.broken_keeps import (
    BROKEN,
    HOST,
    OLD_S,
    PAGE,
    VIEWS,
    YOUNG,
    World,
    age,
    compaction,
    damage,
    damage_line,
    drop_line,
    gap,
    hook_lost,
    in_another_process,
    intent,
    lease,
    leftover,
    looks,
    message,
    opened,
    read_witness,
    reused,
    spooled,
    stamps,
    tail,
    tombstone,
    turn,
    world,
)
from tests.helpers.cli import Ran
from tests.helpers.faults import Dying, FragileHost, PowerCut, cut_at_every_step

__all__ = ["world"]


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_of_the_keep_is_found_planned_repaired_and_undone(world: World, name: str) -> None:
    """B4, W2, W5: each repairable class has a repair, after which the audit is clean; every byte it replaces is kept."""
    make, cls = BROKEN[name]
    make(world)
    broken, seen = looks(world.root, *VIEWS), read_witness(world)
    touched = stamps(world.root)
    assert cls in world.classes()
    plan = world.repair()
    assert plan["applied"] == [] and plan["undo_id"] is None and plan["skipped"] == []
    assert {step["action"] for step in plan["plan"]} >= {CLASSES[cls].repair}
    assert not plan["audit"]["clean"] and stamps(world.root) == touched, "a plan writes nothing"
    done = world.repair(apply=True)
    assert done["skipped"] == [] and done["audit"]["clean"], done
    assert [step["fault"] for step in done["applied"]] == [step["fault"] for step in plan["plan"]]
    assert world.audit(deep=True)["clean"]
    touched = stamps(world.root)
    again = world.repair(apply=True)
    assert (again["plan"], again["applied"], again["undo_id"]) == ([], [], None) and stamps(world.root) == touched
    back = world.repair(undo=done["undo_id"])
    assert back["skipped"] == [], back
    after = looks(world.root, *VIEWS)
    assert read_witness(world) == seen
    assert {path: look for path, look in after.items() if path in broken or look[0] is not None} == broken
    if name not in YOUNG:
        assert cls in world.classes()


# -- what the repaired keep holds


@pytest.mark.parametrize("name", ["damage", "damage_at_the_end", "gap", "missing_part", "shortened", "cold", "chunks"])
def test_a_repaired_journal_has_its_lost_events_word_for_word(world: World, name: str) -> None:
    """W4: content decides, not how many frames there are."""
    BROKEN[name][0](world)
    lost = world.rejoined()
    assert lost != world.transcript.read_bytes()
    world.repair(apply=True)
    assert world.rejoined() == world.transcript.read_bytes()
    words = [json.loads(line)["message"]["content"] for line in world.transcript.read_bytes().splitlines()]
    expected = sorted(said if isinstance(said, str) else said[0]["text"] for said in words)
    assert world.messages() == expected
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)
        assert [one.state for one in keep.ingest(home=world.home)] == ["unchanged"]
        assert [one.new_events for one in keep.ingest(home=world.home, again=True)] == [0]
    assert world.messages() == expected
    world.grow(50, 2)
    world.ingest()
    assert world.rejoined() == world.transcript.read_bytes()


def test_lines_that_can_still_be_read_are_not_journaled_again(world: World) -> None:
    """W14: what is here is named, not repeated."""
    damage(world)
    before = world.part().stat().st_size
    lost = len(world.transcript.read_bytes()) // 4
    world.repair(apply=True)
    assert world.part().stat().st_size - before < lost + 2500
    [changed] = [frame for frame in world.journal() if frame["body"].get("what") == "mended"]
    ops = [frame["body"]["ops"] for frame in world.journal() if frame["seq"] > changed["seq"] and "ops" in frame["body"]]
    assert ops == [[[0, 3], 3, [3, 6]]]


def test_an_event_under_a_seq_that_was_taken_is_read_after_the_repair(world: World) -> None:
    """J4, W9: of two writers that did not see each other nothing is lost."""
    reused(world)
    with Keep.open(world.root) as keep:
        assert "the other writer's" not in [m["text"] for m in keep.show("python:own")["messages"]]
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        assert [m["text"] for m in keep.show("python:own")["messages"]].count("the other writer's") == 1


def test_an_interrupted_turn_is_recorded_once_keeps_its_prompt_and_a_late_completion_wins(world: World) -> None:
    """T1, T2, T3, T4, T8: by the turn's own id, once, and only when its owner is gone."""
    turn(world)
    in_another_process(
        world, "s = k.session('own')\ns.submit('again').start()\ns.submit('again').start()\nos.kill(os.getpid(), 9)"
    )
    for path in Path(world.root, "state", "owners").iterdir():
        path.unlink()
    with Keep.open(world.root) as alive:
        mine = alive.session("own").submit("mine goes on")
        done = world.repair(apply=True)
        assert [step["action"] for step in done["applied"]] == ["settle_turn"] * 3 and done["audit"]["clean"]
        mine.settle("completed")
    assert world.repair(apply=True)["applied"] == []
    settled = [frame["body"] for frame in world.journal("python:own") if frame["kind"] == "turn.settled"]
    assert [(one["state"], one.get("recovered")) for one in settled] == [("interrupted", True)] * 3 + [("completed", None)]
    with Keep.open(world.root) as keep:
        shown = keep.show("python:own")["turns"]
        assert [(one["prompt"], one["state"]) for one in shown] == [
            ("the prompt that must stay", "interrupted"),
            ("again", "interrupted"),
            ("again", "interrupted"),
            ("mine goes on", "completed"),
        ]
        keep.session("own").turn(shown[1]["id"]).settle("completed")
        assert [one["state"] for one in keep.show("python:own")["turns"]][1:3] == ["completed", "interrupted"]
        before = keep.summary("python:own").last_at
    assert before and before < rfc3339(HOST.now())


def test_a_recovered_turn_does_not_make_its_session_newer(world: World) -> None:
    turn(world)
    with Keep.open(world.root) as keep:
        before = keep.summary("python:own").last_at
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        assert keep.summary("python:own").last_at == before


def test_a_compaction_that_was_given_up_is_failed_and_counts_when_it_is_completed_after_all(world: World) -> None:
    """S5: a late completion is applied once."""
    compaction(world)
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        [one] = keep.show(world.session)["compactions"]
        assert (one["state"], one["closing"], one["active"]) == ("failed", "timeout", False)
    summary = {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "sessionId": world.transcript.stem}
    more = {**summary, "timestamp": "2026-01-01T11:00:00.000Z", "compactMetadata": {"trigger": "manual", "preTokens": 9}}
    with world.transcript.open("ab") as file:
        file.write(json.dumps(more).encode() + b"\n")
    world.ingest()
    with Keep.open(world.root) as keep:
        [one] = keep.show(world.session)["compactions"]
        assert (one["state"], keep.summary(world.session).compactions) == ("completed", 1)


def test_hook_calls_and_the_transcripts_they_name_are_journaled_by_a_repair(world: World) -> None:
    spooled(world)
    world.repair(apply=True)
    assert [frame["kind"] for frame in world.journal()].count("hook.fired") == 1
    assert world.rejoined() == world.transcript.read_bytes() and "hooked" in world.messages()


def _spool(world: World, session: str, event: str = "UserPromptSubmit", n: int = 2) -> Path:
    call = Path(world.root, "spool", f"{time.time_ns() - OLD_S * 10**9:020d}-1-{n:016d}~claude~{event}.hook")
    call.write_text(json.dumps({"session_id": session, "hook_event_name": event, "prompt": "hooked", "cwd": "/nowhere"}))
    call.chmod(0o600)
    return call


def _all_calls(world: World) -> list[str]:
    """Every hook call that stands in a journal, by its name in the spool."""
    folders = [path.parent for path in Path(world.root, "journal").rglob("000001.jsonl")]
    told = [event for folder in folders for _, event in read_events(HOST, str(folder)) if event.kind == Kind.HOOK_FIRED]
    return sorted(call["spool"] for event in told for call in event.body["calls"])


@pytest.mark.parametrize("more", ["nothing", "a torn end", "an open mode"])
def test_a_hook_call_is_given_back_only_if_the_journal_it_went_to_was_taken_back(world: World, more: str) -> None:
    """T4: otherwise it would be journaled twice. A call that only ends an unknown session goes to the keep's own journal."""
    spooled(world)
    ghost, other = _spool(world, "ghost", "SessionEnd", 2), _spool(world, "other", n=3)
    [first] = set(Path(world.root, "spool").glob("*.hook")) - {ghost, other}
    if more == "a torn end":  # so that its journal is noted before the calls are
        with world.part().open("ab") as part:
            part.write(b'{"id":"torn')
    elif more == "an open mode":
        other.chmod(0o644)
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and _all_calls(world) == sorted(path.name for path in (first, ghost, other))
    world.grow(200, 2)
    world.ingest()
    with Keep.open(world.root) as keep:
        keep.context.journals().say("", Kind.TAP_FRAMES, {"conn": "c", "frames": [], "sizes": [], "lines": []})
    for _ in range(2):
        reasons = [skipped["reason"] for skipped in world.repair(undo=done["undo_id"])["skipped"]]
        for path in (first, ghost):
            assert [f"{path}: this call is in" in reason for reason in reasons].count(True) == 1
        assert list(Path(world.root, "spool").glob("*.hook")) == [other]
        assert other.stat().st_mode & 0o777 == (0o644 if more == "an open mode" else 0o600)
        assert _all_calls(world) == sorted([first.name, ghost.name])
    world.repair(apply=True)
    assert _all_calls(world) == sorted(path.name for path in (first, ghost, other))
    # And now that this one was journaled by another repair, undoing the first one again brings it back no more.
    world.repair(undo=done["undo_id"])
    assert list(Path(world.root, "spool").glob("*.hook")) == []


def test_hook_calls_wait_while_capture_is_off(world: World) -> None:
    spooled(world)
    Path(world.root, "OFF").touch(0o600)
    [skipped] = world.repair(apply=True)["skipped"]
    assert "capture is off" in skipped["reason"] and len(list(Path(world.root, "spool").glob("*.hook"))) == 1
    Path(world.root, "OFF").unlink()
    assert world.repair(apply=True)["audit"]["clean"]


def test_a_repair_finishes_no_deletion_and_delete_does(world: World) -> None:
    """K2, K7: what can't be undone is not a repair's to do. What was deleted shows nowhere meanwhile."""
    hook_lost(world)
    tombstone(world)
    before = {path: path.read_bytes() for path in world.folder("python:own").iterdir()}
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["set_aside"]
    [skipped] = done["skipped"]
    assert skipped["fault"].startswith("tombstone_unfinished") and "`dreamkeep delete python:own`" in skipped["reason"]
    assert {path: path.read_bytes() for path in world.folder("python:own").iterdir()} == before
    with Keep.open(world.root) as keep:
        assert "python:own" not in {session.id for session in keep.sessions()}
        assert keep.delete("python:own").id == "python:own"
        with pytest.raises(NotFound):
            keep.delete("python:own")
    assert world.audit(deep=True)["clean"]
    assert not world.folder("python:own").exists() and world.folder("python:stays").exists()
    assert not [p for p in Path(world.root).rglob("*") if p.is_file() and b'"one"' in p.read_bytes()]


@pytest.mark.parametrize("verb", ["delete", "undelete"])
def test_a_deleted_session_that_was_put_back_waits_for_the_users_decision(world: World, tmp_path: Path, verb: str) -> None:
    """K2: a backup of the keep's folder, say. Only who put it there knows whether it shall count."""
    with Keep.open(world.root) as keep:
        keep.session("own").record("zebra")
        shutil.copytree(world.folder("python:own"), tmp_path / "backup")
        keep.delete("own")
    shutil.copytree(tmp_path / "backup", world.folder("python:own"))
    [fault] = world.audit()["faults"]
    assert fault["class"] == "tombstone_unfinished" and not fault["repairable"]
    assert "`dreamkeep delete python:own`" in fault["next"] and "`dreamkeep undelete python:own`" in fault["next"]
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        keep.session("another").record("a writer leaves it alone, too")
        assert world.folder("python:own").exists() and not keep.search("zebra")
        getattr(keep, verb)("python:own")
        assert bool(keep.search("zebra")) == (verb == "undelete") == world.folder("python:own").exists()
    assert world.audit(deep=True)["clean"]


def test_an_unreadable_intent_stops_no_writer(world: World) -> None:
    intent(world)
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
    assert os.listdir(Path(world.root, "state", "deleting")) == [] and world.audit()["clean"]


# -- what is not safe


def _only_damage(world: World) -> dict[str, Any]:
    [fault] = [fault for fault in world.audit()["faults"] if fault["class"].startswith("journal_")]
    return dict(fault)


def _untouched(world: World, reason: str) -> None:
    """Nothing is promised or changed, and the reason is given."""
    fault = _only_damage(world)
    journal = world.part().read_bytes() if world.part().exists() else b""
    for how in ({}, {"apply": True}):
        done = world.repair(**how)
        assert not done["applied"] and not done["plan"] and done["undo_id"] is None
        [skipped] = [one for one in done["skipped"] if one["fault"] == fault["id"]]
        assert re.search(reason, skipped["reason"]), skipped
    assert (world.part().read_bytes() if world.part().exists() else b"") == journal
    assert not Path(world.root, "aside").exists()


def test_a_hole_is_not_filled_from_a_transcript_that_is_not_what_was_captured(world: World) -> None:
    """W4, K3: other bytes at the same length are another file, and what was meant to be gone is not brought back."""
    damage(world)
    world.transcript.write_bytes(world.transcript.read_bytes().replace(b"words 5", b"swords5"))
    _untouched(world, "changed since it was captured.*--accept journal_damage-")


def test_a_hole_is_not_filled_when_the_transcript_shrank_or_is_gone(world: World) -> None:
    damage(world)
    whole = world.transcript.read_bytes()
    world.transcript.write_bytes(whole[: len(whole) // 2])
    _untouched(world, "changed since it was captured")
    world.transcript.unlink()
    _untouched(world, "can't be read")


def test_a_hole_in_what_no_file_holds_is_left_alone(world: World) -> None:
    """What your own agent or a hook recorded is nowhere else."""
    with Keep.open(world.root) as keep:
        session = keep.session("own")
        for n in range(3):
            session.record(f"words {n}")
    damage_line(world.part("python:own"), "turn.recorded", 1)
    world.session = "python:own"
    _untouched(world, "snapshot import|accept")


def test_a_lost_hook_call_is_not_taken_for_a_line_of_the_transcript(world: World) -> None:
    compaction(world)
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        keep.end(world.session)
    damage_line(world.part(), "hook.fired")
    fault = _only_damage(world)
    [skipped] = world.repair(apply=True)["skipped"]
    assert skipped["fault"] == fault["id"] and "hook.fired" in skipped["reason"]


def test_a_gap_beside_hook_calls_is_not_promised_because_nobody_knows_what_it_was(world: World) -> None:
    compaction(world)
    world.repair(apply=True)
    drop_line(world.part(), "source.read", 1)
    [skipped] = world.repair(apply=True)["skipped"]
    assert "unknown what was lost" in skipped["reason"]


def test_lines_of_an_earlier_version_of_a_file_are_not_promised(world: World) -> None:
    """K3, K4: what the agent took out of its file is not in it any more."""
    world.captured()
    lines = world.transcript.read_bytes().splitlines(keepends=True)
    world.transcript.write_bytes(b"".join(lines[:4] + lines[8:]))
    world.ingest()
    world.repair(accept=[fault["id"] for fault in world.audit()["faults"]])
    drop_line(world.part(), "source.read", 2)
    [skipped] = [one for one in world.repair(apply=True)["skipped"] if one["fault"].startswith("journal")]
    assert "version" in skipped["reason"]


def test_a_session_whose_beginning_is_lost_is_not_promised_to_be_whole(world: World) -> None:
    world.captured()
    drop_line(world.part(), "session.opened")
    _untouched(world, "began or ended")


def test_damage_after_which_a_file_grew_is_still_mended(world: World) -> None:
    damage(world)
    world.grow(50, 3)
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()


# -- choosing, accepting, refusing


def test_an_accepted_fault_is_not_reported_until_the_acceptance_is_undone(world: World) -> None:
    """J3: a hole is a fault until it is repaired or accepted; accepting is journaled."""
    test_a_hole_in_what_no_file_holds_is_left_alone(world)
    hook_lost_file = Path(world.root, "spool")
    hook_lost_file.mkdir(mode=0o700)
    hook_lost_file.joinpath("problems").write_text("2026-01-01 claude Stop: no space\n")
    faults = world.audit()["faults"]
    done = world.repair(accept=[fault["id"] for fault in faults])
    assert done["audit"]["clean"] and len(done["applied"]) == 2 and world.audit(deep=True)["clean"]
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)
    assert world.audit()["clean"] and world.audit()["checked"]["accepted"] == 2
    assert world.repair(undo=done["undo_id"])["skipped"] == []
    assert [fault["id"] for fault in world.audit()["faults"]] == [fault["id"] for fault in faults]


def test_only_the_chosen_faults_are_repaired(world: World) -> None:
    world.captured()
    for name in ("one", "two"):
        path = Path(world.root, "state", f"{name}.json")
        path.write_bytes(b"{")
        path.chmod(0o600)
    first, second = world.audit()["faults"]
    plan = world.repair(only=[first["id"]])
    assert [step["fault"] for step in plan["plan"]] == [first["id"]]
    done = world.repair(apply=True, only=[first["id"]])
    assert [fault["id"] for fault in done["audit"]["faults"]] == [second["id"]]
    assert done["skipped"] == [{"fault": second["id"], "reason": "not chosen (--only)"}]


def test_arguments_that_make_no_sense_are_refused_before_anything_happens(world: World) -> None:
    """W13"""
    damage(world)
    before = stamps(world.root)
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (NotFound, {"accept": ["journal_damage-00000000"]}),
        (NotFound, {"apply": True, "only": ["x"]}),
        (NotFound, {"undo": "../../x"}),
        (NotFound, {"undo": ""}),
        (BadUsage, {"undo": "x", "apply": True}),
        (BadUsage, {"accept": "x"}),
        (BadUsage, {"accept": ["x"], "only": ["x"]}),
    ]
    for kind, how in wrong:
        with pytest.raises(kind):
            world.repair(**how)
    assert stamps(world.root) == before


def test_a_second_repair_is_refused_while_one_runs(world: World) -> None:
    damage(world)
    handle = HOST.open_lock(f"{world.root}/{repair.LOCK}")
    try:
        assert HOST.try_lock(handle)
        with pytest.raises(Busy):
            world.repair(apply=True)
        assert world.repair()["plan"], "a plan needs nobody's leave"
    finally:
        HOST.close(handle)
    assert world.repair(apply=True)["audit"]["clean"]


def test_a_fault_that_cannot_be_repaired_now_stops_no_other(world: World) -> None:
    """B2: each by itself."""
    gap(world)
    lease(world)
    leftover(world)
    bad = next(Path(world.root, "state", "owners").iterdir())

    class Stubborn(RealHost):
        def remove(self, path: str) -> None:
            if path == str(bad):
                raise PermissionError(1, "not permitted", path)
            super().remove(path)

    with Keep.open(world.root, host=Stubborn()) as keep:
        done = keep.repair(apply=True, home=world.home)
    assert [one["fault"].partition("-")[0] for one in done["skipped"]] == ["lease_stale"]
    assert "not permitted" in done["skipped"][0]["reason"] and bad.exists()
    assert [fault["class"] for fault in done["audit"]["faults"]] == ["lease_stale"]


def _acted_on(world: World, faults: list[Fault]) -> list[MendResult]:
    """A fault that was found a while ago is repaired now."""
    with Keep.open(world.root):
        where = PlanContext(HOST, world.root, str(world.home), {}, ())
        wired = repair.Repair(where, AuditReport, alive=lambda owner: False, rebuild=lambda: None)  # type: ignore[arg-type]
        with wired._at_work() as mending:
            return [repair.actions()[CLASSES[fault.cls].repair](mending, fault) for fault in faults]


def test_a_fault_repaired_since_the_audit_is_not_repaired_twice(world: World) -> None:
    """T4, W14: keyed by the turn, the event, the lines: however often, it is there once."""
    reused(world)
    in_another_process(world, "k.session('own').submit('the prompt')\nos.kill(os.getpid(), 9)")
    damage(world)
    seen = audit(HOST, world.root, home=str(world.home), environment={}).faults
    assert {"journal_reused", "turn_interrupted", "journal_damage"} <= {fault.cls for fault in seen}
    for _ in range(3):
        assert all(done.mended for done in _acted_on(world, seen))
    own = [frame["kind"] for frame in world.journal("python:own")]
    with Keep.open(world.root) as keep:
        assert [m["text"] for m in keep.show("python:own")["messages"]].count("the other writer's") == 1
    assert own.count("turn.settled") == 1 and world.rejoined() == world.transcript.read_bytes()
    assert [frame["body"].get("what") for frame in world.journal() if frame["kind"] == "source.changed"] == ["mended"]


def test_an_event_that_is_added_again_does_not_take_back_what_was_said_since(world: World) -> None:
    """K4: the newer statement stays."""
    with Keep.open(world.root) as keep:
        keep.session("own", title="before").record("one")
    path = world.part("python:own")
    lines = path.read_bytes().split(b"\n")
    before = parse(lines[2])
    assert before
    titled = message("")._replace(kind=Kind.SESSION_TITLED, body={"title": "hidden"}, carry={"title": "hidden"})
    heard = message("heard")._replace(carry={"heard": 1})
    others = b"".join(place(draft(event), before["seq"], before["crc"])[0] for event in (titled, heard))
    path.write_bytes(b"\n".join([*lines[:4], others[:-1], *lines[4:]]))
    with Keep.open(world.root) as keep:
        keep.session("own").title("after")
        keep.context.journals().append("python:own", [message("heard later")._replace(carry={"heard": 2})])
    assert world.repair(apply=True)["audit"]["clean"]
    with Keep.open(world.root) as keep:
        assert keep.context.journals().writer("python:own").carried("title") == keep.summary("python:own").title == "after"
        assert [m["text"] for m in keep.show("python:own")["messages"]] == ["one", "heard later", "heard"]


def test_a_repair_takes_away_what_one_that_died_left_half_written(world: World) -> None:
    """W10, W15: also in an agent's folder, where nothing else would clean it up."""
    world.captured()
    dead = Ledger(HOST, world.root, Ids(HOST.now, HOST.random).new())
    temp = world.transcript.with_name(f"{world.transcript.name}.{'0' * 16}.tmp")
    dead.note({"file": str(world.transcript), "before": None, "after": None, "temp": str(temp)})
    dead.close()
    temp.write_bytes(b"half")
    lease(world)
    assert world.repair(apply=True)["audit"]["clean"] and not temp.exists()


# -- the command line


def test_the_command_plans_applies_undoes_and_its_exit_code_shows_whether_faults_remain(
    world: World, cli: Callable[..., Ran]
) -> None:
    home = ("--home", str(world.home))
    damage(world)
    planned = cli("repair", *home, "--json")
    assert planned.code == 1 and set(planned.json) == {"plan", "applied", "skipped", "undo_id", "audit"}
    [step] = planned.json["plan"]
    assert set(step) == {"fault", "action", "where"} and step["action"] == "recapture"
    said = cli("repair", *home)
    assert said.code == 1 and "would recapture" in said.out and "--apply" in said.out
    done = cli("repair", "--apply", *home)
    assert done.code == 0 and "recapture" in done.out and "No problems remain." in done.out
    undo_id = done.out.split("--undo ")[1].split()[0]
    assert cli("repair", *home).out == "No problems.\n"
    back = cli("repair", "--undo", undo_id, *home)
    assert back.code == 0 and "restored: " in back.out
    assert cli("repair", *home, "--json").json["plan"] == planned.json["plan"]
    accepted = cli("repair", "--accept", step["fault"], *home)
    assert accepted.code == 0 and cli("repair", *home).code == 0
    assert cli("repair", "--undo", "nothing", *home).code == 1
    assert cli("repair", "--undo", "x", "--apply").code == 2


def test_doctor_reports_that_repairs_can_be_undone(world: World) -> None:
    tail(world)
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        told = [entry["what"] for entry in keep.doctor() if entry["check"] == "aside"]
    assert [what.partition(" ")[0] for what in told] == ["what", "1"] and "1 repair " in told[0]


def test_a_skipped_fault_is_reported_with_its_reason_and_exit_code_1(world: World, cli: Callable[..., Ran]) -> None:
    damage(world)
    world.transcript.unlink()
    done = cli("repair", "--apply", "--home", str(world.home))
    assert done.code == 1 and "skipped: journal_damage-" in done.out and "can't be read" in done.out


# -- under others' hands, and when it dies


def test_a_repair_beside_writers_loses_nothing_and_its_undo_takes_nothing_of_theirs(world: World) -> None:
    """K4, W9: two processes write to a session while it is repaired and the repair is undone."""
    damage(world)
    with Keep.open(world.root) as keep:
        keep.session("own").record("first")
    _damage_nothing(world.part("python:own"))
    program = (
        "import sys\nfrom dreamkeep import Keep\nk = Keep.open(sys.argv[1])\ns = k.session('own')\n"
        "for n in range(150): s.record(f'{sys.argv[2]} {n}')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, world.root, name]) for name in ("a", "b")]
    undone: list[dict[str, Any]] = []
    while any(writer.poll() is None for writer in writers):
        done = world.repair(apply=True)
        if done["undo_id"]:
            undone.append(world.repair(undo=done["undo_id"]))
    assert [writer.wait() for writer in writers] == [0, 0] and undone
    final = world.repair(apply=True)
    assert final["audit"]["clean"], final
    assert final["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()
    with Keep.open(world.root) as keep:
        prompts = [one["prompt"] for one in keep.show("python:own")["turns"]]
    assert sorted(prompts) == sorted(["first", *(f"{name} {n}" for name in ("a", "b") for n in range(150))])
    assert [frame["seq"] for frame in world.journal("python:own")] == list(range(1, len(world.journal("python:own")) + 1))


def _damage_nothing(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"\0" * 64, *lines[2:]]))


def test_a_folder_among_the_lock_files_is_reported_and_left_to_the_user(world: World) -> None:
    world.captured()
    path = Path(world.root, "state", "owners", "somebodys")
    path.mkdir(parents=True, mode=0o700)
    for _ in range(2):
        done = world.repair(apply=True)
        assert (done["plan"], done["undo_id"]) == ([], None)
        [found] = done["audit"]["faults"]
        assert (found["class"], found["repairable"], found["where"]) == ("lease_stale", False, str(path))
        assert "not a lock file" in found["what"] and "by hand" in found["next"]


@pytest.mark.parametrize("kind", ["a folder", "a link"])
def test_no_repair_is_promised_for_a_journal_that_cannot_be_locked(world: World, kind: str) -> None:
    world.captured()
    lock_path = world.folder() / parts.LOCK
    lock_path.unlink()
    lock_path.mkdir(mode=0o700) if kind == "a folder" else lock_path.symlink_to("/not-mounted/lock")
    with world.part().open("ab") as part:
        part.write(b'{"id":"torn')
    before = world.part().read_bytes()
    for _ in range(2):
        done = world.repair(apply=True)
        assert (done["plan"], done["undo_id"]) == ([], None)
        [found] = done["audit"]["faults"]
        assert (found["class"], found["repairable"]) == ("journal_tail", False)
        assert str(lock_path) in found["next"] and "by hand" in found["next"]
    assert world.part().read_bytes() == before


@pytest.mark.parametrize("where", ["spool/dir", "state/deleting/dd"])
@pytest.mark.parametrize("filled", [False, True], ids=["empty", "with folders in it"])
def test_folders_that_a_repair_took_away_come_back_as_they_were(world: World, where: str, filled: bool) -> None:
    world.captured()
    folder = Path(world.root, where)
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    if filled:
        (folder / "empty").mkdir()
        (folder / "deeper" / "still").mkdir(parents=True)
        (folder / "deeper" / "b").write_text("words")
        (folder / "a").write_text("w")
        (folder / "empty").chmod(0o711)
    folder.chmod(0o755)
    before = looks(world.root, *VIEWS)
    done = world.repair(apply=True)
    assert len(done["applied"]) == 1 and done["audit"]["clean"] and not folder.exists()
    for _ in range(2):
        assert world.repair(undo=done["undo_id"])["skipped"] == []
        assert looks(world.root, *VIEWS) == before, "undoing twice is undoing once"


def test_a_restored_folder_that_was_filled_since_stays(world: World) -> None:
    made = f"{world.root}/one/two"
    ledger = Ledger(HOST, world.root, "0198a1b2-0000-7000-8000-000000000001")
    ledger.make_folders(made)
    ledger.close()
    Path(world.root, "one", "somebodys").write_text("words")
    assert [step.reason for step in take_back(HOST, world.root, ledger.id)] == ["", ""]
    assert [path.name for path in Path(world.root, "one").iterdir()] == ["somebodys"]


def test_a_file_that_appeared_in_place_of_a_folder_is_left_alone(world: World) -> None:
    world.captured()
    folder = Path(world.root, "spool", "dir")
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    done = world.repair(apply=True)
    folder.write_text("newer")
    [refused] = world.repair(undo=done["undo_id"])["skipped"]
    assert "something else has appeared there" in refused["reason"]
    assert folder.read_text() == "newer"


def _everything(world: World) -> None:
    """One fault of many kinds, in one keep."""
    opened(world)
    Path(world.root).chmod(0o700)
    with Keep.open(world.root) as keep:
        session = keep.session("own")
        session.record("one")
        session.record("two")
    damage_line(world.part(), "source.read", 1)
    with world.part().open("ab") as part:
        part.write(b'{"id":"torn')
    path = world.part("python:own")
    lines = path.read_bytes().split(b"\n")
    before = parse(lines[2])
    assert before
    other, _ = place(draft(message("the other writer's")), before["seq"], before["crc"])
    path.write_bytes(b"\n".join([*lines[:4], other[:-1], *lines[4:]]))
    for name in ("spool", "state/owners"):
        Path(world.root, name).mkdir(mode=0o700, exist_ok=True)
    Path(world.root, "state", "other.json").write_bytes(b"{")
    old = time.time_ns() - OLD_S * 10**9
    call = Path(world.root, "spool", f"{old:020d}-1-{'0' * 16}~claude~Notification.hook")
    call.write_text(json.dumps({"session_id": world.transcript.stem, "message": "a call that waits"}))
    lease_path = Path(world.root, "state", "owners", Ids(HOST.now, HOST.random).new())
    lease_path.touch()
    age(lease_path)
    for path in Path(world.root).rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    Path(world.root).chmod(0o755)


def _dying(world: World, at: int, **how: Any) -> bool:
    """Whether it came to its end."""
    host = Dying(at)
    try:
        with Keep.open(world.root, host=host) as keep:
            keep.repair(home=world.home, **how)
    except PowerCut:
        return False
    return True


def _whole(world: World) -> None:
    """Every message is there once."""
    assert world.rejoined() == world.transcript.read_bytes()
    texts = world.messages()
    assert sorted(set(texts)) == sorted(f"words {n}" for n in range(12)) and len(texts) == 12
    with Keep.open(world.root) as keep:
        assert sorted(m["text"] for m in keep.show("python:own")["messages"]) == ["one", "the other writer's", "two"]
    assert [frame["kind"] for frame in world.journal()].count("hook.fired") == 1


@pytest.mark.slow
@pytest.mark.parametrize("undo_too", [False, True], ids=["apply", "undo"])
def test_a_repair_or_undo_that_is_killed_at_any_step_can_be_run_again(tmp_path: Path, undo_too: bool) -> None:
    """B4, T1, W12: it ends right, with nothing lost and nothing twice."""
    import shutil

    model = World(str(tmp_path / "model"), tmp_path / "home")
    _everything(model)
    broken = looks(model.root, *VIEWS, "index")
    done: dict[str, Any] = {}
    if undo_too:
        done = model.repair(apply=True)
        assert done["audit"]["clean"], done
    for at in count(1):
        world = World.__new__(World)
        world.__dict__.update(model.__dict__, root=str(tmp_path / f"keep{at}"))
        shutil.copytree(model.root, world.root)
        if not undo_too:
            ended = _dying(world, at, apply=True)
            after = world.repair(apply=True)
            assert after["audit"]["clean"] and not after["skipped"], (at, after)
            _whole(world)
        else:
            ended = _undone_at(world, model.root, at, done["undo_id"])
            assert looks(world.root, *VIEWS, "index") == broken, at
        shutil.rmtree(world.root)
        if ended:
            assert at > (15 if undo_too else 40)
            break


def _undone_at(world: World, before: str, at: int, undo_id: str) -> bool:
    """An undo that dies, then another. (The ledger's paths are the model's: it is moved to its place for that.)"""
    os.rename(before, before + ".model")
    os.rename(world.root, before)
    root, world.root = world.root, before
    try:
        ended = _dying(world, at, undo=undo_id)
        back = world.repair(undo=undo_id)
        assert back["skipped"] == [], (at, back)
    finally:
        world.root = root
        os.rename(before, root)
        os.rename(before + ".model", before)
    return ended


@pytest.mark.parametrize("drained", [False, True], ids=["at once", "after another drain"])
def test_a_hook_call_is_journaled_once_after_a_drain_that_died_at_any_step_was_undone(tmp_path: Path, drained: bool) -> None:
    """T1: neither lost with the journal's end, nor given back beside a batch that still has it."""
    for at in count(1):
        world = World(str(tmp_path / f"keep{at}"), tmp_path / f"home{at}")
        spooled(world)
        [call] = Path(world.root, "spool").glob("*.hook")
        ended = _dying(world, at, apply=True)
        if drained:
            with Keep.open(world.root) as keep:
                keep.drain()
        for undo_id in repair_ids(HOST, world.root):
            world.repair(undo=undo_id)
        world.repair(apply=True)
        assert _all_calls(world) == [call.name], at
        if ended:
            break
    assert at > 20


def test_every_host_operation_of_a_journals_repair_survives_a_power_cut() -> None:
    """W12, T5: on a disk that forgets what was not synced."""
    for loss in ("lost", "kept", "mixed"):
        for at, host in cut_at_every_step(lambda _: _torn_journals(), _repair_on):
            host = host.reboot(loss, seed=at)
            result = _repair_on(host)
            assert result.audit.clean and not result.skipped, (at, loss, result.as_json())
            found = [event for _, event in read_events(host, f"/keep/{folder_of('python:own')}")]
            assert [event.body["text"] for event in found if event.kind == Kind.MESSAGE_ADDED] == ["one", "two", "hidden"]
            assert sum(event.kind == Kind.TURN_SETTLED for event in found) == 1


def _torn_journals() -> FragileHost:
    """A tail, a reused seq, a duplicate, and a turn whose owner is gone."""
    host = FragileHost()
    host.make_folder("/keep")
    ids = Ids(host.now, host.random)
    journals = JournalWriters(host, "/keep", ids)
    journals.say("", Kind.KEEP_CREATED, {"keep": ids.new()}, {"created": 1})
    journals.say("python:own", Kind.SESSION_OPENED, {"session": "python:own"}, {"state": "active", "opened": 1})
    journals.say("python:own", Kind.TURN_SUBMITTED, {"turn": "t", "prompt": "p", "owner": "gone"})
    for text in ("one", "two"):
        journals.say("python:own", Kind.MESSAGE_ADDED, {"role": "user", "text": text})
    journals.close()
    node = host._need(f"/keep/{folder_of('python:own')}/{parts.name(1)}")
    lines = bytes(node.data).split(b"\n")
    before = parse(lines[3])
    assert before
    hidden = Event(ids.new(), Kind.MESSAGE_ADDED, rfc3339(host.now()), {"role": "user", "text": "hidden"})
    other, _ = place(draft(hidden), before["seq"], before["crc"])
    node.data = bytearray(b"\n".join([*lines[:5], other[:-1], lines[4], *lines[5:]]) + b'{"id":"torn')
    node.durable = bytes(node.data)
    return host


def _repair_on(host: FragileHost) -> repair.RepairResult:
    looking = PlanContext(host, "/keep", "/home", {}, ())

    def look() -> AuditReport:
        return audit(host, "/keep", home="/home", environment={})

    return repair.Repair(looking, look, alive=lambda owner: False, rebuild=lambda: None).apply()


# -- the tables agree


def test_classes_repairs_and_the_page_on_recovery_are_one_table() -> None:
    """B4: each class that is called repairable has a repair, and the page lists the same."""
    page = re.findall(r"^\| `(\w+)` \| (.*?) \| (?:`(\w+)`|–) \| ", PAGE.read_text(), re.MULTILINE)
    assert {(cls, means, action) for cls, means, action in page} == {(n, c.means, c.repair) for n, c in CLASSES.items()}
    named = {known.repair for known in CLASSES.values() if known.repair}
    assert set(repair.actions()) == named and set(repair.checks()) <= named
    for cls, known in CLASSES.items():
        assert known.repair or known.next, f"{cls} says nothing of what to do"


def test_every_class_of_the_keep_that_has_a_repair_is_broken_and_mended_here() -> None:
    ours = {cls for cls, known in CLASSES.items() if known.repair in mend_keep.ACTIONS}
    assert {cls for _, cls in BROKEN.values()} == ours


def test_a_repair_without_a_keep_finds_nothing_and_creates_none(world: World) -> None:
    for how in ({}, {"apply": True}):
        assert world.repair(**how)["audit"]["clean"]
    assert not Path(world.root).exists()
