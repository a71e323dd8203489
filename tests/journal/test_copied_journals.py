"""Journals under audit, repair, snapshot and deletion, in copies and merges of keeps."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.repair.ledger import _PATHS, NOTES
from tests.helpers.broken_keeps import World, looks, own, world
from tests.helpers.faults import Dying, PowerCut

__all__ = ["world"]

HOST = RealHost()


def _two_cold_parts(world: World) -> None:
    with Keep.open(world.root) as keep:
        for n in range(2):
            keep.session("own").record(f"question {n}", ("assistant", f"answer {n}"))
            keep.compress(everything=True)
        keep.sessions()


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("asked", [False, True])
def test_bytes_behind_the_end_of_a_compressed_part_are_told_and_noted_and_left_where_they_are(
    world: World, which: int, asked: bool
) -> None:
    _two_cold_parts(world)
    path = world.part("python:own", which).with_suffix(".jsonl.zst")
    with path.open("ab") as part:
        part.write(b"garbage")
    with Keep.open(world.root) as keep:
        if asked:
            keep.sessions()
        told = keep.audit(home=world.home)["faults"]
        assert [(one["class"], one["what"]) for one in told] == [("journal_damage", "7 bytes fail their checksum")]
        assert keep.audit(home=world.home, deep=True)["faults"] == told
        done = keep.export(f"{world.root}.snap")
        assert [one["where"] for one in done["problems"]] == [f"{path.relative_to(world.root)}".removesuffix(".zst")]
    before = looks(world.root)
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and path.read_bytes().endswith(b"garbage")
    assert _said(world) == ["question 0", "answer 0", "question 1", "answer 1"]
    world.repair(undo=done["undo_id"])
    assert looks(world.root, "index", "state") == {k: v for k, v in before.items() if not k.startswith(("index", "state"))}


# -- a rename that comes by an import


def _pages(root: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(root.glob("pages/*/MEMORY.md")))


@pytest.mark.parametrize("there", [False, True], ids=["a new name", "a project that is there"])
def test_a_rename_that_comes_by_an_import_takes_the_old_page_away_and_none_of_what_a_hand_changed_on_it(
    tmp_path: Path, there: bool
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with Keep.open(theirs) as keep:
        keep.note_add("Always eat pears", project="old")
        if there:
            keep.note_add("Apples in autumn", project="new")
        keep.export(tmp_path / "before")
    with Keep.open(ours) as keep:
        keep.import_(tmp_path / "before")
        [page] = [path for path in ours.glob("pages/*/MEMORY.md") if "pears" in path.read_text()]
        page.write_text(page.read_text().replace("Always eat pears", "Always eat ripe pears"))
    with Keep.open(theirs) as keep:
        (keep.project_merge if there else keep.project_rename)("old", "new")
        keep.export(tmp_path / "after")
    with Keep.open(ours) as keep:
        keep.import_(tmp_path / "after")
        assert {one["project"] for one in keep.notes()} == {"new"}
        assert not page.exists() and _pages(ours).count("- Always eat ripe pears") == 1
        assert "Always eat ripe pears" in [one["text"] for one in keep.notes()]
        assert keep.audit(home=tmp_path)["clean"]


def test_of_a_rename_that_dies_anywhere_the_next_dream_leaves_one_page_and_what_a_hand_wrote_on_the_old_one(
    tmp_path: Path,
) -> None:
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add("Always eat pears", project="old")
    [page] = (tmp_path / "k").glob("pages/*/MEMORY.md")
    page.write_text(page.read_text().replace("Always eat pears", "Always eat ripe pears"))
    for n in count(1):
        root = tmp_path / f"{n}"
        shutil.copytree(tmp_path / "k", root)
        died = _dies(lambda root=root, n=n: Keep.open(root, host=Dying(n)).project_rename("old", "new"))  # type: ignore[misc]
        with Keep.open(root) as keep:
            keep.dream()
            [name] = {one["project"] for one in keep.notes()}
            assert [one["text"] for one in keep.notes()] == ["Always eat ripe pears"]
            assert len(list(root.glob("pages/*/MEMORY.md"))) == 1 and f"{name}" in next(root.glob("pages/*")).name
            assert keep.audit(home=tmp_path)["clean"]
        if not died:
            break


def _dies(act: Callable[[], object]) -> bool:
    try:
        act()
    except PowerCut:
        return True
    return False


@pytest.mark.parametrize("around", ["", "# Mine\n\n"], ids=["nothing around it", "a user's words around it"])
@pytest.mark.parametrize("whose", ["this keep's", "another's"])
def test_an_old_page_that_comes_back_by_an_import_takes_back_nothing_that_was_said_since(
    tmp_path: Path, whose: str, around: str
) -> None:
    """Its lines look like a hand's work: what was reworded since would be as it was, and what was said since be taken back."""
    root, theirs = tmp_path / "k", tmp_path / ("k" if whose == "this keep's" else "other")
    with Keep.open(theirs) as keep:
        keep.note_add("Always eat pears", project="p")
        [page] = theirs.glob("pages/*/MEMORY.md")
        page.write_text(f"{around}{page.read_text()}")
        keep.export(tmp_path / "snap")
    with Keep.open(root) as keep:
        if whose == "another's":
            keep.note_add("Always eat pears", project="p")
        keep.note_change(keep.notes()[0]["id"], "edit", text="Always eat plums")
        keep.note_add("Bread is on the shelf", project="p")
        [page] = root.glob("pages/*/MEMORY.md")
        page.unlink()
        keep.import_(tmp_path / "snap")
        keep.dream()
        shown = page.read_text()
        assert shown.startswith(around) and "Always eat plums" in shown and "Bread is on the shelf" in shown
        assert {"Always eat plums", "Bread is on the shelf"} <= {one["text"] for one in keep.notes()}
        assert keep.audit(home=tmp_path)["clean"]


