"""`dream --export` and `dream --import`: a folder stands where a model would, whoever answers, and whatever dies in between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.backends.model.exchange import Exchange
from dreamkeep.dream.backends.model.requests import Request, merge_request, read_request
from dreamkeep.dream.run import LOCK
from dreamkeep.errors import BadUsage, Busy
from dreamkeep.host import RealHost
from dreamkeep.surfaces.cli import main
from tests.helpers.answers import answer, answer_all, anthropic_line, dream_by_files, openai_line, requests, talk
from tests.helpers.faults import LOSSES, Dying, FragileHost, PowerCut, cut_at_every_step

LINTER, PUSH = "always run the linter before a commit", "never push to main, ask first"
NOTES = ["Always run the linter before a commit", "Never push to main, ask first"]


class Later(RealHost):
    """Eight days from now: a lease of a week is over."""

    def now(self) -> int:
        return super().now() + 8 * 86_400 * 1_000_000_000


def filled(root: Path) -> Path:
    talk(root, "a", LINTER, "thanks")
    talk(root, "b", PUSH, "thanks")
    return root


def exported(tmp_path: Path) -> tuple[Path, Path]:
    """A keep, and a folder with its two requests."""
    root, folder = filled(tmp_path / "k"), tmp_path / "x"
    with Keep.open(root) as keep:
        assert keep.dream_export(str(folder))["requests"] == 2
    return root, folder


def taken_in(root: Path, folder: Path, host: Any = None) -> dict[str, Any]:
    with Keep.open(root, host=host) if host else Keep.open(root) as keep:
        return keep.dream_import(str(folder))


def notes(root: Path) -> list[str]:
    with Keep.open(root) as keep:
        return sorted(note["text"] for note in keep.notes())


def truth(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((root / "journal").rglob("*.jsonl"))}


def cli(root: Path, *words: str) -> tuple[int, Any]:
    command = [sys.executable, "-P", "-m", "dreamkeep", "--keep", str(root), "dream", *words, "--json"]
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path)), "HOME": str(root.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, json.loads(done.stdout)


# -- the way through


def test_three_rounds_of_two_processes_end_with_notes_and_an_empty_folder_of_requests(tmp_path: Path) -> None:
    """Exit code 1 and `partial` while something is to be answered; 0 and `completed` at the end."""
    root, folder = filled(tmp_path / "k"), tmp_path / "x"
    code, made = cli(root, "--export", str(folder))
    assert (code, made["requests"], sorted(made["sessions"])) == (0, 2, ["python:a", "python:b"])
    seen = []
    for _ in range(4):
        answer_all(folder)
        code, made = cli(root, "--import", str(folder))
        seen.append((code, made["status"], made["requests"]))
        assert len(requests(folder)) == made["requests"]
        if not made["requests"]:
            break
    assert seen[0] == (1, "partial", 2) and seen[-1] == (0, "completed", 0), seen
    assert notes(root) == NOTES and requests(folder) == {}
    assert [(folder / "batch" / f"{one}.jsonl").read_bytes() for one in ("openai", "anthropic")] == [b"", b""]


def test_what_an_export_asks_is_what_an_import_wants_answered_also_of_two_sessions_of_one_project(tmp_path: Path) -> None:
    """What one session gives changes no request of another: else each round would settle a single one."""
    root, folder = exported(tmp_path)
    answer_all(folder)
    first = taken_in(root, folder)
    assert first["answers"] == 2 and [one["kind"] for one in requests(folder).values()] == ["challenge", "challenge"]
    answer_all(folder)
    done = taken_in(root, folder)
    assert (done["processed"], done["requests"]) == (2, 0), done


def test_only_what_has_an_answer_is_settled_and_exactly_the_rest_is_asked(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    [one, other] = requests(folder)
    (folder / "answers" / f"{one}.json").write_text(json.dumps({"items": []}))
    made = taken_in(root, folder)
    assert (made["status"], made["processed"], made["requests"]) == ("partial", 1, 1)
    assert list(requests(folder)) == [other]
    lines = {vendor: (folder / "batch" / f"{vendor}.jsonl").read_text().splitlines() for vendor in ("openai", "anthropic")}
    assert {json.loads(line)["custom_id"] for found in lines.values() for line in found} == {other}
    waiting = [one["id"] for one in made["sessions"] if one["status"] == "pending"]
    assert len(waiting) == 1 and made["sessions"][0]["status"] != made["sessions"][1]["status"]


def test_an_import_without_any_answer_says_what_is_missing_and_changes_no_note(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    before = requests(folder)
    made = taken_in(root, folder)
    assert (made["status"], made["requests"], made["answers"], made["failed"]) == ("partial", 2, 0, 0)
    assert requests(folder) == before and notes(root) == []
    with Keep.open(root) as keep:
        assert [one["attempts"] for one in keep.dream_status()["sessions"]] == [0, 0], "nobody is to blame"


def test_people_are_told_how_many_requests_are_left_and_not_each_session_that_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, folder = exported(tmp_path)
    capsys.readouterr()
    assert main(["--keep", str(root), "dream", "--import", str(folder)]) == 1
    told = capsys.readouterr().out
    assert f"2 requests still unanswered in {folder}/requests\n" in told and "pending" not in told


def test_the_same_answers_taken_in_twice_change_no_byte(tmp_path: Path) -> None:
    root, folder = filled(tmp_path / "k"), tmp_path / "x"
    dream_by_files(root, folder)
    before = truth(root)
    again = taken_in(root, folder)
    assert (again["status"], again["run"], again["requests"]) == ("completed", None, 0)
    assert truth(root) == before


def test_a_run_that_was_imported_can_be_undone(tmp_path: Path) -> None:
    root, folder = filled(tmp_path / "k"), tmp_path / "x"
    reports = dream_by_files(root, folder)
    with Keep.open(root) as keep:
        for made in reversed(reports):
            if made["run"]:
                keep.dream_undo(made["run"])
    assert notes(root) == []


def test_an_export_of_nothing_asks_nothing_and_its_import_reads_nothing_else(tmp_path: Path) -> None:
    """A session that ends later was not exported: no answer to the folder may settle it, nor is it asked about there."""
    root, folder = tmp_path / "k", tmp_path / "x"
    talk(root, "open", LINTER, end=False)
    with Keep.open(root) as keep:
        assert keep.dream_export(str(folder))["requests"] == 0
    talk(root, "later", PUSH)
    made = taken_in(root, folder)
    assert (made["considered"], made["requests"]) == (0, 0) and requests(folder) == {}


def test_what_rules_have_read_is_exported_again_where_that_is_asked_for(tmp_path: Path) -> None:
    root, folder = filled(tmp_path / "k"), tmp_path / "x"
    with Keep.open(root) as keep:
        keep.dream()
        assert keep.dream_export(str(tmp_path / "y"), again=True, since="2999-01-01")["requests"] == 0
        assert keep.dream_export(str(folder), again=True)["requests"] == 2
        for _ in range(4):
            answer_all(folder)
            if not keep.dream_import(str(folder))["requests"]:
                break
        assert set(notes(root)) >= set(NOTES)
    before = truth(root)
    assert taken_in(root, folder)["considered"] == 0 and truth(root) == before


# -- answers of all kinds


def test_results_of_a_vendors_batch_are_taken_as_they_come_with_failed_and_foreign_lines_told(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    (one, first), (other, second) = requests(folder).items()
    failed = json.dumps(
        {"custom_id": other, "response": {"status_code": 500, "body": {"error": {"message": "no"}}}, "error": None}
    )
    lines = ["{no json", openai_line("f" * 32, "{}"), failed, "[]", openai_line(one, json.dumps(answer(first)))]
    (folder / "answers" / "batch_output.jsonl").write_text("\n".join(lines))
    made = taken_in(root, folder)
    assert made["answers"] == 1 and other in requests(folder)
    assert [int(told.split(":")[1]) for told in made["problems"]] == [1, 3, 4], made["problems"]

    errored = {"custom_id": other, "result": {"type": "errored", "error": {"type": "overloaded_error"}}}
    (folder / "answers" / "results.jsonl").write_text(f"{json.dumps(errored)}\n{anthropic_line(other, answer(second))}\n")
    made = taken_in(root, folder)
    assert other not in requests(folder) and all(asked["kind"] == "challenge" for asked in requests(folder).values())
    answer_all(folder)
    assert taken_in(root, folder)["requests"] == 0 and notes(root) == NOTES


@pytest.mark.parametrize("words", ["", "I am sorry, I can't.", '{"items": 5}', '{"items": [', "[[[[" * 5000, "\0\xff"])
def test_an_answer_that_is_none_is_told_and_asked_again(tmp_path: Path, words: str) -> None:
    root, folder = exported(tmp_path)
    [bad, good] = requests(folder)
    (folder / "answers" / f"{good}.json").write_text(json.dumps({"items": []}))
    (folder / "answers" / f"{bad}.json").write_bytes(words.encode("latin-1"))
    made = taken_in(root, folder)
    assert list(requests(folder)) == [bad] and made["failed"] == 0 and made["status"] == "partial"
    assert [told for told in made["problems"] if bad in told], made["problems"]
    answer_all(folder)
    assert taken_in(root, folder)["problems"] == []


def test_a_challenge_that_is_not_answered_as_asked_is_asked_again(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    answer_all(folder)
    taken_in(root, folder)
    asked = requests(folder)
    for id in asked:
        (folder / "answers" / f"{id}.json").write_text("yes, all of them")
    made = taken_in(root, folder)
    assert requests(folder) == asked and len(made["problems"]) == 2 and notes(root) == []


def test_a_merge_that_is_not_answered_as_asked_is_asked_again_and_the_notes_stay(tmp_path: Path) -> None:
    root, folder = tmp_path / "k", tmp_path / "x"
    talk(root, "a", "never use the xylophone in tests", "always tune the xylophone before the tests")
    with Keep.open(root) as keep:
        keep.dream_export(str(folder))
        for _ in range(2):
            answer_all(folder)
            made = keep.dream_import(str(folder))
        [(id, asked)] = requests(folder).items()
        assert asked["kind"] == "merge" and made["status"] == "partial" and len(notes(root)) == 2
        (folder / "answers" / f"{id}.json").write_text("they are the same, I think")
        made = keep.dream_import(str(folder))
        assert list(requests(folder)) == [id] and made["problems"] and made["status"] == "partial" and len(notes(root)) == 2
        answer_all(folder)
        assert keep.dream_import(str(folder))["requests"] == 0 and len(notes(root)) == 2


def test_an_answer_by_hand_counts_more_than_a_vendors_file(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    [one, _] = requests(folder)
    (folder / "answers" / "zz.jsonl").write_text(openai_line(one, "no"))
    (folder / "answers" / f"{one}.json").write_text('{"items": []}')
    made = taken_in(root, folder)
    assert one not in requests(folder) and made["problems"] == []


def test_an_answer_larger_than_any_is_told_and_not_read(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    [one, _] = requests(folder)
    with (folder / "answers" / f"{one}.json").open("wb") as file:
        file.truncate(5 << 20)
    made = taken_in(root, folder)
    assert one in requests(folder) and "larger" in " ".join(made["problems"])


# -- sessions that change


def test_a_session_that_went_on_is_asked_about_again_only_where_it_changed(tmp_path: Path) -> None:
    """Of a large session each part is a request of its own: those that hold the same words keep their answers."""
    root, folder = tmp_path / "k", tmp_path / "x"
    long = [f"never use tool number {n}, " + "because it was slow in all of our trials " * 20 for n in range(8)]
    talk(root, "a", *long)
    (root / "keep.toml").write_text("[dream.model]\nchunk_tokens = 600\n")
    with Keep.open(root) as keep:
        keep.dream_export(str(folder))
    before = requests(folder)
    assert len(before) >= 3
    answer_all(folder)
    talk(root, "a", "always say please")
    taken_in(root, folder)
    again = {id: one for id, one in requests(folder).items() if one["kind"] == "read"}
    assert len(again) <= 1 and not again.keys() & before.keys()
    for _ in range(4):
        answer_all(folder)
        if not taken_in(root, folder)["requests"]:
            break
    assert len(notes(root)) == 9


def test_a_session_deleted_between_export_and_import_leaves_the_others_their_answers(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    with Keep.open(root) as keep:
        keep.delete("a")
    answer_all(folder)
    for _ in range(3):
        made = taken_in(root, folder)
        answer_all(folder)
    assert made["requests"] == 0 and notes(root) == NOTES[1:]
    with Keep.open(root) as keep:
        keep.delete("b")
    talk(root, "c", "always say please")
    made = taken_in(root, folder)
    assert (made["considered"], made["requests"]) == (0, 0), "a folder whose sessions are gone speaks of no other"


# -- leases


def test_two_exports_never_hold_the_same_session_and_no_dream_reads_it_meanwhile(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    talk(root, "c", "always say please")
    with Keep.open(root) as keep:
        assert keep.dream_export(str(tmp_path / "y"))["sessions"] == ["python:c"]
        assert keep.dream_export(str(tmp_path / "z"))["sessions"] == []
        assert keep.dream()["considered"] == 0
        told = keep.dream(sessions=["a"])
        assert told["considered"] == 0 and "another process is reading it" in told["why"]
        assert keep.dream_export(str(folder))["sessions"] == ["python:a", "python:b"], "its own folder is written again"


def test_a_folder_that_was_moved_still_has_its_sessions(tmp_path: Path) -> None:
    """It goes to another machine and comes back to another place."""
    root, folder = exported(tmp_path)
    moved = tmp_path / "elsewhere" / "y"
    shutil.copytree(folder, moved)
    answer_all(moved)
    assert taken_in(root, moved)["answers"] == 2


def test_an_export_of_fewer_sessions_gives_the_others_free(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    with Keep.open(root) as keep:
        assert keep.dream_export(str(folder), sessions=["a"])["sessions"] == ["python:a"]
        assert keep.dream_export(str(tmp_path / "y"))["sessions"] == ["python:b"]


def test_an_import_gives_its_sessions_free_when_it_is_done(tmp_path: Path) -> None:
    root, folder = filled(tmp_path / "k"), tmp_path / "x"
    dream_by_files(root, folder)
    talk(root, "a", "always say please")
    with Keep.open(root) as keep:
        assert keep.dream_export(str(tmp_path / "y"))["sessions"] == ["python:a"]


def test_answers_that_come_after_the_lease_ended_still_count(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    answer_all(folder)
    made = taken_in(root, folder, Later())
    assert made["answers"] == 2
    answer_all(folder)
    assert taken_in(root, folder, Later())["requests"] == 0 and notes(root) == NOTES


def test_after_the_lease_ended_another_export_may_have_the_sessions_and_keeps_them(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    other = tmp_path / "y"
    with Keep.open(root, host=Later()) as keep:
        assert len(keep.dream_export(str(other))["sessions"]) == 2
        answer_all(folder)
        late = keep.dream_import(str(folder))
        assert late["considered"] == 0 and "another process is reading it" in late["why"]
        assert keep.dream_export(str(tmp_path / "z"))["sessions"] == [], "the late one gave nothing free that is not its own"
    assert len(requests(other)) == 2


def test_leases_that_nobody_can_read_stop_nothing(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    (root / "state" / "leases.json").write_text('{"python:a": "x", "python:b": [1')
    answer_all(folder)
    taken_in(root, folder)
    answer_all(folder)
    assert taken_in(root, folder)["requests"] == 0 and notes(root) == NOTES


# -- refused


def test_a_folder_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    root = filled(tmp_path / "k")
    for name, content in (("file.txt", "mine"), ("exchange.json", "{}"), ("exchange.json", "mine"), ("requests/a.json", "{}")):
        folder = tmp_path / f"f{len(list(tmp_path.iterdir()))}"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
        with Keep.open(root) as keep:
            for act in (keep.dream_export, keep.dream_import):
                with pytest.raises(BadUsage):
                    act(str(folder))
        assert (folder / name).read_text() == content and len([one for one in folder.rglob("*") if one.is_file()]) == 1


def test_beside_a_running_dream_nothing_is_exported_or_imported(tmp_path: Path) -> None:
    root, folder = exported(tmp_path)
    answer_all(folder)
    before, asked = truth(root), requests(folder)
    host = RealHost()
    handle = host.open_lock(str(root / LOCK))
    try:
        assert host.try_lock(handle)
        with Keep.open(root) as keep, pytest.raises(Busy):
            keep.dream_export(str(tmp_path / "y"))
        code, made = cli(root, "--import", str(folder))
        assert (code, made["lock"]) == (4, "busy")
    finally:
        host.close(handle)
    assert truth(root) == before and requests(folder) == asked and not (tmp_path / "y").exists()
    assert taken_in(root, folder)["answers"] == 2


# -- whatever dies


def _dies(template: Path, at: Path, n: int, act: Callable[[Keep, Path], object]) -> bool:
    """In a copy of the template the process ends before its nth change of the disk. Whether it was done by then."""
    shutil.copytree(template, at)
    try:
        with Keep.open(at / "k", host=Dying(n)) as keep:
            act(keep, at / "x")
    except PowerCut:
        return False
    return True


def _steps(template: Path, tmp_path: Path, act: Callable[[Keep, Path], object], every: int) -> int:
    """Each is gone on with as if nothing had been, and ends as if nothing had been."""
    for n in count(1, every):
        at = tmp_path / f"n{n}"
        done = _dies(template, at, n, act)
        for report in dream_by_files(at / "k", at / "x"):
            assert report["failed"] == 0, (n, report)
        assert notes(at / "k") == NOTES, n
        with Keep.open(at / "k") as keep:
            assert keep.audit()["clean"], n
        shutil.rmtree(at)
        if done:
            return n
    raise AssertionError


def _written(host: FragileHost, *asked: Request) -> None:
    exchange = Exchange(host, "/x")
    exchange.missing = {one.id: one for one in asked}
    exchange.write(["python:a"])


def test_a_power_cut_leaves_a_folder_that_is_whole_or_can_be_written_again() -> None:
    """Sessions are named only where every request of theirs is there."""
    asked, before = read_request(()), merge_request(())

    def prepared(n: int) -> FragileHost:
        host = FragileHost(seed=n)
        if n % 2:
            _written(host, before)  # also where another round lay before
        return host

    for n, host in cut_at_every_step(prepared, lambda host: _written(host, asked)):
        for loss in LOSSES:
            disk = host.reboot(loss, seed=n)
            left = Exchange(disk, "/x")
            left.check_target()
            if left.is_there() and left.sessions():
                assert left.asks(asked.id) or left.asks(before.id), (n, loss)
            _written(disk, asked)
            assert Exchange(disk, "/x").sessions() == ["python:a"] and Exchange(disk, "/x").asks(asked.id)
            assert len(disk.names("/x/requests")) == 1, (n, loss)


def _export(keep: Keep, folder: Path) -> object:
    return keep.dream_export(str(folder))


def _import(keep: Keep, folder: Path) -> object:
    return keep.dream_import(str(folder))


def _round(tmp_path: Path, rounds: int) -> Path:
    """A keep and its folder, answered so many times."""
    template = tmp_path / "template"
    filled(template / "k")
    with Keep.open(template / "k") as keep:
        keep.dream_export(str(template / "x"))
        for n in range(rounds):
            answer_all(template / "x")
            if n + 1 < rounds:
                keep.dream_import(str(template / "x"))
    return template


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_an_export_that_dies_at_any_step_is_made_again_into_the_same_folder(tmp_path: Path, every: int) -> None:
    filled(tmp_path / "template" / "k")
    assert _steps(tmp_path / "template", tmp_path, _export, every) > 20


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rounds", [1, 2])
def test_an_import_that_dies_at_any_step_ends_with_each_note_once(tmp_path: Path, rounds: int, every: int) -> None:
    assert _steps(_round(tmp_path, rounds), tmp_path, _import, every) > 20
