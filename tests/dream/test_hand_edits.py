"""What a user's hand did on a page, and what befalls the page meanwhile: nothing of it is lost, nothing is made up."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.errors import BadUsage, Busy, DreamkeepError, Refused
from dreamkeep.host import RealHost
from dreamkeep.memory import page
from tests.helpers.faults import Dying, PowerCut
from tests.helpers.leaks import holding
from tests.helpers.prompt_dreams import RULES, Prompts, memory, say, texts

PORT, FORCE = "The port must be 8443.", "Never force-push to main."


def dreamed(keep: Keep, name: str, *words: str) -> tuple[str, str]:
    """(project, run)"""
    project = say(keep, name, *words)
    return project, str(keep.dream(backend=Prompts())["run"])


def changed(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_a_run_is_undone_while_a_line_of_it_is_changed_by_hand_and_the_users_words_stay(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, run = dreamed(keep, "s", PORT, FORCE)
        keep.page(project=project, write=file)
        changed(file, PORT, "The gateway must stay on 9999.")
        keep.dream_undo(run)
        assert texts(keep) == {"The gateway must stay on 9999."}
        assert "9999" in file.read_text() and FORCE not in file.read_text()
        keep.dream(backend=Prompts())
        keep.note_add("Pears are green.", project=project)
        assert texts(keep) == {"The gateway must stay on 9999.", "Pears are green."}
        keep.reindex(from_zero=True)
        assert texts(keep) == {"The gateway must stay on 9999.", "Pears are green."}


@pytest.mark.parametrize("act", ["pin", "retract", "edit"])
def test_what_a_user_did_to_a_note_outlives_the_run_that_gave_it(tmp_path: Path, act: str) -> None:
    with Keep.open(tmp_path / "k") as keep:
        project, run = dreamed(keep, "s", FORCE)
        [note] = keep.notes()
        keep.note_change(note["id"], act, text="Never push to main." if act == "edit" else "")
        keep.dream_undo(run)
        dreamed(keep, "again", FORCE)
        found = {one["text"]: one for one in keep.notes(state="all")}
        if act == "pin":
            assert found[FORCE]["pinned"] and found[FORCE]["state"] == "active"
        elif act == "retract":
            assert found[FORCE]["state"] == "retracted", "the same fact does not bring it back"
        else:
            assert found["Never push to main."]["state"] == "active"
        before = memory(keep).notes
        keep.reindex(from_zero=True)
        assert memory(keep).notes == before and project


@pytest.mark.parametrize("act", ["command", "page", "then retracted", "twice"])
def test_words_that_a_user_replaced_do_not_come_back_when_the_run_that_gave_them_is_undone(tmp_path: Path, act: str) -> None:
    """M10: a second session says them, too, and said them before."""
    old, new, file = "Always deploy from the main branch.", "Always deploy from the release branch.", tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s1", old)
        say(keep, "s2", old)
        run = str(keep.dream(backend=Prompts(), sessions=["python:s1"])["run"])
        [note] = keep.notes()
        if act == "page":
            keep.page(project=project, write=file)
            changed(file, old, new)
        else:
            for text in ("Always deploy from the stable branch.", new)[act != "twice" :]:
                keep.note_change(note["id"], "edit", text=text)
        if act == "then retracted":
            keep.note_change(note["id"], "retract")
        keep.dream_undo(run)
        for sessions in ([], ["python:s1"]):
            keep.dream(backend=Prompts(), sessions=sessions)
            assert texts(keep) == (set() if act == "then retracted" else {new})
        steps = [step for step in keep.dream_why(note["id"])["history"] if step["what"] == "edited"]
        assert steps[0]["was"] == old
        keep.reindex(from_zero=True)
        keep.dream(backend=Prompts())
        assert texts(keep) == (set() if act == "then retracted" else {new})
        dreamed(keep, "s3", old)
        assert old in texts(keep), "the user's newer word"


def test_of_words_that_a_user_replaced_nothing_is_left_when_the_session_is_deleted(tmp_path: Path) -> None:
    """K7: also where its run was undone."""
    with Keep.open(tmp_path / "k") as keep:
        _, run = dreamed(keep, "s", "Xylophones must be tuned by ear.")
        keep.note_change(keep.notes()[0]["id"], "edit", text="Ask the tuner.")
        keep.dream_undo(run)
        keep.dream(backend=Prompts())
        assert holding(tmp_path / "k", b"Xylophones") != []
        keep.delete("python:s")
        assert holding(tmp_path / "k", b"Xylophones") == []


def test_an_edit_that_an_older_version_journaled_still_holds(tmp_path: Path) -> None:
    """It does not say which words it replaced."""
    with Keep.open(tmp_path / "k") as keep:
        project, run = dreamed(keep, "s", FORCE)
        [note] = keep.notes()
        body = {
            "id": note["id"],
            "kind": note["kind"],
            "project": project,
            "text": "Never push to main.",
            "reason": "by the user",
        }
        keep.context.journals().say("", "note.edited", body)
        [*_, step] = keep.dream_why(note["id"])["history"]
        assert (step["what"], step["was"]) == ("edited", FORCE)
        keep.dream_undo(run)
        assert texts(keep) == {"Never push to main."}


def test_a_crash_inside_an_undo_leaves_it_done_or_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Keep.open(tmp_path / "k") as keep:
        dreamed(keep, "s1", PORT)
        _, run = dreamed(keep, "s2", "The port must be 9443.")
        assert texts(keep) == {"The port must be 9443."}
        said: list[list[str]] = []
        append = type(keep.context.journals()).append

        def noting(self: Any, session: str, events: Any) -> Any:
            said.append([event.kind for event in events])
            return append(self, session, events)

        monkeypatch.setattr(type(keep.context.journals()), "append", noting)
        keep.dream_undo(run)
        assert texts(keep) == {PORT}
        assert [kinds for kinds in said if "dream.undone" in kinds] == [kinds for kinds in said if kinds[0] == "dream.undone"]
        assert sum("dream.undone" in kinds for kinds in said) == 1
        assert not [kinds for kinds in said if "dream.undone" not in kinds and kinds[0].startswith(("note.", "insight."))]


def test_a_run_that_is_running_is_not_undone(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        _, run = dreamed(keep, "s", FORCE)

        class Meddling(Prompts):
            def backfill(self, given: Any) -> Any:
                with Keep.open(tmp_path / "k") as other:
                    assert [one["running"] for one in other.dream_history()] == [True, False]
                    with pytest.raises(Busy, match="a dream is running"):
                        other.dream_undo(run)
                return super().backfill(given)

        say(keep, "t", PORT)
        assert keep.dream(backend=Meddling())["processed"] == 1
        assert texts(keep) == {FORCE, PORT} and not any(one["running"] for one in keep.dream_history())


@pytest.mark.parametrize("times", [1, 3])
def test_a_file_that_two_projects_were_written_to_belongs_to_the_last_and_no_note_is_taken_back(
    tmp_path: Path, times: int
) -> None:
    file = tmp_path / "CLAUDE.md"
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add(FORCE, project="p")
        keep.note_add(PORT, project="q")
        for _ in range(times):
            keep.page(project="p", write=file)
            keep.page(project="q", write=file)
        for _ in range(3):
            keep.dream()
        assert texts(keep) == {FORCE, PORT}
        assert PORT in file.read_text() and FORCE not in file.read_text()
        changed(file, PORT, "The port is 1.")
        assert keep.page(project="p", write=file)["edits"] == 1, "taken in as a word on the other project's note"
        assert texts(keep) == {FORCE, "The port is 1."} and FORCE in file.read_text()
        before = file.read_bytes()
        keep.reindex(from_zero=True)
        keep.dream()
        assert file.read_bytes() == before and texts(keep) == {FORCE, "The port is 1."}


def test_a_file_and_a_link_to_it_are_one_page(tmp_path: Path) -> None:
    file, link = tmp_path / "AGENTS.md", tmp_path / "CLAUDE.md"
    file.write_text("# R\n")
    link.symlink_to(file)
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s1", PORT)
        keep.page(project=project, write=file)
        keep.page(project=project, write=link)
        _, run = dreamed(keep, "s2", "The port must be 9443.")
        assert {one["state"] for one in keep.notes(state="all")} == {"active", "superseded"}
        keep.dream_undo(run)
        assert texts(keep) == {PORT} and PORT in link.read_text()


def test_a_page_that_could_not_be_written_twice_takes_no_note_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s1", RULES[0])
        keep.page(project=project, write=file)
        replace = RealHost.replace

        def refused(self: RealHost, old: str, new: str) -> None:
            if new == str(file):
                raise PermissionError(1, "not now", new)
            replace(self, old, new)

        with monkeypatch.context() as patch:
            patch.setattr(RealHost, "replace", refused)
            dreamed(keep, "s2", RULES[1])
            dreamed(keep, "s3", RULES[2])
        assert RULES[2] not in file.read_text()
        keep.dream(backend=Prompts())
        assert texts(keep) == set(RULES) and all(rule in file.read_text() for rule in RULES)


def test_stashed_changes_take_no_note_back(tmp_path: Path) -> None:
    git, file = tmp_path / "repo" / ".git", tmp_path / "repo" / "CLAUDE.md"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text("1" * 40 + "\n")
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add(FORCE, project="p")
        keep.page(project="p", write=file)
        committed = file.read_text()
        keep.note_add(PORT, project="p")
        (git / "refs" / "stash").write_text("2" * 40 + "\n")
        file.write_text(committed)
        keep.dream()
        assert texts(keep) == {FORCE, PORT}


def test_where_no_room_is_left_no_ended_note_stays_and_no_edit_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT, FORCE)
        keep.page(project=project, write=file)
        file.write_text("".join(f"line {n}\n" for n in range(250)) + file.read_text())
        keep.note_change(next(one["id"] for one in keep.notes() if one["text"] == PORT), "retract")
        assert PORT not in file.read_text()
        keep.note_add("Ask first.", project=project)
        changed(file, "<!-- dreamkeep:end -->", "- Never rebase shared branches.\n<!-- dreamkeep:end -->")
        keep.dream()
        assert "Never rebase shared branches." in texts(keep)
        file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if not line.startswith("line ")))
        keep.dream()
        assert "Never rebase shared branches." in file.read_text() and FORCE in file.read_text()
        full = tmp_path / "full.md"
        full.write_text("line\n" * 250)
        done = keep.page(project=project, write=full)
        assert "no room" in done["problem"] and full.read_text() == "line\n" * 250


def test_a_line_written_by_hand_outlives_the_deletion_of_the_session_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT, FORCE)
        keep.page(project=project, write=file)
        changed(file, "<!-- dreamkeep:end -->", "- My own line about zebras.\n<!-- dreamkeep:end -->")
        keep.delete("python:s")
        assert texts(keep) == {"My own line about zebras."}
        assert "zebras" in file.read_text() and PORT not in file.read_text()


def test_two_lines_whose_words_are_swapped_are_both_still_there(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT, FORCE)
        keep.page(project=project, write=file)
        file.write_text(file.read_text().replace(PORT, "\0").replace(FORCE, PORT).replace("\0", FORCE))
        keep.dream()
        assert texts(keep) == {PORT, FORCE} and all(file.read_text().count(one) == 1 for one in (PORT, FORCE))


def test_what_somebody_writes_in_brackets_is_no_reference_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE)
        keep.page(project=project, write=file)
        changed(file, "<!-- dreamkeep:end -->", "- Label its tickets with [n-api]\n<!-- dreamkeep:end -->")
        keep.dream()
        assert "Label its tickets with [n-api]" in texts(keep)


def test_headings_and_comments_written_into_the_region_stay_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE)
        keep.page(project=project, write=file)
        mine = "### My own heading\n<!-- a private remark -->\n"
        changed(file, "<!-- dreamkeep:end -->", f"{mine}<!-- dreamkeep:end -->")
        keep.dream()
        assert file.read_text().endswith(f"<!-- dreamkeep:end -->\n{mine}")
        before = file.read_bytes()
        keep.dream()
        assert file.read_bytes() == before


def test_a_page_with_the_headings_of_an_earlier_version_is_read_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M10: what a hand did below them is taken in, and they are not kept as if somebody had written them."""
    old = {"Rejected": "Turned down", "How we work": "How it is done here", "Open items": "Open"}
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        with monkeypatch.context() as earlier:
            earlier.setattr(page, "LOOK", page.LOOK - 1)
            earlier.setattr(page, "_HEADINGS", {kind: old.get(name, name) for kind, name in page._HEADINGS.items()})
            project = say(keep, "s")
            for text, kind in (("No Celery.", "rejection"), ("Run make test.", "procedure"), ("The disk is full.", "open_loop")):
                keep.note_add(text, kind=kind, project=project)
            keep.page(project=project, write=file)
        assert [line for line in file.read_text().splitlines() if line[:3] == "###"] == [f"### {name}" for name in old.values()]
        changed(file, "No Celery.", "No Celery, and no cron.")
        changed(file, "### Open\n", "### Open\n- The lamp is broken.\n")
        assert keep.page(project=project, write=file)["edits"] == 2
        assert texts(keep) == {"No Celery, and no cron.", "Run make test.", "The disk is full.", "The lamp is broken."}
        shown = file.read_text()
        assert all(f"### {name}\n" in shown for name in old), "the new headings"
        assert not any(f"### {name}\n" in shown for name in old.values()), "and none of the old ones, not even behind the region"
        assert all(text in shown for text in texts(keep))


