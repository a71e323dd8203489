"""Restore: a session goes back to its own agent byte for byte and to others converted, and never overwrites anything else."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.agents.claude.writer import folder
from dreamkeep.agents.contract import LINES, SHARED, Source
from dreamkeep.agents.gemini import writer as gemini
from dreamkeep.agents.hermes import recovery as statedb
from dreamkeep.agents.shared import database
from dreamkeep.capture.find import everywhere
from dreamkeep.capture.ingest import Ingest
from dreamkeep.capture.sources import source_bytes
from dreamkeep.errors import BadUsage, Busy, Failed, NotDurable, NotFound, Unsupported
from dreamkeep.event import Ids, Kind
from dreamkeep.host import RealHost, make_folders, read_file
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.restore import put, restore
from dreamkeep.recovery.restore.places import Home
from dreamkeep.session.summary import Summary
from tests.agents.described import described
from tests.agents.hermes import Hermes
from tests.agents.suite import files_held as held
from tests.agents.suite import tree
from tests.helpers.agent_samples import REAL_TRANSCRIPTS, WITH_FILES, load_generator
from tests.helpers.cli import Ran
from tests.helpers.faults import LOSSES, FragileHost, PowerCut
from tests.helpers.restorable import WITH_ROWS, captured, claude_file, claude_line, rows_of

HOST = RealHost()
REAL_AGENTS = ["claude", "codex", "gemini", "hermes", "pi"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def all_back(keep: Keep, **how: Any) -> Iterator[dict[str, Any]]:
    for session in keep.sessions():
        yield keep.restore(session.id, session.agent, **how)


def seen(keep: Keep) -> dict[str, Any]:
    """What people see of every session, without the places of frames."""
    found = {}
    for session in keep.sessions():
        shown = keep.show(session.id)
        said = [[m["role"], m["text"], m.get("mark"), m["at"], m.get("tool")] for m in shown["messages"]]
        found[session.id] = [described(shown), sorted(said, key=repr)]
    return found


# -- byte for byte


@pytest.mark.parametrize("agent", [*WITH_FILES, WITH_ROWS])
def test_restored_into_a_fresh_home_they_are_captured_as_the_same_sessions(
    agent: str, keep: Keep, home: Path, tmp_path: Path
) -> None:
    captured(keep, agent, home)
    for done in all_back(keep, home=tmp_path / "new"):
        assert done["exact"]
    with Keep.open(tmp_path / "second") as second:
        found = list(second.ingest(agents=[agent], home=tmp_path / "new"))
        assert [one.problem for one in found if one.problem] == []
        assert seen(second) == seen(keep)


def _told(keep: Keep) -> dict[str, Any]:
    """The same without the number of records that no reader understood: those are counted in every file."""
    return {
        session: [{**about, "unknown": set(about["unknown"]), "odd": 0}, said] for session, (about, said) in seen(keep).items()
    }


@pytest.mark.parametrize("agent", [*WITH_FILES, WITH_ROWS])
def test_a_session_that_is_captured_from_a_second_place_too_reads_as_before(
    agent: str, keep: Keep, home: Path, tmp_path: Path
) -> None:
    """Nothing is doubled, and no message after a rewind is marked as rewound."""
    captured(keep, agent, home)
    before = _told(keep)
    assert before
    for done in all_back(keep, home=tmp_path / "new"):
        assert done["exact"]
    assert [one.problem for one in keep.ingest(agents=[agent], home=tmp_path / "new") if one.problem] == []
    assert _told(keep) == before
    keep.reindex(from_zero=True)
    assert _told(keep) == before


def test_a_rewind_in_a_restored_session_that_continues_counts(keep: Keep, home: Path, tmp_path: Path) -> None:
    sid = "5f0c2d1e-0000-4000-8000-0000000000cc"

    def line(n: int, role: str, parent: int | None, text: str) -> bytes:
        content = text if role == "user" else [{"type": "text", "text": text}]
        message = {"role": role, "content": content, **({"id": f"msg_{n}"} if role == "assistant" else {})}
        about = {"type": role, "uuid": f"u{n}", "parentUuid": f"u{parent}" if parent else None, "sessionId": sid, "cwd": "/w"}
        return json.dumps({**about, "timestamp": f"2026-05-12T08:00:{n:02d}.000Z", "message": message}).encode() + b"\n"

    data = b"".join(
        (
            line(1, "user", None, "one"),
            line(2, "assistant", 1, "done"),
            line(3, "user", 2, "a wrong way"),
            line(4, "assistant", 3, "gone wrong"),
            line(5, "user", 2, "a right way"),
            line(6, "assistant", 5, "gone right"),
        )
    )
    path = home / ".claude" / "projects" / "-w" / f"{sid}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    list(keep.ingest(home=home))
    [file] = keep.restore(sid, "claude", home=tmp_path / "new")["files"]
    with open(file["path"], "ab") as there:
        there.write(line(7, "user", 6, "and then?"))
    list(keep.ingest(home=tmp_path / "new"))
    said = {m["text"]: m.get("mark") for m in keep.show(sid)["messages"]}
    assert [text for text, mark in said.items() if mark] == ["a wrong way", "gone wrong"]
    with open(file["path"], "ab") as there:
        there.write(line(8, "user", 2, "a third way"))
    list(keep.ingest(home=tmp_path / "new"))
    said = {m["text"]: m.get("mark") for m in keep.show(sid)["messages"]}
    assert [text for text, mark in said.items() if not mark] == ["one", "done", "a third way"]


def test_a_rewind_as_the_first_change_in_a_second_place_counts(keep: Keep, home: Path, tmp_path: Path) -> None:
    """The first new words there are what takes something back."""
    path = claude_file(home, 5)
    lines = [json.loads(one) for one in path.read_bytes().splitlines()]
    list(keep.ingest(home=home))
    [file] = keep.restore(path.stem, "claude", home=tmp_path / "new")["files"]
    prompts = [one for one in lines if one["type"] == "user"]
    last = {**prompts[-1], "uuid": "another", "timestamp": "2027-01-01T00:00:00.000Z"}
    last["message"] = {"role": "user", "content": "otherwise"}
    with open(file["path"], "ab") as there:
        there.write(json.dumps(last).encode() + b"\n")
    list(keep.ingest(home=tmp_path / "new"))
    said = {m["text"]: m.get("mark") for m in keep.show(path.stem)["messages"]}
    assert said[prompts[-1]["message"]["content"]] == "rewound" and not said["otherwise"]
    assert not said[prompts[0]["message"]["content"]]


def _cut(lines: list[bytes], at: int) -> bytes:
    return b"".join(lines[:at])


def _torn(lines: list[bytes], at: int) -> bytes:
    return b"".join(lines[:at]) + b"".join(line[: len(line) // 2] for line in lines[at : at + 1])


def _gutted(lines: list[bytes], at: int) -> bytes:
    return b"".join([*lines[:at], *lines[at + 3 :]])


@pytest.mark.parametrize("left", [_cut, _torn, _gutted])
@pytest.mark.parametrize("agent", WITH_FILES)
def test_a_transcript_that_was_cut_and_came_back_reads_as_before(
    agent: str, left: Callable[[list[bytes], int], bytes], keep: Keep, home: Path
) -> None:
    """Wherever it was cut, nothing is doubled and nothing more is marked as rewound."""
    captured(keep, agent, home)
    found = [one for one in everywhere(HOST, str(home), {}, [agent]) if isinstance(one, Source)]
    if not any(one.form == LINES and one.role == "main" for one in found):
        pytest.skip(f"{agent} has no transcript of lines")
    before, kept = _told(keep), held(keep)
    assert before
    whole = {path: path.read_bytes() for path in (Path(one.path) for one in found if one.form in (LINES, SHARED))}
    longest = max(data.count(b"\n") for data in whole.values())
    for at in range(0, longest, 1 if longest < 30 else 3):
        for path, data in whole.items():
            path.write_bytes(left(data.splitlines(keepends=True), at))
        list(keep.ingest(agents=[agent], home=home))
        for path, data in whole.items():
            path.write_bytes(data)
        list(keep.ingest(agents=[agent], home=home))
        assert _told(keep) == before, at
    assert held(keep) == kept
    keep.reindex(from_zero=True)
    assert _told(keep) == before


#: A Codex session in which each prompt stands twice, and the second is known by the first alone.
def _codex_file(home: Path) -> Path:
    load_generator("codex").write(home)
    [path] = home.rglob("*0199a000-1000-7000-8000-00000000000a.jsonl")
    for other in home.rglob("*.jsonl"):
        if other != path:
            other.unlink()
    return path


def _comes_back(keep: Keep, home: Path, path: Path, *steps: bytes) -> dict[str, Any]:
    for data in steps:
        path.write_bytes(data)
        list(keep.ingest(agents=["codex"], home=home))
    found = _told(keep)
    keep.reindex(from_zero=True)
    assert _told(keep) == found
    return found


def test_a_transcript_that_was_cut_twice_and_came_back_bit_by_bit_reads_as_before(keep: Keep, home: Path) -> None:
    path = _codex_file(home)
    list(keep.ingest(agents=["codex"], home=home))
    before = _told(keep)
    whole = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 10]
    steps = [whole[: ends[40]], whole[: ends[5] + 9], b"", *(whole[: end - 7] for end in ends[:-1]), whole]
    assert _comes_back(keep, home, path, *steps) == before


def test_what_goes_on_behind_a_transcript_that_came_back_is_read(keep: Keep, home: Path, tmp_path: Path) -> None:
    """Whether it went on after it was whole again, or before anybody looked."""
    path = _codex_file(home)
    whole = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 10]
    cut = whole[: ends[25]]
    with Keep.open(tmp_path / "never-cut") as other:
        list(other.ingest(agents=["codex"], home=home))
        expected = _told(other)
    path.write_bytes(whole[: ends[-12]])
    list(keep.ingest(agents=["codex"], home=home))
    assert _comes_back(keep, home, path, cut, whole) == expected


def test_a_transcript_that_goes_on_otherwise_after_it_was_cut_is_read_as_it_goes_on(keep: Keep, home: Path) -> None:
    path = claude_file(home, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    list(keep.ingest(home=home))
    path.write_bytes(b"".join(lines[:-2]))
    list(keep.ingest(home=home))
    asked = next(json.loads(line) for line in reversed(lines) if json.loads(line)["type"] == "user")
    asked |= {"uuid": "another", "message": {"role": "user", "content": "otherwise"}, "timestamp": "2027-01-01T00:00:00.000Z"}
    path.write_bytes(b"".join(lines[:-2]) + json.dumps(asked).encode() + b"\n")
    list(keep.ingest(home=home))
    assert "otherwise" in [m["text"] for m in keep.show(path.stem)["messages"]]


def test_contents_that_were_blanked_and_came_back_are_shown_again(keep: Keep, home: Path) -> None:
    """The same records, read with nothing in them in between: what was known before has to be read once more."""
    path = claude_file(home, 5)
    whole = path.read_bytes()
    list(keep.ingest(home=home))
    before = _told(keep)
    said = [m["text"] for m in keep.show(path.stem)["messages"] if m["role"] == "user"]
    path.write_bytes(whole.replace(json.dumps(said[0]).encode(), b'"x"'))
    assert path.read_bytes() != whole
    list(keep.ingest(home=home))
    assert _told(keep) != before
    path.write_bytes(whole)
    list(keep.ingest(home=home))
    assert _told(keep) == before


def test_repeated_lines_are_read_if_their_first_frame_is_lost(keep: Keep, home: Path) -> None:
    path = claude_file(home, 5)
    whole = path.read_bytes()
    list(keep.ingest(home=home))
    before = [m["text"] for m in keep.show(path.stem)["messages"]]
    for data in (b"", whole):
        path.write_bytes(data)
        list(keep.ingest(home=home))
    [part] = Path(keep.root, folder_of(f"claude:{path.stem}")).glob("*.jsonl")
    frames = part.read_bytes().splitlines(keepends=True)
    first = next(n for n, frame in enumerate(frames) if b'"source.read"' in frame)
    frames[first] = b"#" * (len(frames[first]) - 1) + b"\n"
    part.write_bytes(b"".join(frames))
    keep.reindex(from_zero=True)
    assert [m["text"] for m in keep.show(path.stem)["messages"]] == before


@pytest.mark.parametrize("agent", REAL_AGENTS)
def test_real_transcripts_come_back_byte_for_byte(agent: str, keep: Keep, tmp_path: Path) -> None:
    if not (REAL_TRANSCRIPTS / agent).is_dir():
        pytest.skip("no real transcripts on this machine; set DREAMKEEP_TRANSCRIPTS")
    home = tmp_path / "home"
    shutil.copytree(REAL_TRANSCRIPTS / agent, home)
    list(keep.ingest(agents=[agent], home=home))
    before = held(keep)
    assert before or agent == WITH_ROWS
    list(all_back(keep, home=tmp_path / "new"))
    with Keep.open(tmp_path / "second") as second:
        list(second.ingest(agents=[agent], home=tmp_path / "new"))
        assert seen(second) == seen(keep)
        assert sorted(held(second).values()) == sorted(before.values())


def test_hermes_rows_come_back_exactly_into_a_new_database(keep: Keep, home: Path) -> None:
    captured(keep, WITH_ROWS, home)
    state = home / ".hermes" / "state.db"
    before = {session.native_id: rows_of(state, session.native_id) for session in keep.sessions()}
    for name in home.rglob("state.db*"):
        name.unlink()
    list(all_back(keep))
    for native, held_rows in before.items():
        now = {key: json.loads(line)["row"] for key, line in rows_of(state, native).items()}
        assert {key: json.loads(line)["row"].items() <= now[key].items() for key, line in held_rows.items()} == dict.fromkeys(
            now, True
        )
    db = apsw.Connection(str(state))
    assert db.pragma("integrity_check") == "ok"
    [[found]] = db.execute("SELECT count(*) FROM messages_fts_trigram WHERE messages_fts_trigram MATCH 'deploy'")
    assert found > 0
    db.close()


def test_a_large_file_that_only_grew_comes_back_without_being_held(keep: Keep, home: Path, tmp_path: Path) -> None:
    path = claude_file(home, 300, words="a long story " * 500)
    assert path.stat().st_size > 1 << 20
    list(keep.ingest(home=home))
    with path.open("a") as file:
        file.write(claude_line(300, path.stem, "more") + '{"half')
    list(keep.ingest(home=home))
    [file_back] = keep.restore(path.stem, "claude", home=tmp_path / "new")["files"]
    assert Path(file_back["path"]).read_bytes() == path.read_bytes()


def test_a_companion_file_without_a_place_is_reported_and_stops_nothing(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "codex", home)
    moved = tmp_path / "anywhere"
    shutil.move(home / ".codex", moved)
    with Keep.open(tmp_path / "second") as second:
        list(second.ingest(agents=["codex"], paths=[moved]))
        named = [s.id for s in second.sessions() if second.restore(s.id, "codex", home=tmp_path / "new")["notes"]]
    assert named and not (tmp_path / "new" / ".codex" / "session_index.jsonl").exists()


def test_sessions_of_a_python_agent_can_be_restored_to_every_agent(keep: Keep, tmp_path: Path) -> None:
    session = keep.session("chat", cwd=tmp_path)
    turn = session.submit("why does the build fail?")
    turn.start()
    turn.add("assistant", "", tool={"id": "c1", "name": "shell", "input": {"command": "make"}})
    turn.add("tool", "no rule", tool={"id": "c1", "error": True})
    turn.add("assistant", "A rule is missing.")
    turn.settle("completed")
    for to in restore.list_targets():
        done = keep.restore("chat", to, home=tmp_path / to)
        with Keep.open(tmp_path / f"keep {to}") as second:
            list(second.ingest(agents=[to], home=tmp_path / to))
            [turn_back] = second.show(done["native_id"])["turns"]
            assert (turn_back["prompt"], turn_back["state"]) == ("why does the build fail?", "completed"), to


def test_subagents_and_what_lies_beside_come_back_before_the_session_itself(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "claude", home)
    parent = next(s for s in keep.sessions() if any(("subagent", s.id) in one.lineage for one in keep.sessions()))
    done = keep.restore(parent.id, "claude", home=tmp_path / "new")
    roles = [file["role"] for file in done["files"]]
    assert "subagent" in roles and roles[-1] == "main" and roles.count("main") == 1


def test_a_dry_run_writes_nothing(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "gemini", home)
    keep.sessions()
    before = tree(tmp_path)
    for session in keep.sessions():
        for to in restore.list_targets():
            done = keep.restore(session.id, to, home=tmp_path / "new", dry_run=True)
            assert done["dry_run"] and all(file["action"] == "created" for file in done["files"])
    assert tree(tmp_path) == before


# -- which version


def spoil(how: str, path: Path) -> None:
    whole = path.read_bytes()
    if how == "shrank":
        path.write_bytes(whole[: whole.index(b"\n") + 1])
    elif how == "blanked":
        path.write_bytes(b"\0" * len(whole))
    elif how == "blanked in part":
        path.write_bytes(whole[: len(whole) // 3] + bytes(len(whole) // 3) + whole[len(whole) // 3 * 2 :])
    elif how == "replaced":
        path.unlink()
        path.write_text(claude_line(0, path.stem, "another beginning"))
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["shrank", "blanked", "blanked in part", "replaced", "vanished"])
def test_the_richest_version_is_restored_and_reported(how: str, keep: Keep, home: Path, tmp_path: Path) -> None:
    """K4: what was lost in the file is not lost here."""
    path = claude_file(home, 20)
    whole = path.read_bytes()
    list(keep.ingest(home=home))
    spoil(how, path)
    list(keep.ingest(home=home))
    done = keep.restore(path.stem, "claude", home=tmp_path / "new")
    [file] = done["files"]
    assert Path(file["path"]).read_bytes() == whole and done["exact"]
    if how == "vanished":
        assert not any("version" in note for note in done["notes"]) and "generation" not in file
        return
    assert file["generation"] == 1 and file["generations"] == 2 and "version 1 of 2" in done["notes"][0]
    if how == "replaced":
        newest = keep.restore(path.stem, "claude", home=tmp_path / "newest", generation=2)
        assert Path(newest["files"][0]["path"]).read_bytes() == path.read_bytes()
    with pytest.raises(NotFound, match="no generation 7"):
        keep.restore(path.stem, "claude", home=tmp_path / "third", generation=7)


def test_what_a_user_cleared_stays_cleared(keep: Keep, home: Path, tmp_path: Path) -> None:
    """K3: Hermes WebUI notes that it was meant; without such a note the richer document is restored."""
    sessions = home / ".hermes" / "webui" / "sessions"
    sessions.mkdir(parents=True)
    said = [{"role": "user", "content": f"words {n}", "timestamp": 1000.0 + n} for n in range(30)]
    whole = {"session_id": "aaaaaaaaaaaa", "title": "t", "clear_generation": None, "messages": said}
    for native, cleared in (("aaaaaaaaaaaa", "c1"), ("bbbbbbbbbbbb", None)):
        path = sessions / f"{native}.json"
        path.write_text(json.dumps({**whole, "session_id": native}))
        list(keep.ingest(home=home))
        path.write_text(json.dumps({**whole, "session_id": native, "clear_generation": cleared, "messages": []}))
        list(keep.ingest(home=home))
    for native, kept in (("aaaaaaaaaaaa", 0), ("bbbbbbbbbbbb", 30)):
        [file] = keep.restore(native, "hermes-webui", home=tmp_path / "new")["files"]
        assert len(json.loads(Path(file["path"]).read_text())["messages"]) == kept


def test_what_was_lost_after_a_clear_comes_back_and_what_was_cleared_does_not(keep: Keep, home: Path, tmp_path: Path) -> None:
    """K3: a real loss after an intent is restored all the same."""
    path = home / ".hermes" / "webui" / "sessions" / "aaaaaaaaaaaa.json"
    path.parent.mkdir(parents=True)
    said = [{"role": "user", "content": f"words {n}", "timestamp": 1000.0 + n} for n in range(30)]
    new = [{"role": "user", "content": f"new words {n}", "timestamp": 5000.0 + n} for n in range(8)]
    for cleared, messages in ((None, said), ("c1", []), ("c1", new), ("c1", new[:2])):
        whole = {"session_id": path.stem, "title": "t", "clear_generation": cleared, "messages": messages}
        path.write_text(json.dumps(whole))
        list(keep.ingest(home=home))
    [found] = [one for one in keep.audit(home=home)["faults"] if one["class"] == "source_shrank"]
    assert "--home DIR" in found["next"], "over the file that is there nothing is put"
    done = keep.restore(path.stem, "hermes-webui", home=tmp_path / "new")
    assert json.loads(Path(done["files"][0]["path"]).read_text())["messages"] == new
    assert "version 3 of 4" in " ".join(done["notes"])


# -- never over something else


def test_the_present_file_decides_whether_it_is_replaced(keep: Keep, home: Path) -> None:
    path = claude_file(home, 5)
    whole = path.read_bytes()
    list(keep.ingest(home=home))

    def action() -> dict[str, Any]:
        [file] = keep.restore(path.stem, "claude")["files"]
        assert path.read_bytes() == whole
        return dict(file)

    assert action()["action"] == "unchanged"
    for there in (whole[:100], b"", b"\0" * len(whole), b" \n"):
        path.write_bytes(there)
        path.chmod(0o640)
        done = action()
        assert done["action"] == "replaced" and Path(done["aside"]).read_bytes() == there
        assert os.stat(path).st_mode & 0o777 == 0o640
    path.unlink()
    assert action()["action"] == "created"
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", [b'{"type":"user"}\n', None])
def test_a_richer_or_different_file_is_never_touched(there: bytes | None, keep: Keep, home: Path, tmp_path: Path) -> None:
    path = claude_file(home, 5)
    list(keep.ingest(home=home))
    there = there if there is not None else path.read_bytes() + b'{"more":1}\n'
    path.write_bytes(there)
    os.utime(path, (1, 1))
    before = tree(tmp_path / "home")
    with pytest.raises(Failed, match="another file is there") as refused:
        keep.restore(path.stem, "claude")
    assert refused.value.where == str(path) and "--home" in refused.value.next
    assert tree(tmp_path / "home") == before and not (Path(keep.root) / "aside").exists()
    done = keep.restore(path.stem, "claude", home=tmp_path / "other")
    assert done["files"][0]["action"] == "created"


def test_one_refusal_touches_none_of_the_files(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "claude", home)
    parent = next(s for s in keep.sessions() if any(("subagent", s.id) in one.lineage for one in keep.sessions()))
    done = keep.restore(parent.id, "claude", home=tmp_path / "new")
    for file in done["files"]:
        os.unlink(file["path"])
    Path(done["files"][-1]["path"]).write_text("something of somebody's\n")
    before = tree(tmp_path / "new")
    with pytest.raises(Failed, match="another file is there"):
        keep.restore(parent.id, "claude", home=tmp_path / "new")
    assert tree(tmp_path / "new") == before


def test_a_link_is_followed_and_not_replaced(keep: Keep, home: Path, tmp_path: Path) -> None:
    path = claude_file(home, 5)
    whole = path.read_bytes()
    list(keep.ingest(home=home))
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes(whole[:50])
    path.unlink()
    path.symlink_to(elsewhere)
    keep.restore(path.stem, "claude")
    assert path.is_symlink() and elsewhere.read_bytes() == whole


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("at", ["the file", "its folder", "the database"])
def test_nothing_is_written_through_a_link_that_is_dangling(
    keep: Keep, home: Path, tmp_path: Path, at: str, dry_run: bool
) -> None:
    """It is not where that agent keeps sessions, and its role is unknown."""
    path = claude_file(home, 5)
    list(keep.ingest(home=home))
    if at == "the database":
        captured(keep, WITH_ROWS, home)
        path = home / ".hermes/state.db"
    native = keep.sessions(agent=WITH_ROWS)[0].id if at == "the database" else path.stem
    link = path if at != "its folder" else path.parent.parent
    link.rename(tmp_path / "was")
    link.symlink_to(tmp_path / "somewhere")
    with pytest.raises(Failed, match="there is a link to nothing") as refused:
        keep.restore(native, WITH_ROWS if at == "the database" else "claude", dry_run=dry_run)
    assert str(link) in refused.value.where and "--home" in refused.value.next
    assert link.is_symlink() and not (tmp_path / "somewhere").exists()


class Meddling(RealHost):
    """Somebody writes to the file at the worst moment: right before it is replaced or published, or (`early`) right after it was
    set aside."""

    def __init__(self, path: Path, *, early: bool = False) -> None:
        self._path = path
        self._early = early

    def create(self, path: str) -> int:
        if self._early and path.startswith(str(self._path)):
            with open(self._path, "ab") as file:
                file.write(b"late words\n")
        return super().create(path)

    def _meddle(self, new: str) -> None:
        if new == str(self._path) and not self._early:
            with open(self._path, "ab") as file:
                file.write(b"late words\n")

    def replace(self, old: str, new: str) -> None:
        self._meddle(new)
        super().replace(old, new)

    def link(self, old: str, new: str) -> None:
        self._meddle(new)
        super().link(old, new)


def test_files_that_appear_or_change_during_a_restore_are_kept(tmp_path: Path) -> None:
    path, aside = tmp_path / "x.jsonl", str(tmp_path / "aside" / "s.restore-1")
    with pytest.raises(Failed, match="another file is there"):
        put.put_file(Meddling(path), str(path), lambda: [b"ours\n"], aside=aside)
    assert path.read_bytes() == b"late words\n"
    path.write_bytes(b"ou")
    with pytest.raises(Failed, match="another process wrote to the file"):
        put.put_file(Meddling(path), str(path), lambda: [b"ours\n"], aside=aside)
    assert path.read_bytes() == b"ours\n" and Path(f"{aside}.late").read_bytes() == b"oulate words\n"
    path.write_bytes(b"our")
    with pytest.raises(Failed, match="another file is there"):
        put.put_file(Meddling(path, early=True), str(path), lambda: [b"ours\n"], aside=f"{aside}.2")
    assert path.read_bytes() == b"ourlate words\n"
    assert sorted(os.listdir(tmp_path)) == ["aside", "x.jsonl"], "no temporary file is left"


# -- power cuts

ROOT, PLACE = "/keep", "/home/.claude/projects/-w/11111111-1111-4111-8111-111111111111.jsonl"
WHOLE = "".join(claude_line(n, "11111111-1111-4111-8111-111111111111", "words") for n in range(4)).encode()


def world(there: bytes | None, seed: int = 0) -> FragileHost:
    """A keep that has captured a file, of which `there` is left."""
    host = FragileHost(seed=seed)
    make_folders(host, os.path.dirname(PLACE))
    make_folders(host, ROOT)
    _write(host, WHOLE)
    ids = Ids(host.now, host.random)
    journals = JournalWriters(host, ROOT, ids)
    found = list(Ingest(host, ROOT, journals, ids).run([Source("claude", PLACE, session="s")]))
    assert [one.state for one in found] == ["new"]
    journals.close()
    host.remove(PLACE)
    host.sync_folder(os.path.dirname(PLACE))
    if there is not None:
        _write(host, there)
    return host


def _write(host: FragileHost, data: bytes) -> None:
    handle = host.create(PLACE)
    host.write(handle, data)
    host.sync(handle)
    host.close(handle)
    host.sync_folder(os.path.dirname(PLACE))


def back(host: FragileHost) -> dict[str, Any]:
    told = restore.StoredSession(Summary("claude:s", "claude", "s"), list, {}, [])
    return restore.restore(host, ROOT, told, restore.RestoreRequest("claude", Home("/home", False, {})))


@pytest.mark.parametrize("there", [None, WHOLE[:100], b"\0" * len(WHOLE)], ids=["absent", "prefix", "blank"])
@pytest.mark.parametrize("how", ["cut", "fail", "tear", "bad_sync"])
def test_trouble_at_every_step_leaves_the_old_file_or_the_new_one(there: bytes | None, how: str) -> None:
    for at in count(1):
        host = world(there, seed=at)
        host.plan(at, how, errno.ENOSPC)
        try:
            back(host)
            calm = host.calls < at
        except (PowerCut, OSError, NotDurable, Failed):
            calm = False
        for n, loss in enumerate(LOSSES if how == "cut" else ("kept",)):
            after = host.reboot(loss, seed=at * 10 + n)
            now = read_file(after, PLACE) if after.stat(PLACE) else None
            assert now in (there, WHOLE), (at, loss)
            if there is not None and now == WHOLE:
                kept = [read_file(after, f"{ROOT}/aside/{name}") for name in after.names(f"{ROOT}/aside")]
                assert there in kept, "what was there is aside before it is replaced"
            assert back(after)["exact"] and read_file(after, PLACE) == WHOLE
        if calm:
            assert at > 5
            assert read_file(host.reboot("lost"), PLACE) == WHOLE, "what was said to be done is durable"
            return


# -- Hermes' database


def test_rows_go_into_a_database_in_use_without_touching_others(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, WITH_ROWS, home)
    state = tmp_path / "new" / ".hermes" / "state.db"
    first, *others = sorted((s for s in keep.sessions()), key=lambda s: s.id)
    keep.restore(first.id, WITH_ROWS, home=tmp_path / "new")
    db = apsw.Connection(str(state))
    db.execute("PRAGMA journal_mode=WAL")
    before = rows_of(state, first.native_id)
    actions = [keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")["files"][0]["action"] for session in others]
    assert "added" in actions and set(actions) <= {"added", "unchanged"}
    assert rows_of(state, first.native_id) == before
    for session in others:
        assert rows_of(state, session.native_id).keys() == rows_of(home / ".hermes" / "state.db", session.native_id).keys()
        assert keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")["files"][0]["action"] == "unchanged"
    db.execute("BEGIN EXCLUSIVE")
    db.execute("DELETE FROM messages WHERE session_id = ?", (first.native_id,))
    db.execute("COMMIT")
    assert keep.restore(first.id, WITH_ROWS, home=tmp_path / "new")["exact"]
    assert rows_of(state, first.native_id) == before
    db.close()


def test_rows_whose_numbers_are_taken_get_new_ones_and_that_is_reported(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, WITH_ROWS, home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    state = tmp_path / "new" / ".hermes" / "state.db"
    make_folders(HOST, str(state.parent))
    statedb.put_rows(
        HOST,
        str(state),
        {
            "sessions": [{"id": "x", "source": "cli", "started_at": 1.0}],
            "messages": [
                {"id": n, "session_id": "x", "role": "user", "content": f"theirs {n}", "timestamp": n} for n in range(1, 9)
            ],
        },
        dry_run=False,
    )
    done = keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")
    assert not done["exact"] and done["lost"][0]["what"] == statedb.NUMBERS
    with Keep.open(tmp_path / "second") as second:
        list(second.ingest(agents=[WITH_ROWS], home=tmp_path / "new"))
        texts = [[(m["role"], m["text"]) for m in one.show(session.id)["messages"]] for one in (keep, second)]
        assert texts[0] == texts[1]
        assert [m["text"] for m in second.show("hermes:x")["messages"]] == [f"theirs {n}" for n in range(1, 9)]


def _talk_in(home: Path, sid: str, turns: int, at: float) -> Hermes:
    (home / ".hermes").mkdir(parents=True, exist_ok=True)
    agent = Hermes(home / ".hermes" / "state.db")
    agent.session(sid, source="cli", cwd="/w", title=f"About {sid}", started_at=at)
    for n in range(turns):
        for role in ("user", "assistant"):
            at += 30
            agent._insert(sid, {"role": role, "content": f"{role} {n} of {sid}", "timestamp": at}, at)
    agent.update(sid, message_count=2 * turns)
    return agent


def _table(home: Path, sid: str, table: str) -> list[dict[str, Any]]:
    found = map(json.loads, rows_of(home / ".hermes" / "state.db", sid).values())
    return [one["row"] for one in found if one["table"] == table]


def _contents(home: Path, sid: str) -> list[str]:
    return [row["content"] for row in _table(home, sid, "messages")]


def test_rows_restored_under_new_numbers_are_the_same_session_however_often(keep: Keep, home: Path, tmp_path: Path) -> None:
    """The database was lost, Hermes began another one, and the old session came back into that: captured and restored again,
    it is not there twice."""
    one, other = "20260512_081500_a1b2c3", "20260612_081500_b1b2c3"
    _talk_in(home, one, 4, 1_778_573_700.0).close()
    list(keep.ingest(home=home))
    before, said = _contents(home, one), keep.show(one)["messages"]
    shutil.rmtree(home)
    _talk_in(home, other, 4, 1_781_252_100.0).close()
    assert keep.restore(one, WITH_ROWS, home=home)["lost"] == [{"what": statedb.NUMBERS, "count": 8}]
    for _ in range(2):
        assert keep.restore(one, WITH_ROWS, home=home)["files"][0]["action"] == "unchanged", "twice is once"
        list(keep.ingest(home=home))
        assert [m["text"] for m in keep.show(one)["messages"]] == [m["text"] for m in said]
    assert _contents(home, one) == before
    assert keep.restore(one, WITH_ROWS, home=tmp_path / "new")["exact"]
    assert _contents(tmp_path / "new", one) == before


@pytest.mark.parametrize(("kept", "more", "richest"), [(3, 0, 1), (4, 0, 2), (3, 2, 2)])
def test_a_session_that_hermes_wrote_anew_comes_back_in_its_richest_version_and_not_twice(
    keep: Keep, home: Path, tmp_path: Path, kept: int, more: int, richest: int
) -> None:
    """As a retry in a chat does it: all rows are deleted, and inserted again without the last ones."""
    sid = "20260512_081500_a1b2c3"
    agent = _talk_in(home, sid, 4, 1_778_573_700.0)
    list(keep.ingest(home=home))
    old = _contents(home, sid)
    agent.db.execute("DELETE FROM messages WHERE session_id = ?", (sid,))
    new = [*old[: 2 * kept], *(f"new {n}" for n in range(2 * more))]
    for n, content in enumerate(new):
        at = 1_778_580_000 + n * 1e-6
        agent._insert(sid, {"role": ("user", "assistant")[n % 2], "content": content, "timestamp": at}, at)
    agent.update(sid, message_count=len(new))
    agent.close()
    list(keep.ingest(home=home))
    done = keep.restore(sid, WITH_ROWS, home=tmp_path / "new")
    assert _contents(tmp_path / "new", sid) == (old if richest == 1 else new)
    [own] = _table(tmp_path / "new", sid, "sessions")
    assert own["message_count"] == len(old if richest == 1 else new)
    assert any("rewritten (9)" in note for note in done["notes"]) == (richest == 1)


def test_rows_that_are_only_gone_come_back_in_their_places(keep: Keep, home: Path, tmp_path: Path) -> None:
    sid = "20260512_081500_a1b2c3"
    agent = _talk_in(home, sid, 4, 1_778_573_700.0)
    list(keep.ingest(home=home))
    before = _contents(home, sid)
    agent.db.execute("DELETE FROM messages WHERE id IN (3, 4)")
    agent._insert(sid, {"role": "user", "content": "and on", "timestamp": 1_778_580_000.0}, 1_778_580_000.0)
    agent.update(sid, message_count=7)
    agent.close()
    list(keep.ingest(home=home))
    keep.restore(sid, WITH_ROWS, home=tmp_path / "new")
    assert _contents(tmp_path / "new", sid) == [*before, "and on"]


def test_a_database_that_has_gone_on_or_is_locked_is_left_alone(keep: Keep, home: Path) -> None:
    captured(keep, WITH_ROWS, home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    state = str(home / ".hermes" / "state.db")
    db = apsw.Connection(state)
    db.execute("DELETE FROM messages WHERE id = (SELECT max(id) FROM messages WHERE session_id = ?)", (session.native_id,))
    statedb._BUSY_MS, waited = 50, statedb._BUSY_MS
    try:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            keep.restore(session.id, WITH_ROWS)
        db.execute("ROLLBACK")
    finally:
        statedb._BUSY_MS = waited
    db.execute(
        "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', 'it went on', 9e9)", (session.native_id,)
    )
    before = list(db.execute("SELECT * FROM messages ORDER BY id"))
    with pytest.raises(Failed, match="another file is there"):
        keep.restore(session.id, WITH_ROWS)
    assert list(db.execute("SELECT * FROM messages ORDER BY id")) == before
    db.close()


def test_a_converted_session_that_has_gone_on_in_hermes_is_left_alone(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "pi", home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    done = keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")
    [file] = done["files"]
    assert keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")["files"][0]["action"] == "unchanged"
    db = apsw.Connection(file["path"])
    db.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', 'on', 9e9)", (done["native_id"],))
    db.close()
    with pytest.raises(Failed, match="another file is there"):
        keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")


def test_rows_keep_what_is_no_text_and_titles_are_given_once(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    row = {"id": 1, "session_id": "a", "role": "user", "timestamp": {"$real": "inf"}, "workspace": "w"}
    row |= {"content": {"$text": "/w=="}, "api_content": {"$blob": "/w=="}}
    first = {"id": "a", "source": "cli", "started_at": 1.0, "title": "same"}
    statedb.put_rows(HOST, path, {"sessions": [first], "messages": [row]}, dry_run=False)
    [[line]] = database.ask(HOST, path, lambda base: [[base.line("messages", 1)]])
    assert row.items() <= json.loads(line)["row"].items()
    done = statedb.put_rows(HOST, path, {"sessions": [{**first, "id": "b", "new_column": 7}], "messages": []}, dry_run=False)
    assert +done.lost == {statedb.TITLES: 1, statedb.COLUMNS: 1}
    done = statedb.put_rows(HOST, path, {"sessions": [{**first, "source": "else"}], "messages": [row]}, dry_run=False)
    assert done.action == "unchanged" and +done.lost == {statedb.OWN_ROW: 1}


# -- what agents keep beside


def test_gemini_finds_a_session_where_another_project_has_its_name(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "gemini", home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    taken = tmp_path / "new" / ".gemini" / "tmp" / os.path.basename(session.cwd)
    taken.mkdir(parents=True)
    (taken / gemini.OWNER).write_text("/somebody/else")
    done = keep.restore(session.id, "gemini", home=tmp_path / "new")
    place = Path(done["files"][-1]["path"]).parent.parent
    assert place != taken and (place / gemini.OWNER).read_text() == session.cwd
    assert done["exact"], "the mark is no part of the session"
    assert gemini.project("/a/Some Thing!", {}, {}) == "some-thing"
    assert gemini.project("/a/b", {"/x": "b"}, {"b-1": None}) == "b-2"
    assert gemini.project("/a/b", {"/a/b": "known"}, {"mine": "/a/b"}) == "known"
    assert gemini.project("/a/b", {"/a/b": "lost"}, {"lost": "/other", "mine": "/a/b"}) == "mine"


def test_the_webuis_index_gets_an_entry_and_keeps_all_others(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "claude", home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    sessions = tmp_path / "new" / ".hermes" / "webui" / "sessions"
    sessions.mkdir(parents=True)
    index = sessions / "_index.json"
    index.write_text('[{"session_id":"other","title":"theirs"}, 7]')
    before = index.read_bytes()
    done = keep.restore(session.id, "hermes-webui", home=tmp_path / "new")
    listed = json.loads(index.read_text())
    assert listed[:2] == [{"session_id": "other", "title": "theirs"}, 7] and len(listed) == 3
    assert listed[2]["session_id"] == done["native_id"] and "messages" not in listed[2]
    assert Path(done["files"][-1]["aside"]).read_bytes() == before
    again = keep.restore(session.id, "hermes-webui", home=tmp_path / "new")
    assert [file["action"] for file in again["files"]] == ["unchanged"]
    index.write_text("no list")
    keep.restore(session.id, "hermes-webui", home=tmp_path / "new")
    assert index.read_text() == "no list"


def test_what_the_webui_was_told_to_delete_is_not_brought_back(keep: Keep, home: Path) -> None:
    """K3: intent is never undone behind the user's back."""
    captured(keep, "hermes-webui", home)
    session = next(iter(keep.sessions()))
    sessions = home / ".hermes" / "webui" / "sessions"
    (sessions / f"{session.native_id}.json").unlink()
    (sessions / "_deleted_webui_sessions.json").write_text(json.dumps({"version": 1, "ids": [session.native_id]}))
    with pytest.raises(Failed, match="was told to delete"):
        keep.restore(session.id, "hermes-webui")
    assert not (sessions / f"{session.native_id}.json").exists()


