"""The journal on a real disk: what is damaged is told apart and kept, what is good is read, and the next append works."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamkeep.errors import Deleted, NewerFormat, Refused
from dreamkeep.event import Event, Kind
from dreamkeep.journal import parts
from dreamkeep.journal.frame import MAX_FRAME, parse, place
from dreamkeep.journal.frame import draft as drafts_of
from dreamkeep.journal.open_state import read_head
from dreamkeep.journal.reader import Position, Reading, SeqRange
from dreamkeep.journal.scan import events
from tests.helpers.journals import HOST, append, aside, event, faults, lines, part, read, texts, writer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def three(folder: Path) -> Path:
    """A part of three frames after its head."""
    append(folder, "one", "two", "three")
    return folder


# -- bytes


def test_every_line_carries_its_checksum_its_seq_and_the_line_before(three: Path) -> None:
    import json
    import zlib

    prev = "00000000"
    for seq, line in enumerate(lines(three), 1):
        frame = json.loads(line)
        assert line.endswith(b',"crc":"%08x"}\n' % zlib.crc32(line[:-19]))
        assert (frame["seq"], frame["prev"]) == (seq, prev)
        assert list(frame)[-3:] == ["prev", "seq", "crc"]
        prev = frame["crc"]


@pytest.mark.parametrize(
    "text",
    [
        "\ud800 lone",
        "line\u2028sep\u0085next",
        "nul \0 inside",
        "",
        '"quoted" \\ and {"id":"x"}',
        "日本語 🦉",
        "\n\r\n",
        "\ufffe",
    ],
)
def test_any_text_can_be_stored_and_read_back(folder: Path, text: str) -> None:
    """W7 T6: lone surrogates, line separators, NULs; and every line stays acceptable to a strict parser."""
    import orjson

    append(folder, text, "after")
    assert texts(folder) == [text, "after"]
    assert len(lines(folder)) == 3
    for line in part(folder).read_bytes().split(b"\n")[:-1]:
        orjson.loads(line)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(blacklist_categories=())),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(st.characters(blacklist_categories=()), max_size=6), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_json_data_survives_encoding(body: object) -> None:
    """W7: bodies of any shape, with any text, any integer, NaN and infinities, and keys that look like armour."""
    import orjson

    from dreamkeep.journal.frame import event_of

    [draft] = drafts_of(Event("i", "k", "t", {"value": body}))
    data, _ = place([draft], 0, "00000000")
    back = event_of(orjson.loads(data)).body["value"]
    assert repr(back) == repr(body)


def test_a_long_body_is_chunked_into_capped_frames_and_comes_back_whole(folder: Path) -> None:
    """J6: 5 MB of text with quotes, backslashes and multi-byte characters; no line is longer than the cap."""
    text = '\\"日本語\u2028' * 300_000 + "\ud800"
    append(folder, "before", text, "after")
    assert texts(folder) == ["before", text, "after"]
    assert max(map(len, lines(folder))) <= MAX_FRAME + 1
    assert len(lines(folder)) > 8


def test_a_frame_that_lacks_a_chunk_is_reported_and_not_invented(folder: Path) -> None:
    append(folder, "before", "x" * 3_000_000, "after")
    rows = lines(folder)
    part(folder).write_bytes(b"".join([*rows[:3], rows[3].replace(b"x", b"y"), *rows[4:]]))
    broken: list[int] = []
    assert [e.body["text"] for _, e in events(Reading(HOST, str(folder)), broken)] == ["before", "after"]
    assert len(broken) == 1


# -- cuts, flips, lines moved


def test_a_part_cut_at_every_byte_keeps_all_complete_frames_and_takes_the_next(three: Path) -> None:
    """T5 W5: the tail is settled before the append; what was cut off mid-way is set aside byte for byte."""
    whole = part(three).read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 0x0A]
    for cut in range(len(whole)):
        place = three.parent / f"cut{cut}" / "journal"
        place.mkdir(parents=True)
        part(place).write_bytes(whole[:cut])
        complete = sum(end - 1 <= cut for end in ends)  # a frame that lacks only its line feed is complete
        append(place, "new")
        assert texts(place) == [*("one", "two", "three")[: max(0, complete - 1)], "new"], cut
        assert read(place) == ([], None), cut
        start = max([0, *(end for end in ends if end <= cut)])
        rest = whole[start:cut]
        kept = aside(place)
        if rest and cut + 1 not in ends:
            assert list(kept.values()) == [rest], cut
        else:
            assert kept == {}, cut


def test_every_flipped_bit_costs_at_most_the_frame_it_hits(three: Path) -> None:
    """W4: each is noticed, nothing else is lost, and the damaged bytes are kept where they are or aside."""
    whole = part(three).read_bytes()
    starts = [0]
    for line in lines(three):
        starts.append(starts[-1] + len(line))
    names = ["head", "one", "two", "three"]
    place = three.parent / "flipped" / "journal"
    place.mkdir(parents=True)
    for at in range(len(whole)):
        hit = max(n for n in range(4) if starts[n] <= at)
        for bit in range(8):
            bad = bytearray(whole)
            bad[at] ^= 1 << bit
            part(place).write_bytes(bad)
            found, tail = read(place)
            there = texts(place)
            lost = set(names[1:]) - set(there)
            assert lost <= {names[hit]}, (at, bit)
            assert len(set(there)) == len(there)
            assert found or tail is not None, (at, bit, "a flip that nobody notices")


@pytest.mark.parametrize("stride", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_an_append_after_any_flipped_bit_keeps_the_damaged_bytes(three: Path, stride: int) -> None:
    """W2 W5: damage stays in place, a bad tail is set aside; either way no byte is destroyed, and appends go on."""
    whole = part(three).read_bytes()
    for n in range(0, len(whole) * 8, stride):
        place = three.parent / f"f{n}" / "journal"
        place.mkdir(parents=True)
        bad = bytearray(whole)
        bad[n // 8] ^= 1 << n % 8
        part(place).write_bytes(bad)
        before = texts(place)
        append(place, "new")
        assert texts(place) == [*before, "new"], n
        stored = part(place).read_bytes() + b"".join(aside(place).values())
        damaged = next(bytes(bad[a:b]) for a, b in _spans(whole) if a <= n // 8 < b)
        assert damaged[:-1] in stored and damaged[-1:] in stored, n
        assert read(place)[1] is None, n
        assert all(f.recorded or f.kind not in ("damage", "gap") for f in faults(place)), n


def _spans(whole: bytes) -> list[tuple[int, int]]:
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 0x0A]
    return list(zip([0, *ends], ends, strict=False))


def test_a_flipped_line_feed_at_the_very_end_is_put_right(three: Path) -> None:
    """T5: the frame is whole; only the byte after it is set aside."""
    with part(three).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x0e")
    append(three, "four")
    assert texts(three) == ["one", "two", "three", "four"]
    assert read(three) == ([], None) and list(aside(three).values()) == [b"\x0e"]


def test_dropped_doubled_and_swapped_lines_are_noticed(three: Path) -> None:
    """T11: missing and reused ordinals, repeated records: each readable around, each reported."""
    head, one, two, last = lines(three)

    def arranged(*rows: bytes) -> tuple[list[str], list[str]]:
        part(three).write_bytes(b"".join(rows))
        return texts(three), [f.kind for f in faults(three)]

    assert arranged(head, one, last) == (["one", "three"], ["gap"])
    assert arranged(head, one, one, two, last) == (["one", "two", "three"], ["duplicate"])
    assert arranged(head, one, two, one, two, last) == (["one", "two", "three"], ["duplicate"])
    assert arranged(head, two, one, last) == (["two", "one", "three"], ["disorder"])
    assert arranged(head, one, two, last) == (["one", "two", "three"], [])


def test_a_seq_used_twice_by_different_frames_is_reported(three: Path) -> None:
    """T11"""
    data, _ = place(drafts_of(event("impostor")), 2, "deadbeef")
    with part(three).open("ab") as file:
        file.write(data)
    assert texts(three) == ["one", "two", "three"]
    assert [f.kind for f in faults(three)] == ["reused"]


def test_a_million_repeated_lines_are_one_fault(three: Path) -> None:
    """T11: 19 GiB of repeated records in small."""
    with part(three).open("ab") as file:
        file.write(lines(three)[-1] * 20_000)
    [fault] = faults(three)
    assert (fault.kind, fault.times) == ("duplicate", 20_000)
    assert texts(three) == ["one", "two", "three"]


def test_a_run_of_null_bytes_in_the_middle_is_read_around_and_reported(three: Path) -> None:
    """T11: a power cut leaves NULs; the frame after them has no line feed before it."""
    head, one, two, last = lines(three)
    part(three).write_bytes(head + one + b"\0" * len(two) + last)
    assert texts(three) == ["one", "three"]
    [fault] = faults(three)
    assert (fault.kind, fault.offset, fault.size, fault.missing) == ("damage", len(head + one), len(two), (SeqRange(3, 3),))
    append(three, "four")
    assert texts(three) == ["one", "three", "four"]
    assert [(f.kind, f.recorded) for f in faults(three)] == [("damage", True)]


def test_a_partial_record_followed_by_its_full_retry_costs_nothing(three: Path) -> None:
    """T11: half a line, then the same line whole."""
    head, one, two, last = lines(three)
    part(three).write_bytes(head + one + two[:40] + two + last)
    assert texts(three) == ["one", "two", "three"]
    assert [(f.kind, f.size) for f in faults(three)] == [("damage", 40)]


def test_megabytes_without_a_line_feed_are_passed_over_in_bounded_memory(three: Path) -> None:
    """B2: garbage longer than any frame; the good frame glued to its end is found."""
    head, one, two, last = lines(three)
    part(three).write_bytes(head + one + b"\0" * 9_000_000 + two + last)
    assert texts(three) == ["one", "two", "three"]
    assert [(f.kind, f.size) for f in faults(three)] == [("damage", 9_000_000)]


def test_same_count_but_other_bytes_is_a_fault(three: Path) -> None:
    """W4: contents blanked at equal length."""
    part(three).write_bytes(part(three).read_bytes().replace(b'"two"', b'"   "'))
    assert texts(three) == ["one", "three"]
    assert [f.kind for f in faults(three)] == ["damage"]


def test_writing_never_needs_to_parse_what_is_there(folder: Path) -> None:
    """W6: torn UTF-8, list-shaped JSON, anything."""
    folder.mkdir(parents=True)
    garbage = b'[1,2,3]\n{"half":"\xe6\x97'
    part(folder).write_bytes(garbage)
    append(folder, "works")
    assert texts(folder) == ["works"]
    assert list(aside(folder).values()) == [garbage]


def test_a_hole_is_recorded_once_however_often_the_journal_is_opened(three: Path) -> None:
    """T4 J3: recovery is idempotent; the frame that tells of the hole names the missing seqs."""
    head, one, two, last = lines(three)
    part(three).write_bytes(head + one + two.replace(b"two", b"tw0") + last)
    for n in range(3):
        append(three, f"more {n}")
    told = [f for f in Reading(HOST, str(three)) if f["kind"] == Kind.JOURNAL_HOLE]
    assert [hole["missing"] for f in told for hole in f["body"]["holes"]] == [[[3, 3]]]
    assert [(f.kind, f.recorded) for f in faults(three)] == [("damage", True)]


def test_a_poorer_tail_never_overwrites_a_richer_one_set_aside_before(three: Path) -> None:
    """W3: three bad tails at the same place are three files."""
    end = part(three).stat().st_size
    tails = [b"x" * 1000, b"x" * 3, b"y" * 3]
    for tail in tails:
        os.truncate(part(three), end)
        with part(three).open("ab") as file:
            file.write(tail)
        append(three, "next")
    assert sorted(aside(three).values()) == sorted(tails)


def test_growing_makes_no_copy(three: Path) -> None:
    """W2: the old bytes stay the beginning of the new ones, and nothing is put aside."""
    before = part(three).read_bytes()
    append(three, "four")
    assert part(three).read_bytes().startswith(before)
    assert aside(three) == {}


def test_reading_writes_nothing(three: Path) -> None:
    """B9: not even when there is a tail to settle."""
    with part(three).open("ab") as file:
        file.write(b"half a li")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in three.iterdir()}
    assert texts(three) == ["one", "two", "three"]
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in three.iterdir()} == before


# -- parts


def test_parts_rotate_and_read_as_one(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(40)), part_size=4_000)
    assert len(parts.numbers(HOST, str(folder))) > 3
    assert [t.split()[0] for t in texts(folder)] == [str(n) for n in range(40)]
    assert read(folder) == ([], None)
    seqs = [f["seq"] for f in Reading(HOST, str(folder))]
    assert seqs == list(range(1, len(seqs) + 1))


def test_cold_parts_are_compressed_and_read_transparently(folder: Path) -> None:
    """J7: and a hot part that is the last one is never touched."""
    append(folder, *(f"{n} " + "x" * 500 for n in range(40)), part_size=4_000)
    before = list(Reading(HOST, str(folder)))
    numbers = parts.numbers(HOST, str(folder))
    for number in numbers[:-1]:
        assert parts.compress(HOST, str(folder), number)
        assert not parts.compress(HOST, str(folder), number)
    assert sorted(p.suffix for p in folder.iterdir() if p.name != "lock") == [".jsonl", *[".zst"] * (len(numbers) - 1)]
    assert list(Reading(HOST, str(folder))) == before
    append(folder, "more", part_size=4_000)
    assert texts(folder)[-1] == "more"
    middle = Reading(HOST, str(folder), Position(2, 0, *_link_before(folder, 2)))
    assert [f["seq"] for f in middle][-1] == before[-1]["seq"] + 1


def _link_before(folder: Path, number: int) -> tuple[int, str]:
    head = read_head(HOST, str(folder), number)
    assert head is not None
    return head["seq"] - 1, head["prev"]


def test_a_damaged_cold_part_costs_only_itself(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(40)), part_size=4_000)
    parts.compress(HOST, str(folder), 2)
    cold = part(folder, 2).with_suffix(".jsonl.zst")
    data = bytearray(cold.read_bytes())
    data[len(data) // 2] ^= 0xFF
    cold.write_bytes(data)
    there = [int(t.split()[0]) for t in texts(folder)]
    in_others = [n for n in range(40) if n < 5 or n > 15]
    assert set(in_others) <= set(there)
    assert faults(folder)


def test_a_last_part_that_is_cold_and_was_cut_short_is_damage_and_no_tail(folder: Path) -> None:
    """T11: zstd's stream reader takes such a file for a whole one."""
    append(folder, *(f"{n} {HOST.random(200).hex()}" for n in range(40)))
    parts.compress(HOST, str(folder), 1, last=True)
    cold = part(folder).with_suffix(".jsonl.zst")
    data = cold.read_bytes()
    for cut in (len(data) - 1, len(data) // 2):
        cold.write_bytes(data[:cut])
        found, tail = read(folder)
        assert [f.kind for f in found] == ["cold"] and tail is None
    cold.write_bytes(data)
    assert read(folder) == ([], None)


def test_both_forms_of_a_part_after_a_crash_count_once(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(20)), part_size=4_000)
    plain = part(folder, 1).read_bytes()
    parts.compress(HOST, str(folder), 1)
    part(folder, 1).write_bytes(plain)
    assert len(texts(folder)) == 20
    assert parts.compress(HOST, str(folder), 1)