def test_a_file_in_another_code_is_left_alone_and_a_byte_order_mark_stays(tmp_path: Path) -> None:
    wide, marked = tmp_path / "wide.md", tmp_path / "marked.md"
    wide.write_text("# Héllo\n", encoding="utf-16")
    marked.write_text("", encoding="utf-8")
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE)
        was = wide.read_bytes()
        assert "UTF-8" in keep.page(project=project, write=wide)["problem"] and wide.read_bytes() == was
        keep.page(project=project, write=marked)
        marked.write_bytes(b"\xef\xbb\xbf" + marked.read_bytes().lstrip(b"\n"))
        dreamed(keep, "t", PORT)
        assert marked.read_bytes().startswith(b"\xef\xbb\xbf<!-- dreamkeep:begin") and PORT in marked.read_text()


def test_what_was_said_after_the_page_was_edited_is_newer_than_the_edit(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s1", PORT)
        keep.page(project=project, write=file)
        changed(file, PORT, "The port must be 9443.")
        say(keep, "s2", "The port must be 7000.")
        keep.dream(backend=Prompts())
        assert texts(keep) == {"The port must be 7000."}


def test_a_new_page_among_the_users_files_may_be_read_by_who_reads_those(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE)
        keep.page(project=project, write=tmp_path / "C.md")
    assert os.stat(tmp_path / "C.md").st_mode & 0o777 == 0o644


def test_a_page_that_cannot_be_made_stops_no_dream(tmp_path: Path) -> None:
    """A folder where a page was is told; what was said is remembered."""
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE)
        keep.page(project=project, write=file)
        file.unlink()
        file.mkdir()
        dreamed(keep, "t", PORT)
        assert texts(keep) == {FORCE, PORT}
        with pytest.raises(DreamkeepError, match="must be a file"):
            keep.page(project=project, write=file)


