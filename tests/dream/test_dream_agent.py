"""The agent at hand answers a dream's requests in its own session: `dream_next` and `dream_submit`."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.run import LOCK
from dreamkeep.errors import BadUsage, Busy, NotFound
from dreamkeep.host import RealHost
from tests.helpers.answers import answer, talk
from tests.helpers.faults import Dying, PowerCut

LINTER, PUSH = "always run the linter before a commit", "never push to main, ask first"
NOTES = ["Always run the linter before a commit", "Never push to main, ask first"]


class Later(RealHost):
    """In 31 minutes."""

    def now(self) -> int:
        return super().now() + 31 * 60 * 1_000_000_000


def filled(root: Path) -> Path:
    talk(root, "a", LINTER, "thanks")
    talk(root, "b", PUSH, "thanks")
    return root


def dream(keep: Keep) -> list[dict[str, Any]]:
    """Until nothing waits; what came of each answer."""
    made: list[dict[str, Any]] = []
    told = keep.dream_next()
    while told["request"]:
        made.append(keep.dream_submit(told["request"]["id"], answer(told["request"])))
        assert len(made) < 20
        told = made[-1]["next"] or keep.dream_next()
    return made


def notes(keep: Keep) -> list[str]:
    return sorted(note["text"] for note in keep.notes())


def held(root: Path) -> list[Path]:
    return [path for path in (root / "state" / "exchange").rglob("*") if path.is_file()]


def test_a_request_has_all_that_the_agent_needs(tmp_path: Path) -> None:
    with Keep.open(filled(tmp_path / "k")) as keep:
        told = keep.dream_next()
        assert set(told["request"]) == {"id", "kind", "system", "user", "schema"} and told["request"]["kind"] == "read"
        assert (told["session"], told["requests_left"], told["sessions_left"]) == ("python:a", 0, 1)
        assert "# Your answer" in told["request"]["system"] and LINTER in told["request"]["user"]
        assert PUSH not in told["request"]["user"], "one session at a time"


def test_answers_end_in_the_notes_that_files_would_end_in(tmp_path: Path) -> None:
    with Keep.open(filled(tmp_path / "k")) as keep:
        made = dream(keep)
        assert notes(keep) == NOTES and [one["status"] for one in made][-1] == "completed"
        assert len(made) <= 3 * 2 and held(tmp_path / "k") == []
        assert keep.dream_next()["request"] is None and keep.audit()["clean"]


def test_two_agents_never_read_the_same_session(tmp_path: Path) -> None:
    root = filled(tmp_path / "k")
    with Keep.open(root) as one, Keep.open(root) as other:
        first, second = one.dream_next(), other.dream_next()
        assert {first["session"], second["session"]} == {"python:a", "python:b"}
        assert other.dream_next()["request"] is None and other.dream()["considered"] == 0
        assert other.dream_export(str(tmp_path / "x"))["sessions"] == []
        assert one.dream_next(session="a")["request"] == first["request"], "who lost a request gets it again by its session"


def test_after_half_an_hour_a_session_is_offered_again_and_the_old_request_still_fits(tmp_path: Path) -> None:
    root = filled(tmp_path / "k")
    with Keep.open(root) as keep:
        first = keep.dream_next()
    with Keep.open(root, host=Later()) as keep:
        again = keep.dream_next()
        assert again["request"] == first["request"]
        assert keep.dream_submit(first["request"]["id"], answer(first["request"]))["next"]["request"]["kind"] == "challenge"


def test_a_session_that_goes_on_is_never_offered_though_a_part_of_it_has_ended(tmp_path: Path) -> None:
    """It may be the very one that asks."""
    root = tmp_path / "k"
    talk(root, "own", LINTER)
    with Keep.open(root) as keep:
        keep.hygiene()  # its end is recorded
        assert keep.dream_status()["trigger"]["waiting"] == 1
    talk(root, "own", "and now?", end=False)
    with Keep.open(root) as keep:
        assert keep.dream_next()["request"] is None
        assert keep.dream_next(session="own")["request"] is None


def test_a_session_without_a_word_of_the_user_is_settled_without_a_question(tmp_path: Path) -> None:
    root = tmp_path / "k"
    with Keep.open(root) as keep:
        session = keep.session("quiet")
        session.end()
    talk(root, "b", PUSH)
    with Keep.open(root) as keep:
        assert keep.dream_next()["session"] == "python:b"


@pytest.mark.parametrize("bad", [{}, {"items": 5}, {"verdicts": []}, {"items": [{"kind": "nonsense"}, 7, None]}])
def test_an_answer_that_is_none_is_told_and_asked_for_again(tmp_path: Path, bad: dict[str, Any]) -> None:
    with Keep.open(filled(tmp_path / "k")) as keep:
        told = keep.dream_next()
        made = keep.dream_submit(told["request"]["id"], bad)
        if made["problems"]:
            assert made["next"]["request"] == told["request"]
        else:
            assert made["dropped"] and made["next"] is None, "items that are none are dropped and counted"
        assert notes(keep) == []


def test_what_does_not_stand_in_the_session_becomes_no_note(tmp_path: Path) -> None:
    with Keep.open(filled(tmp_path / "k")) as keep:
        told = keep.dream_next()
        given = answer(told["request"])
        given["items"][0]["quotes"][0]["words"] = "always deploy on Friday"
        made = keep.dream_submit(told["request"]["id"], given)
        assert made["next"] is None and sum(one["count"] for one in made["dropped"]) == 1
        assert notes(keep) == []


def test_what_is_no_request_or_is_not_wanted_any_more_is_refused(tmp_path: Path) -> None:
    root = filled(tmp_path / "k")
    with Keep.open(root) as keep:
        told = keep.dream_next()
        request = told["request"]["id"]
        for wrong in ("", "../../keep", "x" * 32, request.upper()):
            with pytest.raises(BadUsage):
                keep.dream_submit(wrong, {"items": []})
        with pytest.raises(BadUsage, match="too long"):
            keep.dream_submit(request, {"items": ["x" * (300 << 10)]})
        keep.dream_submit(request, {"items": []})
        with pytest.raises(NotFound, match="no longer open"):
            keep.dream_submit(request, {"items": []})


def test_a_deleted_session_leaves_no_word_in_the_exchange_and_its_request_is_refused(tmp_path: Path) -> None:
    """Nor does what another session's request shows of it: notes that are near."""
    root = tmp_path / "k"
    talk(root, "a", "never use the xylophone in tests", "never paint the xylophone")
    with Keep.open(root) as keep:
        dream(keep)
        assert len(notes(keep)) == 2
    talk(root, "b", "always tune the xylophone before the tests")
    with Keep.open(root) as keep:
        told = keep.dream_next()
        while told["request"]["kind"] != "merge":
            told = keep.dream_submit(told["request"]["id"], answer(told["request"]))["next"]
        assert "paint the xylophone" in told["request"]["user"]
        keep.delete("a")
        assert held(root) == []
        with pytest.raises(NotFound, match="no longer open"):
            keep.dream_submit(told["request"]["id"], answer(told["request"]))
        keep.delete("b")
    assert [path for path in root.rglob("*") if path.is_file() and b"xylophon" in path.read_bytes()] == []