def test_a_missing_part_is_reported_and_the_others_are_read(folder: Path) -> None:
    append(folder, *(f"{n} " + "x" * 500 for n in range(40)), part_size=4_000)
    gone = [f["seq"] for line in lines(folder, 2) if (f := parse(line[:-1]))]
    part(folder, 2).unlink()
    [fault] = faults(folder)
    assert (fault.kind, fault.part, fault.missing) == ("missing_part", 2, (SeqRange(gone[0], gone[-1]),))
    assert texts(folder)[0].startswith("0 ") and texts(folder)[-1].startswith("39 ")


def test_a_part_that_was_copied_under_another_number_counts_once(folder: Path) -> None:
    """T11 W14: its frames are the same ones, not others with the same seqs."""
    append(folder, *(f"{n} " + "x" * 500 for n in range(40)), part_size=4_000)
    numbers = parts.numbers(HOST, str(folder))
    part(folder, numbers[-1] + 1).write_bytes(part(folder, 2).read_bytes())
    [fault] = faults(folder)
    assert (fault.kind, fault.part, fault.times) == ("duplicate", numbers[-1] + 1, len(lines(folder, 2)))
    assert len(texts(folder)) == 40


def test_a_newer_format_is_refused_clearly_and_nothing_is_touched(folder: Path) -> None:
    """R7"""
    body = {"format": 2, "journal": "python:x", "part": 1, "carry": {}}
    data, _ = place(drafts_of(Event("i", Kind.PART_OPENED, "t", body)), 0, "00000000")
    folder.mkdir(parents=True)
    part(folder).write_bytes(data)
    with pytest.raises(NewerFormat, match=r"newer dreamkeep.*Upgrade"):
        append(folder, "x")
    with pytest.raises(NewerFormat):
        texts(folder)
    assert part(folder).read_bytes() == data