def test_a_file_where_the_pages_belong_is_told_with_what_to_do(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", FORCE)
        (tmp_path / "k" / "pages").write_text("not a folder")
        [told] = keep.dream(backend=Prompts())["pages"]
        assert told["project"] == project and texts(keep) == {FORCE}
        assert f"a file is in the place of the pages' folder ({tmp_path}/k/pages). Move it away" in told["problem"]
        (tmp_path / "k" / "pages").rename(tmp_path / "elsewhere")
        [told] = keep.dream(backend=Prompts())["pages"]
        assert told["changed"] and not told["problem"]


def test_killed_at_any_step_an_edit_and_what_follows_from_it_are_both_there_or_neither(tmp_path: Path) -> None:
    for n in count(1):
        root, file = tmp_path / f"k{n}", tmp_path / f"C{n}.md"
        with Keep.open(root) as keep:
            project, _ = dreamed(keep, "s", PORT, FORCE)
            keep.page(project=project, write=file)
        changed(file, FORCE, "The port must be 1.")
        over = True
        try:
            Keep.open(root, host=Dying(n)).page(project=project, write=file)
        except PowerCut:
            over = False
        with Keep.open(root) as keep:
            assert texts(keep) in ({PORT, FORCE}, {"The port must be 1."}), n
            keep.page(project=project, write=file)
            assert texts(keep) == {"The port must be 1."}, n
        if over:
            break
    assert n > 5


def test_what_is_edited_by_command_and_what_follows_from_it_are_one_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Keep.open(tmp_path / "k") as keep:
        dreamed(keep, "s", PORT, FORCE)
        force = next(one["id"] for one in keep.notes() if one["text"] == FORCE)
        said: list[list[str]] = []
        append = type(keep.context.journals()).append

        def noting(self: Any, session: str, events: Any) -> Any:
            said.append([event.kind for event in events])
            return append(self, session, events)

        monkeypatch.setattr(type(keep.context.journals()), "append", noting)
        keep.note_change(force, "edit", text="The port must be 7777.")
        assert texts(keep) == {"The port must be 7777."}
        assert said[0] == ["note.edited", "note.superseded"]


def test_a_note_that_only_its_pin_held_is_overruled_when_that_is_taken_away(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        dreamed(keep, "s1", PORT)
        [old] = keep.notes()
        keep.note_change(old["id"], "pin")
        dreamed(keep, "s2", "The port must be 9443.")
        assert texts(keep) == {PORT, "The port must be 9443."}
        keep.note_change(old["id"], "unpin")
        assert texts(keep) == {"The port must be 9443."}


@pytest.mark.parametrize("act", ["reject", "confirm"])
def test_a_users_verdict_on_a_note_outlives_the_run_that_gave_it(tmp_path: Path, act: str) -> None:
    with Keep.open(tmp_path / "k") as keep:
        _, run = dreamed(keep, "s", FORCE)
        [note] = keep.notes()
        keep.note_change(note["id"], act, reason="checked with Bob")
        keep.dream_undo(run)
        [found] = keep.notes(state="all")
        assert (found["id"], found["state"]) == (note["id"], "active" if act == "confirm" else "retracted")
        keep.dream(backend=Prompts(), sessions=["python:s"])
        assert texts(keep) == ({FORCE} if act == "confirm" else set())
        before = memory(keep).notes
        keep.reindex(from_zero=True)
        assert memory(keep).notes == before


def test_what_an_agent_told_outright_stands_without_the_run_that_heard_it_too(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        _, run = dreamed(keep, "s", FORCE)
        keep.add_insight("constraint", FORCE, session="python:s", quote=FORCE, author="user")
        keep.dream_undo(run)
        assert texts(keep) == {FORCE}


def test_a_line_that_was_deleted_on_one_page_is_not_put_back_by_another_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "A.md", tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT, FORCE, RULES[0])
        for file in (one, other):
            keep.page(project=project, write=file)
        one.write_text("".join(line for line in one.read_text().splitlines(keepends=True) if FORCE not in line))
        changed(other, PORT, "The port must be 9443.")
        replace = RealHost.replace

        def refused(self: RealHost, old: str, new: str) -> None:
            if new == str(other):
                raise PermissionError(1, "not now", new)
            replace(self, old, new)

        with monkeypatch.context() as patch:
            patch.setattr(RealHost, "replace", refused)
            keep.dream(backend=Prompts())
        keep.dream(backend=Prompts())
        assert texts(keep) == {"The port must be 9443.", RULES[0]}
        assert FORCE not in other.read_text() and FORCE not in one.read_text()


def test_a_pinned_note_stands_before_the_others_of_its_kind(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", *RULES)
        last = next(one["id"] for one in keep.notes() if one["text"] == RULES[2])
        keep.note_change(last, "pin")
        text = keep.page(project=project)["text"]
        assert text.index(RULES[2]) < text.index(RULES[0]) < text.index(RULES[1])


def test_a_preview_tells_of_hand_edits_also_where_no_session_waits(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT)
        keep.page(project=project, write=file)
        changed(file, PORT, "The port must be 9443.")
        told = keep.dream(preview=True, backend=Prompts())
        assert [one["edits"] for one in told["diff"]["pages"] if one["path"] == str(file)] == [1]
        assert texts(keep) == {PORT}


@pytest.mark.parametrize("acts", [("rename",), ("close",), ("rename", "close")])
def test_a_task_that_a_user_renamed_or_closed_outlives_the_run_that_opened_it(tmp_path: Path, acts: tuple[str, ...]) -> None:
    with Keep.open(tmp_path / "k") as keep:
        project, run = dreamed(keep, "s", FORCE)
        [task] = keep.tasks()
        for act in acts:
            if act == "rename":
                task = keep.task_rename(task["id"], "My own title")
            else:
                task = keep.task_close(task["id"], state="abandoned")
        expected = {key: task[key] for key in ("id", "title", "project", "state", "sessions", "opened_at", "closed_at")}
        keep.dream_undo(run)
        for again in (False, True):
            if again:
                assert keep.dream(backend=Prompts(), sessions=["python:s"])["processed"] == 1
            [left] = keep.tasks()
            assert {key: left[key] for key in expected} == expected and left["project"] == project
        keep.reindex(from_zero=True)
        assert [one["title"] for one in keep.tasks()] == [expected["title"]]


def test_a_task_that_nobody_touched_goes_with_its_run(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        _, run = dreamed(keep, "s", FORCE)
        keep.context.journals().say(
            "", "task.closed", {"id": keep.tasks()[0]["id"], "state": "done"}
        )  # as older versions said it
        keep.dream_undo(run)
        assert keep.tasks() == []


def refusing(patch: pytest.MonkeyPatch, *files: Path) -> None:
    """These files can't be written now."""
    replace = RealHost.replace

    def refused(self: RealHost, old: str, new: str) -> None:
        if new in map(str, files):
            raise PermissionError(1, "not now", new)
        replace(self, old, new)

    patch.setattr(RealHost, "replace", refused)


@pytest.mark.parametrize("edits", [1, 2])
def test_a_page_that_cannot_be_written_with_edits_waiting_in_it_takes_no_new_note_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edits: int
) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE, RULES[0])
        keep.page(project=project, write=file)
        changed(file, "to main", "to gold")
        if edits == 2:
            changed(file, RULES[0], "Prices are integers, in cents.")
        with monkeypatch.context() as patch:
            refusing(patch, file)
            note = keep.note_add("Ship on Fridays.", project=project)["id"]
            assert "Fridays" not in file.read_text()
            keep.note_change(next(one["id"] for one in keep.notes() if "gold" in one["text"]), "edit", text="Never push to gold.")
        keep.dream(backend=Prompts())
        assert {step.what for step in memory(keep).notes[note].history} == {"added"}
        mine = "Prices are integers, in cents." if edits == 2 else RULES[0]
        assert texts(keep) == {"Never push to gold.", mine, "Ship on Fridays."}, "and the older words do not come back"
        assert all(one in file.read_text() for one in texts(keep))
        changed(file, next(line for line in file.read_text().splitlines(keepends=True) if "Fridays" in line), "")
        keep.dream(backend=Prompts())
        assert texts(keep) == {"Never push to gold.", mine}, "a line that is deleted is"


def test_killed_at_any_step_with_an_edit_waiting_the_note_that_was_added_stays(tmp_path: Path) -> None:
    root, kept, file = tmp_path / "k", tmp_path / "kept", tmp_path / "C.md"
    with Keep.open(root) as keep:
        project, _ = dreamed(keep, "s", FORCE)
        keep.page(project=project, write=file)
    changed(file, "to main", "to gold")
    before = file.read_text()
    shutil.copytree(root, kept)
    for n in count(1):
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        file.write_text(before)
        over = True
        try:
            Keep.open(root, host=Dying(n)).note_add("Ship on Fridays.", project=project)
        except PowerCut:
            over = False
        with Keep.open(root) as keep:
            keep.dream(backend=Prompts())
            assert {one["state"] for one in keep.notes(state="all")} == {"active"}, n
            assert texts(keep) - {"Ship on Fridays."} == {"Never force-push to gold."}, n
        if over:
            break
    assert n > 10


class Later(RealHost):
    """Its clock is two minutes ahead of the disk's."""

    def now(self) -> int:
        return super().now() + 120 * 1_000_000_000


def saved(file: Path, seconds: int) -> None:
    """As if it was, so long after it was written."""
    at = os.stat(file).st_mtime_ns + seconds * 1_000_000_000
    os.utime(file, ns=(at, at))


@pytest.mark.parametrize("later", ["changed", "deleted"])
@pytest.mark.parametrize("first", ["A.md", "C.md"])
def test_of_two_edits_on_two_pages_the_one_that_was_saved_later_holds(tmp_path: Path, later: str, first: str) -> None:
    pages = [tmp_path / first, tmp_path / ("C.md" if first == "A.md" else "A.md")]
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT, FORCE)
        for file in pages:
            keep.page(project=project, write=file)
        gone, other = pages if later == "changed" else pages[::-1]
        gone.write_text("".join(line for line in gone.read_text().splitlines(keepends=True) if FORCE not in line))
        changed(other, "to main", "to gold")
        saved(pages[0], 70)
        saved(pages[1], 71)
    with Keep.open(tmp_path / "k", host=Later()) as keep:
        keep.dream(backend=Prompts())
        words = {PORT} | ({"Never force-push to gold."} if later == "changed" else set())
        assert texts(keep) == words
        for file in pages:
            assert ("gold" in file.read_text()) == (later == "changed") and FORCE not in file.read_text()
        assert {one["kind"] for one in keep.notes()} == {"constraint"}
        before = [file.read_bytes() for file in pages]
        keep.reindex(from_zero=True)
        keep.dream(backend=Prompts())
        assert texts(keep) == words and [file.read_bytes() for file in pages] == before


def test_a_line_rewritten_before_a_note_is_added_keeps_its_new_words(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT)
        keep.page(project=project, write=file)
        changed(file, PORT, "Deploy on Fridays only.")
        keep.note_add("The port must be 9000.", kind="constraint", project=project)
        assert texts(keep) == {"Deploy on Fridays only.", "The port must be 9000."}
        changed(file, "on Fridays", "on Mondays")
        keep.note_add("Tests need a database.", kind="constraint", project=project)
        assert "Deploy on Mondays only." in texts(keep)
        assert {one["state"] for one in keep.notes(state="all")} == {"active"}, "they are that note's own"
        assert all(one in file.read_text() for one in texts(keep))


def test_a_command_on_a_note_is_a_later_word_than_the_edit_that_waits_on_its_page(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    warned: list[str] = []
    with Keep.open(tmp_path / "k") as keep:
        keep.warn = warned.append
        project, _ = dreamed(keep, "s", PORT, FORCE)
        keep.page(project=project, write=file)
        force, port = (next(one["id"] for one in keep.notes() if one["text"] == text) for text in (FORCE, PORT))
        changed(file, "to main", "to gold")
        assert keep.note_change(force, "edit", text="Never push to silver.")["text"] == "Never push to silver."
        assert texts(keep) == {PORT, "Never push to silver."} and "silver" in file.read_text()
        file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if PORT not in line))
        with pytest.raises(Refused, match="retracted"):
            keep.note_change(port, "pin")
        [found] = [one for one in keep.notes(state="all") if one["id"] == port]
        assert (found["state"], found["pinned"]) == ("retracted", False)
        assert keep.note_change(port, "confirm")["state"] == "active" and PORT in file.read_text()
        assert not warned


