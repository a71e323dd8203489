"""Repair of losses: what the agent's file is proven to have is read again; any other loss stays a fault until it is accepted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.capture.sources import source_bytes
from dreamkeep.errors import Failed
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.journal import parts
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.writers import JournalWriters
from tests.helpers.broken_keeps import (
    HOST,
    VIEWS,
    World,
    flip,
    hook_lost,
    looks,
    missing_part,
    own,
    spooled,
    world,
)

__all__ = ["world"]


def _indexed(world: World, session: str = "python:own") -> int:
    """How many messages the index has, asked without bringing it up to date."""
    db = apsw.Connection(f"{world.root}/index.sqlite", flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = db.execute("SELECT count(*) FROM messages JOIN sessions ON session = sessions.no WHERE id = ?", (session,)).get
        return int(found)
    finally:
        db.close()


def _stays_until_accepted(world: World, cls: str, messages: int) -> None:
    """However often it is repaired; and what the index knows of it stays, too."""
    for _ in range(3):
        done = world.repair(apply=True)
        [told] = [fault for fault in done["audit"]["faults"] if fault["class"] == cls]
        assert not told["repairable"] and "snapshot import" in told["next"] and "--accept" in told["next"]
        assert [fault["class"] for fault in done["audit"]["faults"]] == [cls], "and it is told once"
        assert world.audit(deep=True)["faults"] == [told]
        assert _indexed(world) == messages
    assert world.repair(accept=[told["id"]])["audit"]["clean"] and world.audit(deep=True)["clean"]


@pytest.mark.parametrize("which", [1, 2])
def test_a_compressed_part_that_cannot_be_read_is_damage_until_it_is_accepted(world: World, which: int) -> None:
    """Once "0 bytes", repairable, and clean over a session that was lost."""
    own(world)
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.session("own").record("question 4", ("assistant", "answer 4"))  # in a second part
        keep.compress(everything=True)
        keep.sessions()
    flip(world.part("python:own", which).with_suffix(".jsonl.zst"))
    [told] = world.audit(deep=True)["faults"]
    assert "the compressed part can't be read" in told["what"] and "0 bytes" not in told["what"]
    _stays_until_accepted(world, "journal_damage", 10)


def test_an_unreadable_compressed_part_stays_damage_after_more_writes_and_questions(world: World) -> None:
    own(world)
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
    flip(world.part("python:own").with_suffix(".jsonl.zst"))
    with Keep.open(world.root) as keep:
        keep.session("own").record("one more")
        keep.sessions()
    _stays_until_accepted(world, "journal_damage", 1)


def test_no_repair_is_promised_for_a_captured_session_whose_only_part_is_unreadable(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.sessions()
    flip(world.part().with_suffix(".jsonl.zst"))
    for _ in range(2):
        [told] = world.repair(apply=True)["audit"]["faults"]
        assert (told["class"], told["repairable"]) == ("journal_damage", False)


def _first_part_compressed(world: World) -> Path:
    """What was captured so far, then a line more in a second part."""
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
    world.grow(40, 1)
    world.ingest()
    assert parts.numbers(HOST, str(world.folder())) == [1, 2]
    return world.part().with_suffix(".jsonl.zst")


@pytest.mark.parametrize("harm", [flip, lambda path: path.write_bytes(b""), Path.unlink], ids=["a bit", "emptied", "gone"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_compressed_first_part_of_a_captured_session_is_taken_again_from_its_transcript(
    world: World, harm: Callable[[Path], None], indexed: bool
) -> None:
    """This was once reported as lost for good although every line was there: each later part repeats how a session began."""
    world.captured()
    path = _first_part_compressed(world)
    with Keep.open(world.root) as keep:
        before, said = keep.summary(world.session), world.messages()
    if not indexed:
        Path(world.root, "index.sqlite").unlink()
    harm(path)
    [told] = world.audit(deep=True)["faults"]
    assert told["repairable"], told
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and not done["skipped"] and world.audit(deep=True)["clean"]
    assert world.repair(apply=True)["applied"] == []
    assert world.rejoined() == world.transcript.read_bytes() and world.messages() == said
    assert [frame["kind"] for frame in world.journal()].count("session.opened") == 1
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)
        after = keep.summary(world.session)
        assert (after.state, after.cwd, after.project, after.title) == (before.state, before.cwd, before.project, before.title)
        assert [one.new_events for one in keep.ingest(home=world.home, again=True)] == [0]
    assert world.messages() == said
    back = world.repair(undo=done["undo_id"])
    assert back["skipped"] == [] and [fault["id"] for fault in back["audit"]["faults"]] == [told["id"]]


def test_a_lost_beginning_is_taken_again_though_the_transcript_grew_and_the_session_ended_since(world: World) -> None:
    """It stays ended, with the same time: its opening is not recorded again."""
    world.captured()
    path = _first_part_compressed(world)
    with Keep.open(world.root) as keep:
        keep.end(world.session)
        before = keep.summary(world.session)
    flip(path)
    world.grow(50, 2)
    assert world.repair(apply=True)["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()
    with Keep.open(world.root) as keep:
        after = keep.summary(world.session)
        assert (after.state, after.ended_at, after.cwd) == ("ended", before.ended_at, before.cwd)


def _by_a_hook(world: World) -> None:
    spooled(world)
    world.repair(apply=True)


def _by_the_user(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.end(world.session)


def _by_a_title(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.session(world.transcript.stem, agent="claude", title="mine")


def _by_a_tap(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.context.journals().say("", Kind.TAP_FRAMES, {"conn": "c", "frames": [], "sizes": [], "lines": []})


@pytest.mark.parametrize(
    ("told", "reason"),
    [(_by_a_hook, "drain"), (_by_the_user, "began or ended"), (_by_a_title, "title"), (_by_a_tap, "a tap was used")],
)
def test_a_lost_beginning_that_may_hold_what_no_file_does_is_not_promised(
    world: World, told: Callable[[World], None], reason: str
) -> None:
    told(world)
    flip(_first_part_compressed(world))
    _untouched_since(world, reason)


def _untouched_since(world: World, reason: str) -> None:
    before = looks(world.root, *VIEWS)
    [skipped] = [one for one in world.repair(apply=True)["skipped"] if one["fault"].startswith("journal_damage")]
    assert reason in skipped["reason"] and "--accept" in skipped["reason"]
    assert looks(world.root, *VIEWS) == before


def _copied(transcript: Path) -> None:
    copy = transcript.with_suffix(".copy")
    copy.write_bytes(transcript.read_bytes())
    copy.replace(transcript)


def _gone_on(transcript: Path) -> None:
    first = transcript.read_bytes().splitlines(keepends=True)[0]
    transcript.write_bytes(transcript.read_bytes() + first.replace(b'"uuid":"', b'"uuid":"later-'))


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("since", [_copied, _gone_on])
def test_a_journal_that_lost_even_that_a_file_was_opened_takes_it_again_though_the_file_looks_other_by_now(
    world: World, since: Callable[[Path], None], indexed: bool
) -> None:
    world.captured()
    if indexed:
        with Keep.open(world.root) as keep:
            keep.sessions()
    frames = world.part().read_bytes().splitlines(keepends=True)
    opened = next(n for n, frame in enumerate(frames) if b'"kind":"source.opened"' in frame)
    world.part().write_bytes(b"".join(frames[:opened]))
    since(world.transcript)
    [told] = world.audit()["faults"]
    assert told["class"] == "journal_missing_part" and told["repairable"]
    assert world.repair(apply=True)["audit"]["clean"]
    world.ingest()
    assert world.classes() == [] and world.rejoined() == world.transcript.read_bytes()


def test_the_advice_names_ingest_when_nothing_shows_how_a_lost_session_began(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.sessions()
    flip(world.part().with_suffix(".jsonl.zst"))
    [told] = world.audit()["faults"]
    assert not told["repairable"] and "`dreamkeep ingest --again`" in told["next"]
    with Keep.open(world.root) as keep:
        assert not [one.problem for one in keep.ingest(home=world.home, again=True) if one.problem]
    assert world.repair(apply=True)["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()


@pytest.mark.parametrize("lost", ["all", "the end"])
def test_a_text_beside_a_transcript_is_taken_again_as_the_text_it_is(world: World, lost: str) -> None:
    """Once as lines that are no records, when it was lost what it is: its words were in no message any more."""
    world.captured(2)
    beside = world.transcript.with_suffix("") / "tool-results"
    beside.mkdir(parents=True)
    for n in range(3):
        (beside / f"toolu_{n}.txt").write_text(f"zebra {n}\nthe rest of it\n")
    world.ingest()
    plain = world.part().read_bytes()
    path = _first_part_compressed(world)
    said = world.messages()
    assert sum("zebra" in text for text in said) == 3
    if lost == "all":
        flip(path)
    else:
        path.unlink()
        world.part().write_bytes(b"".join(plain.splitlines(keepends=True)[:4]))  # the transcript's are in it
        world.part().chmod(0o600)
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and not done["skipped"], done
    assert world.messages() == said
    told = source_bytes.sources(HOST, str(world.folder()))
    assert sorted((one["role"], one["form"]) for one in told.values()) == [("main", "lines")] + [("result", "text")] * 3
    for name, one in told.items():
        assert b"".join(source_bytes.lines(HOST, str(world.folder()), name)) == Path(one["path"]).read_bytes()


def test_a_transcript_that_holds_no_more_than_the_journal_proves_nothing_of_an_end_that_is_gone(world: World) -> None:
    """What was lost is that the session ended, which stands in no transcript."""
    world.captured()
    with Keep.open(world.root) as keep:
        keep.end(world.session)
        keep.sessions()
    world.part().write_bytes(b"".join(world.part().read_bytes().splitlines(keepends=True)[:-1]))
    [told] = world.repair(apply=True)["audit"]["faults"]
    assert (told["class"], told["repairable"]) == ("journal_missing_part", False)


@pytest.mark.parametrize("session", ["python:own", "claude"])
def test_one_repair_is_enough_for_a_line_feed_that_is_missing(world: World, session: str) -> None:
    """The journal's bytes are then those that were indexed, and a frame more."""
    part = own(world)
    if session == "claude":
        world.captured()
        world.messages()
        part = world.part()
    part.write_bytes(part.read_bytes()[:-1])
    assert world.classes() == ["journal_tail"]
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["settle"] and done["audit"]["clean"], done["audit"]
    assert world.audit(deep=True)["clean"]