# -- replay, refusal, removal


def test_replaying_a_source_a_hundred_times_changes_nothing(folder: Path) -> None:
    """W14: each source has a cursor journaled with its data, also across parts, processes and interleaved sources."""
    log = [event(f"line {n}", {"source:a": n}) for n in range(1, 31)]
    other = [event(f"other {n}", {"source:b": n}) for n in range(1, 31)]
    first = writer(folder, 2_000)
    assert first.append(log) == tuple(range(2, 32))
    first.append(other)
    first.park()
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    for _ in range(100):
        again = writer(folder, 2_000)
        assert again.append(log) == (None,) * 30
        again.append(other)
        again.park()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    twice = [event("in one batch", {"source:c": 1}), event("in one batch", {"source:c": 1})]
    assert writer(folder, 2_000).append(twice)[1] is None
    more = writer(folder, 2_000)
    assert more.append([log[-1], event("line 31", {"source:a": 31})])[0] is None
    assert texts(folder) == [f"line {n}" for n in range(1, 31)] + [f"other {n}" for n in range(1, 31)] + [
        "in one batch",
        "line 31",
    ]


def test_a_partial_view_cannot_be_written(folder: Path) -> None:
    """W1 W8: a summary, a dict, a list: different types, refused by a typed error, and nothing is written."""
    from dreamkeep.session.summary import empty

    w = writer(folder)
    w.append([event("real")])
    before = part(folder).read_bytes()
    views: list[object] = [empty("python:x"), {"messages": []}, ["text"], "text", None]
    for view in views:
        with pytest.raises(Refused, match="only events can be written"):
            w.append([view])  # type: ignore[list-item]  # that is the point
    assert part(folder).read_bytes() == before


