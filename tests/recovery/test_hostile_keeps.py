"""Audit and repair of hostile keeps: pipes and sockets, an index with nonsense in it, what is promised, and advice that works."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.errors import Failed
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal.frame import draft, parse, place
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.audit.audit import audit
from dreamkeep.recovery.faults import fault
from tests.agents import claude, copilot, goose, hermes
from tests.helpers.broken_keeps import World, looks, world
from tests.helpers.cli import Ran
from tests.helpers.hosts import Noticing, Watching

__all__ = ["world"]

HOST = RealHost()
IDS = Ids(HOST.now, HOST.random)
CALL = f"{10**18:020d}-12-0123456789abcdef~claude~Stop.hook"


def by_class(world: World) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in world.audit()["faults"]:
        found.setdefault(one["class"], []).append(one["where"])
    return found


def python_session(root: str, name: str = "s", prompts: int = 1, *, settled: bool = True) -> Path:
    with Keep.open(root) as keep:
        session = keep.session(name, agent="python", cwd=".")
        for n in range(prompts):
            turn = session.submit(f"prompt {n}")
            if settled:
                turn.settle("completed")
        list(keep.sessions())
    return Path(root, folder_of(f"python:{name}"))


# -- what is no file


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's name may not be long
    try:
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(path.name)
        bound.close()
    finally:
        os.chdir(here)


@pytest.mark.parametrize("make", [os.mkfifo, _socket], ids=["pipe", "socket"])
def test_a_pipe_or_socket_anywhere_is_reported_blocks_nothing_and_is_left_alone(
    world: World, cli: Callable[..., Ran], make: Callable[[Path], None]
) -> None:
    """B2: opening a pipe waits for a writer forever, also in SQLite."""
    world.captured()
    journal = python_session(world.root)
    hermes.write(world.home)
    world.ingest()
    root = Path(world.root)
    (root / "spool").mkdir()
    (root / "pages" / "p").mkdir(parents=True)
    (root / "state" / "deleting").mkdir(exist_ok=True)
    odd = {
        root / "spool" / CALL: "spool_unreadable",
        root / "spool" / "stranger": "spool_unreadable",
        root / "state" / "x.json": "state_unreadable",
        root / "state" / "deleting" / "x": "leftover",
        root / "pages" / "p" / "MEMORY.md": "page_fence",
        root / "index.sqlite": "index_unusable",
        journal / "000002.jsonl": "journal_unreadable",
        world.transcript: "source_unreadable",
        next(world.home.rglob("state.db")): "store_unreadable",
    }
    for path in odd:
        path.unlink(missing_ok=True)
        make(path)
    told = cli("audit", "--json", "--home", str(world.home)).json["faults"]
    assert {one["class"] for one in told} == set(odd.values())
    assert not [one for one in told if one["repairable"]]
    done = cli("repair", "--apply", "--json", "--home", str(world.home))
    assert (done.code, done.json["applied"]) == (1, [])
    assert all(path.exists() and not path.is_file() for path in odd)


def test_a_link_in_the_spool_is_never_followed_out_of_the_keep(world: World, tmp_path: Path) -> None:
    """Setting it aside as a folder would have moved everything out of the user's own folder."""
    world.captured()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("mine")
    spool = Path(world.root, "spool")
    (spool / "folder").mkdir(parents=True)
    for link in (spool / "link", spool / "folder" / "link", spool / CALL):
        link.symlink_to(outside)
    (spool / "nowhere").symlink_to("/nonexistent/x")
    (spool / CALL.replace("12-", "13-")).symlink_to(spool / CALL.replace("12-", "13-"))
    told = world.audit()["faults"]
    assert [(one["class"], one["repairable"]) for one in told] == [("spool_unreadable", False)] * 5
    assert world.repair(apply=True)["applied"] == []
    assert (outside / "precious.txt").read_text() == "mine" and (spool / "nowhere").is_symlink()