def test_names_of_threads_are_added_to_codexs_own(keep: Keep, home: Path) -> None:
    captured(keep, "codex", home)
    names = home / ".codex" / "session_index.jsonl"
    own = names.read_bytes().splitlines(keepends=True)
    names.write_bytes(b'{"id":"another","thread_name":"theirs"}')
    list(all_back(keep))
    lines = names.read_bytes().splitlines()
    assert lines[0] == b'{"id":"another","thread_name":"theirs"}'
    restored = set(lines[1:])
    assert restored and restored <= {line.rstrip(b"\n") for line in own}


# -- answers and errors


def test_a_damaged_journal_is_not_passed_off_as_exact(keep: Keep, home: Path, tmp_path: Path) -> None:
    path = claude_file(home, 400, words="a long story " * 60)
    list(keep.ingest(home=home))
    keep.close()
    part = Path(keep.root) / folder_of(f"claude:{path.stem}") / "000001.jsonl"
    lines = part.read_bytes().splitlines(keepends=True)
    reads = [n for n, line in enumerate(lines) if b'"source.read"' in line[:200]]
    assert len(reads) > 1
    lines[reads[0]] = lines[reads[0]].replace(b"long story", b"l0ng story", 1)
    part.write_bytes(b"".join(lines))
    with Keep.open(keep.root) as again:
        with pytest.raises(Failed, match="no longer holds all of it") as refused:
            again.restore(path.stem, "claude", home=tmp_path / "new")
        assert "--convert" in refused.value.next
        done = again.restore(path.stem, "claude", home=tmp_path / "new", convert=True)
        assert not done["exact"] and done["native_id"] != path.stem


