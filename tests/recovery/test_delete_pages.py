"""Deletions whose pages can't be written: they are reported as unfinished and finished later, and no user text is lost."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.errors import Failed
from dreamkeep.host import RealHost
from tests.helpers.faults import Dying, PowerCut
from tests.helpers.leaks import holding
from tests.helpers.prompt_dreams import RULES, Prompts, page_of, say, texts

WORD = b"xylophon"
TUNE, LINT, PORT = "Never tune the xylophone by ear.", "Always run the linter.", "The port must be 8443."
BEGIN, END = "<!-- dreamkeep:begin v1 -->\n", "<!-- dreamkeep:end -->"
SID = "python:goes"


def dreamt(root: Path) -> str:
    """The project."""
    with Keep.open(root) as keep:
        say(keep, "goes", TUNE)
        project = say(keep, "stays", LINT, PORT)
        keep.dream(backend=Prompts())
    return project


class Refusing(RealHost):
    """Writes nothing over one file."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def replace(self, old: str, new: str) -> None:
        if new == self._path:
            raise PermissionError(13, "Permission denied", new)
        super().replace(old, new)


def unfinished(root: Path) -> list[str]:
    with Keep.open(root) as keep:
        return [one["session"] for one in keep.audit()["faults"] if one["class"] == "tombstone_unfinished"]


@pytest.mark.parametrize("how", ["the next writer", "delete"])
def test_a_deletion_is_not_done_while_a_page_of_the_keep_has_its_words_and_is_finished_when_it_can_be_written(
    tmp_path: Path, how: str
) -> None:
    """R5"""
    root = tmp_path / "k"
    dreamt(root)
    page = page_of(root)
    with Keep.open(root, host=Refusing(page)) as keep:
        for _ in range(2):
            with pytest.raises(Failed, match="a page still has lines of a deleted session") as told:
                keep.delete(SID)
            assert told.value.exit_code == 3 and told.value.where == str(page)
            assert "writable" in told.value.next and "dreamkeep delete" in told.value.next
            assert "Permission denied" in told.value.what
        assert TUNE not in texts(keep) and holding(root, WORD) == [str(page)], "all else is done"
    assert unfinished(root) == [SID]
    with Keep.open(root) as keep:
        if how == "delete":
            assert keep.delete(SID).id == SID
        else:
            keep.session("new").record("something else")
        assert texts(keep) == {LINT, PORT}, "no line of ours is taken for a user's word"
    assert holding(root, WORD) == [] and unfinished(root) == []
    assert LINT in page.read_text() and PORT in page.read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(END, END + "\n" + BEGIN, id="a second begin"),
        pytest.param(END, "", id="no end"),
        pytest.param(END, "<<<<<<< ours\n=======\n" + BEGIN + ">>>>>>> theirs\n" + END, id="a merge"),
    ],
)
def test_a_broken_fence_holds_up_the_end_of_a_deletion_and_no_word_of_the_user_is_lost_by_it(
    tmp_path: Path, old: str, new: str
) -> None:
    root = tmp_path / "k"
    dreamt(root)
    page = page_of(root)
    mine = page.read_text().replace(LINT, "Run the linter twice.").replace(END, "- My own zebra line.\n" + END) + "Outside.\n"
    broken = mine.replace(old, new)
    page.write_text(broken)
    with Keep.open(root) as keep, pytest.raises(Failed, match=r"fence|region") as told:
        keep.delete(SID)
    assert told.value.where == str(page) and page.read_text() == broken, "nothing is written to it"
    assert unfinished(root) == [SID]
    page.write_text(mine)
    with Keep.open(root) as keep:
        keep.session("new").record("something else")
        assert texts(keep) == {"Run the linter twice.", "My own zebra line.", PORT}
    assert holding(root, WORD) == [] and unfinished(root) == []
    text = page.read_text()
    assert all(one in text for one in ("Run the linter twice.", "My own zebra line.", PORT, "\nOutside.\n")) and LINT not in text


def test_a_line_by_hand_on_a_page_that_stays_unwritable_is_taken_in_once(tmp_path: Path) -> None:
    root = tmp_path / "k"
    dreamt(root)
    page = page_of(root)
    with Keep.open(root, host=Refusing(page)) as keep:
        with pytest.raises(Failed):
            keep.delete(SID)
        page.write_text(page.read_text().replace(END, "- My own zebra line.\n" + END))
        for _ in range(3):
            with pytest.raises(Failed):
                keep.delete(SID)
        assert [one["text"] for one in keep.notes(state="all")].count("My own zebra line.") == 1
    with Keep.open(root) as keep:
        keep.delete(SID)
        assert texts(keep) == {LINT, PORT, "My own zebra line."}
    assert holding(root, WORD) == [] and page.read_text().count("zebra") == 1