def test_modes_are_judged_and_closed_in_the_keep_only(world: World, tmp_path: Path) -> None:
    world.captured()
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    outside.chmod(0o755)
    root = Path(world.root)
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    root.chmod(0o755)
    assert by_class(world) == {"open_to_others": [world.root]}
    assert world.repair(apply=True)["audit"]["clean"]
    assert outside.stat().st_mode & 0o777 == 0o755


# -- what is gone


def test_a_keep_without_its_journals_is_not_clean(world: World) -> None:
    """B7: where the folder `journal` is gone, the index still knows what was in it."""
    world.captured()
    python_session(world.root)
    shutil.rmtree(Path(world.root, "journal"))
    told = by_class(world)
    assert set(told) == {"journal_missing_part"} and len(told["journal_missing_part"]) == 3


@pytest.mark.parametrize(("name", "cls"), [("spool", "spool_unreadable"), ("state", "state_unreadable")])
def test_a_file_where_a_folder_belongs_is_reported(world: World, name: str, cls: str) -> None:
    world.captured()
    shutil.rmtree(Path(world.root, name), ignore_errors=True)
    Path(world.root, name).write_text("x")
    assert cls in by_class(world)


# -- an index that talks nonsense

NONSENSE = {
    "a state that is no object": "UPDATE sessions SET fold = '[' WHERE id = 'python:open'",
    "spans": "INSERT INTO faults VALUES(1, 'gap', 1, 2, 3, 'zz', 0, 1, 0)",
    "a turn that is no text": "UPDATE turns SET owner = CAST(x'00ff' AS TEXT) WHERE state != 'completed'",
    "lineage": "UPDATE sessions SET lineage = '{{'",
}


@pytest.mark.parametrize("what", NONSENSE)
def test_an_index_that_holds_what_nobody_put_there_is_reported_and_hides_nothing(world: World, what: str) -> None:
    """B2: not damage that SQLite sees; once it ended the audit, or hid all open turns."""
    world.captured()
    folder = python_session(world.root)
    python_session(world.root, "open", settled=False)
    db = apsw.Connection(f"{world.root}/index.sqlite")
    db.execute(NONSENSE[what])
    db.close()
    with (folder / "000001.jsonl").open("ab") as file:
        file.write(b'{"torn')
    assert set(by_class(world)) == {"index_unusable", "journal_tail", "turn_interrupted"}
    assert world.repair(apply=True)["audit"]["clean"]


def test_checksums_that_nobody_put_there_prove_nothing(world: World) -> None:
    world.captured()
    python_session(world.root)
    db = apsw.Connection(f"{world.root}/index.sqlite")
    db.execute("UPDATE places SET sums = 'zz' WHERE session = 'python:s'")
    db.close()
    assert world.audit()["clean"]
    [told] = world.audit(deep=True)["faults"]
    assert told["class"] == "index_drift" and told["session"] == "python:s"


# -- promises


def test_a_journal_is_read_for_its_promises_once_however_many_faults_it_has(world: World) -> None:
    """B5: each damaged frame made the audit read the whole journal and its transcript again."""
    world.captured(*[2] * 30)
    whole = world.part().read_bytes()

    def cost(damaged: int) -> int:
        lines = whole.split(b"\n")
        for n in range(4, 4 + 2 * damaged, 2):
            lines[n] = lines[n][:-20] + b"#" + lines[n][-19:]
        world.part().write_bytes(b"\n".join(lines))
        host = Watching()
        found = audit(host, world.root, home=str(world.home), environment={}, around={"XDG_RUNTIME_DIR": str(world.home)})
        assert [(one.cls, one.repairable) for one in found.faults] == [("journal_damage", True)] * damaged
        return len(host.opened)

    # One more look for each: at its damaged bytes.
    assert cost(12) - cost(2) <= 10


