"""Words taken out of frames in place: same length, same checksum, same links; and the words are gone."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dreamkeep.event import Event, Kind
from dreamkeep.host import RealHost
from dreamkeep.journal import parts
from dreamkeep.journal.erase import erased
from dreamkeep.journal.frame import Frame, draft, parse, place
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import events, read_events
from dreamkeep.journal.writer import Writer

HOST = RealHost()


def a_writer(folder: Path, **more: int) -> Writer:
    ids = iter(f"w{n:05d}" for n in range(10_000))
    return Writer(
        HOST,
        str(folder),
        journal="keep",
        aside=str(folder.parent / "aside"),
        new_id=lambda: next(ids),
        part_size=more.get("size", 1 << 20),
    )


def event(n: int, text: str, carry: dict[str, int | str] | None = None) -> Event:
    return Event(f"id-{n}", Kind.TAP_FRAMES, "2026-01-01T00:00:00Z", {"conn": "c", "text": text}, carry)


@given(
    st.text(min_size=20, max_size=400), st.integers(0, 10**9), st.text("0123456789abcdef", min_size=8, max_size=8), st.booleans()
)
def test_an_erased_line_has_the_same_length_and_checksum_and_none_of_the_text(
    text: str, seq: int, prev: str, carries: bool
) -> None:
    """K7"""
    line, crc = place(draft(event(1, text, {"drain": "b-1"} if carries else None)), seq, prev)
    frame = parse(line[:-1])
    assert frame
    new = erased(line[:-1], frame, b"")
    again = parse(new)
    assert again and len(new) == len(line) - 1 and again["crc"] == crc and again["seq"] == seq + 1 and again["prev"] == prev
    assert again["kind"] == Kind.JOURNAL_ERASED and again["id"] == "id-1"
    assert again.get("carry") == frame.get("carry")
    assert set(again["body"]) == {"erased"} and set(again["body"]["erased"]) <= set("-@ABCDEFGHIJKLMNO")


def test_a_journal_with_erased_frames_reads_without_a_fault_and_takes_more(tmp_path: Path) -> None:
    """K7: also in finished and in compressed parts, beside a writer that has the last part open."""
    folder = tmp_path / "j"
    writer = a_writer(folder, size=2000)
    for n in range(40):
        writer.append([event(n, f"xylophone {n} " + "x" * 100 if n % 3 == 0 else f"pears {n}", {"cursor": n + 1})])
    parts.compress(HOST, str(folder), 1)
    before = sum(1 for _ in Reading(HOST, str(folder)))
    heads = len(parts.numbers(HOST, str(folder)))

    def change(frame: Frame, line: bytes) -> bytes | None:
        return b"" if b"xylophone" in line else None

    assert a_writer(folder, size=2000).erase(change) == 14
    assert a_writer(folder, size=2000).erase(change) == 0
    writer.append([event(99, "after", {"cursor": 100})])
    reading = Reading(HOST, str(folder))
    more = len(parts.numbers(HOST, str(folder))) - heads  # a part that others have open is finished first
    assert sum(1 for _ in reading) == before + more + 1 and reading.defects == [] and reading.tail is None
    words = [e.body["text"] for _, e in read_events(HOST, str(folder))]
    assert len(words) == 27 and words[-1] == "after" and not any("xylophone" in w for w in words)
    for part in parts.numbers(HOST, str(folder)):
        assert b"xylophone" not in b"".join(parts.lines(HOST, str(folder), part))
    other = a_writer(folder, size=2000)
    assert other.append([event(100, "twice", {"cursor": 100})]) == (None,), "what was carried is carried still"


def test_a_damaged_line_with_a_mark_is_overwritten_and_stays_damage(tmp_path: Path) -> None:
    folder = tmp_path / "j"
    writer = a_writer(folder)
    for n in range(3):
        writer.append([event(n, "xylophone session-12345678")])
    writer.park()
    path = folder / parts.name(1)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + lines[2].replace(b"xylo", b"XYLO") + lines[3])
    assert a_writer(folder).erase(lambda frame, line: None, [b"session-12345678"]) == 1
    now = path.read_bytes()[: len(data)].splitlines(keepends=True)
    assert [now[0], now[1], now[3]] == [lines[0], lines[1], lines[3]] and set(now[2]) == set(b"-\n")
    reading = Reading(HOST, str(folder))
    assert sum(1 for _ in events(reading)) == 2 and [f.kind for f in reading.defects] == ["damage"]


def test_who_had_the_part_open_writes_to_the_journal_and_not_to_the_file_that_was_replaced(tmp_path: Path) -> None:
    """J4: several of them, one after the other; what one of them learns must not hide from the next that it has to look."""
    folder = tmp_path / "j"
    writers = [a_writer(folder) for _ in range(4)]
    for n, writer in enumerate(writers):
        writer.append([event(n, "xylophone")])
    assert writers[0].erase(lambda frame, line: b"" if b"xylophone" in line else None) == 4
    for n, writer in enumerate(writers[1:]):
        writer.append([event(10 + n, f"after {n}")])
    assert [e.body["text"] for _, e in read_events(HOST, str(folder))] == ["after 0", "after 1", "after 2"]