def test_a_line_rewritten_while_a_dream_thinks_is_known_before_it_concludes(tmp_path: Path) -> None:
    file = tmp_path / "C.md"

    class Meddling(Prompts):
        def backfill(self, given: Any) -> Any:
            if given.session == "python:t":
                changed(file, PORT, "Deploy on Fridays only.")
            return super().backfill(given)

    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", PORT)
        keep.page(project=project, write=file)
        for name, words in (("r", RULES[0]), ("t", "The port must be 9000."), ("u", RULES[1])):
            say(keep, name, words)
        made = keep.dream(backend=Meddling())
        assert texts(keep) == {RULES[0], RULES[1], "The port must be 9000.", "Deploy on Fridays only."}
        assert {one["state"] for one in keep.notes(state="all")} == {"active"}
        assert [(one["edits"], one["changed"]) for one in made["pages"] if one["path"] == str(file)] == [(1, True)]
        assert all(one in file.read_text() for one in texts(keep))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_comment_of_several_lines_and_a_code_block_stay_behind_the_region_as_a_whole(tmp_path: Path, end: str) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE)
        keep.page(project=project, write=file)
        text = file.read_text().replace("\n", end)
        mine = end.join(
            [
                "<!-- todo for Bob:",
                "",
                "- ask about the budget",
                "-->",
                "```sh",
                "make ship",
                "",
                "# then wait",
                "### Constraints",
                "```",
            ]
        )
        written = text.replace("<!-- dreamkeep:end", f"- Use tabs.{end}{mine}{end}- Pears are green.{end}<!-- dreamkeep:end")
        file.write_bytes(f"{end * 9}{written}".encode())
        keep.dream()
        assert texts(keep) == {FORCE, "Use tabs.", "Pears are green."}
        assert file.read_bytes().endswith(f"<!-- dreamkeep:end -->{end}{mine}{end}".encode())
        before = file.read_bytes()
        keep.dream()
        assert file.read_bytes() == before


