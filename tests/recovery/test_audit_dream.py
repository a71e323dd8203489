"""The audit of what dreams left: a hand edit is mentioned but is no fault; an interrupted page or run is one, and is repaired."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream import run
from dreamkeep.dream.backends.api import Given, Proposal
from dreamkeep.dream.pages import publish
from dreamkeep.dream.parts import report
from dreamkeep.dream.schedule import Scope
from dreamkeep.host import RealHost
from dreamkeep.recovery.audit import dreams as audit_dream
from dreamkeep.recovery.faults import CLASSES, NOTICES
from dreamkeep.recovery.repair import dreams as mend_dream
from dreamkeep.recovery.repair import repair
from tests.helpers.broken_keeps import PAGE, looks
from tests.helpers.cli import Cli
from tests.helpers.faults import Dying, PowerCut
from tests.helpers.leaks import holding
from tests.helpers.prompt_dreams import RULES, Prompts, page_of, say

HOST = RealHost()

#: What is no truth, or only a hint: views, locks, and the lengths of locks.
VIEWS = ("state", "index.sqlite", "packs")


class World:
    """A keep that has dreamed once, with its page; and nothing is wrong."""

    def __init__(self, root: str, home: Path) -> None:
        self.root, self.home = Path(root), home
        home.mkdir()
        with Keep.open(root) as keep:
            self.project = say(keep, "s", *RULES)
            keep.dream(backend=Prompts())
        assert self.audit()["clean"] and not self.audit()["notices"]

    @property
    def page(self) -> Path:
        return page_of(self.root)

    def audit(self, **how: Any) -> dict[str, Any]:
        with Keep.open(self.root) as keep:
            return keep.audit(home=self.home, **how)

    def classes(self) -> list[str]:
        return [one["class"] for one in self.audit()["faults"]]

    def notices(self) -> list[tuple[str, str]]:
        found = self.audit()
        assert found["clean"], found
        return [(one["class"], one["where"]) for one in found["notices"]]

    def repair(self, **how: Any) -> dict[str, Any]:
        with Keep.open(self.root) as keep:
            return keep.repair(home=self.home, **how)

    def dream(self) -> dict[str, Any]:
        with Keep.open(self.root) as keep:
            return keep.dream(backend=Prompts())

    def edit(self, was: str, now: str, file: Path | None = None) -> None:
        file = file or self.page
        text = file.read_text()
        assert was in text
        file.write_text(text.replace(was, now))


@pytest.fixture
def world(root: str, tmp_path: Path) -> World:
    return World(root, tmp_path / "home")


# -- hand edits


@pytest.mark.parametrize("edit", [("floats", "strings"), (f"- {RULES[0]}", "- Mine.\n- Prices are integers."), (RULES[0], "")])
def test_a_waiting_hand_edit_is_mentioned_but_is_not_a_fault(world: World, cli: Cli, edit: tuple[str, str]) -> None:
    """M10 R1: it is a statement of the user, and not damage."""
    world.edit(*edit)
    assert world.notices() == [("page_edited", str(world.page))]
    told = cli("audit", "--home", str(world.home))
    assert told.code == 0 and str(world.page) in told.out and "edited by hand" in told.out and "no problems" in told.out
    done = world.repair(apply=True)
    assert (done["plan"], done["applied"], done["undo_id"]) == ([], [], None), "there is nothing to repair"
    assert world.notices() == [("page_edited", str(world.page))]
    world.dream()
    assert world.notices() == []


def test_user_text_outside_the_region_and_other_line_ends_are_not_reported(world: World) -> None:
    world.page.write_bytes(b"# Mine\r\n" + world.page.read_bytes().replace(b"\n", b"\r\n") + b"more\r\n")
    assert world.notices() == []


@pytest.mark.parametrize("memory", ["none", "behind"])
def test_a_hand_edit_is_mentioned_also_if_the_index_does_not_know_it(world: World, memory: str) -> None:
    """A view that is missing or behind hides nothing."""
    kept = world.root.with_name("old.sqlite")
    shutil.copy(world.root / "index.sqlite", kept)
    with Keep.open(world.root) as keep:
        say(keep, "more", "Tests run in any order.")
        keep.dream(backend=Prompts())
    (world.root / "index.sqlite").unlink()
    if memory == "behind":
        shutil.copy(kept, world.root / "index.sqlite")
    assert world.notices() == []
    world.edit("any order", "order")
    assert world.notices() == [("page_edited", str(world.page))]
    world.page.unlink()
    assert world.classes() == ["page_unwritten"]


def test_an_outdated_index_does_not_miss_undone_notes_on_a_page(world: World) -> None:
    shutil.copy(world.root / "index.sqlite", world.root.with_name("old.sqlite"))
    with Keep.open(world.root) as keep:
        [past] = keep.dream_history()
        keep.dream_undo(past["id"])
    shutil.copy(world.root.with_name("old.sqlite"), world.root / "index.sqlite")
    assert world.notices() == [] and world.classes() == []


# -- pages that are not what was published


def test_a_missing_page_is_written_again_and_removed_by_an_undo(world: World) -> None:
    text = world.page.read_bytes()
    shutil.rmtree(world.root / "pages")
    before = looks(str(world.root), *VIEWS)
    assert world.classes() == ["page_unwritten"]
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and [step["action"] for step in done["applied"]] == ["write_page"]
    assert world.page.read_bytes() == text and world.page.stat().st_mode & 0o777 == 0o600
    assert world.repair(apply=True)["applied"] == []
    back = world.repair(undo=done["undo_id"])
    assert not back["skipped"] and world.classes() == ["page_unwritten"]
    assert looks(str(world.root), *VIEWS) == before, "also the folders that were made for it are gone"


@pytest.mark.parametrize(
    ("at", "link"), [("the page", True), ("its folder", True), ("all pages", True), ("its folder", False), ("all pages", False)]
)
def test_an_obstacle_in_place_of_a_page_is_reported_as_not_repairable(world: World, at: str, link: bool) -> None:
    place = {"the page": world.page, "its folder": world.page.parent, "all pages": world.root / "pages"}[at]
    place.rename(world.root.with_name("was"))
    if link:
        place.symlink_to(world.root.with_name("not-mounted"))
    else:
        place.write_text("somebody's")
        place.chmod(0o600)
    found = [one for one in world.audit()["faults"] if one["class"] == "page_unwritten"]
    assert [(one["repairable"], str(place) in one["next"]) for one in found] == [(False, True)]
    done = world.repair(apply=True)
    assert (done["applied"], done["undo_id"]) == ([], None)
    assert not list(world.root.glob("aside/repair-*")), "nothing was set aside for nothing"
    assert place.is_symlink() if link else place.read_text() == "somebody's"


def test_a_publication_that_dies_at_any_step_is_reported_as_what_it_left_mended_and_undone(world: World, tmp_path: Path) -> None:
    """M11: between the record and the write."""
    world.page.write_bytes(b"mine\n" + world.page.read_bytes() + b"after\n")
    world.dream()
    with Keep.open(world.root) as keep:
        say(keep, "more", "Tests run in any order.")
    kept = tmp_path / "kept"
    shutil.copytree(world.root, kept)
    seen: set[str] = set()
    for n in count(1):
        shutil.rmtree(world.root)
        shutil.copytree(kept, world.root)
        os.utime(world.root / "journal")
        try:
            Keep.open(world.root, host=Dying(n)).dream(backend=Prompts())
            finished = True
        except PowerCut:
            finished = False
        for file in world.root.rglob("*.tmp"):
            os.utime(file, (1, 1))
        found = world.classes()
        seen |= set(found)
        assert set(found) <= {"page_unwritten", "dream_unfinished", "journal_tail", "leftover"}, (n, found)
        was = looks(str(world.root), *VIEWS)
        done = world.repair(apply=True)
        assert done["audit"]["clean"] and not done["skipped"] and not done["audit"]["notices"], (n, done)
        text = world.page.read_bytes()
        assert (
            text.startswith(b"mine\n") and text.endswith(b"after\n") and (b"any order" in text or "page_unwritten" not in found)
        )
        if done["undo_id"]:
            assert not world.repair(undo=done["undo_id"])["skipped"], n
            assert looks(str(world.root), *VIEWS) == was, n
        if finished:
            break
    assert n > 10 and seen >= {"page_unwritten", "dream_unfinished"}


def test_a_page_elsewhere_is_its_users_when_it_is_gone_or_has_no_region_and_told_when_its_fence_is_broken(world: World) -> None:
    file = world.home / "AGENTS.md"
    with Keep.open(world.root) as keep:
        keep.page(project=world.project, write=file)
    assert world.notices() == []
    whole = file.read_text()
    file.write_text(whole.replace("floats", "strings"))
    assert world.notices() == [("page_edited", str(file))]
    file.write_text("mine alone\n")
    assert world.notices() == []
    file.write_text(whole.replace("<!-- dreamkeep:end -->", ""))
    assert world.classes() == ["page_fence"]
    file.unlink()
    assert world.notices() == []
    file.mkdir()
    assert world.classes() == ["page_fence"]


def test_lines_of_another_keep_in_a_shared_file_are_not_hand_edits(world: World, tmp_path: Path) -> None:
    """M10 R1: colleagues share a repository; what the other's keep wrote there is no edit that waits for a dream."""
    file = tmp_path / "AGENTS.md"
    with Keep.open(world.root) as mine, Keep.open(tmp_path / "theirs") as theirs:
        mine.page(project=world.project, write=file)
        theirs.note_add("Ask about the pear.", project=world.project)
        theirs.page(project=world.project, write=file)
    assert "pear" in file.read_text() and "walrus" not in file.read_text()
    assert world.notices() == []
    with Keep.open(world.root) as mine:
        mine.page(project=world.project, write=file)
    world.edit("floats", "strings", file)
    assert world.notices() == [("page_edited", str(file))]