@pytest.mark.parametrize("by_hand", [True, False])
def test_an_import_says_of_a_page_that_a_hands_words_on_it_which_no_journal_has_do_not_come_along(
    tmp_path: Path, by_hand: bool
) -> None:
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add("Always eat pears", project="p")
        [page] = (tmp_path / "k").glob("pages/*/MEMORY.md")
        if by_hand:
            page.write_text(page.read_text().replace("pears", "ripe pears"))
        keep.export(tmp_path / "snap")
        page.unlink()
        skipped = keep.import_(tmp_path / "snap")["skipped"]
        assert [one["where"] for one in skipped] == ([str(page.relative_to(tmp_path / "k"))] if by_hand else [])


# -- a keep that is moved, or copied


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "copied"])
def test_an_undo_in_a_keep_that_was_moved_or_copied_gives_back_there_and_touches_nothing_elsewhere(
    world: World, tmp_path: Path, moved: bool
) -> None:
    own(world)
    Path(world.root, "spool").mkdir(exist_ok=True)
    Path(world.root, "spool", "junk").write_text("no hook wrote this file")
    Path(world.root).chmod(0o755)
    before = looks(world.root, "index", "state")
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and {one["action"] for one in done["applied"]} == {"set_aside", "close_mode"}
    after = looks(world.root)
    there = tmp_path / "there"
    (shutil.move if moved else shutil.copytree)(world.root, there)
    with Keep.open(there) as keep:
        assert not keep.repair(undo=done["undo_id"], home=world.home)["skipped"]
    assert looks(str(there), "index", "state") == before and there.stat().st_mode & 0o777 == 0o755
    assert not Path(world.root).exists() if moved else looks(world.root) == after
    assert moved or Path(world.root).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "copied"])