def test_a_removed_journal_is_not_written_on_by_those_who_had_it_open(folder: Path) -> None:
    """K2: the writer that still has the files open is told; nothing is acknowledged into a file that has no name."""

    def refuse() -> None:
        if removed:
            raise Deleted("gone")

    removed: list[int] = []
    elsewhere = [writer(folder, may_begin=refuse) for _ in range(2)]
    for w in elsewhere:
        w.append([event("one")])
    elsewhere[1].park()
    removed.append(1)
    writer(folder).remove()
    assert not folder.exists()
    for w in elsewhere * 2:
        with pytest.raises(Deleted):
            w.append([event("two")])
    assert not folder.exists()


def test_a_lock_file_removed_by_hand_hurts_nobody_who_comes_later(three: Path) -> None:
    """A dead process leaves no lock that must be removed, and removing it loses nothing."""
    (three / "lock").unlink()
    append(three, "four")
    assert texts(three) == ["one", "two", "three", "four"]
    assert read(three) == ([], None)


def test_two_writers_in_turn_see_each_others_frames(folder: Path) -> None:
    """W9: two who have the journal open at the same time; one order, no seq twice, also over rotations."""
    a, b = writer(folder, 3_000), writer(folder, 3_000)
    for n in range(60):
        (a if n % 3 else b).append([event(f"{n} " + "x" * 200)])
    assert [t.split()[0] for t in texts(folder)] == [str(n) for n in range(60)]
    assert read(folder) == ([], None)


