"""Ingest of files that agents change: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import multiprocessing
import os
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import cuts
from dreamkeep.capture.sources.copying import operations
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from tests.helpers.claude_home import (
    SID,
    capture_transcript,
    captured_bytes,
    captured_lines,
    home_with,
    ingest,
    record,
    shown_texts,
    write_transcript,
)
from tests.helpers.faults import LOSSES, FragileHost, PowerCut
from tests.helpers.hosts import CountingHost


def journal_bytes(keep: Keep) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path(keep.root, "journal").rglob("*.jsonl")}


def test_a_second_ingest_adds_nothing_and_opens_nothing(tmp_path: Path) -> None:
    """W14: replayed a hundred times, the journal is the same file."""
    home, file = home_with(tmp_path, b"".join(map(record, range(1, 9))))
    host = CountingHost()
    with Keep.open(tmp_path / "keep", host=host) as keep:
        assert [one.state for one in ingest(keep, home)] == ["new"]
        before = journal_bytes(keep)
        host.opened.clear()
        for _ in range(100):
            assert [(one.state, one.new_events) for one in ingest(keep, home)] == [("unchanged", 0)]
        assert str(file) not in host.opened
        assert [one.new_events for one in ingest(keep, home, again=True)] == [0]
        os.utime(file)
        assert [one.new_events for one in ingest(keep, home)] == [0]
        assert journal_bytes(keep) == before


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, b"".join(map(record, range(1, 4000))))
    host = CountingHost()
    with Keep.open(tmp_path / "keep", host=host) as keep:
        ingest(keep, home)
        with file.open("ab") as grows:
            grows.write(record(4000) + record(4001))
        host.bytes.clear()
        [one] = ingest(keep, home)
        assert (one.state, one.new_bytes) == ("grew", len(record(4000) + record(4001)))
        assert host.bytes[str(file)] < 64 << 10 < file.stat().st_size
        assert captured_bytes(keep) == file.read_bytes()
        assert len(shown_texts(keep)) == 4001


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_transcript_cut_at_every_byte_and_then_finished_gives_each_record_once(step: int, tmp_path: Path) -> None:
    """The file is captured while it is written: half a line, and later the other half."""
    home = tmp_path / "home"
    wholes = {}
    for size in range(1, len(record(1) + record(2)) + 19, step):
        mine = f"u{size}"  # no two files are forks of each other
        wholes[size] = record(1, uuid=mine) + b'{"type":"new-kind"}\n' + record(2, uuid=f"{mine}-2", parentUuid=mine)
        home_with(tmp_path, wholes[size][:size], f"cut-{size}")
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        for size, whole in wholes.items():
            assert captured_bytes(keep, f"cut-{size}") == whole[:size]
            home_with(tmp_path, whole, f"cut-{size}")
        assert {one.state for one in ingest(keep, home)} == {"grew"}
        for size, whole in wholes.items():
            assert captured_bytes(keep, f"cut-{size}") == whole
            shown = keep.show(f"claude:cut-{size}")
            assert [m["text"] for m in shown["messages"]] == ["question 1", "answer 2"], size
            assert "odd" not in shown


def test_a_transcript_that_is_read_byte_by_byte_is_the_same_as_in_one_go(tmp_path: Path) -> None:
    whole = record(1) + record(2, "Grüße, 世界, \u2028 und \U0001f600") + record(3)
    home, file = home_with(tmp_path, whole[:1])
    with Keep.open(tmp_path / "keep") as keep:
        for size in range(1, len(whole) + 1, 7):
            file.write_bytes(whole[:size])
            ingest(keep, home)
        file.write_bytes(whole)
        ingest(keep, home)
        assert captured_bytes(keep) == whole
        assert shown_texts(keep) == ["question 1", "Grüße, 世界, \u2028 und \U0001f600", "question 3"]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("shrank", lambda data: data[: len(data) // 2]),
        ("shrank", lambda data: b""),
        ("shrank", lambda data: record(1) + record(9, "another end")),
        ("rewritten", lambda data: data.replace(b"answer 4", b"ANSWER 4")),
        ("rewritten", lambda data: b"\0" * len(data)),
        ("rewritten", lambda data: data[200:] + data + data),
        ("rewritten", lambda data: record(0) + data),
    ],
)
def test_every_change_of_an_agents_file_is_noticed_and_loses_nothing(what: str, change: Any, tmp_path: Path) -> None:
    """W2 K4: all messages stay, new ones are added, and both versions of the file can be restored byte for byte."""
    old = b"".join(map(record, range(1, 9)))
    home, file = home_with(tmp_path, old)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        before = shown_texts(keep)
        file.write_bytes(change(old))
        assert [one.state for one in ingest(keep, home)] == [what]
        assert set(before) - set(shown_texts(keep)) <= ({"answer 4"} if b"ANSWER" in change(old) else set())
        assert captured_bytes(keep) == change(old)
        folder = f"{keep.root}/{folder_of(f'claude:{SID}')}"
        [name] = source_bytes.sources(RealHost(), folder)
        assert b"".join(source_bytes.lines(RealHost(), folder, name, 1)) == old
        with file.open("ab") as grows:
            grows.write(record(11))
        ingest(keep, home)
        assert captured_bytes(keep) == change(old) + record(11)
        assert shown_texts(keep)[-1] == "question 11" or not change(old).endswith(b"\n")
        assert [one.new_events for one in ingest(keep, home, again=True)] == [0]


def test_only_new_lines_of_a_rewritten_file_are_journaled(tmp_path: Path) -> None:
    """W14."""
    old = b"".join(record(n, "x" * 2000) for n in range(1, 200))
    home, file = home_with(tmp_path, old)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        size = sum(map(len, journal_bytes(keep).values()))
        for round_ in range(5):
            old = record(1000 + round_) + old
            file.write_bytes(old)
            ingest(keep, home)
            assert captured_bytes(keep) == old
        assert sum(map(len, journal_bytes(keep).values())) < size + 20_000


def test_a_file_that_was_replaced_or_removed_and_put_back_is_noticed(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1) + record(2))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        other = file.with_suffix(".new")
        other.write_bytes(record(1) + record(4, "from another file") + record(5))
        os.replace(other, file)
        assert [one.state for one in ingest(keep, home)] == ["replaced"]
        assert shown_texts(keep) == ["question 1", "answer 2", "from another file", "question 5"]
        kept = file.read_bytes()
        file.unlink()
        assert [(one.state, one.session) for one in ingest(keep, home)] == [("vanished", f"claude:{SID}")]
        assert ingest(keep, home) == []
        assert len(shown_texts(keep)) == 4
        file.write_bytes(kept + record(6))
        assert [one.state for one in ingest(keep, home)] == ["grew"]
        assert shown_texts(keep)[-1] == "answer 6"


def test_a_file_that_was_only_moved_is_not_read_again(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, b"".join(map(record, range(1, 50))))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        size = sum(map(len, journal_bytes(keep).values()))
        elsewhere = file.parent.parent / "-home-dev-other" / file.name
        elsewhere.parent.mkdir()
        file.rename(elsewhere)
        states = {one.state: one for one in ingest(keep, home)}
        assert states["moved"].new_bytes == 0
        assert sum(map(len, journal_bytes(keep).values())) < size + 2_000
        with elsewhere.open("ab") as grows:
            grows.write(record(50))
        ingest(keep, home)
        assert len(shown_texts(keep)) == 50


def test_a_bad_source_is_reported_and_the_others_are_ingested(tmp_path: Path) -> None:
    """B2."""
    home, file = home_with(tmp_path, record(1))
    for n, data in enumerate((b"[1, 2]\n", b"\xff\xfe\x00", b'{"torn": "multibyte \xc3', b"null\n", b"{}\n{}\n")):
        home_with(tmp_path, data, f"bad-{n}")
    (file.parent / "a-folder.jsonl").mkdir()
    (file.parent / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (file.parent / "loop.jsonl").symlink_to(file.parent / "loop.jsonl")
    with Keep.open(tmp_path / "keep") as keep:
        found = {Path(one.path).stem: one for one in ingest(keep, home)}
        assert found[SID].state == "new"
        assert shown_texts(keep) == ["question 1"]
        for n in range(5):
            assert found[f"bad-{n}"].state == "new"
            assert captured_bytes(keep, f"bad-{n}") == (file.parent / f"bad-{n}.jsonl").read_bytes()


def test_damage_by_a_power_cut_in_a_transcript_is_skipped_and_reported(tmp_path: Path) -> None:
    """T11: NULs in the middle, a torn record with its complete retry behind it, an invalid line."""
    torn = record(4)
    data = record(1) + b"\0" * 300 + record(2) + record(3) + torn[:60] + torn + b"not json\n" + record(5)
    home, _ = home_with(tmp_path, data)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert shown_texts(keep) == ["question 1", "answer 2", "question 3", "answer 4", "question 5"]
        assert [odd["kind"] for odd in keep.show(SID)["odd"]["first"]] == ["nul", "torn", "unreadable"]
        assert captured_bytes(keep) == data


def test_a_deleted_session_stays_deleted_until_it_is_undeleted(tmp_path: Path) -> None:
    """K2."""
    home, file = home_with(tmp_path, record(1) + record(2))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        keep.delete(SID)
        for _ in range(2):
            assert [one.state for one in ingest(keep, home)] == ["deleted"]
        with file.open("ab") as grows:
            grows.write(record(3))
        assert [one.state for one in ingest(keep, home)] == ["deleted"]
        assert keep.sessions() == []
        keep.undelete(SID)
        assert [one.state for one in ingest(keep, home)] == ["new"]
        assert len(shown_texts(keep)) == 3


@pytest.mark.parametrize("pattern", ["/home/dev", "*/shop", "/home/dev/shop", "*.claude*"])
def test_excluded_sessions_are_not_captured(pattern: str, tmp_path: Path) -> None:
    """C8: by the session's folder, or by the path of its file."""
    home, _ = home_with(tmp_path, record(1))
    env = {"DREAMKEEP_CAPTURE_EXCLUDE": pattern, "HOME": str(home)}
    with Keep.open(tmp_path / "keep", environment=env) as keep:
        assert [one.state for one in ingest(keep, home)] == ["excluded"]
        assert keep.sessions() == []
    with Keep.open(tmp_path / "keep") as keep:
        assert [one.state for one in ingest(keep, home)] == ["new"]


