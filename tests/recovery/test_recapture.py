"""A repair is promised only from a file that is proven to hold what the journal lost. What capture remembers can be the proof.

The losses here leave no trace in the journal itself, or a trace that does not show what was lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from tests.helpers.broken_keeps import World, drop_line, fire_hook, world

__all__ = ["world"]


def _kinds(world: World) -> list[str]:
    return [frame["kind"] for frame in world.journal()]


def _without_last(world: World, count: int = 1) -> None:
    lines = world.part().read_bytes().splitlines(keepends=True)
    world.part().write_bytes(b"".join(lines[:-count]))


def _without_index(world: World) -> None:
    for path in Path(world.root).glob("index.sqlite*"):
        path.unlink()


def _without_memory(world: World) -> None:
    """Nor with a witness."""
    _without_index(world)
    for path in Path(world.root, "journal").glob("witness*"):
        path.unlink()


def _stays(world: World, cls: str, reason: str) -> None:
    """It is reported, no repair is promised, and a repair changes nothing about it."""
    [told] = [one for one in world.audit()["faults"] if one["class"].startswith("journal_")]
    assert (told["class"], told["repairable"]) == (cls, False) and reason in told["next"], told
    before = world.part().read_bytes() if world.part().exists() else b""
    done = world.repair(apply=True)
    assert told["id"] in [one["id"] for one in done["audit"]["faults"]], done
    assert told["id"] not in [step["fault"] for step in done["applied"]]
    assert (world.part().read_bytes() if world.part().exists() else b"") == before
    assert told["id"] in [one["id"] for one in world.audit(deep=True)["faults"]]


def _zero_line(path: Path, kind: str) -> None:
    lines = path.read_bytes().split(b"\n")
    at = next(n for n, line in enumerate(lines) if f'"kind":"{kind}"'.encode() in line[:200])
    lines[at] = bytes(len(lines[at]))
    path.write_bytes(b"\n".join(lines))


# -- a hole in the middle


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(("harm", "cls"), [(drop_line, "journal_gap"), (_zero_line, "journal_damage")])
def test_a_complete_transcript_does_not_repair_a_lost_hook_call(
    world: World, harm: Callable[[Path, str], None], cls: str, indexed: bool
) -> None:
    """What was read before the hole and what was read behind it meet, so that no line was in it."""
    world.captured(3, 3)
    fire_hook(world, "a prompt that only the hook told")
    world.grow(6, 3)
    world.ingest()
    if not indexed:
        _without_memory(world)
    harm(world.part(), "hook.fired")
    _stays(world, cls, "some messages didn't come from files alone" if indexed else "not a line of a transcript")


def test_a_hole_in_lines_proves_nothing_about_a_hole_in_hook_calls(world: World) -> None:
    world.captured(3, 3)
    fire_hook(world, "a prompt that only the hook told")
    world.grow(6, 3)
    world.ingest()
    _without_memory(world)
    drop_line(world.part(), "hook.fired")
    drop_line(world.part(), "source.read", 0)
    assert sorted(one["repairable"] for one in world.audit()["faults"]) == [False, True]
    done = world.repair(apply=True)
    assert len(done["applied"]) == 1 and world.rejoined() == world.transcript.read_bytes()
    [left] = done["audit"]["faults"]
    assert (left["class"], left["repairable"]) == ("journal_gap", False) and world.repair(apply=True)["applied"] == []


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_repair_that_died_before_recording_success_can_be_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """The lines that were read again show that the hole was in lines, so a second run changes nothing. The last case: nothing
    was read after it."""
    world.captured(3, 3, 3)
    with Keep.open(world.root) as keep:
        keep.end(world.session)
    drop_line(world.part(), "source.read", lost)

    def dies(*_: Any) -> None:
        raise OSError(5, "the power went")

    with monkeypatch.context() as patched:
        patched.setattr("dreamkeep.recovery.repair.reread.journal_mended", dies)
        assert world.repair(apply=True)["applied"] == []
    assert world.rejoined() == world.transcript.read_bytes()
    assert world.repair(apply=True)["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()


# -- the end


def _hooked(world: World) -> None:
    fire_hook(world, "a prompt that only the hook told")


def _ended(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.end(world.session)


@pytest.mark.parametrize("lost", [_hooked, _ended])
@pytest.mark.parametrize("lines_too", [False, True])
def test_new_lines_of_a_transcript_prove_nothing_of_an_end_that_is_gone(
    world: World, lost: Callable[[World], None], lines_too: bool
) -> None:
    """What it holds beyond what was captured was never here. Nor do lost lines vouch for what was lost with them."""
    world.captured(3, 3)
    before = len(_kinds(world))
    if lines_too:
        world.grow(6, 2)
        world.ingest()
    lost(world)
    world.messages()
    _without_last(world, len(_kinds(world)) - before)
    world.grow(8, 2)
    if lines_too and lost is _hooked:
        # Capture's memory brings the lines back, but not the hook call.
        assert sorted(one["repairable"] for one in world.audit()["faults"]) == [False, True]
        world.repair(apply=True)
    _stays(world, "journal_missing_part", "")


def test_without_what_capture_remembers_a_longer_transcript_proves_nothing(world: World) -> None:
    world.captured(3, 3)
    _ended(world)
    world.messages()
    _without_last(world)
    Path(world.root, "state", "sources.json").unlink()
    world.grow(8, 2)
    _stays(world, "journal_missing_part", "")


def test_lines_that_were_lost_are_taken_again_though_the_transcript_grew_since(world: World) -> None:
    world.captured(3, 3, 3)
    world.messages()
    _without_last(world)
    world.grow(9, 3)
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["recapture"] and done["audit"]["clean"], done
    assert world.rejoined() == world.transcript.read_bytes()


def _cut(data: bytes, captured: int) -> bytes:
    return b"".join(data.splitlines(keepends=True)[: captured + 1])


def _blanked(data: bytes, captured: int) -> bytes:
    kept = _cut(data, captured)
    return kept + bytes(len(data) - len(kept))


def _otherwise(data: bytes, captured: int) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:captured]) + b"".join(lines[captured:]).replace(b"words", b"swords") * 2


@pytest.mark.parametrize("harm", [_cut, _blanked, _otherwise])
@pytest.mark.parametrize("indexed", [True, False])
def test_an_end_that_the_transcript_lost_too_is_not_taken_from_what_stands_there_now(
    world: World, harm: Callable[[bytes, int], bytes], indexed: bool
) -> None:
    """The file must begin with what capture remembers of it, not only with what the journal still has."""
    world.captured(6, 6)
    world.messages()
    _without_last(world)
    world.transcript.write_bytes(harm(world.transcript.read_bytes(), 6))
    if not indexed:
        _without_index(world)
    _stays(world, "journal_missing_part", "no longer holds")


# -- the other way round: a transcript from the journal


@pytest.mark.parametrize("lost", [0, 1])
def test_a_blanked_transcript_is_not_filled_in_from_a_journal_that_lost_lines_of_it(world: World, lost: int) -> None:
    """Once the lines that were left were joined to a file that never was."""
    world.captured(4, 4, 4)
    world.messages()
    drop_line(world.part(), "source.read", lost)
    blank = bytes(world.transcript.stat().st_size)
    world.transcript.write_bytes(blank)
    found = {one["class"]: one for one in world.audit()["faults"]}
    assert not found["source_blanked"]["repairable"] and "the journal lost lines" in found["source_blanked"]["next"]
    assert world.repair(apply=True)["applied"] == [] and world.transcript.read_bytes() == blank


# -- what only capture remembers


def _index_damaged(world: World) -> None:
    _without_memory(world)
    Path(world.root, "index.sqlite").write_bytes(b"SQLite format 3\0" + bytes(9000))


def _index_made_anew(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)


def _bit_flipped(world: World) -> None:
    data = bytearray(world.part().read_bytes())
    data[-300] ^= 1
    world.part().write_bytes(data)


@pytest.mark.parametrize("index", [_without_memory, _index_damaged])
@pytest.mark.parametrize("harm", [_without_last, _bit_flipped])
@pytest.mark.parametrize("hooked", [False, True])
def test_lines_that_only_capture_remembers_are_missed_and_taken_again(
    world: World, index: Callable[[World], None], harm: Callable[[World], None], hooked: bool
) -> None:
    """Without these the journal seemed to be whole, and an ingest looked at nothing, because the file looks as it did."""
    world.captured(3, 3)
    if hooked:
        fire_hook(world, "told by a hook")
    world.grow(6, 3)
    world.ingest()
    said = world.messages()
    harm(world)
    index(world)
    told = {one["class"]: one for one in world.audit()["faults"]}
    assert told["journal_missing_part"]["repairable"] and "capture" in told["journal_missing_part"]["what"], told
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and not done["skipped"], done
    assert world.rejoined() == world.transcript.read_bytes() and world.messages() == said
    assert world.audit(deep=True)["clean"]
    world.repair(undo=done["undo_id"])
    assert "journal_missing_part" in world.classes()


@pytest.mark.parametrize(
    ("harm", "index", "only"), [(_bit_flipped, _without_index, "tail"), (_without_last, _index_damaged, "index")]
)
def test_after_the_repair_of_a_tail_or_an_index_an_ingest_takes_what_is_lacking(
    world: World, harm: Callable[[World], None], index: Callable[[World], None], only: str
) -> None:
    world.captured(3, 3, 3)
    harm(world)
    index(world)
    [chosen] = [one["id"] for one in world.audit()["faults"] if only in one["class"]]
    left = world.repair(apply=True, only=[chosen])["audit"]["faults"]
    assert [one["class"] for one in left] == ["journal_missing_part"]
    world.ingest()
    assert world.rejoined() == world.transcript.read_bytes() and world.audit(deep=True)["clean"]


def test_a_journal_that_is_gone_is_missed_without_an_index_unless_it_was_deleted(world: World) -> None:
    world.captured(3, 3)
    whole = world.transcript.read_bytes()
    kept = Path(world.root, "state", "sources.json").read_bytes()
    shutil.rmtree(world.folder())
    _without_index(world)
    world.transcript.unlink()
    _stays(world, "journal_missing_part", "--accept")
    world.transcript.write_bytes(whole)
    world.ingest()
    assert world.audit(deep=True)["clean"] and world.rejoined() == whole
    with Keep.open(world.root) as keep:
        keep.delete(world.session)
    Path(world.root, "state", "sources.json").write_bytes(kept)
    _without_index(world)
    assert "journal_missing_part" not in world.classes()


@pytest.mark.parametrize("indexed", [True, False])
def test_an_older_memory_of_capture_reports_no_loss(world: World, indexed: bool) -> None:
    """A crash between the two; or the file was rewritten, or moved."""
    sources = Path(world.root, "state", "sources.json")
    world.captured(3)
    old = [sources.read_bytes()]
    world.grow(3, 3)
    world.ingest()
    old.append(sources.read_bytes())
    moved = world.transcript.parent.parent / "-q" / world.transcript.name
    moved.parent.mkdir()
    world.transcript.rename(moved)
    world.ingest()
    for each in old:
        sources.write_bytes(each)
        if not indexed:
            _without_index(world)
        assert world.audit()["clean"] and world.audit(deep=True)["clean"]


def test_captures_memory_does_not_report_an_accepted_loss_again(world: World) -> None:
    world.captured(3, 3)
    world.messages()
    _without_last(world)
    [lost] = world.audit()["faults"]
    done = world.repair(accept=[lost["id"]])
    assert done["audit"]["clean"]
    _index_made_anew(world)
    assert world.audit()["clean"]
    _without_index(world)
    assert world.audit()["clean"]
    world.repair(undo=done["undo_id"])
    assert world.audit()["faults"] == [lost]
    _without_memory(world)
    [lost] = world.audit()["faults"]
    assert "capture" in lost["what"] and world.repair(accept=[lost["id"]])["audit"]["clean"]
    world.grow(6, 3)
    world.ingest()
    assert world.audit(deep=True)["clean"] and world.rejoined() == world.transcript.read_bytes()


def _older_journal(world: World, act: Callable[[], None]) -> None:
    """An older copy of the journal is put back, after `act`, and there is no index."""
    kept = world.part().read_bytes()
    act()
    world.ingest()
    assert world.audit()["clean"]
    world.part().write_bytes(kept)
    _without_index(world)


def test_a_loss_is_reported_for_a_transcript_that_was_moved_and_came_back(world: World) -> None:
    world.captured(3)
    elsewhere = world.transcript.parent.parent / "-q" / world.transcript.name
    elsewhere.parent.mkdir()
    world.transcript.rename(elsewhere)
    world.ingest()

    def back() -> None:
        elsewhere.rename(world.transcript)
        world.grow(3, 3)

    _older_journal(world, back)
    assert [one["class"] for one in world.audit()["faults"]] == ["journal_missing_part"]


def test_a_loss_is_reported_although_the_file_has_its_old_content_again(world: World) -> None:
    """What stood between was only here."""
    world.captured(3)
    before = world.transcript.read_bytes()

    def there_and_back() -> None:
        world.transcript.write_bytes(before.replace(b'"', b'" ', 1) + before)
        world.ingest()
        world.transcript.write_bytes(before)

    kept = world.part().read_bytes()
    there_and_back()
    world.ingest()
    world.part().write_bytes(kept)
    _without_index(world)
    assert "journal_missing_part" in [one["class"] for one in world.audit()["faults"]]


def test_an_older_memory_and_a_missing_link_report_no_loss(world: World) -> None:
    sources = Path(world.root, "state", "sources.json")
    folder = world.home / ".claude"
    real = world.home / "elsewhere"
    world.captured(3)
    shutil.rmtree(Path(world.root))
    folder.rename(real)
    folder.symlink_to(real)
    world.ingest()
    old = sources.read_bytes()
    world.grow(3, 3)
    world.ingest()
    sources.write_bytes(old)
    _without_index(world)
    folder.unlink()
    real.rename(folder)
    assert not [one for one in world.audit()["faults"] if one["class"].startswith("journal_")]


def test_an_unreadable_journal_does_not_stop_a_rebuild_of_the_index(world: World) -> None:
    world.captured(3)
    world.messages()
    with Keep.open(world.root) as keep:
        keep.session("well").record("hello")
        keep.sessions()
    Path(world.root, "index.sqlite").write_bytes(b"no index")
    for path in Path(world.root).glob("index.sqlite-*"):
        path.unlink()
    world.part().unlink()
    world.part().mkdir()
    done = world.repair(apply=True)
    assert "rebuild" in [step["action"] for step in done["applied"]], done