def test_parked_writers_go_on_where_they_were(folder: Path) -> None:
    a, b = writer(folder, 3_000), writer(folder, 3_000)
    for n in range(40):
        a.append([event(f"{n} " + "x" * 200)])
        a.park()
        if n % 7 == 0:
            b.append([event(f"b{n} " + "x" * 200)])
    assert read(folder) == ([], None)
    assert len(texts(folder)) == 46


def test_threads_on_one_journal_interleave_nothing(folder: Path) -> None:
    """J4 W9"""
    w = writer(folder, 20_000)
    acked: list[tuple[int, int]] = []

    def work(me: int) -> None:
        for n in range(40):
            [seq] = w.append([event(f"{me}:{n}")])
            assert seq is not None
            acked.append((seq, me * 1000 + n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert read(folder) == ([], None)
    there = texts(folder)
    assert len(there) == len(set(there)) == 240
    for me in range(6):
        assert [t for t in there if t.startswith(f"{me}:")] == [f"{me}:{n}" for n in range(40)]
    assert len({seq for seq, _ in acked}) == 240


def test_a_batch_costs_one_write_and_one_sync(folder: Path) -> None:
    from dreamkeep.host import RealHost

    class Counting(RealHost):
        syncs = 0
        writes = 0

        def sync(self, handle: int) -> None:
            self.syncs += 1
            super().sync(handle)

        def write(self, handle: int, data: bytes) -> int:
            self.writes += 1
            return super().write(handle, data)

    from dreamkeep.journal.writer import Writer

    host = Counting()
    w = Writer(host, str(folder), journal="python:x", aside=str(folder) + "-aside", new_id=lambda: "i")
    w.append([event("first")])
    host.syncs = host.writes = 0
    w.append([event(f"{n}") for n in range(50)])
    assert (host.syncs, host.writes) == (1, 1)


def test_two_frames_without_a_line_feed_between_them_are_read_and_reported(three: Path) -> None:
    head, one, two, last = lines(three)
    part(three).write_bytes(head + one[:-1] + two + last)
    assert texts(three) == ["one", "two", "three"]
    assert [(f.kind, f.size) for f in faults(three)] == [("damage", 0)]