def test_a_repair_that_fails_to_understand_its_fault_stops_no_other(world: World) -> None:
    """B2: a frame with a sound checksum whose body is none of ours ended the whole repair."""
    world.captured()
    folder = python_session(world.root)
    path = folder / "000001.jsonl"
    lines = path.read_bytes().split(b"\n")
    before = parse(lines[1])
    assert before
    strange, _ = place(
        draft(Event(IDS.new(), Kind.SOURCE_READ, rfc3339(HOST.now()), {"no": "source"})), before["seq"], before["crc"]
    )
    path.write_bytes(b"\n".join([*lines[:3], strange[:-1], *lines[3:]]))
    (Path(world.root) / "spool").mkdir()
    (Path(world.root) / "spool" / "stranger").write_text("x")
    assert {"journal_reused", "spool_unreadable"} <= set(by_class(world))
    done = world.repair(apply=True)
    assert "spool_unreadable" not in {one["class"] for one in done["audit"]["faults"]}
    assert [one["fault"].partition("-")[0] for one in done["skipped"]] == ["journal_reused"]


# -- what may not be read


class Strict(Noticing):
    """As for a user who is not root: what its owner may not read can't be opened."""

    def notice(self, path: str) -> None:
        if os.path.isfile(path) and not os.stat(path).st_mode & 0o400:
            raise PermissionError(13, "Permission denied", path)


def test_an_unchanged_file_that_became_unreadable_is_reported(world: World) -> None:
    """B3: a mode changes neither size nor time."""
    world.captured()
    journal = python_session(world.root) / "000001.jsonl"
    around = {"XDG_RUNTIME_DIR": str(world.home)}
    assert audit(Strict(), world.root, home=str(world.home), environment={}, around=around).clean
    for path in (journal, world.transcript):
        path.chmod(0)
    found = audit(Strict(), world.root, home=str(world.home), environment={}, around=around)
    assert [(one.cls, one.repairable) for one in found.faults] == [("journal_unreadable", False), ("source_unreadable", False)]


def test_an_audit_says_how_many_sources_it_looked_at(world: World, cli: Callable[..., Ran]) -> None:
    world.captured()
    assert world.audit()["checked"]["sources"] == 1
    Path(world.root, "state", "sources.json").unlink()
    assert world.audit()["checked"]["sources"] == 1
    assert "and 1 agent file" in cli("audit", "--home", str(world.home)).out


# -- ledgers


def test_damaged_notes_of_one_repair_hinder_no_other(world: World) -> None:
    world.captured()
    spool = Path(world.root, "spool")
    spool.mkdir()
    (spool / "stranger").write_text("x")
    first = world.repair(apply=True)["undo_id"]
    notes = Path(world.root, "aside", f"repair-{first}", "undo.json")
    notes.write_bytes(b"\xff\n" + notes.read_bytes())
    (spool / "stranger").write_text("y")
    second = world.repair(apply=True)
    assert [one["where"] for one in second["audit"]["faults"]] == [str(notes)], "that they are damaged is all that is left"
    with pytest.raises(Failed, match="records of this repair are damaged"):
        world.repair(undo=first)
    assert world.repair(undo=second["undo_id"])["skipped"] == []
    assert (spool / "stranger").read_text() == "y"


def test_a_file_that_cannot_be_restored_stops_no_other_undo(world: World) -> None:
    world.captured()
    spool = Path(world.root, "spool")
    spool.mkdir()
    for name in ("a", "b", "c"):
        (spool / name).write_text(name)
    undo_id = world.repair(apply=True)["undo_id"]
    (spool / "b").mkdir()
    back = world.repair(undo=undo_id)
    assert [(one["where"][-1:]) for one in back["applied"]] == ["c", "a"] and len(back["skipped"]) == 1
    assert (spool / "a").read_text() == "a" and (spool / "c").read_text() == "c"


# -- no false faults, and next steps that work


