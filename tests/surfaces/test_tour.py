"""The first look: what `make run` shows, on a machine without agents and on one that has some."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep, sample
from dreamkeep.agents.contract import Source
from dreamkeep.capture import find
from dreamkeep.host import RealHost, Stat
from dreamkeep.sample import recorded
from dreamkeep.sample.recorded import Answer, lay_answers
from tests.agents import claude
from tests.helpers.cli import Cli
from tests.helpers.tour_shown import FOLDER, in_readme, masked, tour
from tests.planted.sample import INTO, made
from tests.planted.written import WEEK, load, wrong_together, wrong_with


def tree(folder: Path) -> dict[str, str]:
    files = (one for one in sorted(folder.rglob("*")) if one.is_file())
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


# -- the sample


def test_the_bundled_transcripts_are_made_from_the_written_week() -> None:
    bundled = {str(one.relative_to(INTO)): one.read_bytes() for agent in sample.AGENTS for one in (INTO / agent).rglob("*.json*")}
    assert bundled == made(), "run `python -m tests.planted.sample`"


def test_the_written_week_is_well_formed() -> None:
    week = load(WEEK)
    assert [wrong for one in week for wrong in wrong_with(one)] == [] and wrong_together(week) == []


def test_the_week_contains_everything_that_the_tour_shows(tmp_path: Path) -> None:
    """Three agents, a crash, a session that is taken up again, two compactions."""
    sample.lay_out(RealHost(), str(tmp_path / "home"))
    with Keep.open(tmp_path / "keep") as keep:
        assert not any(one.problem for one in keep.ingest(home=tmp_path / "home"))
        shown = [keep.show(one.id) for one in keep.sessions()]
        assert {one["session"]["agent"] for one in shown} == {"claude", "codex", "gemini"}
        assert {one["session"]["project"] for one in shown} == {"example.org/you/toolshed"}
        assert sum(len(one["compactions"]) for one in shown) == 2
        cut = [
            (one["session"]["id"], n) for one in shown for n, turn in enumerate(one["turns"]) if turn["state"] == "interrupted"
        ]
        [(session, n)] = cut
        turns = keep.show(session)["turns"]
        assert turns[n]["submitted_at"][:10] < turns[n + 1]["submitted_at"][:10], "the next morning"
        assert not any(one["faults"] or one.get("odd") or one.get("unknown") for one in shown)


@contextmanager
def week_by_rules(folder: Path) -> Iterator[Keep]:
    """A keep in which the week was dreamed of without a model."""
    host = sample.SundayHost()
    sample.lay_out(host, str(folder / "home"))
    with Keep.open(folder / "keep", host=host, environment={}) as keep:
        list(keep.ingest(home=folder / "home"))
        keep.hygiene()
        assert keep.dream()["failed"] == 0
        yield keep


def answered(keep: Keep, folder: Path, answer: Answer) -> list[dict[str, Any]]:
    """The reports of three imports, after each of which nothing else is to be asked than what comes next."""
    keep.dream_export(str(folder), again=True)
    reports = []
    for kind in ("read", "challenge", "merge"):
        assert set(lay_answers(RealHost(), str(folder), answer)) == {kind}
        reports.append(keep.dream_import(str(folder)))
    assert reports[-1]["requests"] == 0
    return reports


def met_by(notes: list[dict[str, Any]]) -> list[str]:
    """What the written week expects and these notes say."""
    wanted = [one for session in load(WEEK) for one in session.expect]
    return [one.quote for one in wanted if any(one.is_met_by(str(note["kind"]), str(note["text"])) for note in notes)]


def test_the_rules_find_only_certain_notes_in_the_week(tmp_path: Path) -> None:
    """Three of the facts that the written week expects, a command that worked in two sessions, and nothing else."""
    with week_by_rules(tmp_path) as keep:
        notes = keep.notes(state=None)
    assert len(met_by(notes)) == 3 and [one["kind"] for one in notes].count("procedure") == len(notes) - 3 == 1


# -- a model's recorded answers


def test_the_recorded_answers_add_what_rules_do_not_find(tmp_path: Path) -> None:
    """Decisions, what was turned down, facts, what is left open; and a rule that changed has an end."""
    with week_by_rules(tmp_path) as keep:
        by_rules = keep.notes()
        answered(keep, tmp_path / "exchange", recorded.load(RealHost()).answer)
        active, ended = keep.notes(), keep.notes(state="superseded", kind="decision")
    new = {one["kind"] for one in active} - {one["kind"] for one in by_rules}
    assert new == {"preference", "decision", "rejection", "fact", "open_loop"}
    wanted = {one.quote for session in load(WEEK) for one in session.expect}
    assert set(met_by(by_rules)) < set(met_by(active))
    left = [
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe7 in position 391",
        "sqlite3.OperationalError: database is locked",
    ]
    assert sorted(wanted - set(met_by(active))) == left, "failures that are mended: no word of the user's shows them"
    [earlier] = ended
    [later] = [one for one in active if one["id"] == earlier["by"]]
    assert "at 8:00" in earlier["text"] and "at 18:00" in later["text"] and earlier["last_at"] < later["first_at"]


def test_every_recorded_quote_stands_word_for_word_in_one_session_of_the_week() -> None:
    sessions = [list(_strings(one)) for agent in sample.AGENTS for one in (INTO / agent).rglob("*.jsonl")]
    for item in recorded.load(RealHost()).items:
        quotes = [one["words"] for one in item["quotes"]]
        holding = [texts for texts in sessions if all(any(words in text for text in texts) for words in quotes)]
        assert quotes and len(holding) == 1, item["note"]


def _strings(file: Path) -> Iterator[str]:
    """All texts in a transcript."""
    left: list[Any] = [json.loads(line) for line in file.read_text().splitlines()]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict | list):
            left += one.values() if isinstance(one, dict) else one


def test_no_recorded_answer_is_dropped_or_left_over(tmp_path: Path) -> None:
    answers = recorded.load(RealHost())
    with week_by_rules(tmp_path) as keep:
        reports = answered(keep, tmp_path / "exchange", answers.answer)
        known = {one["text"] for one in keep.notes(state=None)}
    assert [(one["dropped"], one["problems"], one["failed"]) for one in reports] == [([], [], 0)] * 3
    notes = [one["note"] for one in answers.items]
    assert len(set(notes)) == len(notes) and known >= set(notes)
    assert list(answers.verdicts) == notes and set(answers.operations) <= set(notes)
    merged = [json.loads(one.read_text()) for one in (tmp_path / "exchange/answers").iterdir()]
    assert sum(len(one.get("operations", ())) for one in merged) == len(answers.operations)


def test_an_answer_that_quotes_what_nobody_said_is_dropped(tmp_path: Path) -> None:
    """One word of its quote is another; its place is right, and all other answers are as they were."""
    answers = recorded.load(RealHost())

    def wrong(request: Mapping[str, Any]) -> Mapping[str, Any]:
        words = json.dumps(answers.answer(request)).replace("no Celery please, a systemd", "no Celery please, a cron")
        return dict(json.loads(words))

    with week_by_rules(tmp_path) as keep:
        reports = answered(keep, tmp_path / "exchange", wrong)
        known = {one["text"] for one in keep.notes(state=None)}
    assert [one["dropped"] for one in reports] == [[], [{"why": "a quote that is not there", "count": 1}], []]
    missing = {one["note"] for one in answers.items} - known
    assert missing == {"No Celery to start the reminders every morning: a systemd timer is enough."}


def test_recorded_answers_are_found_by_words_wherever_they_stand() -> None:
    """Neither an id nor a place is recorded."""
    [item] = [one for one in recorded.load(RealHost()).items if one["kind"] == "preference"]
    shown = f"a session\n[PLACE.1] user: put it there\n[PLACE.7] user: commit it. {item['quotes'][0]['words']}\n== end"
    answer = recorded.load(RealHost()).answer
    for place in ("4", "B12"):
        [found] = answer({"kind": "read", "user": shown.replace("PLACE", place)})["items"]
        assert found["note"] == item["note"] and [one["place"] for one in found["quotes"]] == [f"{place}.7"]
    assert answer({"kind": "read", "user": shown.replace("user:", "agent:")}) == {"items": []}, "said by somebody else"


# -- what is shown


def test_the_readme_shows_exactly_what_a_first_run_shows(tmp_path: Path) -> None:
    folder = str(tmp_path / "tour")
    done = tour(tmp_path / "nobody", "--at", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert masked(done.stdout, folder) == masked(in_readme(), FOLDER), (
        "run `python -m tests.helpers.tour_shown`, and look at what changed"
    )
    assert os.listdir(tmp_path) == ["tour"], "nothing else is written"


def test_two_runs_show_the_same(tmp_path: Path) -> None:
    """Also where ids are made: the sample's clock stands and its chance is fixed."""
    first, again = (tour(tmp_path / "nobody", "--at", str(tmp_path / name)).stdout for name in ("a", "b"))
    assert masked(first, str(tmp_path / "a")) == masked(again, str(tmp_path / "b"))
    assert "dreamkeep dream undo 0" in first