def test_a_fence_or_a_comment_that_is_not_closed_hides_no_line_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", FORCE, PORT)
        keep.page(project=project, write=file)
        changed(file, "### Constraints\n", "### Constraints\n```\n")
        changed(file, "<!-- dreamkeep:end", "```\n<!-- not ended\n<!-- dreamkeep:end")
        keep.dream()
        assert {FORCE, PORT} <= texts(keep) and {one["state"] for one in keep.notes(state="all")} == {"active"}


@pytest.mark.parametrize("text", ["x" * 2001, "\x01", " ", "\u200b", "\u200d"])
def test_a_note_is_edited_to_nothing_that_could_not_be_added(tmp_path: Path, text: str) -> None:
    with Keep.open(tmp_path / "k") as keep:
        [note] = [keep.note_add(FORCE)]
        with pytest.raises(BadUsage, match="1 to 2000 characters"):
            keep.note_change(note["id"], "edit", text=text)
        with pytest.raises(BadUsage, match="1 to 2000 characters"):
            keep.note_add(text)
        assert texts(keep) == {FORCE}


@pytest.mark.parametrize("acts", [("confirm",), ("confirm", "retract")])
def test_what_was_confirmed_after_an_undo_goes_with_the_session_whose_words_it_is(tmp_path: Path, acts: tuple[str, ...]) -> None:
    """R5: the confirmation names an insight that fell with its run."""
    with Keep.open(tmp_path / "k") as keep:
        _, run = dreamed(keep, "s", FORCE)
        note = keep.notes()[0]["id"]
        keep.note_change(note, "pin")
        keep.dream_undo(run)
        for act in acts:
            keep.note_change(note, act)
        keep.delete("s")
        assert keep.notes(state="all") == []
        assert holding(tmp_path / "k", b"force-push") == []