def test_requests_that_make_no_sense_are_refused(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "opencode", home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    with pytest.raises(BadUsage, match="no agent `nobody`"):
        keep.restore(session.id, "nobody")
    with pytest.raises(Unsupported, match="can't put rows back"):
        keep.restore(session.id, "opencode")
    with pytest.raises(Unsupported, match="can't be converted for kimi"):
        keep.restore(session.id, "kimi")
    with pytest.raises(BadUsage, match="generation"):
        keep.restore(session.id, "claude", home=tmp_path / "new", generation=2)
    with pytest.raises(NotFound):
        keep.restore("nothing", "claude")
    keep.session("silent", cwd=tmp_path)
    with pytest.raises(NotFound, match="nothing that could be restored"):
        keep.restore("python:silent", "claude", home=tmp_path / "new")


def test_the_command_line_reports_what_was_done(cli: Callable[..., Ran], home: Path, tmp_path: Path) -> None:
    path = claude_file(home, 3)
    assert cli("ingest", "--home", str(home)).code == 0
    done = cli("restore", path.stem, "--to", "claude", "--home", str(tmp_path / "a b"), "--json")
    assert done.code == 0, done.err
    [file] = done.json["files"]
    assert file["exact"] is True and file["bytes"] == path.stat().st_size and Path(file["path"]).read_bytes() == path.read_bytes()
    assert done.json["resume"] == f"cd /w && HOME='{tmp_path}/a b' claude --resume {path.stem}"
    shown = cli("restore", path.stem, "--to", "codex", "--home", str(tmp_path / "new"), "--cwd", str(tmp_path))
    assert shown.code == 0 and "codex resume" in shown.out and "converted" in shown.out
    path.write_text("other\n")
    refused = cli("restore", path.stem, "--to", "claude")
    assert refused.code == 3 and "another file is there" in refused.err and "--home" in refused.err
    assert cli("restore", path.stem).code == 2
    assert cli("restore", "nope", "--to", "claude").code == 1


def test_a_transcript_from_anywhere_goes_where_its_agent_looks(
    keep: Keep, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loose = tmp_path / "loose.jsonl"
    loose.write_bytes(claude_file(tmp_path / "other", 3).read_bytes())
    list(keep.ingest(agents=["claude"], paths=[loose]))
    [session] = keep.sessions()
    [file] = keep.restore(session.id, "claude", home=home)["files"]
    assert file["path"] == str(home / ".claude" / "projects" / "-w" / f"{session.native_id}.jsonl")
    loose.unlink()
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    done = keep.restore(session.id, "claude")
    assert done["files"][0]["path"] == str(tmp_path / "mine" / ".claude" / "projects" / "-w" / f"{session.native_id}.jsonl")
    assert str(loose) in done["notes"][0] and not loose.exists()


def test_folders_are_named_as_claude_names_them() -> None:
    assert folder("/home/dev/my.project_x") == "-home-dev-my-project-x"
    assert folder("/é/\U0001f600") == "-----"
    assert folder("/" + "a" * 300).startswith("-" + "a" * 199 + "-") and len(folder("/" + "a" * 300)) < 210


def test_one_session_of_one_agent_has_no_rows_of_another(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, WITH_ROWS, home)
    session = min(keep.sessions(), key=lambda s: s.messages)
    keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")
    db = apsw.Connection(str(tmp_path / "new" / ".hermes" / "state.db"))
    held_rows = {
        json.loads(line)["row"]["id"]
        for about, line in source_bytes.captured(HOST, f"{keep.root}/{folder_of(session.id)}")
        if about["kind"] == Kind.SOURCE_ROWS and json.loads(line)["table"] == "messages"
    }
    assert {key for (key,) in db.execute("SELECT id FROM messages")} == held_rows
    db.close()


def _modules() -> Iterator[str]:
    for name in restore.list_targets():
        yield name.replace("-", "_")


@pytest.mark.parametrize("name", list(_modules()))
def test_every_agent_we_convert_for_has_a_writer(name: str) -> None:
    assert callable(import_module(f"dreamkeep.agents.{name}.writer").write)
