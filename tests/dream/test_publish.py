"""The page on disk: old or new, never mixed; what is outside the fence is the user's, and so is a changed line inside."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from dreamkeep import Keep
from dreamkeep.dream.pages.publish import Publishing
from dreamkeep.errors import BadUsage
from dreamkeep.host import Host, publish_file
from dreamkeep.verbs.dream.pages import pages_differ, publish_pages
from tests.helpers.faults import Dying, PowerCut
from tests.helpers.leaks import holding
from tests.helpers.prompt_dreams import RULES, Prompts, memory, page_of, say, texts


def test_a_dream_writes_the_page_and_nothing_new_changes_no_byte(tmp_path: Path) -> None:
    """M10 D23"""
    with Keep.open(tmp_path / "k") as keep:
        say(keep, "s", *RULES)
        made = keep.dream(backend=Prompts())
        [told] = made["pages"]
        assert told["changed"] and told["notes"] == 3
        text = page_of(tmp_path / "k").read_text()
        assert all(rule in text for rule in RULES)
        before = {p: p.read_bytes() for p in (tmp_path / "k").rglob("*") if p.is_file() and "index" not in p.name}
        keep.dream(backend=Prompts())
        assert {p: p.read_bytes() for p in (tmp_path / "k").rglob("*") if p.is_file() and "index" not in p.name} == before


def test_a_page_of_a_keep_that_is_not_there_makes_neither_a_file_nor_a_keep(tmp_path: Path) -> None:
    """Its name was misspelt, perhaps."""
    with Keep.open(tmp_path / "misspelt") as keep:
        done = keep.page(project="p", write=tmp_path / "CLAUDE.md")
    assert (done["changed"], done["notes"], done["problem"]) == (False, 0, "") and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["missing", "missing/deeper", "file", "link"])
def test_a_page_is_not_written_into_a_folder_that_nobody_made(tmp_path: Path, way: str) -> None:
    """A slip of the pen makes no folders, and leaves nothing in the keep that would be written again and again."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add(RULES[0], project="p")
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(BadUsage, match="no such folder"):
            keep.page(project="p", write=tmp_path / way / "CLAUDE.md")
        (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere" / "CLAUDE.md")
        with pytest.raises(BadUsage, match="no such folder"):
            keep.page(project="p", write=tmp_path / "gone.md")
        assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "gone.md"])
        assert [one["path"] for one in memory(keep).pages.values() if str(one["path"]).startswith("/")] == []
        assert keep.page(project="p", write=tmp_path / "CLAUDE.md")["changed"]


def test_a_changed_line_is_the_users_word_a_deleted_one_is_retracted_and_neither_comes_back(tmp_path: Path) -> None:
    """M10 D16: and what stands outside is untouched, byte for byte."""
    file = tmp_path / "CLAUDE.md"
    file.write_bytes(b"# Mine\r\n\r\n- a table\t| x |\r\n---\r\n\xff\xfe no UTF-8\r\n")
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        assert keep.page(project=project, write=file)["changed"]
        outside = file.read_bytes()
        assert outside.startswith(b"# Mine\r\n\r\n- a table\t| x |\r\n---\r\n\xff\xfe no UTF-8\r\n")
        edited = outside.decode("utf-8", "surrogateescape").replace(
            "Never store prices as floats.", "Prices are integers, in cents."
        )
        lines = [line for line in edited.split("\r\n") if "changelog" not in line]
        at = next(n for n, line in enumerate(lines) if "integers" in line)
        lines.insert(at, "- Use tabs.")
        file.write_bytes("\r\n".join(lines).encode("utf-8", "surrogateescape"))
        done = keep.page(project=project, write=file)
        assert done["edits"] == 3
        assert texts(keep) == {"Prices are integers, in cents.", "Deploys go through the staging cluster.", "Use tabs."}
        assert file.read_bytes().startswith(outside[: outside.index(b"<!--")])
        say(keep, "again", *RULES)
        keep.dream(backend=Prompts())
        assert "The changelog is written by hand." not in texts(keep), "a deleted line does not come back by itself"
        assert "The changelog is written by hand." not in file.read_text(errors="replace")
        assert keep.page(project=project, write=file)["edits"] == 0