def test_lines_without_their_fence_are_reported_until_the_user_removes_them(tmp_path: Path) -> None:
    """R5: what stands outside of the fence is not ours to change."""
    root = tmp_path / "k"
    dreamt(root)
    page = page_of(root)
    loose = "".join(line for line in page.read_text().splitlines(keepends=True) if not line.startswith("<!--"))
    page.write_text(loose)
    with Keep.open(root) as keep:
        with pytest.raises(Failed, match="outside its fence"):
            keep.delete(SID)
        assert unfinished(root) == [SID] and loose in page.read_text()
        page.write_text(page.read_text().replace(loose, "".join(f"{line}\n" for line in loose.split("\n") if TUNE not in line)))
        keep.delete(SID)
    assert holding(root, WORD) == [] and unfinished(root) == []


def test_another_projects_broken_page_holds_up_no_deletion(tmp_path: Path) -> None:
    root = tmp_path / "k"
    dreamt(root)
    with Keep.open(root) as keep:
        keep.note_add(RULES[0], project="elsewhere")
        [other] = [one for one in (root / "pages").glob("*/MEMORY.md") if RULES[0] in one.read_text()]
        other.write_text(other.read_text() + BEGIN)
        assert keep.delete(SID).id == SID
    assert holding(root, WORD) == [] and unfinished(root) == []


def test_a_deletion_that_waits_for_a_page_keeps_no_other_from_being_finished(tmp_path: Path) -> None:
    root = tmp_path / "k"
    dreamt(root)
    with Keep.open(root) as keep:
        keep.session("zz").record("a marimba")
    page = page_of(root)
    page.write_text(page.read_text() + BEGIN)
    with Keep.open(root) as keep, pytest.raises(Failed):
        keep.delete(SID)
    for n in count(1):
        dying = Keep.open(root, host=Dying(n))
        with pytest.raises((PowerCut, Failed)):
            dying.delete("python:zz")
        if "python:zz" in unfinished(root):
            break
    with Keep.open(root) as keep:
        keep.session("new").record("something else")
    assert holding(root, b"marimba") == []


def two_projects(root: Path) -> tuple[Path, Path]:
    """The pages: of python:goes and python:stays; of python:other, which is of another project."""
    dreamt(root)
    mine = page_of(root)
    with Keep.open(root) as keep:
        session = keep.session("other", cwd=root.parent)
        session.record("Never paint the marimba.")
        session.end()
        keep.session("over").record("a celesta")
        keep.dream(backend=Prompts())
        keep.delete("over")
    [other] = [one for one in (root / "pages").glob("*/MEMORY.md") if one != mine]
    return mine, other


@pytest.mark.parametrize("why", ["broken", "unwritable"])
def test_a_deletion_whose_pages_are_written_is_finished_while_another_waits_for_its_own(tmp_path: Path, why: str) -> None:
    """R5: by delete; and its session is given free again, as is one whose deletion was over before."""
    root = tmp_path / "k"
    mine, other = two_projects(root)
    if why == "broken":
        mine.write_text(mine.read_text() + BEGIN)
    with Keep.open(root, host=Refusing(mine) if why == "unwritable" else RealHost()) as keep:
        with pytest.raises(Failed):
            keep.delete(SID)
        assert keep.delete("other").id == "python:other"
        assert unfinished(root) == [SID] and holding(root, b"marimba") == [] and "marimba" not in other.read_text()
        for name in ("over", "other"):
            assert keep.undelete(name) == f"python:{name}"
            keep.session(name).record("once more")
        with pytest.raises(Failed, match="a page still has lines of a deleted session") as told:
            keep.undelete(SID)
        assert told.value.where == str(mine)
        assert unfinished(root) == [SID]


