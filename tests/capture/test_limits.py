"""Nothing fills the user's disk: compressed bombs, endless files and a full disk pause the reading, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard

from dreamkeep import Keep
from dreamkeep.capture import quota
from dreamkeep.capture.quota import SourceLimits, reserve_of
from dreamkeep.host import DiskSpace, RealHost
from dreamkeep.surfaces.cli import main
from tests.agents import goose
from tests.agents.suite import assert_rejoined
from tests.helpers.claude_home import SID, captured_bytes, home_with, ingest, random_records, record, shown_texts

MIB = 1 << 20
GIB = 1 << 30
DAY_NS = 24 * 3600 * 10**9
THREAD = "0199a000-1000-7000-8000-00000000000a"
META = b'{"timestamp":"2026-10-03T11:00:00Z","type":"session_meta","payload":{"id":"%b","cwd":"/work"}}\n' % THREAD.encode()


class Machine(RealHost):
    """A host whose clock and disk space are set by the test."""

    def __init__(self, free: int = 100 * GIB) -> None:
        self.free = free
        self.later_ns = 0

    def now(self) -> int:
        return super().now() + self.later_ns

    def disk_space(self, path: str) -> DiskSpace:
        return DiskSpace(self.free, 1000 * GIB)


def limited(root: Path, host: RealHost | None = None, **settings: float) -> Keep:
    environment = {f"DREAMKEEP_CAPTURE_{key.upper()}": str(value) for key, value in settings.items()}
    return Keep.open(root, environment=environment, host=host or Machine())


def codex_home(tmp_path: Path, data: bytes) -> tuple[Path, Path]:
    home = tmp_path / "home"
    file = home / ".codex/sessions/2026/10/03" / f"rollout-2026-10-03T11-00-00-{THREAD}.jsonl.zst"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(zstandard.ZstdCompressor().compress(data))
    return home, file


def bomb(size: int) -> bytes:
    """A session, then the same line many times, which compresses a thousandfold."""
    line = b'{"timestamp":"2026-10-03T11:00:01Z","type":"event_msg","payload":{"type":"user_message","message":"%b"}}\n' % (
        b"a" * 900
    )
    return META + line * (size // len(line))


def taken(keep: Keep, home: Path) -> list[Any]:
    return list(keep.ingest(home=home, agents=["codex"]))


@pytest.fixture
def low_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the floor, so that a few megabytes already count as a bomb."""
    monkeypatch.setattr(quota, "_UNPACKED_ANYWAY", MIB)


# -- compressed files


@pytest.mark.parametrize(
    ("packed", "expansion", "most"),
    [(251 << 10, 200, 64 * MIB), (MIB, 200, 200 * MIB), (10 * MIB, 30, 300 * MIB), (5, 0, None)],
)
def test_a_packed_file_gives_at_most_so_many_bytes(packed: int, expansion: float, most: int | None) -> None:
    assert SourceLimits(expansion, 0).most_unpacked(packed) == most


def test_a_bomb_is_read_up_to_its_limit_and_reported_everywhere(
    tmp_path: Path, low_floor: None, capsys: pytest.CaptureFixture[str]
) -> None:
    home, file = codex_home(tmp_path, bomb(20 * MIB))
    assert file.stat().st_size < 20_000
    with limited(tmp_path / "keep") as keep:
        [one] = taken(keep, home)
        assert (one.state, one.session) == ("paused", f"codex:{THREAD}")
        assert one.problem and "`expansion` under [capture]" in one.problem
        assert 0.9 * MIB < one.new_bytes <= 4 * MIB
        assert sum(path.stat().st_size for path in (tmp_path / "keep/journal").rglob("*") if path.is_file()) < 8 * MIB
        assert keep.status()["paused"] == [{"source": str(file), "session": one.session, "problem": one.problem}]
        assert [check["what"] for check in keep.doctor() if check["check"] == "source"] == [f"{file}: {one.problem}"]
        assert keep.audit(home=home)["faults"] == []
    assert main(["--keep", str(tmp_path / "keep"), "status"]) == 0
    assert f"paused    {file}" in capsys.readouterr().out
    with limited(tmp_path / "keep") as keep:
        keep.delete(THREAD)
        assert keep.status()["paused"] == []
    assert not (tmp_path / "keep/state/paused.json").exists()


def test_a_paused_bomb_is_not_unpacked_again(tmp_path: Path, low_floor: None) -> None:
    home, file = codex_home(tmp_path, bomb(20 * MIB))
    with limited(tmp_path / "keep") as keep:
        [first] = taken(keep, home)

    class Blind(Machine):
        def open_stream(self, path: str) -> Any:
            assert path != str(file)
            return super().open_stream(path)

    with limited(tmp_path / "keep", Blind()) as keep:
        [again] = taken(keep, home)
        assert (again.state, again.problem, again.new_events) == ("paused", first.problem, 0)


@pytest.mark.parametrize("redact", [0, 1])
def test_with_a_raised_limit_reading_continues_and_nothing_is_lost_or_doubled(
    tmp_path: Path, low_floor: None, redact: int
) -> None:
    home, file = codex_home(tmp_path, bomb(3 * MIB))
    with limited(tmp_path / "keep", redact_raw=redact) as keep:
        [first] = taken(keep, home)
        assert first.state == "paused"
    with limited(tmp_path / "keep", expansion=100_000, redact_raw=redact) as keep:
        [rest] = taken(keep, home)
        assert (rest.state, rest.problem) == ("grew", None)
        whole = zstandard.ZstdDecompressor().stream_reader(file.read_bytes(), read_across_frames=True).read()
        assert first.new_bytes + rest.new_bytes == len(whole)
        assert_rejoined(keep)
        assert keep.status()["paused"] == []
    with limited(tmp_path / "keep", redact_raw=redact) as keep:
        [kept] = list(keep.ingest(home=home, agents=["codex"], again=True))
        assert (kept.state, kept.new_events) == ("unchanged", 0), "a limit that is lowered again makes nothing shrink"