def test_without_a_folder_the_tour_uses_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = tour(tmp_path / "nobody")
    [place] = (tmp_path / "tmp").iterdir()
    assert place.name.startswith("dreamkeep-") and place.stat().st_mode & 0o077 == 0
    assert f"Everything here happens in {place}," in done.stdout
    with Keep.open(place / "keep") as keep:
        assert len(keep.sessions()) == 6, "it stays there to be looked at"


def test_a_users_own_files_are_read_and_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of the user's keep, nor of his settings for it, has a say."""
    home = tmp_path / "home"
    sample.lay_out(RealHost(), str(home))
    mine = tmp_path / "mine"
    before = tree(home)
    monkeypatch.setenv("DREAMKEEP_KEEP", str(mine))
    monkeypatch.setenv("DREAMKEEP_DREAM_BACKEND", "openai")
    done = tour(home, "--at", str(tmp_path / "tour"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 newest session files of your own agents" in done.stdout and "sample" not in done.stdout
    assert "Tests must never send real mail." in done.stdout and "dreamkeep:pack" in done.stdout
    assert "$ dreamkeep repair\n" in done.stdout and "--apply" not in done.stdout
    assert "This uses rules, not a model" in done.stdout and "recorded" not in done.stdout and "--export" not in done.stdout
    assert tree(home) == before and not mine.exists()


@pytest.mark.parametrize("said", ["Good morning to you.", "--no-verify is never allowed in this repository."])
def test_a_users_own_session_is_searched_and_packed_whatever_it_says(said: str, tmp_path: Path) -> None:
    """Also where nothing is worth a note, and where a note begins like an option of ours."""
    talk = claude.Talk(claude.MAIN)
    talk.prompt(said)
    talk.answer({"type": "text", "text": "Understood, every commit goes through the hooks."})
    file = tmp_path / f"home/.claude/projects/-home-dev-shop/{claude.MAIN}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(one) + "\n" for one in talk.lines))
    os.utime(file, (1_700_000_000, 1_700_000_000))
    done = tour(tmp_path / "home", "--at", str(tmp_path / "tour"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "newest session file of your own agents" in done.stdout
    query = shlex.quote(" ".join(said.split()[:5]))
    assert f"$ dreamkeep search --kind note,message --limit 2 -- {query}\n" in done.stdout
    assert "### Where the last session left off\n- claude, " in done.stdout


def test_of_many_files_the_newest_are_read_and_the_rest_is_reported() -> None:
    sources = [Source("claude", f"/{n}") for n in range(5)] + [Source("claude", "/x", role="subagent")]
    looks = {one.path: Stat(10 if one.path != "/3" else 1000, n, n, 1, False, 0o600) for n, one in enumerate(sources)}
    chosen = find.newest([*sources, find.Trouble("codex", "/y", "no")], looks, most=2, size=100)
    assert ([one.path for one in chosen.sources], chosen.left) == (["/4", "/2"], 3), "what is too large is passed over"
    assert [one.path for one in find.newest(sources, looks, most=9, size=25).sources] == ["/4", "/2"]


def test_the_tour_refuses_a_folder_that_already_exists(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    done = tour(tmp_path, "--at", str(tmp_path / "full"))
    assert done.returncode == 2 and "Name one that doesn't exist yet" in done.stderr
    assert list((tmp_path / "full").iterdir()) == []


def test_the_tour_never_uses_the_users_keep(root: str, cli: Cli) -> None:
    assert cli("tour").code == 2 and not Path(root).exists()
    assert tour(Path(root), "--json").returncode == 2


def test_the_tour_reports_and_mends_exactly_what_a_mishap_broke(tmp_path: Path) -> None:
    """Byte for byte: the blanked file by `repair`, the vanished one by `restore`."""
    host, home = sample.SundayHost(), tmp_path / "home"
    sample.lay_out(host, str(home))
    before = tree(home)
    with Keep.open(tmp_path / "keep", host=host, environment={}) as keep:
        list(keep.ingest(home=home))
        sample.damage_transcripts(host, str(home))
        assert tree(home) != before
        assert sorted(one["class"] for one in keep.audit(home=home)["faults"]) == ["source_blanked", "source_vanished"]
        keep.repair(apply=True, home=home)
        keep.restore(f"gemini:{sample.GONE}", "gemini", home=home)
        assert keep.audit(home=home)["clean"]
    after = tree(home)
    assert {name: after.get(name) for name in before} == before


def test_the_sample_is_in_the_package(tmp_path: Path) -> None:
    """It needs neither the tests nor a checkout: only what lies in the package's folder."""
    copy = tmp_path / "site" / "dreamkeep"
    shutil.copytree(Path(sample.__file__).parent.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    import subprocess
    import sys

    words = [sys.executable, "-m", "dreamkeep", "tour", "--sample", "--at", str(tmp_path / "tour")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(copy.parent)})
    assert done.returncode == 0 and "No problems remain." in done.stdout
