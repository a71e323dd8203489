"""A keep above its quota: nothing is dropped, transcripts wait in place, and data that has no other copy is still kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture import hook
from dreamkeep.capture.quota import Quota, Use, measure
from dreamkeep.capture.sources import copying
from dreamkeep.capture.sources.source_cache import Cache
from dreamkeep.event import Event
from dreamkeep.host import FolderEntry, RealHost
from dreamkeep.surfaces.cli import main
from tests.agents import hermes
from tests.helpers.claude_home import SID, captured_bytes, home_with, ingest, random_records, record
from tests.helpers.hosts import CountingHost

MIB = 1 << 20
OTHER = "5f0c2d1e-0000-4000-8000-000000000002"


def limited(root: Path, megabytes: float, **more: Any) -> Keep:
    return Keep.open(root, environment={"DREAMKEEP_RETENTION_QUOTA_MB": str(megabytes)}, **more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "keep"


@pytest.fixture
def full(tmp_path: Path, root: Path) -> Path:
    """A keep of 0.4 MiB, and its home."""
    home, _ = home_with(tmp_path, random_records(20, 20_000))
    with Keep.open(root) as keep:
        assert [one.state for one in ingest(keep, home)] == ["new"]
    forget_index(root)
    return home


def forget_index(root: Path) -> None:
    """The size of an index depends on its pages; these tests count only journals."""
    for path in root.glob("index.sqlite*"):
        path.unlink()


# -- measuring


@pytest.mark.parametrize(("used", "limit", "over"), [(5, 0, False), (5, 5, False), (6, 5, True)])
def test_a_keep_is_over_its_quota_only_above_the_limit(used: int, limit: int, over: bool) -> None:
    assert Use(used, limit).over is over


def test_all_of_a_keep_is_measured_and_a_circular_link_ends(root: Path) -> None:
    (root / "journal" / "keep").mkdir(parents=True)
    (root / "journal" / "keep" / "000001.jsonl").write_bytes(b"x" * 1000)
    (root / "index.sqlite").write_bytes(b"x" * 50)
    (root / "nowhere").symlink_to("nowhere")
    assert measure(RealHost(), str(root)) == 1050
    (root / "journal" / "loop").symlink_to(root / "journal")
    assert measure(RealHost(), str(root)) >= 1050


class Measured(RealHost):
    """A clock that the test sets, and a count of walks."""

    def __init__(self, root: Path) -> None:
        self.ns = 10**18
        self.walks = 0
        self._root = str(root)

    def now(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)

    def entries(self, folder: str) -> list[FolderEntry]:
        self.walks += folder == self._root
        return super().entries(folder)


def test_a_keep_is_measured_at_intervals_and_writes_in_between_count(root: Path) -> None:
    root.mkdir()
    host = Measured(root)
    pressed: list[int] = []
    quota = Quota(host, str(root), 1000, lambda: pressed.append(1))
    assert {quota.problem() for _ in range(100)} == {""}
    assert (host.walks, pressed) == (1, [])
    (root / "what others wrote").write_bytes(b"x" * 900)
    assert not quota.problem()
    host.ns += 11 * 10**9
    assert not quota.problem()
    assert host.walks == 2
    (root / "what we wrote").write_bytes(b"x" * 200)
    assert not quota.problem()
    quota.wrote([Event("id", "kind", "", {})])
    assert "MiB" in quota.problem()
    assert (host.walks, pressed) == (3, [1])  # looked at again after compressing, which did not help
    for _ in range(100):
        assert quota.problem()
    assert (host.walks, pressed) == (3, [1])
    host.ns -= 3600 * 10**9  # a clock that is set back
    assert quota.problem()
    assert (host.walks, pressed) == (4, [1])


def test_without_a_quota_nothing_is_measured(tmp_path: Path, root: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    host = Measured(root)
    with limited(root, 0, host=host) as keep:
        assert [one.state for one in ingest(keep, home)] == ["new"]
        assert keep.status()["quota"] is None
        assert not [check for check in keep.doctor() if check["check"] == "quota"]
    assert host.walks == 0


# -- what waits, and what does not


def test_above_the_quota_new_bytes_of_transcripts_wait_and_say_why(full: Path, root: Path) -> None:
    with (full / ".claude/projects/-home-dev-shop" / f"{SID}.jsonl").open("ab") as grows:
        grows.write(record(21, "more"))
    home_with(full.parent, random_records(2, 100, OTHER), OTHER)
    home_with(full.parent, b"", "nothing-in-it")
    with limited(root, 0.1) as keep:
        before = captured_bytes(keep)
        found = {one.session: one for one in ingest(keep, full) if one.state != "empty"}
        assert {one.state for one in found.values()} == {"paused"}
        assert set(found) == {f"claude:{SID}", f"claude:{OTHER}"}
        for one in found.values():
            assert (one.new_bytes, one.new_events) == (0, 0)
            assert one.problem and all(word in one.problem for word in ("0.1 MiB", "quota_mb", "delete", "move"))
        assert captured_bytes(keep) == before
        assert [one.id for one in keep.sessions()] == [f"claude:{SID}"]


def test_when_there_is_room_again_reading_continues_at_the_same_byte(full: Path, root: Path) -> None:
    file = full / ".claude/projects/-home-dev-shop" / f"{SID}.jsonl"
    with file.open("ab") as grows:
        grows.write(record(21, "half a line")[:-20])
    home_with(full.parent, random_records(2, 100, OTHER), OTHER)
    with limited(root, 0.1) as keep:
        assert [one.state for one in ingest(keep, full)] == ["paused", "paused"]
    with file.open("ab") as grows:
        grows.write(record(21, "half a line")[-20:])
    with limited(root, 100) as keep:
        found = {one.session: (one.state, one.new_bytes) for one in ingest(keep, full)}
        assert found == {
            f"claude:{SID}": ("grew", len(record(21, "half a line"))),
            f"claude:{OTHER}": ("new", len(random_records(2, 100, OTHER))),
        }
        assert captured_bytes(keep) == file.read_bytes()
        assert [one.new_events for one in ingest(keep, full)] == [0, 0]


def test_deleting_a_session_makes_room_at_once(full: Path, root: Path) -> None:
    with limited(root, 0.1) as keep:
        home_with(full.parent, random_records(2, 100, OTHER), OTHER)
        assert [one.state for one in ingest(keep, full)] == ["unchanged", "paused"]
        keep.delete(SID)
        Path(keep.root, "index.sqlite").unlink()
        assert [one.state for one in ingest(keep, full)] == ["deleted", "new"]


def test_a_long_transcript_is_read_until_the_keep_is_full_and_continued_later(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_APPEND", 10_000)
    home, file = home_with(tmp_path, random_records(60, 20_000))
    with limited(root, 0.5) as keep:
        [one] = ingest(keep, home)
        assert one.state == "paused"
        assert 100_000 < one.new_bytes < file.stat().st_size
        assert captured_bytes(keep) == file.read_bytes()[: one.new_bytes]
        assert measure(RealHost(), str(root)) < 0.8 * MIB  # a frame more, at most
        [again] = ingest(keep, home)
        assert (again.state, again.new_bytes) == ("paused", 0)
    with limited(root, 100) as keep:
        [rest] = ingest(keep, home)
        assert (rest.state, rest.new_bytes) == ("grew", file.stat().st_size - one.new_bytes)
        assert captured_bytes(keep) == file.read_bytes()


def test_a_fork_does_not_pause_within_its_copied_records(full: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause, the rest could not be recognised as a copy."""
    monkeypatch.setattr(copying, "_APPEND", 10_000)
    fork = "0a000000-0000-4000-8000-00000000000f"
    own = record(30, "its own way", timestamp="2026-11-02T10:00:00.000Z", uuid="f1", sessionId=fork)
    home_with(
        full.parent,
        random_records(20, 20_000).replace(SID.encode(), fork.encode()) + own + random_records(20, 20_000, fork, 2),
        fork,
    )
    with limited(root, 0.45) as keep:
        [one] = [one for one in ingest(keep, full) if one.session == f"claude:{fork}"]
        assert one.state == "paused" and one.new_bytes >= len(random_records(20, 20_000))
    shown = []
    for place in (root, full.parent / "other"):
        with limited(place, 100) as keep:
            ingest(keep, full)
            shown.append([(m["text"], m.get("mark")) for m in keep.show(fork)["messages"]])
    assert shown[0] == shown[1]
    assert Counter(mark for _, mark in shown[0])["copied"] == 20