def test_a_fork_of_a_compacted_session_counts_what_the_compaction_left_once(tmp_path: Path) -> None:
    """As Claude Code 2.1.197 does: it copies the boundary and everything behind it, with the same uuids."""
    kept = record(2, "kept by the compaction")
    about = {
        "parentUuid": None,
        "logicalParentUuid": "u2",
        "content": "Conversation compacted",
        "compactMetadata": {"trigger": "manual"},
    }
    boundary = record(3, "", type="system", subtype="compact_boundary", uuid="b1", **about)
    summary = record(4, "In short.", isCompactSummary=True, uuid="b2", parentUuid="b1")
    after = record(5, "after it", parentUuid="b2")
    home, _ = home_with(tmp_path, b"".join([record(1, "squeezed out"), kept, boundary, summary, after]))
    fork = "0a000000-0000-4000-8000-00000000000f"  # sorts before its parent
    copied = b"".join(line.replace(SID.encode(), fork.encode()) for line in (boundary, summary, kept, after))
    own = record(7, "the fork goes its own way", timestamp="2026-11-02T10:00:00.000Z", uuid="f1", parentUuid="u5")
    home_with(tmp_path, copied + own.replace(SID.encode(), fork.encode()), fork)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        shown = keep.show(fork)
        assert shown["session"]["lineage"] == [{"kind": "fork", "session": f"claude:{SID}"}]
        assert [m["text"] for m in shown["messages"] if m.get("mark") != "copied"] == ["the fork goes its own way"]
        assert shown["session"]["compactions"] == 0, "it counts where it was copied from"
        assert keep.show(SID)["session"]["compactions"] == 1