def test_a_page_that_is_being_published_is_not_a_fault(world: World) -> None:
    """Beside writers: nothing is told of a page while somebody holds their lock, nor of what went on meanwhile."""
    page, text = world.page, world.page.read_bytes()
    with publish.lock_pages(HOST, str(world.root)):
        page.unlink()
        assert world.notices() == []
    assert world.classes() == ["page_unwritten"]
    page.write_bytes(text)
    world.edit("floats", "strings")

    with Keep.open(world.root) as keep:
        memory = keep.context.load_memory()
    for current in ([True], []):
        dreams = audit_dream.DreamAudit(HOST, str(world.root), memory, lambda: bool(current))  # noqa: B023  (called at once)
        assert list(dreams.pages()) == [] and len(dreams.notices) == len(current)


def test_after_a_deletion_no_repair_keeps_a_page_with_its_words(world: World, tmp_path: Path) -> None:
    """R5: a page does not say whose words it shows."""
    with Keep.open(world.root) as keep:
        say(keep, "more", "Tests run in any order.")
    kept = tmp_path / "kept"
    shutil.copytree(world.root, kept)
    for n in count(1):
        shutil.rmtree(world.root)
        shutil.copytree(kept, world.root)
        try:
            Keep.open(world.root, host=Dying(n)).dream(backend=Prompts())
            raise AssertionError("no step left a page behind")
        except PowerCut:
            if "page_unwritten" in world.classes():
                break
    world.repair(apply=True)
    assert any(str(path).startswith(str(world.root / "aside")) for path in map(Path, holding(world.root, b"prices as floats")))
    with Keep.open(world.root) as keep:
        keep.delete("s")
    assert holding(world.root, b"prices as floats") == []