def test_a_formatter_of_markdown_that_escapes_signs_is_no_hand_and_changes_no_note(tmp_path: Path) -> None:
    """M10: mdformat and its like run over a repository's files. What a user changes in such a line counts."""
    file = tmp_path / "CLAUDE.md"
    words = ["Name tests *_test.go, never <name>Test.go.", "The port must be 8443."]
    with Keep.open(tmp_path / "k") as keep:
        project, _ = dreamed(keep, "s", *words)
        keep.page(project=project, write=file)
        before = keep.notes(state="all")
        file.write_text(_formatted(file.read_text()))
        assert keep.page(project=project, write=file)["edits"] == 0 and keep.notes(state="all") == before
        file.write_text(_formatted(file.read_text()).replace("8443", "9443"))
        assert keep.page(project=project, write=file)["edits"] == 1
        assert texts(keep) == {words[0], "The port must be 9443."} and len(keep.notes(state="all")) == 2


def _formatted(text: str) -> str:
    lines = text.split("\n")
    for n, line in enumerate(lines):
        if line.startswith("- "):
            lines[n] = "- " + "".join(f"\\{sign}" if sign in "*_<[]" else sign for sign in line[2:])
        elif line.startswith("### "):
            lines[n] = f"\n{line}\n"
    return "\n".join(lines)