def test_a_fork_counts_its_copied_records_once_and_names_its_parent(tmp_path: Path) -> None:
    """S28: the same uuids in another file, whichever of the two is read first."""
    shared = [record(n) for n in range(1, 5)]
    fork = "0a000000-0000-4000-8000-00000000000f"  # sorts before its parent
    home, _ = home_with(tmp_path, b"".join(shared) + record(5, "the parent goes on"))
    copied = b"".join(line.replace(SID.encode(), fork.encode()) for line in shared)
    later = record(7, "the fork goes its own way", timestamp="2026-11-02T10:00:00.000Z", uuid="f1")
    home_with(tmp_path, copied + later, fork)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        shown = keep.show(fork)
        assert shown["session"]["lineage"] == [{"kind": "fork", "session": f"claude:{SID}"}]
        assert [m.get("mark", "") for m in shown["messages"]] == ["copied"] * 4 + [""]
        assert (shown["session"]["turns"], shown["session"]["messages"]) == (1, 1)
        assert keep.show(SID)["session"]["lineage"] == []
        assert keep.show(SID)["session"]["messages"] == 5


def _ingest_often(root: str, home: str, times: int) -> None:
    with Keep.open(root) as keep:
        for _ in range(times):
            list(keep.ingest(home=home, agents=["claude"]))