def _zeroed(data: bytes) -> bytes:
    return bytes(len(data))


def _cut_after_line_5(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:5])


def _cut_in_the_middle(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _last_frame_torn(data: bytes) -> bytes:
    return data[:-30]


@pytest.mark.parametrize("harm", [_zeroed, _cut_after_line_5, _cut_in_the_middle, _last_frame_torn])
def test_what_the_index_knows_and_the_journal_lost_is_a_fault_until_it_is_accepted(
    world: World, harm: Callable[[bytes], bytes]
) -> None:
    """Once the index was made anew over it, and nothing was wrong."""
    part = own(world)
    part.write_bytes(harm(part.read_bytes()))
    assert "journal_missing_part" in world.classes()
    _stays_until_accepted(world, "journal_missing_part", 8)


@pytest.mark.parametrize("which", ["keep", "own"])
def test_an_accepted_missing_journal_stays_accepted_when_it_is_written_anew(world: World, which: str) -> None:
    """Once, the frame that recorded this began the keep's journal anew, and the same loss was reported under another id."""
    own(world)
    shutil.rmtree(Path(world.root, KEEP) if which == "keep" else world.folder("python:own"))
    [lost] = world.audit()["faults"]
    done = world.repair(accept=[lost["id"]])
    assert done["audit"]["clean"] and world.audit(deep=True)["clean"]
    assert [fault["id"] for fault in world.repair(undo=done["undo_id"])["audit"]["faults"]] == [lost["id"]]
    world.repair(accept=[lost["id"]])
    ids = Ids(HOST.now, HOST.random)
    journals = JournalWriters(HOST, world.root, ids)
    said = {"role": "user", "text": "later"}
    journals.append("python:own", [Event(ids.new(), Kind.MESSAGE_ADDED, rfc3339(HOST.now()), said)])
    journals.close()
    assert world.audit()["clean"] and world.audit(deep=True)["clean"]


@pytest.mark.parametrize("lock", [True, False])
def test_what_is_left_of_a_journal_whose_parts_are_gone_is_there_again_when_what_began_it_anew_is_undone(
    world: World, lock: bool
) -> None:
    """Once the folder and the lock in it went, too."""
    own(world)
    folder = Path(world.root, KEEP)
    (folder / parts.name(1)).unlink()
    if not lock:
        (folder / parts.LOCK).unlink()
    before = looks(world.root, *VIEWS, "index.sqlite")
    [lost] = world.audit()["faults"]
    done = world.repair(accept=[lost["id"]])
    back = world.repair(undo=done["undo_id"])
    assert back["skipped"] == [] and [fault["id"] for fault in back["audit"]["faults"]] == [lost["id"]]
    assert looks(world.root, *VIEWS, "index.sqlite") == before


def test_an_accepted_missing_last_part_stays_accepted_when_the_journal_continues(world: World) -> None:
    own(world)
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.session("own").record("question 4", ("assistant", "answer 4"))  # in a second part
        keep.sessions()
    world.part("python:own", 2).unlink()
    [lost] = world.audit()["faults"]
    assert world.repair(accept=[lost["id"]])["audit"]["clean"]
    with Keep.open(world.root) as keep:
        keep.session("own").record("question 5")  # asks nothing
        assert world.audit()["clean"] and world.audit(deep=True)["clean"]


def test_undoing_a_repair_does_not_make_the_index_forget_a_loss(world: World) -> None:
    part = own(world)
    part.write_bytes(_cut_in_the_middle(part.read_bytes()))
    before = world.audit()["faults"]
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["settle"]
    assert world.repair(undo=done["undo_id"])["audit"]["faults"] == before and _indexed(world) == 8


def test_rebuilding_the_index_keeps_the_losses_of_other_journals_reported(world: World) -> None:
    part = own(world)
    world.captured()
    world.messages()
    part.write_bytes(_cut_after_line_5(part.read_bytes()))
    db = apsw.Connection(f"{world.root}/index.sqlite")
    db.execute("DELETE FROM sessions WHERE id = ?", (world.session,))
    db.close()
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["rebuild"]
    [lost] = done["audit"]["faults"]
    assert lost["class"] == "journal_missing_part"
    assert world.repair(accept=[lost["id"]])["audit"]["clean"]


def test_the_end_of_a_journal_that_only_the_index_remembers_is_read_again_from_the_file(world: World) -> None:
    """W2: a part was removed, and nothing after it is left that could show the loss."""
    missing_part(world)
    world.repair(apply=True)
    said = world.messages()
    last = parts.numbers(HOST, str(world.folder()))[-1]
    world.part(number=last).unlink()
    assert world.classes() == ["journal_missing_part"]
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and not done["skipped"], done
    assert world.rejoined() == world.transcript.read_bytes() and world.messages() == said


def test_a_file_where_the_folder_of_repairs_belongs_is_named_with_the_way_out(world: World) -> None:
    hook_lost(world)
    Path(world.root, "aside").write_bytes(b"not ours")
    with pytest.raises(Failed, match="Move it out of the keep, then repair again"):
        world.repair(apply=True)
    Path(world.root, "aside").rename(Path(world.root).parent / "elsewhere")
    assert world.repair(apply=True)["audit"]["clean"]


def test_the_leftover_of_a_page_write_is_reported_and_set_aside(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
    page = Path(world.root, "pages", "shop-1", "MEMORY.md")
    page.parent.mkdir(mode=0o700, parents=True)
    young, old = (page.with_name(f"MEMORY.md.{n:016x}.tmp") for n in (1, 2))
    for path in (young, old):
        path.write_bytes(b"half a page")
        path.chmod(0o600)
    os.utime(old, (1, 1))
    Path(world.root, "pages", "a file").touch(0o600)
    [told] = world.audit()["faults"]
    assert (told["class"], told["where"], told["repairable"]) == ("leftover", str(old), True)
    assert world.repair(apply=True)["audit"]["clean"] and young.exists() and not old.exists()


@pytest.mark.parametrize("garbage", [b"garbage\n", b"[]\n", b"\xff\n", None])
def test_unreadable_repair_notes_are_reported_until_accepted(world: World, garbage: bytes | None) -> None:
    """The repair can't be undone any more, and the user should learn that early."""
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
    notes = Path(world.root, "aside", "repair-1", "undo.json")
    notes.parent.mkdir(mode=0o700, parents=True)
    notes.write_bytes(b'{"n": 1, "mode": "/x", "before": 1, "after": 2}\n{"n": 2, "unfini')
    notes.chmod(0o600)
    assert world.audit()["clean"], "a last line that was not finished says nothing"
    if garbage is None:
        notes.unlink()
        notes.mkdir(mode=0o700)
    else:
        notes.write_bytes(garbage)
    [told] = world.audit()["faults"]
    assert (told["class"], told["where"], told["repairable"]) == ("state_unreadable", str(notes), False)
    assert f"repair --accept {told['id']}" in told["next"]
    assert world.repair(apply=True)["applied"] == []
    world.repair(accept=[told["id"]])
    assert world.audit()["clean"]