def test_a_rewritten_file_is_read_whole_or_not_at_all(full: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause, old lines could not be told from new ones."""
    monkeypatch.setattr(copying, "_APPEND", 10_000)
    new = random_records(20, 20_000, seed=3)
    home, file = home_with(full.parent, new + random_records(20, 20_000))
    with limited(root, 0.45) as keep:
        assert [(one.state, one.new_bytes) for one in ingest(keep, home)] == [("rewritten", len(new))]
        assert captured_bytes(keep) == file.read_bytes()


def test_a_bad_line_before_a_pause_is_remembered_when_reading_continues(
    full: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit relies on it: otherwise it would overlook the bad line."""
    monkeypatch.setattr(copying, "_APPEND", 10_000)
    home, file = home_with(full.parent, random_records(20, 20_000) + b"no record\n" + random_records(20, 20_000, seed=2))
    with limited(root, 0.45) as keep:
        assert [one.state for one in ingest(keep, home)] == ["paused"]
    with limited(root, 100) as keep:
        assert [one.state for one in ingest(keep, home)] == ["grew"]
        seen = Cache(RealHost(), keep.root).get(str(file))
        assert seen and seen.odd != 0


def test_cold_parts_are_compressed_before_any_source_waits(tmp_path: Path, root: Path) -> None:
    home, _ = home_with(tmp_path, b"".join(record(n, "the same words again " * 1000) for n in range(1, 40)))
    with limited(root, 0.4) as keep:
        assert [one.state for one in ingest(keep, home)] == ["new"]
        home_with(tmp_path, random_records(2, 100, OTHER), OTHER)
        forget_index(root)
        assert measure(RealHost(), str(root)) > 0.4 * MIB
        assert [one.state for one in ingest(keep, home)] == ["unchanged", "new"]
        assert list(root.rglob("*.jsonl.zst"))
        assert measure(RealHost(), f"{root}/journal") < 0.4 * MIB


def test_failing_compression_is_reported_and_stops_nothing_else(full: Path, root: Path) -> None:
    def fails() -> None:
        raise OSError(5, "the disk refused")

    quota = Quota(RealHost(), str(root), 1000, fails)
    assert "the disk refused" in quota.problem()


def test_deleted_and_excluded_sources_are_not_reported_as_waiting(full: Path, root: Path) -> None:
    home_with(full.parent, random_records(2, 100, OTHER), OTHER)
    with Keep.open(root) as keep:
        ingest(keep, full)
        keep.delete(OTHER)
    home_with(full.parent, record(1, sessionId="secret", cwd="/secret"), "secret")
    (root / "keep.toml").write_text('[retention]\nquota_mb = 0.1\n[capture]\nexclude = ["/secret"]\n')
    with Keep.open(root, environment={}) as keep:
        assert Counter(one.state for one in ingest(keep, full)) == {"unchanged": 1, "deleted": 1, "excluded": 1}


def test_rows_of_a_database_wait_and_are_captured_exactly_later(full: Path, root: Path, tmp_path: Path) -> None:
    home = tmp_path / "agents"
    hermes.write(home)
    with limited(root, 0.1) as keep:
        states = Counter(one.state for one in keep.ingest(home=home, agents=["hermes"]))
        assert set(states) <= {"paused", "empty"} and states["paused"]
        assert [one.agent for one in keep.sessions()] == ["claude"]
    shown = []
    for name in ("keep", "other"):
        with limited(tmp_path / name, 100) as keep:
            assert "paused" not in {one.state for one in keep.ingest(home=home, agents=["hermes"])}
            sessions = [one.id for one in keep.sessions(agent="hermes")]
            shown.append({one: keep.show(one)["messages"] for one in sorted(sessions)})
    assert shown[0] == shown[1]


def test_hooks_tap_and_python_are_still_recorded_in_a_full_keep(full: Path, root: Path) -> None:
    """These calls and frames have no other copy."""
    home_with(full.parent, random_records(2, 100, OTHER), OTHER)
    transcript = full / ".claude/projects/-home-dev-shop" / f"{OTHER}.jsonl"
    payload = {"session_id": OTHER, "cwd": "/w", "prompt": "to a hook", "transcript_path": str(transcript)}
    words = [sys.executable, "-I", "-S", hook.__file__, "claude", "UserPromptSubmit", str(root)]
    subprocess.run(words, input=json.dumps(payload).encode(), check=True, timeout=10)
    with limited(root, 0.1) as keep:
        keep.session("mine").record("to python", ("assistant", "an answer"))
        assert keep.drain() == {"calls": 1, "sessions": 1, "busy": False, "problems": []}
        assert [m["text"] for m in keep.show(OTHER)["messages"]] == ["to a hook"]
        assert [m["text"] for m in keep.show("mine")["messages"]] == ["to python", "an answer"]
    (root / "keep.toml").write_text("[retention]\nquota_mb = 0.1\n")
    tap = [sys.executable, "-m", "dreamkeep", "--keep", str(root), "tap", "--", "cat"]
    assert subprocess.run(tap, input=b"to the tap\n", capture_output=True, timeout=20, check=True).stdout == b"to the tap\n"
    assert b"to the tap" in (root / "journal/keep/000001.jsonl").read_bytes()


# -- what commands report


def test_status_doctor_and_ingest_report_a_full_keep(full: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "keep.toml").write_text("[retention]\nquota_mb = 0.1\n")
    for n in range(3):
        home_with(full.parent, random_records(2, 100, f"{OTHER[:-1]}{n + 2}"), f"{OTHER[:-1]}{n + 2}")
    keep = ["--keep", str(root)]
    assert main([*keep, "ingest", "--home", str(full), "--agent", "claude"]) == 1
    out = capsys.readouterr().out
    assert out.count("quota_mb") == 1 and "✗ 3 of them paused" in out
    assert main([*keep, "--json", "ingest", "--home", str(full), "--agent", "claude"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["totals"]["paused"] == 3 and told["totals"]["failed"] == 0
    assert {one["problem"].count("quota_mb") for one in told["sources"] if one["state"] == "paused"} == {1}
    assert main([*keep, "--json", "status"]) == 0
    quota = json.loads(capsys.readouterr().out)["quota"]
    assert (quota["limit"], quota["over"]) == (int(0.1 * MIB), True) and quota["used"] > quota["limit"]
    main([*keep, "status"])
    assert "quota" in capsys.readouterr().out
    assert main([*keep, "--json", "doctor"]) == 1
    [check] = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["check"] == "quota"]
    assert not check["ok"] and "quota_mb" in check["next"]
    (root / "keep.toml").write_text("[retention]\nquota_mb = 100\n")
    main([*keep, "--json", "doctor"])
    [check] = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["check"] == "quota"]
    assert check["ok"]


class Hurried(CountingHost):
    """Sleeping only moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ns = 0

    def now(self) -> int:
        return super().now() + self.ahead_ns

    def sleep(self, seconds: float) -> None:
        self.ahead_ns += int(seconds * 1e9)


def test_a_watcher_reports_a_waiting_source_once_and_reads_it_when_there_is_room(full: Path, root: Path) -> None:
    home_with(full.parent, random_records(2, 100, OTHER), OTHER)
    waiting = str(full / ".claude/projects/-home-dev-shop" / f"{OTHER}.jsonl")
    host = Hurried()
    told: list[tuple[str, str]] = []
    steps: list[int] = []
    with limited(root, 0.1, host=host) as keep:
        for one in keep.watch(home=full, agents=["claude"], polling=True, stopped=lambda: len(steps) > 200):
            steps.append(1)
            if one is not None:
                told.append((one.session, one.state))
            if len(steps) == 10:
                assert told == [(f"claude:{OTHER}", "paused")]
                host.opened.clear()
            if len(steps) == 100:
                assert waiting not in host.opened
                assert told == [(f"claude:{OTHER}", "paused")]
                with Keep.open(root) as other:
                    other.delete(SID)
                (root / "index.sqlite").unlink()
            if told[-1][1] == "new":
                break
    assert (f"claude:{OTHER}", "new") in told
    assert [state for session, state in told if session == f"claude:{OTHER}"] == ["paused", "new"]