def test_settings_beside_a_transcript_may_be_written_again(tmp_path: Path, root: str) -> None:
    """Copilot's workspace.yaml was once reported as invalid JSON."""
    home = tmp_path / "home"
    copilot.write(home)
    [yaml, *_] = sorted(home.rglob("workspace.yaml"))
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
        yaml.write_text(yaml.read_text() + "more: yes\n")
        assert keep.audit(home=home)["clean"]
        list(keep.ingest(home=home))
        assert keep.audit(home=home)["clean"] and keep.audit(home=home, deep=True)["clean"]


def test_a_missing_transcript_is_reported_although_another_is_unreadable(tmp_path: Path, root: str) -> None:
    home = tmp_path / "home"
    claude.write(home)
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
        before = {one["id"] for one in keep.audit(home=home)["faults"]}
        [file] = home.glob(".claude/projects/*/7d0f7c52-6a39-4a55-9d62-0a4f6f2d1b03.jsonl")
        file.unlink()
        os.mkfifo(file.with_suffix(".old.jsonl"))  # where it may have moved to
        told = [one for one in keep.audit(home=home)["faults"] if one["id"] not in before]
    assert [(one["class"], one["where"]) for one in told] == [("source_vanished", str(file))]


def test_sessions_that_a_snapshot_brought_from_another_machine_are_not_missed_here(world: World, tmp_path: Path) -> None:
    """All their transcripts were once reported as vanished."""
    world.captured()
    file, here = tmp_path / "keep.tar.zst", str(tmp_path / "here")
    with Keep.open(world.root) as keep:
        keep.export(file)
    world.transcript.parent.parent.rename(tmp_path / "another machine")
    with Keep.open(here) as keep:
        keep.import_(file)
        assert keep.audit(home=tmp_path)["clean"] and keep.audit(home=tmp_path, deep=True)["clean"]
    assert list(by_class(world)) == ["source_vanished"], "where it was captured it is missed"