def test_beside_a_running_dream_the_answer_is_kept_and_the_agent_is_told_to_come_back(tmp_path: Path) -> None:
    root = filled(tmp_path / "k")
    host = RealHost()
    with Keep.open(root) as keep:
        told = keep.dream_next()
        handle = host.open_lock(str(root / LOCK))
        assert host.try_lock(handle)
        with pytest.raises(Busy):
            keep.dream_next()
        with pytest.raises(Busy, match="kept"):
            keep.dream_submit(told["request"]["id"], answer(told["request"]))
        host.close(handle)
        assert keep.dream_next(session="a")["request"]["kind"] == "challenge"


def test_what_the_agent_did_can_be_undone(tmp_path: Path) -> None:
    with Keep.open(filled(tmp_path / "k")) as keep:
        for made in reversed(dream(keep)):
            if made["run"]:
                keep.dream_undo(made["run"])
        assert notes(keep) == []


def test_what_rules_alone_have_read_is_offered_again_only_where_that_is_asked_for_and_only_once(tmp_path: Path) -> None:
    with Keep.open(filled(tmp_path / "k")) as keep:
        keep.dream()
        told = keep.dream_next()
        assert told["request"] is None and "only rules have read 2" in told["why"]
        told = keep.dream_next(again=True)
        assert keep.dream_next(session=told["session"])["request"] == told["request"], "also who lost it goes on"
        seen = []
        while told["request"]:
            seen.append(told["session"])
            made = keep.dream_submit(told["request"]["id"], answer(told["request"]))
            told = made["next"] or keep.dream_next(again=True)
        assert set(seen) == {"python:a", "python:b"} and "rules" not in told["why"]
        assert set(notes(keep)) >= set(NOTES)


def test_a_folder_that_nobody_can_read_is_no_request(tmp_path: Path) -> None:
    root = filled(tmp_path / "k")
    broken = root / "state" / "exchange" / "broken"
    (broken / "requests").mkdir(parents=True)
    (broken / "exchange.json").write_text("{")
    with Keep.open(root) as keep:
        assert dream(keep) and notes(keep) == NOTES and held(root) == []


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_an_answer_during_which_the_server_dies_counts_once_or_is_asked_for_again(tmp_path: Path, every: int) -> None:
    template = tmp_path / "template"
    with Keep.open(filled(template)) as keep:
        told = keep.dream_next()
        told = keep.dream_submit(told["request"]["id"], answer(told["request"]))["next"]
    request, given = told["request"]["id"], json.loads(json.dumps(answer(told["request"])))
    for n in count(1, every):
        root = tmp_path / f"n{n}"
        shutil.copytree(template, root)
        done = True
        try:
            with Keep.open(root, host=Dying(n)) as keep:
                keep.dream_submit(request, given)
        except PowerCut:
            done = False
        with Keep.open(root, host=Later()) as keep:
            dream(keep)
            assert notes(keep) == NOTES and held(root) == [], n
        shutil.rmtree(root)
        if done:
            break
    assert n > 20