def test_a_transcript_that_its_agent_compresses_is_recognised_at_any_ratio(tmp_path: Path, low_floor: None) -> None:
    home, file = codex_home(tmp_path, b"")
    plain = file.with_name(file.name.removesuffix(".zst"))
    file.unlink()
    plain.write_bytes(bomb(3 * MIB))
    with limited(tmp_path / "keep") as keep:
        assert [one.state for one in taken(keep, home)] == ["new"]
        codex_home(tmp_path, plain.read_bytes())
        plain.unlink()
        assert [one.state for one in taken(keep, home) if one.state != "vanished"] == ["moved"]


def test_an_ordinary_compressed_transcript_meets_no_limit(tmp_path: Path) -> None:
    home, _ = codex_home(tmp_path, bomb(30 * MIB))
    with limited(tmp_path / "keep") as keep:
        assert [(one.state, one.problem) for one in taken(keep, home)] == [("new", None)]


# -- the limit of a day


def test_a_source_is_read_up_to_its_limit_each_day_and_continues_the_next_day(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, random_records(60, 100_000))
    home_with(tmp_path, record(1, "another"), "other")
    host = Machine()
    states = []
    for _ in range(4):
        with limited(tmp_path / "keep", host, source_mb_per_day=2) as keep:
            found = {one.session: one for one in ingest(keep, home)}
            assert shown_texts(keep, "other") == ["another"]
            one = found[f"claude:{SID}"]
            states.append(one.state)
            assert one.new_bytes < 5 * MIB
            if one.state == "paused":
                assert one.problem and "`source_mb_per_day` under [capture]" in one.problem and "tomorrow" in one.problem
                assert [one["session"] for one in keep.status()["paused"]] == [f"claude:{SID}"]
            assert [again.new_events for again in ingest(keep, home)] == [0, 0], "on the same day nothing more comes"
        host.later_ns += DAY_NS
    with limited(tmp_path / "keep", host) as keep:
        ingest(keep, home)
        assert keep.status()["paused"] == []
        assert captured_bytes(keep) == file.read_bytes()
    assert states[:2] == ["paused", "paused"]


def test_with_a_raised_daily_limit_reading_continues_at_once(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, random_records(60, 100_000))
    with limited(tmp_path / "keep", source_mb_per_day=1) as keep:
        assert [one.state for one in ingest(keep, home)] == ["paused"]
    with limited(tmp_path / "keep", source_mb_per_day=0) as keep:
        assert [one.state for one in ingest(keep, home)] == ["grew"]
        assert captured_bytes(keep) == file.read_bytes()


def test_a_file_that_is_rewritten_much_larger_waits_before_any_of_it_is_read(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1, "first"))
    with limited(tmp_path / "keep", source_mb_per_day=1) as keep:
        ingest(keep, home)
        with file.open("wb") as rewritten:
            rewritten.truncate(300 * MIB)
        [one] = ingest(keep, home)
        assert (one.state, one.new_bytes) == ("paused", 0)
        assert one.problem and "300.0 MiB more are waiting" in one.problem
        file.write_bytes(record(1, "second"))
        assert [one.state for one in ingest(keep, home)] == ["rewritten"]
        assert keep.status()["paused"] == []


def test_each_session_of_a_database_has_its_own_daily_limit(tmp_path: Path) -> None:
    goose.write(tmp_path / "home")
    with limited(tmp_path / "keep", source_mb_per_day=0.0001) as keep:
        list(keep.ingest(home=tmp_path / "home", agents=["goose"]))
        assert len(keep.sessions()) == len(goose.EXPECTED["sessions"])


# -- the reserve of the disk


@pytest.mark.parametrize(
    ("total", "asked", "reserve"),
    [
        (4000 * GIB, None, 10 * GIB),
        (300 * GIB, None, 6 * GIB),
        (40 * GIB, None, GIB),
        (5 * GIB, None, GIB // 2),
        (MIB, None, MIB // 10),
        (4000 * GIB, 0, 0),
        (5 * GIB, 3 * GIB, 3 * GIB),
    ],
)
def test_the_reserve_of_free_space_comes_from_the_disk_or_from_the_setting(total: int, asked: int | None, reserve: int) -> None:
    assert reserve_of(total, asked) == reserve


def test_below_the_reserve_transcripts_wait_and_python_sessions_are_still_recorded(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1, "hello"))
    host = Machine(free=3 * GIB)
    with limited(tmp_path / "keep", host) as keep:
        keep.session("mine").record("said")
        [one] = ingest(keep, home)
        assert one.state == "paused"
        assert one.problem and "3,072.0 MiB free" in one.problem and "`reserve_mb` under [capture]" in one.problem
        assert keep.status()["disk"] == {"free": 3 * GIB, "reserve": 10 * GIB, "short": True}
        [space] = [check for check in keep.doctor() if check["check"] == "space"]
        assert not space["ok"] and "no transcripts are imported" in space["what"] and "reserve_mb" in space["next"]
        host.free = 20 * GIB
        assert [one.state for one in ingest(keep, home)] == ["new"]
        assert shown_texts(keep) == ["hello"]
        assert next(check for check in keep.doctor() if check["check"] == "space")["ok"]
    host.free = GIB
    with limited(tmp_path / "keep", host, reserve_mb=500) as keep:
        assert keep.status()["disk"] is None
