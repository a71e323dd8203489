"""The inbox: suggested notes wait for the user, who accepts, rewords or rejects them."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.event import Event, Kind, rfc3339
from dreamkeep.host import RealHost
from tests.helpers.answering import Reader, dream, item
from tests.helpers.claude_home import Transcripts
from tests.helpers.cli import Ran

SAID = "A. And please name the tables in the singular, everywhere"
A = item("Summaries are made at commit time.", "A.", strength="maybe")
SINGULAR = item("Tables are named in the singular.", "please name the tables in the singular", kind="preference")


def session(keep: Keep, name: str, *said: str, cwd: Path | None = None) -> str:
    made = keep.session(name, cwd=cwd or keep.root)
    for one in said:
        made.record(one, ("assistant", "Done."))
    made.end()
    return made.id


@pytest.fixture
def inbox(keep: Keep, tmp_path: Path) -> Keep:
    """A keep with one active note and one suggestion of a model's dream."""
    session(keep, "one", SAID)
    dream(keep, tmp_path / "exchange", Reader(A, SINGULAR))
    return keep


def texts(keep: Keep, state: str = "active") -> list[str]:
    return sorted(str(one["text"]) for one in keep.notes(state=state))


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    real = RealHost.now
    monkeypatch.setattr(RealHost, "now", lambda host: real(host) + int(days * 86_400e9))


# -- two shelves


def test_clear_notes_are_active_the_rest_waits_and_the_report_counts_both(keep: Keep, tmp_path: Path) -> None:
    session(keep, "one", SAID)
    made = dream(keep, tmp_path / "exchange", Reader(A, SINGULAR))
    assert (made["notes"]["added"], made["notes"]["suggested"]) == (1, 1)
    assert texts(keep) == ["Tables are named in the singular."]
    assert texts(keep, "suggested") == ["Summaries are made at commit time."]
    assert keep.status()["notes"]["suggested"] == 1


def test_an_item_shows_the_note_why_it_waits_and_its_evidence(inbox: Keep) -> None:
    [one] = inbox.review()["items"]
    assert (one["type"], one["kind"], one["text"]) == ("note", "decision", "Summaries are made at commit time.")
    [quote] = one["evidence"]
    assert (quote["session"], quote["quote"], quote["author"], quote["origin"]) == ("python:one", "A.", "user", "typed")
    assert one["why"] and one["expires_at"] > one["suggested_at"]


def test_a_suggestion_is_on_no_page_and_in_no_pack_and_search_marks_it(inbox: Keep) -> None:
    project = inbox.review()["items"][0]["project"]
    page, pack = (made["text"] for made in (inbox.page(project=project), inbox.pack(project=project, query="summaries")))
    assert "singular" in page and "commit time" not in page
    assert "singular" in pack and "commit time" not in pack
    hits = [hit for hit in inbox.search("summaries commit time") if hit.kind != "message"]
    assert [(hit.kind, hit.mark) for hit in hits] == [("insight", "suggestion")]


# -- deciding


def test_an_accepted_note_is_active_and_the_users_word(inbox: Keep) -> None:
    [one] = inbox.review()["items"]
    made = inbox.review(accept=[one["id"]])
    assert (made["accepted"], made["rejected"], made["items"]) == ([one["id"]], [], [])
    [note] = [found for found in inbox.notes() if found["id"] == one["id"]]
    assert note["author"] == "user" and "commit time" in inbox.page(project=one["project"])["text"]


def test_an_edited_text_is_accepted_as_the_users_own_words(inbox: Keep) -> None:
    [one] = inbox.review()["items"]
    made = inbox.review(edit=(one["id"], "Summaries are made when a commit is written."))
    assert made["accepted"] == [one["id"]] and made["items"] == []
    [note] = [found for found in inbox.notes() if found["id"] == one["id"]]
    assert (note["text"], note["author"]) == ("Summaries are made when a commit is written.", "user")
    run = inbox.dream_history()[0]["id"]
    for one_run in inbox.dream_history():
        inbox.dream_undo(one_run["id"])
    assert run and "Summaries are made when a commit is written." in texts(inbox)