@pytest.mark.parametrize("says", ["its own intent", "an intent of an older version"])
def test_a_deletion_that_a_crash_interrupted_is_finished_while_another_waits_for_its_page(tmp_path: Path, says: str) -> None:
    """R5: the next writer knows which pages to wait for; if they were not noted, it waits for any."""
    root = tmp_path / "k"
    mine, _ = two_projects(root)
    mine.write_text(mine.read_text() + BEGIN)
    with Keep.open(root) as keep, pytest.raises(Failed):
        keep.delete(SID)
    for n in count(1):
        with pytest.raises(PowerCut):
            Keep.open(root, host=Dying(n)).delete("python:other")
        if "python:other" in unfinished(root):
            break
    if says == "an intent of an older version":
        [intent] = (root / "state" / "deleting").glob("other-*")
        intent.write_text("python:other")
        assert "python:other" in unfinished(root)
    with Keep.open(root) as keep:
        keep.session("new").record("something else")
    assert holding(root, b"marimba") == []
    assert unfinished(root) == ([SID] if says == "its own intent" else [SID, "python:other"])
    mine.write_text(mine.read_text().removesuffix(BEGIN))
    with Keep.open(root) as keep:
        keep.session("new").record("and more")
    assert unfinished(root) == [] and holding(root, WORD) == []


@pytest.mark.parametrize("text", ["readable", "of another code"])
def test_two_deletions_wait_for_the_same_page_though_the_first_erased_what_was_published_there(tmp_path: Path, text: str) -> None:
    """R5: the lines in the file tell whose they are; where nobody can read them they may be of any session of that project."""
    root = tmp_path / "k"
    mine, _ = two_projects(root)
    whole = mine.read_text()
    mine.write_text(whole + BEGIN)
    with Keep.open(root) as keep:
        with pytest.raises(Failed):
            keep.delete(SID)
        if text == "of another code":
            mine.write_text(whole, encoding="utf-16")
        for _ in range(2):
            with pytest.raises(Failed):
                keep.delete("python:stays")
        assert keep.delete("other").id == "python:other"
        assert unfinished(root) == [SID, "python:stays"]
        mine.write_text(whole)
        assert keep.delete("python:stays").id == "python:stays"
    with Keep.open(root) as keep:
        keep.session("new").record("something else")
        assert texts(keep) == set()
    assert unfinished(root) == [] and holding(root, WORD) == [] and holding(root, b"linter") == []


def test_a_deletion_waits_for_a_page_that_still_has_lines_which_were_to_be_taken_out_before(tmp_path: Path) -> None:
    """R5: what was published last did not show them, and was never written."""
    root = tmp_path / "k"
    mine, _ = two_projects(root)
    with Keep.open(root, host=Refusing(mine)) as keep:
        [note] = [one["id"] for one in keep.notes() if one["text"] == TUNE]
        keep.note_change(note, "retract", reason="no more")
        with pytest.raises(Failed):
            keep.delete(SID)
    assert unfinished(root) == [SID] and holding(root, WORD) == [str(mine)]


def test_a_deletion_that_dies_at_any_step_is_not_finished_while_its_page_has_its_words(tmp_path: Path) -> None:
    """R5 K2: the pages are noted before the first word is erased."""
    template, root = tmp_path / "template" / "k", tmp_path / "k"
    dreamt(template)
    page_of(template).write_text(page_of(template).read_text() + BEGIN)
    for n in count(1):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)
        died = False
        try:
            Keep.open(root, host=Dying(n)).delete(SID)
        except PowerCut:
            died = True
        except Failed:
            pass
        with Keep.open(root) as keep:
            keep.session("new").record("the next writer")
            there = SID in {one.id for one in keep.sessions()}
        assert unfinished(root) == ([] if there else [SID]), n
        page_of(root).write_text(page_of(root).read_text().removesuffix(BEGIN))
        with Keep.open(root) as keep:
            keep.session("new").record("and more")
        assert there or (unfinished(root) == [] and holding(root, WORD) == []), n
        if not died:
            break
    assert not there and n > 10


def test_a_file_elsewhere_that_cannot_be_written_is_reported_and_the_next_dream_sees_to_it(tmp_path: Path) -> None:
    """R5 is about the keep: a user's own file is reported and delays no deletion."""
    root, file = tmp_path / "k", tmp_path / "CLAUDE.md"
    project = dreamt(root)
    with Keep.open(root) as keep:
        keep.page(project=project, write=file)
    told: list[str] = []
    with Keep.open(root, host=Refusing(file)) as keep:
        keep.warn = told.append
        assert keep.delete(SID).id == SID
    assert [one for one in told if str(file) in one and "has lines of the deleted session" in one]
    assert TUNE in file.read_text() and holding(root, WORD) == [] and unfinished(root) == []
    with Keep.open(root) as keep:
        keep.dream(backend=Prompts())
        assert texts(keep) == {LINT, PORT}
    assert TUNE not in file.read_text() and LINT in file.read_text()


