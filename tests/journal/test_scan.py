"""One scan of a journal says where it ends, what is wrong with it, and what was done about that, wherever the scan begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dreamkeep.event import Event, Kind, rfc3339
from dreamkeep.journal import parts
from dreamkeep.journal.frame import Frame, place
from dreamkeep.journal.frame import draft as drafts_of
from dreamkeep.journal.reader import Position, SeqRange
from dreamkeep.journal.scan import Scan, read_events
from dreamkeep.journal.writer import Writer
from tests.helpers.journals import HOST, IDS, append, event, lines, part, writer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def scan(folder: Path, start: Position | None = None, **more: Any) -> Scan:
    return Scan(HOST, str(folder), start, **more).run()


def texts(folder: Path, start: Position | None = None) -> list[str]:
    return [event.body["text"] for _, event in Scan(HOST, str(folder), start).events()]


def positions(folder: Path) -> list[Position]:
    """The place after each frame."""
    one = Scan(HOST, str(folder))
    return [one.reading.position for _ in one.frames()]


def say_mended(folder: Path, *entries: object, how: str = "noted") -> None:
    writer_: Writer = writer(folder)
    writer_.append([Event(IDS.new(), Kind.JOURNAL_MENDED, rfc3339(HOST.now()), {"faults": list(entries), "how": how})])
    writer_.park()


def key(defect: Any) -> dict[str, Any]:
    return {"kind": defect.kind, "part": defect.part, "at": defect.offset, "size": defect.size}


def test_a_journal_cut_at_every_byte_ends_clean_or_with_a_tail_and_never_with_a_defect(folder: Path) -> None:
    append(folder, "one", "two", "three")
    data, ends = part(folder).read_bytes(), [one.offset for one in positions(folder)]
    for cut in range(len(data) + 1):
        part(folder).write_bytes(data[:cut])
        found = scan(folder)
        # A frame that lacks only its line feed counts as whole.
        whole = [end for end in ends if end <= cut + 1]
        assert found.defects() == [] and not found.needs_full_scan(), cut
        assert found.reading.position.offset == (whole[-1] if whole else 0), cut
        tail = found.reading.tail
        if cut in (0, *ends):
            assert tail is None, cut
        else:
            assert tail is not None and tail.whole == (cut + 1 in ends), cut
            assert tail.size == (0 if tail.whole else cut - found.reading.position.offset), cut


def test_a_scan_from_any_frame_reads_what_a_scan_from_the_beginning_reads_behind_it(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(20)), part_size=3_000)
    everything, end = list(read_events(HOST, str(folder))), scan(folder).reading.position
    for start in positions(folder):
        one = Scan(HOST, str(folder), start)
        assert list(one.events()) == [(seq, event) for seq, event in everything if seq > start.seq]
        assert one.reading.position == end and one.defects() == []


def test_damage_in_the_middle_is_a_defect_and_the_frames_around_it_are_read(folder: Path) -> None:
    append(folder, "one", "two", "three")
    head, one, two, three = lines(folder)
    part(folder).write_bytes(head + one + two.replace(b"two", b"2.0") + three)
    found = scan(folder)
    [defect] = found.defects()
    assert (defect.kind, defect.part, defect.offset, defect.size) == ("damage", 1, len(head + one), len(two))
    assert (defect.missing, defect.recorded, defect.mended) == ((SeqRange(3, 3),), False, False)
    assert found.needs_full_scan() and texts(folder) == ["one", "three"]


def test_a_defect_is_recorded_by_the_next_writer_and_mended_by_the_last_frame_that_names_it(folder: Path) -> None:
    append(folder, "one", "two", "three")
    head, one, two, three = lines(folder)
    part(folder).write_bytes(head + one + two.replace(b"two", b"2.0") + three)
    append(folder, "four")
    [defect] = scan(folder).defects()
    assert defect.recorded and not defect.mended
    say_mended(folder, "nonsense", {"kind": "damage"}, {**key(defect), "at": "here"}, {**key(defect), "at": defect.offset + 1})
    assert [one.mended for one in scan(folder).defects()] == [False], "none of these names it"
    for how, accepted in (("accepted", True), ("recaptured", False)):
        say_mended(folder, key(defect), how=how)
        assert [(one.mended, one.accepted) for one in scan(folder).defects()] == [(True, accepted)]
    assert scan(folder, heads=True).mended[defect[:4]] == ["accepted", "recaptured"]


def test_a_frame_about_defects_asks_for_a_full_scan_only_where_the_scan_began_behind_them(folder: Path) -> None:
    append(folder, "one")
    start = scan(folder).reading.position
    say_mended(folder)
    append(folder, "two")
    assert scan(folder, start).needs_full_scan() and not scan(folder).needs_full_scan()
    assert not scan(folder, scan(folder).reading.position).needs_full_scan()


def test_parts_are_scanned_as_one_journal_whether_they_are_compressed_or_not(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(20)), part_size=3_000)
    numbers = parts.numbers(HOST, str(folder))
    plain = list(read_events(HOST, str(folder)))
    end, last_part_start = scan(folder).reading.position, scan(folder).reading.last_part_start
    for number in numbers[:-1]:
        path = part(folder, number)
        Path(f"{path}.zst").write_bytes(parts.frozen(path.read_bytes()))
        path.unlink()
        found = scan(folder)
        assert (found.defects(), found.reading.tail, found.reading.position) == ([], None, end)
        assert list(read_events(HOST, str(folder))) == plain
    assert last_part_start is not None and last_part_start == scan(folder).reading.last_part_start
    again = Scan(HOST, str(folder), last_part_start)
    assert [seq for seq, _ in again.events()] == [seq for seq, _ in plain if seq > last_part_start.seq] and again.defects() == []


def test_a_compressed_part_that_is_cut_short_is_one_defect_with_the_seqs_it_cost(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(20)), part_size=3_000)
    seqs = [seq for seq, _ in read_events(HOST, str(folder))]
    path = part(folder, 1)
    Path(f"{path}.zst").write_bytes(parts.frozen(path.read_bytes())[:-40])
    path.unlink()
    [defect] = scan(folder).defects()
    assert (defect.kind, defect.part) == ("cold", 1)
    left = {seq for seq, _ in read_events(HOST, str(folder))}
    assert {seq for span in defect.missing for seq in range(span.first, span.last + 1)} >= set(seqs) - left != set()


def test_a_missing_part_is_a_defect_with_the_seqs_that_were_in_it(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(20)), part_size=3_000)
    ends = {one.part: one.seq for one in positions(folder)}
    part(folder, 2).unlink()
    [defect] = scan(folder).defects()
    assert (defect.kind, defect.part, defect.missing) == ("missing_part", 2, (SeqRange(ends[1] + 1, ends[2]),))


def test_an_event_that_lacks_a_chunk_is_a_defect_and_can_be_mended(folder: Path) -> None:
    append(folder, "before", "x" * 3_000_000, "after")
    rows = lines(folder)
    part(folder).write_bytes(b"".join([*rows[:3], rows[3].replace(b"x", b"y"), *rows[4:]]))
    assert texts(folder) == ["before", "after"]
    damage, chunks = scan(folder).defects()
    assert (damage.kind, chunks.kind, chunks.part) == ("damage", "chunks", 0)
    say_mended(folder, key(chunks))
    assert [(one.kind, one.mended) for one in scan(folder).defects()] == [("damage", False), ("chunks", True)]


def test_bodies_that_the_caller_finds_strange_are_defects_at_their_seq(folder: Path) -> None:
    append(folder, "one", "two")
    one = Scan(HOST, str(folder))
    one.strange += [seq for seq, event in one.events() if event.body["text"] == "two"]
    assert [(d.kind, d.part, d.offset, d.missing) for d in one.defects()] == [("strange", 0, 3, (SeqRange(3, 3),))]
    assert one.needs_full_scan()


def test_wanted_frames_are_found_at_their_seq_or_written_again_after_a_failed_sync(folder: Path) -> None:
    append(folder, "one", "two", "three")
    keys = [(one.seq, one.crc) for one in positions(folder)]
    missing = (keys[1][0], "00000000")
    assert scan(folder, wanted=[keys[0], missing, keys[3]]).found_frames == {keys[0], keys[3]}

    head, one, two, _ = lines(folder)
    far, _ = place(drafts_of(event("two again")), keys[2][0], keys[2][1], was=[keys[2][0]])
    part(folder).write_bytes(head + one + far)
    assert keys[2] in scan(folder, wanted=keys).found_frames and texts(folder) == ["one", "two again"]
    part(folder).write_bytes(head + one + two + far)
    start = Position()  # from a place on, frames that were written again are always looked at
    assert keys[2] in scan(folder, start, wanted=keys).found_frames and texts(folder, start) == ["one", "two"], (
        "the first writing survived"
    )


def test_the_caller_gets_every_frame_in_order_also_those_that_are_no_events(folder: Path) -> None:
    append(folder, "one", "x" * 1_500_000, "two")
    seen: list[Frame] = []
    scan(folder, fold=seen.append)
    assert [frame["seq"] for frame in seen] == list(range(1, len(seen) + 1))
    assert {Kind.PART_OPENED, Kind.CHUNK} < {frame["kind"] for frame in seen}


def test_a_journal_that_is_not_there_scans_as_empty(folder: Path) -> None:
    found = scan(folder)
    assert (found.defects(), found.reading.tail, found.reading.position) == ([], None, Position())