def _run(command: str, root: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DREAMKEEP_KEEP": root, "HOME": str(home)}
    words = re.sub("^dreamkeep", f"{sys.executable} -m dreamkeep", command)
    return subprocess.run(["sh", "-c", words], env=environment, capture_output=True, text=True, timeout=120)


def test_the_advice_works_for_a_session_whose_name_a_shell_would_split(tmp_path: Path, root: str) -> None:
    home = tmp_path / "home"
    file = home / ".claude" / "projects" / "-p" / "my AGENT's session.jsonl"
    file.parent.mkdir(parents=True)
    record = {"type": "user", "uuid": "u1", "sessionId": file.stem, "cwd": "/p", "message": {"role": "user", "content": "hello"}}
    whole = json.dumps(record).encode() + b"\n"
    file.write_bytes(whole)
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
        file.unlink()
        [told] = keep.audit(home=home)["faults"]
    [restore, _] = re.findall("`(dreamkeep [^`]*)`", told["next"])
    assert _run(restore, root, home).returncode == 0
    assert file.read_bytes() == whole


@pytest.mark.parametrize("agent", [hermes, goose])
def test_the_advice_for_a_missing_database_works(agent: Any, tmp_path: Path, root: str) -> None:
    home = tmp_path / "home"
    agent.write(home)
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
        sessions = [one.id for one in keep.sessions()]
        for file in [*home.rglob("*.db*")]:
            file.unlink()
        [told] = keep.audit(home=home)["faults"]
    listed, restore, accept = re.findall("`(dreamkeep [^`]*)`", told["next"])
    assert sessions[0] in _run(listed, root, home).stdout
    done = _run(restore.replace("SESSION", sessions[0]) + f" --cwd {tmp_path}", root, home)
    assert done.returncode == 0, done.stderr
    assert _run(accept, root, home).returncode in (0, 1)  # Hermes has its database again: then nothing is to be accepted


def test_a_database_of_which_no_journal_knows_is_not_missed(tmp_path: Path, root: str) -> None:
    """A cache with a flipped bit in a path once led to a report of a vanished database."""
    home = tmp_path / "home"
    hermes.write(home)
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
        cache = Path(root, "state", "sources.json")
        cache.write_bytes(cache.read_bytes().replace(b"state.db", b"stale.db"))
        assert keep.audit(home=home)["clean"]


def test_names_are_filled_in_once() -> None:
    told = fault("source_vanished", "/x", "gone", session="claude:SESSION-AGENT")
    assert "`dreamkeep restore claude:SESSION-AGENT --to claude`" in told.next
    assert f"--accept {told.id}`" in told.next


def test_a_plan_changes_nothing_of_odd_things_either(world: World) -> None:
    world.captured()
    Path(world.root, "spool").mkdir()
    os.mkfifo(Path(world.root, "spool", "pipe"))
    before = looks(world.root)
    assert world.repair()["plan"] == []
    assert looks(world.root) == before


# -- acceptance


def _hooks(root: Path) -> Path:
    (root / "spool").mkdir(exist_ok=True)
    return root / "spool" / "problems"


ACCEPTED: dict[str, Callable[[Path], Path]] = {
    "hook_lost": _hooks,
    "spool_unreadable": lambda root: _hooks(root).with_name("stranger"),
    "state_unreadable": lambda root: root / "state" / "x.json",
    "index_unusable": lambda root: root / "index.sqlite",
    "journal_unreadable": lambda root: root / "journal" / "sessions" / "python" / "stranger",
}


@pytest.mark.parametrize("cls", ACCEPTED)
def test_an_accepted_fault_is_reported_again_when_the_file_is_another(world: World, cls: str) -> None:
    """After one was accepted, later lost hook calls and index damage were once never reported."""
    world.captured()
    python_session(world.root)
    file = ACCEPTED[cls](Path(world.root))
    file.write_bytes(b"no " * 400 + b"\n")
    [first] = world.audit()["faults"]
    assert first["class"] == cls and world.audit()["faults"] == [first], "the same as long as nothing changes"
    assert world.repair(accept=[first["id"]])["audit"]["clean"]
    file.write_bytes(file.read_bytes() + b"not again\n")
    [second] = world.audit()["faults"]
    assert second["class"] == cls and second["id"] != first["id"]


def test_later_waiting_hook_calls_are_reported_although_earlier_ones_were_accepted(world: World) -> None:
    world.captured()
    spool = Path(world.root, "spool")
    spool.mkdir()
    (spool / CALL).write_text("{}")
    [first] = world.audit()["faults"]
    assert world.repair(accept=[first["id"]])["audit"]["clean"]
    (spool / CALL).unlink()
    (spool / CALL.replace("12-", "13-")).write_text("{}")
    assert list(by_class(world)) == ["spool_waiting"]


# -- journals


def test_a_part_copied_under_a_later_number_lets_no_writer_use_a_seq_twice(world: World) -> None:
    """T11: the writer went on behind the copy, under seqs that were taken: what it wrote, also a repair, was never read."""
    world.captured()
    session = "python:parts"
    journals = JournalWriters(HOST, world.root, IDS, part_size=500)
    journals.append(session, [Event(IDS.new(), Kind.SESSION_OPENED, rfc3339(HOST.now()), {"session": session})])
    for n in range(12):
        journals.append(session, [Event(IDS.new(), Kind.MESSAGE_ADDED, rfc3339(HOST.now()), {"role": "user", "text": f"m{n}"})])
    journals.close()
    folder = Path(world.root, folder_of(session))
    last = max(int(path.stem) for path in folder.glob("*.jsonl"))
    shutil.copy(folder / "000002.jsonl", folder / f"{last + 1:06d}.jsonl")
    assert world.repair(apply=True)["audit"]["clean"]
    with Keep.open(world.root) as keep:
        keep.session("parts").record("after")
        said = [message["text"] for message in keep.show(session)["messages"]]
    assert said == [*(f"m{n}" for n in range(12)), "after"]
    assert world.audit(deep=True)["clean"]