def test_a_hand_edit_on_one_page_is_on_all_pages_of_the_project_at_once(tmp_path: Path) -> None:
    """M10: also where several were edited, and each page is told of once."""
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        pages = [tmp_path / "A.md", tmp_path / "B.md", page_of(tmp_path / "k")]
        for page in pages[:2]:
            keep.page(project=project, write=page)
        pages[0].write_text(pages[0].read_text().replace("as floats", "as doubles"))
        pages[1].write_text(pages[1].read_text().replace("staging cluster", "canary cluster"))
        keep.dream(backend=Prompts())
        for page in pages:
            assert "as doubles" in page.read_text() and "canary cluster" in page.read_text(), page
        before = [page.read_bytes() for page in (*pages, *(tmp_path / "k" / "journal" / "keep").iterdir())]
        keep.dream(backend=Prompts())
        assert [page.read_bytes() for page in (*pages, *(tmp_path / "k" / "journal" / "keep").iterdir())] == before
        pages[0].write_text(pages[0].read_text().replace("as doubles", "as text"))
        told = publish_pages(keep.context, "")
        assert sorted((one["path"], one["changed"], one["edits"]) for one in told) == sorted(
            (str(page), page != pages[0], int(page == pages[0])) for page in pages
        )


def test_a_line_that_was_deleted_and_is_written_again_is_meant(tmp_path: Path) -> None:
    """M10: it does not come back by itself, and it does by hand, with its old id or without."""
    file = tmp_path / "MEMORY.md"
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        keep.page(project=project, write=file)
        lines = file.read_text().splitlines(keepends=True)
        gone = next(line for line in lines if "changelog" in line)
        file.write_text("".join(line for line in lines if line != gone))
        keep.page(project=project, write=file)
        assert RULES[2] not in texts(keep)
        at = next(n for n, line in enumerate(lines) if "floats" in line)
        now = file.read_text().splitlines(keepends=True)
        for line in (gone, f"- {RULES[2]}\n"):
            file.write_text("".join([*now[:at], line, *now[at:]]))
            keep.page(project=project, write=file)
            assert RULES[2] in texts(keep) and file.read_text().count(RULES[2]) == 1
            file.write_text("".join(now))
            keep.page(project=project, write=file)
            assert RULES[2] not in texts(keep) and RULES[2] not in file.read_text()


def test_a_broken_fence_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "MEMORY.md"
    file.write_text("<!-- dreamkeep:begin x -->\nno end\n")
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        done = keep.page(project=project, write=file)
        assert "no end" in done["problem"] and file.read_text() == "<!-- dreamkeep:begin x -->\nno end\n"


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    """W15"""
    (tmp_path / "real.md").write_text("mine\n")
    (tmp_path / "real.md").chmod(0o640)
    (tmp_path / "link.md").symlink_to("real.md")
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        keep.page(project=project, write=tmp_path / "link.md")
    assert (tmp_path / "link.md").is_symlink() and RULES[0] in (tmp_path / "real.md").read_text()
    assert (tmp_path / "real.md").stat().st_mode & 0o777 == 0o640


def test_killed_at_any_step_the_page_is_old_or_new_and_no_edit_is_made_up_or_lost(tmp_path: Path) -> None:
    """W16 M11: what was edited by hand stands, and the next run ends with the same notes."""
    root = tmp_path / "k"
    kept = tmp_path / "kept"
    with Keep.open(root) as keep:
        say(keep, "s", RULES[0], RULES[2])
        keep.dream(backend=Prompts())
        say(keep, "t", RULES[1])
    page = page_of(root)
    page.write_text("mine\n" + page.read_text().replace(RULES[2], "The changelog is generated.") + "\nafter\n")
    shutil.copytree(root, kept)
    for n in count(1):
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        try:
            Keep.open(root, host=Dying(n)).dream(backend=Prompts())
            finished = True
        except PowerCut:
            finished = False
        now = page_of(root).read_text()
        assert now.startswith("mine\n") and now.endswith("after\n") and now.count("dreamkeep:begin") == 1, n
        with Keep.open(root) as keep:
            keep.dream(backend=Prompts())
            assert texts(keep) == {RULES[0], RULES[1], "The changelog is generated."}, n
        text = page_of(root).read_text()
        assert text.startswith("mine\n") and text.endswith("after\n") and all(one in text for one in (RULES[0], RULES[1])), n
        assert "The changelog is generated." in text and RULES[2] not in text, n
        assert not list((root / "pages").rglob("*.tmp")), f"{n}: what died left something"
        if finished:
            break
    assert n > 10