# -- dreams that were killed

_DIES = """
import os, sys
from dreamkeep import Keep

class Dies:
    name = "dies"
    calls = 0
    def backfill(self, given):
        self.calls += 1
        if self.calls == 2:
            os.kill(os.getpid(), 9)
        return []

with Keep.open(sys.argv[1]) as keep:
    keep.dream(backend=Dies())
"""


def killed(world: World, names: Sequence[str] = ("w0", "w1", "w2")) -> None:
    """They wait; the dream is killed while it has the second one of all in its hands."""
    with Keep.open(world.root) as keep:
        for n, name in enumerate(names):
            say(keep, name, f"Rule number {n} holds.")
    done = subprocess.run([sys.executable, "-c", _DIES, str(world.root)], timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_a_dream_that_was_killed_is_reported_ended_and_what_it_had_in_hand_is_read_by_the_next(world: World) -> None:
    """M1 M5: no process holds its lock; and an undo brings back every byte."""
    killed(world)
    before = looks(str(world.root), *VIEWS)
    [found] = world.audit()["faults"]
    assert (found["class"], found["repairable"]) == ("dream_unfinished", True) and "2 sessions are still marked" in found["what"]
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and [step["action"] for step in done["applied"]] == ["end_dream"]
    with Keep.open(world.root) as keep:
        status = {one["id"]: one for one in keep.dream_status()["sessions"]}
        newest = keep.dream_history()[0]
    assert [status[f"python:w{n}"]["status"] for n in range(3)] == ["completed", "failed", "pending"]
    assert [status[f"python:w{n}"]["attempts"] for n in range(3)] == [0, 1, 0], "only the one in hand was tried"
    assert [bool(status[f"python:w{n}"]["failure_reason"]) for n in range(3)] == [False, True, False]
    assert (newest["report"]["status"], newest["report"]["processed"], newest["report"]["failed"]) == ("partial", 1, 1)
    assert newest["report"].keys() >= report(Scope((), "", "", 0)).keys()
    assert world.repair(apply=True)["applied"] == []
    back = world.repair(undo=done["undo_id"])
    assert not back["skipped"] and looks(str(world.root), *VIEWS) == before
    assert world.classes() == ["dream_unfinished"]
    world.repair(apply=True)
    made = world.dream()
    assert (made["processed"], made["failed"]) == (2, 0) and world.audit()["clean"]


def test_the_next_dream_ends_one_that_was_killed_and_reads_what_that_had_in_hand(world: World) -> None:
    """M1 M5: no repair is needed; the report of the dead one says what became of it."""
    killed(world)
    made = world.dream()
    assert (made["processed"], made["failed"]) == (2, 0) and world.audit()["clean"]
    with Keep.open(world.root) as keep:
        dead = next(one for one in keep.dream_history() if one["id"] != made["run"])
    assert (dead["report"]["status"], dead["report"]["processed"]) == ("partial", 1)
    assert "is gone" in dead["report"]["why"]
    assert world.repair(apply=True)["applied"] == []


_DIES_AT_THE_END = """
import os, sys
from dreamkeep import Keep
from dreamkeep.dream.session_run import SessionRun

SessionRun._report = lambda *given: os.kill(os.getpid(), 9)
with Keep.open(sys.argv[1]) as keep:
    keep.dream()
"""


@pytest.mark.parametrize("how", ["manual", "if due", "a session that was read"])
def test_the_next_dream_ends_one_that_was_killed_also_when_nothing_waits(world: World, how: str) -> None:
    with Keep.open(world.root) as keep:
        say(keep, "w0", "Rule number 0 holds.")
    done = subprocess.run([sys.executable, "-c", _DIES_AT_THE_END, str(world.root)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert world.classes() == ["dream_unfinished"]
    with Keep.open(world.root) as keep:
        assert keep.dream_status()["trigger"]["waiting"] == 0
        made = keep.dream(if_due=how == "if due", sessions=["w0"] if how.startswith("a session") else [])
    assert made["processed"] == 0 and world.audit()["clean"]


def test_sessions_that_a_killed_dream_had_not_begun_are_unchanged(world: World) -> None:
    """M1: one that had failed before is still that, for its own reason; one that was never tried is pending."""
    with Keep.open(world.root) as keep:
        for n in range(2):
            say(keep, f"w{n}", f"Rule number {n} holds.")
        say(keep, "z", "Rule number 9 holds.")

        class Refuses:
            name = "dies"

            def backfill(self, given: Given) -> list[Proposal]:
                raise RuntimeError("no model today")

        keep.dream(backend=Refuses(), sessions=["z"])
    killed(world, ("w2",))
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        status = {one["id"]: one for one in keep.dream_status()["sessions"]}
    told = [
        (one["status"], one["attempts"], one["failure_reason"])
        for one in (status[f"python:{name}"] for name in ("w0", "w1", "w2", "z"))
    ]
    assert told == [
        ("completed", 0, None),
        ("failed", 1, "the process that dreamed is gone"),
        ("pending", 0, None),
        ("failed", 1, "chunk 1 of 1: RuntimeError: no model today"),
    ]


def test_a_dream_that_goes_on_is_not_a_fault_and_nor_is_one_that_was_undone_or_a_session_that_failed(world: World) -> None:
    seen: list[dict[str, Any]] = []

    class Audits:
        name = "audits"

        def backfill(self, given: Given) -> list[Proposal]:
            seen.append(world.audit())
            raise RuntimeError("no model today")

    with Keep.open(world.root) as keep:
        say(keep, "w", "Rule number 1 holds.")
        made = keep.dream(backend=Audits())
    assert made["failed"] == 1 and [one["clean"] for one in seen] == [True]
    assert world.audit()["clean"], "that it failed is a state, and `dream status` tells it"
    killed(world)
    assert world.classes() == ["dream_unfinished"]
    with Keep.open(world.root) as keep:
        keep.dream_undo(keep.dream_history()[0]["id"])
    assert world.audit()["clean"]


def test_locks_and_tables_are_the_ones_that_dreams_have() -> None:
    assert (audit_dream.PAGE_LOCK, audit_dream.DREAM_LOCK) == (publish.LOCK, run.LOCK)
    ours = {cls for cls, known in CLASSES.items() if known.repair in mend_dream.ACTIONS}
    assert ours == {"page_unwritten", "dream_unfinished"} and mend_dream.ACTIONS.items() <= repair.actions().items()
    for cls, (means, step) in NOTICES.items():
        assert f"| `{cls}` | {means} | {step} |" in PAGE.read_text()