@pytest.mark.parametrize("verb", ["hygiene", "compress", "dream"])
def test_whoever_writes_no_word_to_a_journal_finishes_an_interrupted_deletion_first(tmp_path: Path, verb: str) -> None:
    """R5: compressing writes to the keep, too."""
    root = tmp_path / "k"
    dreamt(root)
    for n in count(1):
        with pytest.raises(PowerCut):
            Keep.open(root, host=Dying(n)).delete(SID)
        if unfinished(root):
            break
    assert holding(root, WORD)
    with Keep.open(root) as keep:
        getattr(keep, verb)()
    assert holding(root, WORD) == [] and unfinished(root) == []


@pytest.mark.slow
def test_a_deletion_that_dies_at_any_step_leaves_no_word_on_the_page_after_the_next_writer(tmp_path: Path) -> None:
    """R5 K2: also between saying what the page will be and writing it."""
    template, root = tmp_path / "template" / "k", tmp_path / "k"
    dreamt(template)
    for n in count(1):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)
        finished = False
        try:
            Keep.open(root, host=Dying(n)).delete(SID)
            finished = True
        except PowerCut:
            pass
        with Keep.open(root) as keep:
            keep.session("new").record("the next writer")
            there = SID in {one.id for one in keep.sessions()}
            assert (holding(root, WORD) == []) == (not there), n
            assert there or texts(keep) == {LINT, PORT}, n
        if finished:
            break


def test_a_note_that_is_reported_while_a_deletion_waits_does_not_wait_for_its_own_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "k"
    dreamt(root)
    [page] = (root / "pages").rglob("MEMORY.md")
    page.write_text(page.read_text() + BEGIN)
    with Keep.open(root) as keep, pytest.raises(Failed):
        keep.delete(SID)
    monkeypatch.setattr("dreamkeep.dream.pages.publish._WAIT_S", 0.05)
    told: list[str] = []
    with Keep.open(root) as keep:
        keep.warn = told.append
        keep.note_add("Ask before you delete anything.")
    assert not [one for one in told if "busy" in one.lower() or "wait" in one.lower()], told


@pytest.mark.parametrize("how", ["around it", "a crash before it was withdrawn", "an import"])
def test_no_word_stays_on_the_page_of_a_name_that_its_project_gave_up(tmp_path: Path, how: str) -> None:
    """R5: and what a user wrote around our notes stays, and a line in between counts."""
    root = tmp_path / "k"
    project = dreamt(root)
    page = page_of(root)
    if how == "an import":
        shutil.copytree(root, tmp_path / "other")
        with Keep.open(tmp_path / "other") as keep:
            keep.project_rename(project, "tool")
            keep.export(tmp_path / "s")
    with Keep.open(root) as keep:
        page.write_text(f"# Mine\n\n{page.read_text()}")
        keep.dream(backend=Prompts())
        before = page.read_text()
        if how == "an import":
            keep.import_(tmp_path / "s")
        else:
            keep.project_rename(project, "tool")
            if how == "around it":
                assert page.read_text().startswith("# Mine\n") and LINT not in page.read_text()
            else:
                page.write_text(before.replace(END, f"- Use tabs.\n{END}"))
        keep.delete("goes")
        assert holding(root, WORD) == []
        assert page.read_text().startswith("# Mine\n")
        assert ("Use tabs." in texts(keep)) == (how == "a crash before it was withdrawn")
        assert {LINT, PORT} <= texts(keep) and unfinished(root) == []


def test_a_page_of_a_name_that_was_given_up_holds_up_a_deletion_while_its_fence_is_broken(tmp_path: Path) -> None:
    """R5: lines that a broken fence keeps from being removed are reported, as on any page."""
    root = tmp_path / "k"
    project = dreamt(root)
    page = page_of(root)
    with Keep.open(root) as keep:
        page.write_text(page.read_text().replace(END, ""))
        keep.project_rename(project, "tool")
        with pytest.raises(Failed, match="no end"):
            keep.delete("goes")
        assert unfinished(root) == [SID]
        page.write_text(f"{page.read_text()}{END}\n")
        keep.delete("goes")
        assert holding(root, WORD) == [] and unfinished(root) == []