def test_what_a_rejected_note_had_overruled_holds_again_at_once(tmp_path: Path) -> None:
    """M9: and not only when a later run, or the undoing of one, happens to touch it."""
    older, newer = "The port must be 8443.", "The port must be 9000."
    with Keep.open(tmp_path / "k") as keep:
        _, first = dreamed(keep, "s", older)
        _, second = dreamed(keep, "later", newer)
        assert texts(keep) == {newer}
        keep.note_change(next(one["id"] for one in keep.notes() if one["text"] == newer), "reject")
        assert texts(keep) == {older} and older in next((tmp_path / "k").glob("pages/*/MEMORY.md")).read_text()
        keep.reindex(from_zero=True)
        assert texts(keep) == {older}
        _, third = dreamed(keep, "last", "Never force-push to main.")
        keep.dream_undo(third)
        keep.dream_undo(second)
        assert texts(keep) == {older}
        keep.dream_undo(first)
        assert texts(keep) == set()


@pytest.mark.parametrize("undone", [False, True])
def test_rejected_words_overrule_nothing_also_if_they_are_said_again_until_they_are_confirmed(
    tmp_path: Path, undone: bool
) -> None:
    """M9: they give no note, so nothing at all was left of what they contradict."""
    older, newer = "The port must be 8443.", "The port must be 9000."
    with Keep.open(tmp_path / "k") as keep:
        dreamed(keep, "s", older)
        _, second = dreamed(keep, "later", newer)
        assert older not in texts(keep)
        rejected = [one["id"] for one in keep.notes()]
        for one in rejected:
            keep.note_change(one, "reject")
        assert texts(keep) == {older}
        if undone:
            keep.dream_undo(second)
        dreamed(keep, "again", newer)
        assert texts(keep) == {older}
        keep.reindex(from_zero=True)
        assert texts(keep) == {older}
        for one in rejected:
            keep.note_change(one, "confirm")
        assert older not in texts(keep) and len(texts(keep)) == len(rejected)