def test_a_rejected_note_never_comes_back_in_the_same_words(inbox: Keep, tmp_path: Path) -> None:
    [one] = inbox.review()["items"]
    assert inbox.review(reject=[one["id"]])["rejected"] == [one["id"]]
    session(inbox, "two", "A. as before")
    clear = {**A, "quotes": [{"place": "2", "words": "A. as before", "speaker": "user"}], "strength": "clear"}
    dream(inbox, tmp_path / "again", Reader(clear))
    assert inbox.review()["items"] == [] and texts(inbox) == ["Tables are named in the singular."]


@pytest.mark.parametrize("strength", ["maybe", "clear"])
def test_a_rejected_note_never_comes_back_in_other_words_when_a_model_says_same(
    inbox: Keep, tmp_path: Path, strength: str
) -> None:
    [one] = inbox.review()["items"]
    inbox.review(reject=[one["id"]])
    session(inbox, "two", "as said, at the time of the commit")
    other = item("At the time of a commit its summary is made.", "at the time of the commit", strength=strength)
    reader = Reader(other)
    reader.operations[other["note"]] = ("same", "Summaries are made at commit time.", "both say when")
    dream(inbox, tmp_path / "again", reader)
    assert len(reader.of("merge")) == 1
    assert inbox.review()["items"] == [] and texts(inbox) == ["Tables are named in the singular."]


def test_a_suggestion_that_is_typed_again_in_another_session_is_active(inbox: Keep, tmp_path: Path) -> None:
    session(inbox, "two", "as said, at the time of the commit")
    other = item("At the time of a commit its summary is made.", "at the time of the commit", strength="maybe")
    reader = Reader(other)
    reader.operations[other["note"]] = ("same", "Summaries are made at commit time.", "both say when")
    dream(inbox, tmp_path / "again", reader)
    assert "Summaries are made at commit time." in texts(inbox)
    assert inbox.review()["items"] == [], "one note is left of the two"


def test_what_a_user_adds_himself_leaves_the_inbox_with_the_next_hygiene(inbox: Keep) -> None:
    project = inbox.review()["items"][0]["project"]
    inbox.note_add("Summaries are made at commit time.", kind="decision", project=project)
    inbox.hygiene()
    assert inbox.review()["items"] == []
    assert "Summaries are made at commit time." in texts(inbox)


def test_accept_all_accepts_one_kind_of_one_project(keep: Keep, tmp_path: Path) -> None:
    for name in ("red", "blue"):
        (tmp_path / name).mkdir()
        session(keep, name, f"A for {name}, perhaps dark mode", cwd=tmp_path / name)
    items = [item(f"The {name} one is built first.", f"A for {name}", strength="maybe") for name in ("red", "blue")]
    likes = item("Dark mode is liked.", "perhaps dark mode", strength="maybe", kind="preference")
    dream(keep, tmp_path / "exchange", Reader(*items, likes))
    red = keep.project_named(str(tmp_path / "red"))
    assert len(keep.review(project=red)["items"]) == 2
    assert len(keep.review(accept_all="decision", project=red)["accepted"]) == 1
    assert texts(keep) == ["The red one is built first."]
    assert len(keep.review()["items"]) == 3


@pytest.mark.parametrize("how", [{"accept": ["n-nothing"]}, {"reject": ["n-nothing"]}, {"edit": ("n-nothing", "Some words.")}])
def test_an_unknown_id_is_an_error_and_nothing_is_done(inbox: Keep, how: dict[str, Any]) -> None:
    [one] = inbox.review()["items"]
    if "edit" not in how:
        how = {key: [one["id"], *value] for key, value in how.items()}
    with pytest.raises(NotFound):
        inbox.review(**how)
    with pytest.raises(NotFound):
        inbox.review(accept=["p-000000000000"])
    assert inbox.review()["items"] == [one]