def test_two_ingests_at_once_add_nothing_twice(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1))
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_ingest_often, args=(str(tmp_path / "keep"), str(home), 40)) for _ in range(3)]
    for worker in workers:
        worker.start()
    with file.open("ab", buffering=0) as grows:
        for n in range(2, 400):
            line = record(n)
            grows.write(line[:50])
            grows.write(line[50:])
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert captured_bytes(keep) == file.read_bytes()
        assert shown_texts(keep) == [f"{'question' if n % 2 else 'answer'} {n}" for n in range(1, 400)]


def test_power_cut_at_every_step_of_an_ingest_keeps_every_record_once() -> None:
    whole = b"".join(map(record, range(1, 7)))
    for loss in LOSSES:
        for at in count(1):
            host = FragileHost()
            write_transcript(host, whole[:900])
            capture_transcript(host)
            write_transcript(host, whole)
            host.plan(at, "cut")
            try:
                capture_transcript(host)
                cut = False
            except PowerCut:
                cut = True
            host = host.reboot(loss, at)
            for _ in range(2):
                capture_transcript(host)
            found = captured_lines(host)
            assert b"".join(found) == whole, (loss, at)
            if not cut:
                assert at > 5
                break


def test_an_ended_session_continues_only_when_a_turn_begins_after_its_end(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1) + record(2))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        keep.end(SID)
        with file.open("ab") as grows:
            grows.write(b'{"type":"cost-state","sessionId":"x"}\n' + record(3))  # of before its end, read late
        ingest(keep, home)
        assert keep.summary(f"claude:{SID}").state == "ended"
        with file.open("ab") as grows:
            grows.write(record(5, timestamp="2030-01-01T00:00:00.000Z"))
        ingest(keep, home)
        assert keep.summary(f"claude:{SID}").state == "active"


class Bytes:
    masked = False

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.inode = 1
        self.mtime_ns = 0

    def read(self, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size]

    def close(self) -> None:
        pass


def test_slices_have_every_byte_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamkeep.capture.sources.content.BLOCK", 64)
    monkeypatch.setattr("dreamkeep.capture.sources.content.FRAME", 100)
    monkeypatch.setattr("dreamkeep.capture.sources.content.LONGEST_LINE", 300)
    monkeypatch.setattr("dreamkeep.capture.sources.content.PIECE", 90)
    data = b"a\n\n" + b"b" * 150 + b"\n" + b"c" * 1000 + b"\nd\n" + b"e" * 40
    for start in range(len(data)):
        found = list(cuts(Bytes(data), start, False))
        whole = b""
        for cut in found:
            whole += b"\n".join(cut.lines) + (b"" if cut.more else b"\n")
            assert cut.size <= 500
        assert whole == data[start:]
        assert all(a.more == b.joins for a, b in pairwise(found))


def test_applying_the_operations_to_the_old_lines_gives_the_new_lines() -> None:
    old = [b"a", b"b", b"c", b"b", b"d"]
    new = [b"c", b"b", b"x", b"a", b"b", b"c", b"y", b"z", b"d"]
    ops, inserted = operations(new, old, {line: n for n, line in reversed(list(enumerate(old)))})
    assert ops == [[2, 2], 1, [0, 3], 2, [4, 1]]
    assert inserted == [b"x", b"y", b"z"]


def test_a_cold_journal_is_small_and_exact_and_can_grow_again(tmp_path: Path) -> None:
    """J7: the last part, too, if it was not written to for long. A writer that has it open notices."""
    home, file = home_with(tmp_path, b"".join(record(n, "the same words again " * 20) for n in range(1, 200)))
    with Keep.open(tmp_path / "keep") as keep, Keep.open(tmp_path / "keep") as other:
        ingest(keep, home)
        other.session(SID, agent="claude").title("by another process")
        hot = sum(map(len, journal_bytes(keep).values()))
        assert hot < 1.35 * file.stat().st_size
        assert keep.compress() == 0, "it is not cold yet"
        assert keep.compress(everything=True) == 1
        cold = sum(p.stat().st_size for p in Path(keep.root, "journal").rglob("*.zst"))
        assert cold < 0.35 * file.stat().st_size
        assert captured_bytes(keep) == file.read_bytes()
        other.session(SID, agent="claude").title("and once more")
        with file.open("ab") as grows:
            grows.write(record(200))
        ingest(keep, home)
        assert captured_bytes(keep) == file.read_bytes()
        assert len(shown_texts(keep)) == 200
        assert keep.summary(f"claude:{SID}").title == "and once more"
        assert keep.show(SID)["faults"] == []