def test_a_file_that_changes_under_our_hands_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M11: digest-fenced."""
    file = tmp_path / "MEMORY.md"
    file.write_text("first\n")
    meddled: list[str] = []

    def meddling(host: Host, path: str, data: bytes) -> bool:
        if not meddled:
            meddled.append(path)
            file.write_text("first\nand an agent wrote this meanwhile\n")
        return publish_file(host, path, data)

    monkeypatch.setattr("dreamkeep.dream.pages.publish.publish_file", meddling)
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        meddled.clear()
        keep.page(project=project, write=file)
    assert meddled and file.read_text().startswith("first\nand an agent wrote this meanwhile\n") and RULES[0] in file.read_text()
    assert [p.name for p in tmp_path.glob("*.tmp")] == []


def test_undo_takes_a_run_off_the_page_too(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        say(keep, "s", RULES[0])
        keep.dream(backend=Prompts())
        say(keep, "t", RULES[1])
        run = keep.dream(backend=Prompts())["run"]
        assert RULES[1] in page_of(tmp_path / "k").read_text()
        keep.dream_undo(run)
        assert RULES[1] not in page_of(tmp_path / "k").read_text() and RULES[0] in page_of(tmp_path / "k").read_text()


def test_a_deleted_session_is_gone_from_the_pages_and_their_history(tmp_path: Path) -> None:
    """R5 K7"""
    with Keep.open(tmp_path / "k") as keep:
        say(keep, "goes", "Never tune the xylophone by ear.")
        say(keep, "stays", RULES[0])
        keep.dream(backend=Prompts())
        file = tmp_path / "AGENTS.md"
        keep.page(project=keep.summary("python:goes").project, write=file)
        assert "xylophone" in file.read_text()
        keep.delete("goes")
        assert holding(tmp_path / "k", b"xylophon") == []
        assert "xylophone" not in file.read_text() and RULES[0] in file.read_text()
        assert RULES[0] in page_of(tmp_path / "k").read_text()


def test_who_publish_at_once_do_not_take_each_other_for_the_users_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M10 D6: what another process has just written on the page is nobody's edit."""
    with Keep.open(tmp_path / "k") as keep, Keep.open(tmp_path / "k") as other:
        gone = keep.note_add("The walrus is grey.", project="p")["id"]
        write = Publishing._write
        threads: list[Thread] = []

        def meanwhile(self: Publishing, path: str, before: bytes | None, after: bytes) -> bool:
            if not threads:
                threads.append(Thread(target=lambda: other.note_change(other.note_add("Use tabs.", project="p")["id"], "pin")))
                threads.append(Thread(target=lambda: other.note_change(gone, "retract")))
                for one in threads:
                    one.start()
                    one.join(1.0)  # it comes in between if it can
            return write(self, path, before, after)

        monkeypatch.setattr(Publishing, "_write", meanwhile)
        keep.note_add("Never force-push.", project="p")
        for one in threads:
            one.join()
        found = memory(keep)
        today = (found.notes[gone].first_at or "")[:10]
        assert {one.source for one in found.insights.values()} == {"cli"} and len(found.notes) == 3
        assert [step.why for step in found.notes[gone].history] == [f"the user, {today}", "by the user"]
        assert page_of(tmp_path / "k").read_text().count("[n-") == 2