def test_an_item_that_is_named_twice_and_a_kind_that_there_is_not_are_refused(inbox: Keep) -> None:
    [one] = inbox.review()["items"]
    for how in ({"accept": [one["id"]], "reject": [one["id"]]}, {"accept_all": "mood"}):
        with pytest.raises(BadUsage):
            inbox.review(**how)
    active = inbox.notes()[0]["id"]
    with pytest.raises(BadUsage):
        inbox.review(edit=(active, "Other words."))
    assert inbox.review()["items"] == [one]


def test_confirm_and_reject_of_a_note_are_the_same_as_accept_and_reject(inbox: Keep) -> None:
    [one] = inbox.review()["items"]
    assert inbox.note_change(one["id"], "confirm")["state"] == "active"
    assert inbox.review() == {"items": [], "accepted": [], "rejected": []}


# -- expiry


@pytest.mark.parametrize("how", ["dream", "hygiene"])
def test_a_suggestion_expires_after_60_days(inbox: Keep, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    later(monkeypatch, 59)
    inbox.hygiene()
    [one] = inbox.review()["items"]
    session(inbox, "two", "hello")
    later(monkeypatch, 2)
    told = inbox.hygiene()["expired"] if how == "hygiene" else inbox.dream(backend="rules")["notes"]["expired"]
    assert told == 1 and inbox.review()["items"] == []
    found = inbox.dream_why(one["id"])
    assert found["note"]["state"] == "expired" and "60 days" in found["history"][-1]["why"]
    inbox.review(accept=[one["id"]])
    assert "Summaries are made at commit time." in texts(inbox), "the user may still accept it by its id"


def test_an_expired_suggestion_may_be_made_again_by_new_words(
    inbox: Keep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    later(monkeypatch, 61)
    assert inbox.hygiene()["expired"] == 1
    session(inbox, "two", "A. once more")
    again = {**A, "quotes": [{"place": "2", "words": "A. once more", "speaker": "user"}]}
    dream(inbox, tmp_path / "again", Reader(again))
    assert [one["text"] for one in inbox.review()["items"]] == ["Summaries are made at commit time."]


def test_undo_of_the_dream_that_ended_a_suggestion_brings_it_back(inbox: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    session(inbox, "two", "hello")
    later(monkeypatch, 61)
    made = inbox.dream(backend="rules")
    assert made["notes"]["expired"] == 1
    inbox.dream_undo(made["run"])
    assert len(inbox.review()["items"]) == 1


# -- projects


@pytest.mark.parametrize("accept", [True, False])
def test_a_project_offer_is_an_item_that_is_accepted_or_rejected(
    root: str, tmp_path: Path, cli: Callable[..., Ran], accept: bool
) -> None:
    transcripts = Transcripts(tmp_path / "home")
    link = (("gh pr create --fill", "https://example.org/team/app/pull/12\n"),)
    for folder in ("/gone/one", "/gone/two", "/gone/two"):
        transcripts.write((folder, "main"), commands=link)
    with Keep.open(root) as keep:
        list(keep.ingest(home=tmp_path / "home"))
        [offer] = keep.project_offers()
        assert keep.review()["items"] == [{**offer, "type": "project"}]
        assert keep.review(project="elsewhere")["items"] == []
    assert "Same project?" in cli("review").out
    done = cli("review", "--accept" if accept else "--reject", offer["id"], "--json").json
    assert done["items"] == [] and done["accepted" if accept else "rejected"] == [offer["id"]]
    assert len(cli("projects", "--json").json["projects"]) == (1 if accept else 2)


def test_a_suggestion_goes_with_the_session_that_it_rests_on(inbox: Keep) -> None:
    inbox.delete("python:one")
    assert inbox.review()["items"] == [] and inbox.notes(state=None) == []


# -- the command line


def test_the_command_lists_and_decides(inbox: Keep, cli: Callable[..., Ran]) -> None:
    told = cli("review")
    assert told.code == 0 and "Summaries are made at commit time." in told.out and "python:one" in told.out
    assert "(user, typed): “A.”" in told.out
    assert "dreamkeep review" in cli("status").out
    [one] = cli("review", "--json").json["items"]
    wrong = cli("review", "--accept", one["id"], "n-nothing", "--json")
    assert wrong.code == 1 and "n-nothing" in wrong.err and wrong.json["error"]
    edited = cli("review", "--edit", one["id"], "Summaries are made at each commit.", "--json")
    assert edited.json == {"items": [], "accepted": [one["id"]], "rejected": []}
    assert "Summaries are made at each commit." in cli("notes").out
    assert cli("review").out == "The inbox is empty.\n"
    assert cli("review", "--accept", "a", "--reject", "b").code == 2


def typed(root: str, *steps: tuple[str, str]) -> str:
    """What a terminal shows of `review` to a user who waits for the first of each pair, and then types the second."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "dreamkeep", "--keep", root, "review"]
    around = {**os.environ, "TERM": "dumb", "NO_COLOR": "1"}
    going = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=around)
    os.close(follower)
    said, seen, left = "", 0, list(steps)
    waiting = select.poll()  # select() itself takes no handle above 1023
    waiting.register(leader, select.POLLIN)
    try:
        while waiting.poll(30_000) and (piece := os.read(leader, 1 << 16)):
            said += piece.decode(errors="replace")
            if left and (at := said.find(left[0][0], seen)) >= 0:
                seen = at + len(left[0][0])
                os.write(leader, left.pop(0)[1].encode())
    except OSError:
        pass  # so Linux tells that the other side is closed
    finally:
        os.close(leader)
        going.kill() if left else going.wait(60)
    return said.replace("\r\n", "\n")


def test_on_a_terminal_one_key_decides_on_each_item(keep: Keep, root: str, tmp_path: Path) -> None:
    words = ["use one table", "call it shed", "keep the old page", "start on port 8100"]
    session(keep, "one", "; ".join(words))
    items = [item(f"Decided: {one}.", one, strength="maybe") for one in words]
    dream(keep, tmp_path / "exchange", Reader(*items))
    assert len(keep.review()["items"]) == 4
    shown = typed(root, *(("q quit", key) for key in "arsq"))
    assert "1 of 4" in shown and "4 of 4" in shown and "1 accepted, 1 rejected; 2 items left." in shown
    assert len(texts(keep)) == 1 and len(texts(keep, "rejected")) == 1 and len(keep.review()["items"]) == 2
    assert "0 accepted, 0 rejected; 2 items left." in typed(root, ("q quit", "q"))


def test_on_a_terminal_a_note_is_accepted_in_other_words(inbox: Keep, root: str) -> None:
    shown = typed(root, ("q quit", "e"), ("commit time.", "\x15Summaries come with commits.\n"))
    assert "Summaries come with commits." in texts(inbox), shown


# -- keeps that exist


def old_keep(keep: Keep) -> dict[str, str]:
    """Five notes as an earlier version journaled them: its runs say nothing of shelves. Note by what was done to it since."""
    now = rfc3339(keep.context.host.now())
    names = ("plain", "pinned", "edited", "confirmed", "also said")
    said = {name: f"We use {name.replace(' ', '')}db for the {name} store." for name in names}
    events: list[tuple[str, dict[str, Any]]] = [
        (Kind.DREAM_STARTED, {"run": "r-old", "trigger": "manual", "backend": "rules", "sessions": []})
    ]
    for name, text in said.items():
        quote = {"session": f"python:{name}", "seq": "2", "turn": None, "quote": text}
        about = {"type": "decision", "text": text, "project": "", "evidence": [quote], "said_at": now}
        made = {"confidence": 0.9, "state": "suggested", "author": "user", "source": "dream", "task": "", "run": "r-old"}
        events.append((Kind.INSIGHT_ADDED, {"id": f"i-{name}", **about, **made}))
        events.append((Kind.INSIGHT_CONFIRMED, {"id": f"i-{name}", "reason": "a user said it", "run": "r-old"}))
        note = {"id": f"n-{name.replace(' ', '')}", "kind": "decision", "text": text, "project": ""}
        events.append((Kind.NOTE_ADDED, {**note, "insights": [f"i-{name}"], "reason": "the user", "run": "r-old"}))
    report = {"status": "completed", "notes": {"added": 5}, "sessions": []}
    events.append((Kind.DREAM_FINISHED, {"run": "r-old", "report": report}))
    keep.context.journals().append("", [Event(keep.context.ids.new(), kind, now, body) for kind, body in events])
    keep.note_change("n-pinned", "pin")
    keep.note_change("n-edited", "edit", text="We use editeddb, and nothing else.")
    keep.note_change("n-confirmed", "confirm")
    keep.note_add(said["also said"], kind="decision")
    return said


def test_unconfirmed_notes_of_an_earlier_version_become_suggestions_once(keep: Keep, root: str) -> None:
    said = old_keep(keep)
    before = set(texts(keep))
    page = Path(keep.page(project="shed", write=f"{root}/../MEMORY.md")["path"])
    assert said["plain"] in page.read_text()
    session(keep, "new", "hello")
    assert keep.dream(preview=True)["shelved"] == {"run": None, "notes": 1} and set(texts(keep)) == before
    made = keep.dream()
    assert made["shelved"]["notes"] == 1
    assert before - set(texts(keep)) == {said["plain"]}
    assert [one["text"] for one in keep.review()["items"]] == [said["plain"]]
    assert said["plain"] not in page.read_text() and said["pinned"] in page.read_text()
    history = keep.dream_why("n-plain")["history"]
    assert [step["what"] for step in history] == ["added", "suggested"], "as no hand's deletion"
    session(keep, "newer", "hello again")
    assert "shelved" not in keep.dream() and len(keep.review()["items"]) == 1


def test_the_run_that_shelved_old_notes_is_undone_by_itself_and_not_repeated(keep: Keep) -> None:
    said = old_keep(keep)
    made = keep.dream()
    assert made["run"] is None and made["shelved"]["notes"] == 1, "also where nothing waits to be read"
    assert "earlier version" in keep.dream_history()[0]["report"]["why"]
    keep.dream_undo(made["shelved"]["run"])
    assert said["plain"] in texts(keep) and keep.review()["items"] == []
    session(keep, "new", "hello")
    assert "shelved" not in keep.dream() and said["plain"] in texts(keep)


def test_old_notes_are_shelved_whatever_part_of_the_memory_they_are(keep: Keep) -> None:
    now = rfc3339(keep.context.host.now())
    events: list[tuple[str, dict[str, Any]]] = [
        (Kind.DREAM_STARTED, {"run": "r-old", "trigger": "manual", "backend": "rules", "sessions": []})
    ]
    for n in range(20):
        text = f"Service number {n} listens on port {8100 + n}."
        quote = {"session": "python:s", "seq": str(n), "turn": None, "quote": text}
        about = {"id": f"i-{n}", "type": "finding", "text": text, "project": "", "evidence": [quote], "said_at": now}
        events.append((Kind.INSIGHT_ADDED, {**about, "run": "r-old"}))
        note = {"id": f"n-{n}", "kind": "finding", "text": text, "project": "", "insights": [f"i-{n}"]}
        events.append((Kind.NOTE_ADDED, {**note, "reason": "an agent", "run": "r-old"}))
    events.append((Kind.DREAM_FINISHED, {"run": "r-old", "report": {"status": "completed"}}))
    keep.context.journals().append("", [Event(keep.context.ids.new(), kind, now, body) for kind, body in events])
    assert keep.dream()["shelved"]["notes"] == 20 and texts(keep) == []
    assert keep.review(accept=["n-3"])["accepted"] == ["n-3"]
    assert texts(keep) == ["Service number 3 listens on port 8103."]


def test_a_fresh_keep_shelves_nothing(keep: Keep) -> None:
    session(keep, "one", "From now on always run the linter before you push.")
    assert "shelved" not in keep.dream()
    kept = texts(keep)
    session(keep, "two", "hello")
    assert "shelved" not in keep.dream() and texts(keep) == kept


def test_a_suggestion_waits_60_days_from_when_it_was_made(inbox: Keep) -> None:
    [one] = inbox.review()["items"]
    made, ends = (datetime.fromisoformat(one[key]) for key in ("suggested_at", "expires_at"))
    assert abs(ends - made - timedelta(days=60)) < timedelta(seconds=1)