def test_an_undo_of_a_repair_with_whole_paths_touches_nothing_where_the_keep_was(
    world: World, tmp_path: Path, moved: bool
) -> None:
    """As an older version noted them."""
    own(world)
    junk = Path(world.root, "spool", "junk")
    junk.parent.mkdir(exist_ok=True)
    junk.write_text("no hook wrote this file")
    Path(world.root).chmod(0o755)
    done = world.repair(apply=True)
    [file] = Path(world.root, "aside").glob(f"*{done['undo_id']}/{NOTES}")
    notes = [json.loads(line) for line in file.read_text().splitlines()]
    whole = [{**one, **{key: os.path.normpath(f"{world.root}/{one[key]}") for key in _PATHS if key in one}} for one in notes]
    assert whole != notes
    file.write_text("".join(f"{json.dumps(one)}\n" for one in whole))
    after = looks(world.root)
    there = tmp_path / "there"
    (shutil.move if moved else shutil.copytree)(world.root, there)
    with Keep.open(there) as keep:
        keep.repair(undo=done["undo_id"], home=world.home)
    assert (there / "spool" / "junk").read_text() == "no hook wrote this file"
    assert not Path(world.root).exists() if moved else looks(world.root) == after


def test_what_was_accepted_stays_accepted_by_whatever_path_the_keep_is_opened(world: World, tmp_path: Path) -> None:
    own(world)
    part = world.part("python:own")
    part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:-2]))
    Path(world.root).chmod(0o755)
    lost, open_ = world.audit()["faults"]
    assert (lost["class"], open_["class"], open_["where"]) == ("journal_missing_part", "open_to_others", world.root)
    assert world.repair(accept=[lost["id"], open_["id"]])["audit"]["clean"]
    link, there = tmp_path / "link", tmp_path / "there"
    link.symlink_to(world.root)
    with Keep.open(link) as keep:
        assert keep.audit(home=world.home)["clean"]
    shutil.move(world.root, there)
    with Keep.open(there) as keep:
        told = keep.audit(home=world.home)
        assert told["clean"] and told["checked"]["accepted"] == 2
        assert not keep.export(tmp_path / "snap")["problems"]


# -- well summed, and wrongly shaped

STRANGE: list[tuple[str, dict[str, Any]]] = [
    (Kind.CHUNK, {"text": "xylophone of python:own"}),
    (Kind.CHUNK, {"of": ["x"], "text": {}}),
    (Kind.HOOK_FIRED, {"said": '"python:own" xylophone'}),
    (Kind.HOOK_FIRED, {"calls": [3], "said": '"python:own" xylophone'}),
    (Kind.HOOK_FIRED, {"calls": {}, "sizes": {}, "lines": 3}),
    (Kind.TAP_FRAMES, {"conn": [], "frames": {}, "lines": ['"python:own" xylophone']}),
    (Kind.TAP_CLOSED, {"conn": ["x"]}),
    (Kind.TAP_CLOSED, {"conn": None}),
]


@pytest.mark.parametrize("session", ["", "python:own"], ids=["the keep's", "the session's"])
@pytest.mark.parametrize(("kind", "body"), STRANGE)
def test_a_frame_of_a_tap_a_hook_or_a_piece_that_is_none_keeps_nobody_from_asking_or_deleting(
    world: World, session: str, kind: str, body: dict[str, Any]
) -> None:
    own(world)
    ids = Ids(HOST.now, HOST.random)
    JournalWriters(HOST, world.root, ids).append(session, [Event(ids.new(), kind, rfc3339(HOST.now()), body)])
    with Keep.open(world.root) as keep:
        assert [one.id for one in keep.sessions()] == ["python:own"] and keep.doctor()
        keep.note_add("Pears in autumn")
        keep.audit(home=world.home, deep=True)
        keep.export(f"{world.root}.snap")
        keep.delete("own")
        assert keep.sessions() == []
    held = [path.read_bytes() for path in Path(world.root).rglob("*") if path.is_file()]
    assert not any(b"xylophone" in data for data in held if kind != Kind.CHUNK or session)


def _said(world: World, session: str = "own") -> list[Any]:
    with Keep.open(world.root) as keep:
        return [one["text"] for one in keep.show(session)["messages"]]