def test_a_copy_of_a_keep_leaves_the_pages_of_the_other_alone(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
    shutil.copytree(tmp_path / "k", tmp_path / "copy")
    before = page_of(tmp_path / "k").read_bytes()
    with Keep.open(tmp_path / "copy") as keep:
        say(keep, "t", "Only the copy knows of the walrus.")
        keep.dream(backend=Prompts())
    assert page_of(tmp_path / "k").read_bytes() == before
    assert "walrus" in page_of(tmp_path / "copy").read_text()


def test_a_file_elsewhere_is_written_only_while_it_has_our_region(tmp_path: Path) -> None:
    """M10: gone, or without its region, it is the user's; so nobody's journal makes us write into any file."""
    gone, emptied, asked = (tmp_path / name for name in ("gone.md", "emptied.md", "asked.md"))
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        for file in (gone, emptied, asked):
            keep.page(project=project, write=file)
        gone.unlink()
        emptied.write_text("# mine\n")
        for path in (str(tmp_path / "planted.md"), "planted.md", "pages/../planted.md", 7):
            keep.context.journals().say("", "page.published", {"project": project, "path": path, "region": "", "notes": []})
        say(keep, "t", "The walrus comes later.")
        keep.dream(backend=Prompts())
        assert not gone.exists() and emptied.read_text() == "# mine\n" and "walrus" in asked.read_text()
        assert not list(tmp_path.rglob("planted.md")) and not Path("planted.md").exists()
        assert not pages_differ(keep.context)
        assert keep.page(project=project, write=gone)["changed"]


def test_a_link_to_nothing_leads_to_the_page(tmp_path: Path) -> None:
    (tmp_path / "link.md").symlink_to(tmp_path / "real.md")
    with Keep.open(tmp_path / "k") as keep:
        project = say(keep, "s", *RULES)
        keep.dream(backend=Prompts())
        assert keep.page(project=project, write=tmp_path / "link.md")["changed"]
    assert (tmp_path / "link.md").is_symlink() and RULES[0] in (tmp_path / "real.md").read_text()


def test_no_secret_comes_in_by_hand(tmp_path: Path) -> None:
    """M12: notes and pages, also where the user wrote it there; titles of tasks, too."""
    secret = "ghp_" + "a1B2" * 9
    with Keep.open(tmp_path / "k") as keep:
        note = keep.note_add(f"The token is {secret}.", project="p")
        keep.note_change(keep.note_add("Ask for the token.", project="p")["id"], "edit", text=f"Ask for {secret}.")
        keep.task_rename(keep.task_open(f"Rotate {secret}")["id"], f"Rotate {secret} soon")
        file = page_of(tmp_path / "k")
        file.write_text(file.read_text().replace("### Preferences\n", f"### Preferences\n- Use {secret} for pushing.\n"))
        keep.dream()
        assert len(keep.notes()) == 3 and "[redacted]" in note["text"]
        assert holding(tmp_path / "k", secret.encode()) == []


def test_what_a_user_takes_back_and_says_again_holds(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        for act in ("retract", "reject", "retract"):
            note = keep.note_add("Use tabs.", project="p")
            assert note["state"] == "active" and "Use tabs." in page_of(tmp_path / "k").read_text()
            assert keep.note_add("Use tabs.", project="p")["id"] == note["id"], "said twice is said once"
            assert keep.note_change(note["id"], act)["state"] == "retracted"
        assert texts(keep) == set()


def test_memory_travels_with_a_snapshot_and_two_keeps_notes_become_one(tmp_path: Path) -> None:
    """R4 D22: equal in an empty keep; into a live one what is newer counts, nothing is doubled, no page is taken for edited."""
    with Keep.open(tmp_path / "one") as keep:
        project = say(keep, "a", *RULES)
        keep.dream(backend=Prompts())
        keep.note_add("Only one knows.", project=project)
        both = keep.note_add("Both know.", project=project)["id"]
        keep.export(tmp_path / "snapshot")
        told = keep.notes(state=None)
    with Keep.open(tmp_path / "empty") as keep:
        keep.import_(tmp_path / "snapshot")
        assert keep.notes(state=None) == told
        assert keep.dream(backend=Prompts())["considered"] == 0 and keep.notes(state=None) == told
        assert page_of(tmp_path / "empty").read_bytes() == page_of(tmp_path / "one").read_bytes()
    with Keep.open(tmp_path / "two") as keep:
        say(keep, "b", *RULES, "Only two knows.")
        keep.dream(backend=Prompts())
        keep.note_add("Both know.", project=project)
        keep.note_change(both, "edit", text="Both know, and better.")
        for _ in range(2):
            keep.import_(tmp_path / "snapshot")
            keep.dream(backend=Prompts())
            assert sorted(one["text"] for one in keep.notes(state=None)) == sorted(
                (*RULES, "Only one knows.", "Only two knows.", "Both know, and better.")
            )
        assert {one["sessions"] for one in keep.notes() if one["text"] in RULES} == {2}
        assert page_of(tmp_path / "two").read_text().count("[n-") == 6
        assert {one.source for one in memory(keep).insights.values()} == {"dream", "cli"}


def test_a_page_that_is_left_alone_is_told(tmp_path: Path) -> None:
    """M10: nobody looks into a report for it."""
    warned: list[str] = []
    with Keep.open(tmp_path / "k") as keep:
        keep.warn = warned.append
        keep.note_add("Use tabs.", project="p")
        file = page_of(tmp_path / "k")
        broken = file.read_text().replace("<!-- dreamkeep:end -->", "")
        file.write_text(broken)
        keep.note_add("Use spaces for alignment.", project="p")
        assert file.read_text() == broken
    assert len(warned) == 1 and str(file) in warned[0]


@pytest.mark.parametrize("what", ["folder", "pipe", "loop", "no text", "no room", "no end", "foreign"])
def test_a_preview_tells_which_pages_a_dream_would_leave_alone_and_shows_the_others(tmp_path: Path, what: str) -> None:
    """D36: one page that nobody can read or write hides no other, and no change is shown that a dream would not make."""
    file = tmp_path / "CLAUDE.md"
    with Keep.open(tmp_path / "k") as keep, Keep.open(tmp_path / "other") as other:
        project = say(keep, "s", "Use tabs.")
        keep.dream(backend=Prompts())
        keep.page(project=project, write=file)
        if what == "foreign":
            bad, good = file, page_of(tmp_path / "k")
            other.note_add("Ask about the walrus.", project=project)
            other.page(project=project, write=file)
        else:
            bad, good = page_of(tmp_path / "k"), file
            _spoilt(bad, what)
        say(keep, "later", "Never push on Fridays.")
        shown = {one["path"]: one for one in keep.dream(backend=Prompts(), preview=True)["diff"]["pages"]}
        assert shown[str(bad)]["problem"] and not shown[str(bad)]["diff"]
        assert "+- Never push on Fridays." in shown[str(good)]["diff"] and not shown[str(good)]["problem"]
        keep.warn = lambda text: None
        made = {one["path"]: one for one in keep.dream(backend=Prompts())["pages"]}
        assert made[str(bad)]["problem"] and not made[str(good)]["problem"] and "Fridays" in good.read_text()


def _spoilt(file: Path, what: str) -> None:
    text = file.read_text()
    file.unlink()
    if what == "folder":
        file.mkdir()
    elif what == "pipe":
        os.mkfifo(file)
    elif what == "loop":
        file.symlink_to(file)
    elif what == "no text":
        file.write_bytes(b"\0\1\2")
    else:
        file.write_text("x" * 30_000 if what == "no room" else text.replace("<!-- dreamkeep:end -->", ""))


def test_a_page_is_made_anew_for_other_settings_and_for_nothing_else(tmp_path: Path) -> None:
    """M10: only what is not as it should be is rendered; a page of another project stays untouched."""
    with Keep.open(tmp_path / "k") as keep:
        for n in range(8):
            keep.note_add(f"Rule {n} of the walrus says {n * 7}.", project="p")
        keep.note_add("Never force-push.", project="q")
        pages = {one.parent.name[0]: one for one in (tmp_path / "k" / "pages").rglob("MEMORY.md")}
        before = {name: (one.read_text(), one.stat().st_mtime_ns) for name, one in pages.items()}
        keep.note_add("Use tabs.", project="p")
        assert (pages["q"].read_text(), pages["q"].stat().st_mtime_ns) == before["q"]
        assert "Use tabs." in pages["p"].read_text()
    (tmp_path / "k" / "keep.toml").write_text("[page]\nmax_lines = 8\n")
    with Keep.open(tmp_path / "k") as keep:
        assert keep.dream()["considered"] == 0 and keep.dream()["considered"] == 0
        assert len(pages["p"].read_text().splitlines()) <= 8 and pages["q"].read_text() == before["q"][0]
        assert len(keep.notes()) == 10, "what has no room is not forgotten"


def test_two_keeps_that_write_one_file_take_nothing_for_a_hands_work(tmp_path: Path) -> None:
    """M10: colleagues share a repository. Neither learns from the other's lines, nor forgets what the other has not."""
    file = tmp_path / "AGENTS.md"
    warned: list[str] = []
    with Keep.open(tmp_path / "one") as one, Keep.open(tmp_path / "two") as two:
        two.warn = warned.append
        for keep, name in ((one, "walrus"), (two, "pear")):
            keep.note_add(f"Ask about the {name}.", project="p")
        two.page(project="p", write=file)
        one.page(project="p", write=file)
        theirs = file.read_text()
        assert "walrus" in theirs and "pear" not in theirs
        two.note_add("Pears are green.", project="p")
        two.dream()
        assert texts(two) == {"Ask about the pear.", "Pears are green."} and file.read_text() == theirs
        assert warned and all(str(file) in text and "another keep" in text for text in warned)
        two.page(project="p", write=file)
        assert "Pears are green." in file.read_text() and texts(two) == {"Ask about the pear.", "Pears are green."}
        one.dream()
        assert texts(one) == {"Ask about the walrus."} and "walrus" not in file.read_text()


def test_a_keep_that_knows_less_and_writes_the_same_file_takes_no_note_away_from_the_other(tmp_path: Path) -> None:
    """M10: two machines of one user learned the same, and one of them more; so no line is there that the other does not know."""
    file = tmp_path / "AGENTS.md"
    warned: list[str] = []
    with Keep.open(tmp_path / "one") as one, Keep.open(tmp_path / "two") as two:
        one.warn = warned.append
        for keep in (one, two):
            keep.note_add("Ask about the walrus.", project="p")
        one.note_add("Pears are green.", project="p")
        one.page(project="p", write=file)
        two.page(project="p", write=file)
        theirs = file.read_text()
        assert "Pears" not in theirs
        one.dream()
        assert texts(one) == {"Ask about the walrus.", "Pears are green."} and file.read_text() == theirs
        assert warned and all("another keep" in text for text in warned)
        assert one.audit()["notices"] == []
        one.page(project="p", write=file)
        assert texts(one) == {"Ask about the walrus.", "Pears are green."} and "Pears are green." in file.read_text()
        file.write_text("\n".join(line for line in file.read_text().split("\n") if "Pears" not in line))
        one.dream()
        assert texts(one) == {"Ask about the walrus."}, "a hand's work in our own region still is"


@pytest.mark.parametrize(
    "name, content", [("HEAD", b"ref: refs/heads/\0\0\n"), ("commondir", b"\0\0\0\n"), ("", b"gitdir: \0\n")]
)
def test_a_repository_that_a_power_cut_harmed_keeps_no_page_from_being_written(tmp_path: Path, name: str, content: bytes) -> None:
    git = tmp_path / "repo" / ".git"
    git.parent.mkdir()
    if name:
        git.mkdir()
        (git / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (git / name if name else git).write_bytes(content)
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add("Ask about the walrus.", project="p")
        keep.page(project="p", write=tmp_path / "repo" / "AGENTS.md")
    assert "walrus" in (tmp_path / "repo" / "AGENTS.md").read_text()


@pytest.mark.parametrize("packed", [False, True])
def test_another_branchs_older_file_is_no_hands_work_and_a_deleted_line_is(tmp_path: Path, packed: bool) -> None:
    """M10: what we wrote there once, after a checkout; without a checkout the same bytes are a line that somebody deleted."""
    git, file = tmp_path / "repo" / ".git", tmp_path / "repo" / "AGENTS.md"
    git.mkdir(parents=True)

    def check_out(branch: str, commit: str) -> None:
        (git / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
        if packed:
            (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{commit} refs/heads/{branch}\n")
        else:
            (git / "refs" / "heads").mkdir(parents=True, exist_ok=True)
            (git / "refs" / "heads" / branch).write_text(f"{commit}\n")

    check_out("main", "1" * 40)
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add("Ask about the walrus.", project="p")
        keep.page(project="p", write=file)
        old = file.read_text()
        keep.note_add("Pears are green.", project="p")
        new = file.read_text()
        assert "Pears" in new
        check_out("older", "2" * 40)
        file.write_text(old)
        keep.dream()
        assert file.read_text() == new and texts(keep) == {"Ask about the walrus.", "Pears are green."}
        check_out("older", "3" * 40)
        file.write_text(old)
        assert keep.page(project="p", write=file)["edits"] == 0 and len(texts(keep)) == 2, "a pull on the same branch"
        file.write_text(old)
        assert keep.page(project="p", write=file)["edits"] == 1
        assert file.read_text() == old and texts(keep) == {"Ask about the walrus."}


class Repository:
    """As much of one as tells that another commit was checked out."""

    def __init__(self, folder: Path) -> None:
        self._git = folder / ".git"
        (self._git / "refs" / "heads").mkdir(parents=True)
        self.check_out("main", "1" * 40)

    def check_out(self, branch: str, commit: str) -> None:
        (self._git / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
        (self._git / "refs" / "heads" / branch).write_text(f"{commit}\n")


@pytest.mark.parametrize("edit", ["added", "changed", "deleted", "all"])
def test_an_edit_in_another_branchs_older_file_takes_nothing_back_that_is_newer(tmp_path: Path, edit: str) -> None:
    """M10: what the hand did counts, against the version that it was done to."""
    repository, file = Repository(tmp_path / "repo"), tmp_path / "repo" / "AGENTS.md"
    with Keep.open(tmp_path / "k") as keep:
        for rule in RULES[:2]:
            keep.note_add(rule, project="p")
        keep.page(project="p", write=file)
        old = file.read_text()
        keep.note_add(RULES[2], project="p")
        keep.note_add("Pears are green.", project="p")
        reworded = next(one["id"] for one in keep.notes() if one["text"] == RULES[1])
        keep.note_change(reworded, "edit", text="Deploys go through the canary cluster.")
        repository.check_out("older", "2" * 40)
        lines = old.splitlines(keepends=True)
        if edit in ("added", "all"):
            lines.insert(-1, "- Ship on Fridays.\n")
        if edit in ("changed", "all"):
            lines = [line.replace(RULES[0], "Prices are integers, in cents.") for line in lines]
        if edit in ("deleted", "all"):
            lines = [line for line in lines if RULES[1] not in line]
        file.write_text("".join(lines))
        keep.dream()
        kept = {RULES[2], "Pears are green."} | ({"Ship on Fridays."} if edit in ("added", "all") else set())
        kept.add("Prices are integers, in cents." if edit in ("changed", "all") else RULES[0])
        kept |= set() if edit in ("deleted", "all") else {"Deploys go through the canary cluster."}
        assert texts(keep) == kept and all(one in file.read_text() for one in kept)


def test_a_line_deleted_from_the_newest_version_is_retracted_also_after_a_commit(tmp_path: Path) -> None:
    repository, file = Repository(tmp_path / "repo"), tmp_path / "repo" / "AGENTS.md"
    with Keep.open(tmp_path / "k") as keep:
        keep.note_add(RULES[0], project="p")
        keep.page(project="p", write=file)
        for rule in RULES[1:]:
            keep.note_add(rule, project="p")
        repository.check_out("main", "2" * 40)
        file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if RULES[0] not in line))
        assert keep.page(project="p", write=file)["edits"] == 1
        assert texts(keep) == set(RULES[1:])


@pytest.mark.parametrize("known", [False, True])
def test_a_users_line_in_another_keeps_region_is_a_note_of_the_one_that_takes_it_over(tmp_path: Path, known: bool) -> None:
    """M10: on a new machine, or where a colleague's keep wrote last. The other's own notes are the other's."""
    file = tmp_path / "AGENTS.md"
    with Keep.open(tmp_path / "one") as one, Keep.open(tmp_path / "two") as two:
        one.note_add("Ask about the walrus.", project="p")
        two.note_add("Pears are green.", project="p")
        if known:
            two.page(project="p", write=file)
        one.page(project="p", write=file)
        file.write_text(file.read_text().replace("<!-- dreamkeep:end", "- Ship on Fridays only.\n<!-- dreamkeep:end"))
        done = two.page(project="p", write=file)
        assert (done["edits"], done["problem"]) == (1, "")
        assert texts(two) == {"Pears are green.", "Ship on Fridays only."}
        assert {note["author"] for note in two.notes()} == {"user"}
        assert all(text in file.read_text() for text in texts(two)) and "walrus" not in file.read_text()
        assert two.page(project="p", write=file)["edits"] == 0
