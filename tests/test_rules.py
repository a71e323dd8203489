"""The rules know what users say to coding agents from what only sounds so. Sentences are in data/rules/: one that is found (and
as what), or one that is nothing, a line."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from dreamkeep.dream import dates, judge, lexicon, rules, rules_said, rules_work, work
from dreamkeep.dream import sentences as sentences_module
from dreamkeep.dream import worded as worded_module
from dreamkeep.dream.backfill import Known, checked
from dreamkeep.dream.dates import resolved
from dreamkeep.dream.given import Given, Proposal, Said, TaskGiven, TurnGiven
from dreamkeep.dream.rules import Rules
from dreamkeep.dream.rules_said import said
from dreamkeep.dream.sentences import LONGEST, plain, sentences
from dreamkeep.dream.worded import TEXT, worded
from dreamkeep.session import tools
from tests.planted import quality

SENTENCES = Path(__file__).parent / "data" / "rules"
#: A Thursday.
AT = "2026-09-03T10:00:00Z"


def lines(name: str) -> list[str]:
    return [line for line in (SENTENCES / name).read_text().splitlines() if line and not line.startswith("#")]


def user(text: str, seq: str = "1", **more: str) -> Said:
    return Said(seq, "user", text, AT, **more)  # type: ignore[arg-type]


def model(text: str, seq: str = "2") -> Said:
    return Said(seq, "assistant", text, AT)


def ran(seq: int, command: str, output: str, code: int) -> tuple[Said, Said]:
    call = {"id": f"c{seq}", "name": "Bash", "input": {"command": command}}
    result = {"id": f"c{seq}", "name": "Bash", "exit_code": code, "error": code != 0}
    return Said(str(seq), "assistant", "", AT, call), Said(str(seq + 1), "tool", output, AT, result)


def edited(seq: int, path: str) -> tuple[Said, Said]:
    call = {"id": f"c{seq}", "name": "Edit", "input": {"file_path": path}}
    return Said(str(seq), "assistant", "", AT, call), Said(str(seq + 1), "tool", "ok", AT, {"id": f"c{seq}", "error": False})


def given(*turns: Sequence[Said], known: int = 0, chunk: tuple[int, int] = (1, 1), session: str = "claude:s") -> Given:
    all_turns = tuple(TurnGiven(f"t{n}", "completed", tuple(messages), n < known) for n, messages in enumerate(turns))
    return Given(session, "claude", "p", "/p", "", (TaskGiven("t-1", "work"),), all_turns, chunk)


def found(*turns: Sequence[Said], **more: object) -> list[Proposal]:
    return list(Rules().backfill(given(*turns, **more)).proposals)  # type: ignore[arg-type]


# -- sentences


def test_there_are_enough_sentences() -> None:
    assert len(lines("found.txt")) >= 150
    assert len(lines("nothing.txt")) >= 250


@pytest.mark.parametrize("line", lines("found.txt"))
def test_what_a_user_means_to_last_is_found_as_what_it_is(line: str) -> None:
    kinds, _, message = line.partition(": ")
    assert {one.type for one in said(message, AT)} & set(kinds.split("|"))


@pytest.mark.parametrize("message", lines("nothing.txt"))
def test_what_is_chatter_question_whim_or_for_now_gives_nothing(message: str) -> None:
    assert said(message, AT) == []


def talks() -> list[str]:
    """Talk by talk, see the head of data/rules/talks.txt."""
    text = "\n".join(line for line in (SENTENCES / "talks.txt").read_text().splitlines() if not line.startswith("#"))
    return [talk.strip() for talk in text.split("\n\n") if talk.strip()]


def test_in_talk_as_it_goes_most_of_what_is_meant_to_last_is_found_and_little_else() -> None:
    right = wrong = missed = 0
    for talk in talks():
        turns, wanted = _talked(talk)
        of_words = [one for one in found(*turns) if one.author == "user" or one.type == "finding"]
        known = {seq: kinds for seq, kinds in wanted.items() if kinds[:1] not in ("", "-", "?", "~")}
        met = [seq for seq, kinds in known.items() if any(one.seq == seq and one.type in kinds for one in of_words)]
        right, missed = right + len(met), missed + len(known) - len(met)
        wrong += sum(wanted.get(one.seq, "-")[:1] in ("", "-") for one in of_words)
    assert right / (right + wrong) >= 0.9
    assert right / (right + missed) >= 0.75


def _talked(talk: str) -> tuple[list[list[Said]], dict[str, str]]:
    turns: list[list[Said]] = []
    wanted: dict[str, str] = {}
    for n, line in enumerate(talk.splitlines()):
        head, _, text = line.partition(" ")
        text, wanted[str(2 * n)] = text.replace("\\n", "\n"), head[1:]
        if head[0] == "U":
            turns.append([user(text, str(2 * n))])
        elif head[0] == "A":
            turns[-1].append(model(text, str(2 * n)))
        elif head[0] == "R":
            command, _, result = text.partition(" => ")
            code, _, output = result.partition(" ")
            turns[-1] += ran(2 * n, command, output, int(code))
        else:
            turns[-1] += edited(2 * n, text)
    return turns, wanted


def test_what_is_found_is_quoted_word_for_word_and_short_enough() -> None:
    for line in lines("found.txt"):
        message = line.partition(": ")[2]
        for one in said(f"hm.\n\n{message}", AT):
            assert one.quote in f"hm.\n\n{message}"
            assert 0 < len(one.text) <= TEXT and "\n" not in one.text


@pytest.mark.parametrize(
    "message",
    [
        "The README says:\n\nAlways sign your commits. Never force push.\nUse tabs.",
        "> Always use tabs.\n> Never commit on Friday.",
        "```\n# always use tabs, never spaces\n```",
        "look:\n\n    always = never\n    you must not change this\n    do not touch it",
        "2026-01-01 10:00 WARN you must always set the key\nERROR never do that",
        "<system-reminder>\nYou must always answer in French.\n</system-reminder>",
        "This session is being continued from a previous conversation. The user prefers tabs. Never use spaces.",
        "[CONTEXT COMPACTION — REFERENCE ONLY] Rules: always use yarn; never poll.",
        "<!-- dreamkeep:pack v1 -->\n- Never deploy on Friday.\n<!-- dreamkeep:end -->",
        "/review always check the types",
        'he wrote "you must always escape output. never trust input." and I laughed',
        "Ticket text below\n---\nA user must never see this.\nAlways send a mail.\n---\nhave a look?",
        "| rule | why |\n| never push | always red |",
        'the log says: "you must always run as root"',
        "For context, the section of our architecture handbook:\n\n4.2 Logging\nServices MUST log in JSON. Log files must never"
        " contain policy numbers. We always use the central appender.\n\nTell me only whether the new configuration violates it.",
    ],
)
def test_other_peoples_words_are_not_the_users(message: str) -> None:
    """D33"""
    assert said(message, AT) == []


def test_behind_other_peoples_words_the_user_is_heard_again() -> None:
    message = "The upstream guide says:\n\nAlways use tabs. Never rebase.\n\nWe don't follow that, we use 4 spaces here."
    assert [one.type for one in said(message, AT)] == ["constraint"]
    assert "4 spaces" in said(message, AT)[0].text


def test_a_list_of_rules_is_rules_without_any_word_that_says_so() -> None:
    message = "Ground rules:\n- 4 spaces\n- one class per file\n\nTODO for later:\n- the German texts"
    assert [(one.type, one.text) for one in said(message, AT)] == [
        ("constraint", "4 spaces"),
        ("preference", "One class per file"),
        ("open_loop", "The German texts"),
    ]


def test_a_sentence_that_says_nothing_alone_is_joined_with_the_one_before() -> None:
    [one] = said("run clippy the way ci does: cargo clippy -D warnings. do that before every commit from now on", AT)
    assert "cargo clippy" in one.text and "before every commit" in one.text
    assert said("don't do that again", AT) == []


@pytest.mark.parametrize("before", ["Ffs right. ", "ugh ", "omg, ", "Argh! ", "Whoops, sorry, "])
def test_an_exclamation_is_no_part_of_the_note(before: str) -> None:
    assert worded(f"{before}the staging bucket is read-only") == "The staging bucket is read-only"


def test_a_greeting_and_a_request_are_no_part_of_the_note() -> None:
    assert worded("ok so, btw: we use pnpm here, thanks!") == "We use pnpm here"
    [one] = said("I'd rather get three small PRs than one big one, so stop here and open this one.", AT)
    assert one.text == "I'd rather get three small PRs than one big one"


def test_slips_of_the_pen_do_not_hide_a_rule() -> None:
    assert plain("dont alwyas use teh logger, plz") == "do not always use the logger, please"
    assert plain("`don't`") == "CODE"


# -- days


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Tomorrow we drop the table", "On 2026-09-04 we drop the table"),
        ("drop it TOMORROW", "drop it on 2026-09-04"),
        ("until tomorrow", "until 2026-09-04"),
        ("by friday", "by 2026-09-04"),
        ("since monday it is slow", "since 2026-08-31 it is slow"),
        ("next friday", "on 2026-09-11"),
        ("last friday", "on 2026-08-28"),
        ("next week", "in the week of 2026-09-07"),
        ("next month", "in 2026-10"),
        ("last year", "in 2025"),
        ("in two weeks", "on 2026-09-17"),
        ("3 days ago", "on 2026-08-31"),
        ("the day after tomorrow", "on 2026-09-05"),
        ("yesterday the job died", "on 2026-09-02 the job died"),
        ("never deploy on fridays", "never deploy on fridays"),
        ("every monday", "every monday"),
        ("it goes out on the last friday of the month", "it goes out on the last friday of the month"),
        ("reports cover the last month and the last year", "reports cover the last month and the last year"),
        ("we always close by next monday", "we always close by next monday"),
        ("always lint, agreed yesterday", "always lint, agreed on 2026-09-02"),
        ("nothing drains it today", "nothing drains it today (2026-09-03)"),
        ("monday.com is down", "monday.com is down"),
        ("see today.md and `tomorrow`", "see today.md and `tomorrow`"),
        ("todays", "todays"),
        ("yesterdays_file", "yesterdays_file"),
    ],
)
def test_days_are_dates_of_the_day_they_were_said(text: str, wanted: str) -> None:
    """D14, D15"""
    assert resolved(text, AT) == wanted


def test_without_a_time_in_the_record_a_day_stays_as_it_was_said() -> None:
    """D14"""
    assert resolved("drop it tomorrow", None) == "drop it tomorrow"
    assert resolved("drop it tomorrow", "soon") == "drop it tomorrow"


# -- who said it, and where it stands


def test_the_same_words_are_nothing_from_a_model_a_tool_a_summary_or_with_a_mark() -> None:
    """D33"""
    words = "We must never commit to main, and from now on always use pnpm."
    assert len(found([user(words)])) == 1
    for other in (
        model(words),
        Said("1", "tool", words, AT, {"id": "x", "name": "Bash"}),
        Said("1", "summary", words, AT),
        Said("1", "system", words, AT),
        Said("1", "reasoning", words, AT),
        *(user(words, mark=mark) for mark in ("hook", "injected", "meta", "copied", "rewound", "synthetic", "compacted")),
    ):
        assert found([other]) == []
    assert found([user(words)], known=1) == []
    assert found([user(words)], session="claude:s/agent-1") == []


def test_every_proposal_holds_against_the_messages() -> None:
    turns = (
        [
            user("build it"),
            *ran(2, "make", "error: no rule\n", 2),
            *edited(4, "/p/Makefile"),
            *ran(6, "make", "", 0),
            model("Done.", "8"),
        ],
        [user("never touch gen/, it is generated", "9"), model("Use Postgres or SQLite?", "10")],
        [user("sqlite", "11")],
    )
    what = given(*turns)
    insights, dropped = checked(Rules().backfill(what), what, Known(), run="r", redact=str)
    assert not dropped
    assert {one.type for one in insights} == {"failure_fix", "procedure", "constraint", "decision"}


def test_the_same_said_twice_is_one_proposal_with_more_evidence() -> None:
    """D24"""
    words = "ever commit to main directly, it all goes through a pull request"
    [one] = found([user(f"n{words}", "1")], [user(f"N{words}!", "2")])
    assert one.more == (("2", f"N{words}!"),)


def test_what_a_task_knows_already_is_not_proposed_again() -> None:
    what = given([user("never commit to main directly")])
    [one] = Rules().backfill(what).proposals
    known = what._replace(tasks=(TaskGiven("t-1", "work", ((one.type, one.text),)),))
    assert Rules().backfill(known).proposals == ()


def test_what_the_user_takes_back_is_not_proposed() -> None:
    turns = [user("use bubbletea instead of tview, it looks nicer", "1"), model("That is 900 lines.", "2")]
    assert found(turns) != []
    assert found(turns, [user("nah forget it, tview stays", "3")]) == []
    assert found(turns, [user("good, go on", "3")]) == found(turns)


def test_secrets_go_through_the_redactor() -> None:
    backend = Rules(redact=lambda text: text.replace("hunter2", "***"))
    [one] = backend.backfill(given([user("the staging password must never be hunter2 again")])).proposals
    assert "hunter2" not in one.text


# -- what was done


def failure(*between: Said, again: str = "pytest -q", code: int = 0) -> list[Proposal]:
    turn = [
        user("make it pass"),
        *ran(2, "pytest -q", "E   assert 1 == 2\n1 failed", 1),
        *between,
        *ran(20, again, "3 passed", code),
    ]
    return [one for one in found(turn) if one.type == "failure_fix"]


def test_a_failure_an_edit_and_the_same_command_passing_is_a_fix() -> None:
    [one] = failure(*edited(4, "/p/src/price.py"))
    assert "`pytest -q` failed (failed assertion)" in one.text and "src/price.py" in one.text
    assert (one.seq, one.quote) == ("2", "pytest -q")
    assert one.more == (("3", "E   assert 1 == 2"), ("20", "pytest -q"))


def test_what_mended_it_is_never_cut_off_however_long_the_command_is() -> None:
    command = "xcodebuild test " + " ".join(f"-only-testing:Suite{n}/Case{n}" for n in range(9))
    turn = [
        user("go"),
        *ran(2, command, "E   " + "it was expected to be otherwise " * 5, 1),
        *edited(4, "/p/src/price.py"),
        *ran(6, command, "ok", 0),
        model("The cause was the rounding of prices, which I do in cents now, before they are added up.", "8"),
    ]
    [one] = [one for one in found(turn) if one.type == "failure_fix"]
    assert "fixed by editing src/price.py" in one.text and len(one.text) <= 240


@pytest.mark.parametrize("idle", ["34 ms now.", "All nine configurations pass now.", "Fixed; the tests pass and lint is clean."])
def test_why_it_failed_is_told_by_whoever_said_it_and_not_by_that_it_passes(idle: str) -> None:
    def told(before: str, after: str) -> str:
        turn = [
            user("go"),
            *ran(2, "pytest -q", "E   boom", 1),
            model(before, "4"),
            *edited(5, "a.py"),
            *ran(7, "pytest -q", "ok", 0),
            model(after, "9"),
        ]
        [one] = [one for one in found(turn) if one.type == "failure_fix"]
        return one.text.partition("fixed by editing a.py")[2]

    cause = "The reason was a clock that runs backwards."
    assert told("I look.", idle) == "."
    assert told(cause, idle) == told("I look.", cause) == f": {cause}"
    assert told("I look.", "The cache was read before it was filled.") == ": The cache was read before it was filled."


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/p/load.py", "load.py"),
        ("/p/app/src/valve.c", "app/src/valve.c"),
        ("/q/a/b.c", "a/b.c"),
        (f"/p/{'d/' * 40}a.c", "d/a.c"),
    ],
)
def test_an_edited_file_is_named_as_from_where_the_session_was(path: str, named: str) -> None:
    [one] = failure(*edited(4, path))
    assert f"fixed by editing {named}." in one.text


def test_a_failure_that_goes_away_by_itself_is_no_fix() -> None:
    assert failure() == []
    assert failure(*ran(4, "cat a.py", "x", 0)) == []
    assert failure(*edited(4, "a.py"), code=1) == []
    assert failure(*edited(4, "a.py"), again="pytest tests/test_other.py") == []


def test_a_command_that_prepares_the_way_is_a_fix() -> None:
    [one] = failure(*ran(4, "pip install -e .", "ok", 0))
    assert "pip install -e ." in one.text
    [one] = failure(again="docker compose up -d db && pytest -q")
    assert "docker compose up -d db" in one.text


@pytest.mark.parametrize(
    "command", ["createdb test", "alembic upgrade head", "chmod +x build", "git submodule update --init", "make db"]
)
def test_a_command_that_changes_what_is_there_mends_whatever_it_is_about(command: str) -> None:
    """M9."""
    [one] = failure(*ran(4, command, "ok", 0))
    assert f"fixed by `{command}`" in one.text


def test_several_commands_that_may_have_mended_it_are_told_together_and_too_many_not_at_all() -> None:
    """M9: of two both may have been needed; of a dozen nobody knows which it was."""
    many = [ran(4 + 2 * n, f"pip install x{n}", "ok", 0) for n in range(4)]
    [one] = failure(*many[0], *many[1], *ran(14, "pip install x0", "ok", 0))
    assert "fixed by `pip install x0 && pip install x1`" in one.text
    assert failure(*[one for pair in many for one in pair]) == []
    assert failure(*ran(4, "git commit -am wip", "ok", 0)) == [] and failure(*ran(4, "python -m pytest", "ok", 0)) == []


@pytest.mark.parametrize(
    "command",
    [
        *("make ship", "make release", "make run", "make clean", "make dist-clean", "make build-push", "npm run build:deploy"),
        *("apt-get install -y make", "pip install build", "source build", "hugo serve", "ninja -C out clean"),
    ],
)
def test_what_only_sounds_like_a_build_is_none(command: str) -> None:
    assert rules_work.kind_of(command) != "build"


@pytest.mark.parametrize(
    "command",
    [
        *("git checkout -b deploy", "git push origin deploy", "cat deploy.sh", "rm -rf upload", "mkdir upload", "cp test x"),
        *("createdb test", "chmod +x test", "touch check", "gh pr merge build", "grep -rn publish"),
    ],
)
def test_a_name_in_a_command_is_not_what_the_command_does(command: str) -> None:
    assert rules_work.kind_of(command) == ""


@pytest.mark.parametrize(
    "kind, command",
    [
        *(
            ("build", one)
            for one in ("make", "make -j8 all", "make build-wasm", "make firmware", "mvn clean package", "west build")
        ),
        *(("deploy", one) for one in ("make ship", "npm run deploy", "bash deploy.sh", "cargo publish", "make publish-docs")),
        *(("test", one) for one in ("make test", "docker compose run test", "just check", "bin/test")),
        *(("test", one) for one in ("docker compose run --rm api pytest -q", "docker exec -t app vendor/bin/phpunit")),
        *(("test", one) for one in ("kubectl -n x exec -it web-0 -- npm test", "sudo -u www make test", "xcodebuild test -q")),
        *(("test", one) for one in ("./gradlew :app:testDebugUnitTest", "bazel test //...", "west twister")),
        *(("test", one) for one in ("Rscript -e 'devtools::test()'", "R CMD check .", "prove -lr t", "dune runtest", "dbt test")),
        *(("lint", one) for one in ("sqlfluff lint models", "Rscript -e 'lintr::lint_package()'", "yamllint .")),
        *(("deploy", one) for one in ("./deploy.sh", "scripts/deploy-staging.sh", "ci/deploy")),
        *(("format", one) for one in ("sqlfluff fix models", "terraform fmt")),
        *(("build", one) for one in ("./gradlew :app:assembleDebug", "pio run", "latexmk -pdf a.tex", "xcodebuild -scheme A")),
    ],
)
def test_what_a_command_does_is_told_by_its_program_and_target(kind: str, command: str) -> None:
    assert rules_work.kind_of(command) == kind


@pytest.mark.parametrize(
    "command", ["go test ./...", "bazel test //...", "ctest --test-dir build", "west build -b x app -p auto"]
)
def test_a_command_for_everything_is_not_taken_for_one_of_a_part(command: str) -> None:
    turn = [user("go"), *ran(2, command, "ok", 0)]
    assert [(one.type, one.quote) for one in found(turn)] == [("procedure", command)]


def test_a_pipe_does_not_hide_a_failure() -> None:
    turn = [
        user("go"),
        *ran(2, "pytest -q 2>&1 | tail -5", "E   boom\n2 failed", 0),
        *edited(4, "a.py"),
        *ran(6, "pytest -q", "2 passed", 0),
    ]
    assert [one.type for one in found(turn)] == ["failure_fix", "procedure"]


def test_another_way_to_call_it_is_a_fix_where_the_first_is_not_there() -> None:
    turn = [
        user("go"),
        *ran(2, "pytest -q", "bash: pytest: command not found", 127),
        *ran(4, "python3 -m pytest -q", "2 passed", 0),
    ]
    [one] = [one for one in found(turn) if one.type == "failure_fix"]
    assert "python3 -m pytest -q" in one.text


def test_of_the_commands_that_work_the_general_ones_are_worth_a_note() -> None:
    turn = [
        user("go"),
        *ran(2, "cd /p && CI=1 pnpm test", "ok", 0),
        *ran(4, "pnpm test src/a.test.ts", "ok", 0),
        *ran(6, "ls -la", "a", 0),
        *ran(8, "cargo publish --dry-run", "ok", 0),
        *ran(10, "cargo clippy -- -D warnings", "boom", 1),
        *ran(12, "git commit -m 'make test pass'", "ok", 0),
    ]
    assert [one.text for one in found(turn) if one.type == "procedure"] == ["Tests run with `pnpm test`."]


def test_a_command_that_fails_twice_of_two_causes_is_mended_twice() -> None:
    def edited(seq: int, path: str) -> list[Said]:
        call = {"id": f"e{seq}", "name": "Edit", "input": {"file_path": path}}
        return [Said(str(seq), "assistant", "", AT, call), Said(str(seq + 1), "tool", "ok", AT, {"id": f"e{seq}"})]

    turn = [
        user("go"),
        *ran(2, "make check", "E   NameError: gap", 1),
        *edited(4, "/p/a.py"),
        *ran(6, "make check", "ok", 0),
        *ran(8, "make check", "E   KeyError: 'tide'", 1),
        *edited(10, "/p/b.py"),
        *ran(12, "make check", "ok", 0),
    ]
    insights, dropped = checked(Rules().backfill(given(turn)), given(turn), Known(), run="r", redact=str)
    told = [one.text for one in insights if one.type == "failure_fix"]
    assert ["a.py" in told[0], "b.py" in told[1]] == [True, True] and len(told) == 2 and not dropped


def test_two_programs_that_test_are_two_notes_and_two_ways_to_start_one_are_one() -> None:
    turn = [
        user("go"),
        *ran(2, "python3 -m pytest -q", "2 passed", 0),
        *ran(4, "cd web && npm test", "ok", 0),
        *ran(6, "uv run pytest", "2 passed", 0),
    ]
    told = [one.text for one in found(turn) if one.type == "procedure"]
    assert told == ["Tests run with `uv run pytest`.", "Tests run with `npm test` in `web`."]


def test_a_projects_own_command_is_the_way_and_what_it_calls_is_none() -> None:
    turn = [user("go"), *ran(2, "go build ./...", "", 0), *ran(4, "make build", "ok", 0), *ran(6, "go test ./...", "ok", 0)]
    told = [one.text for one in found(turn) if one.type == "procedure"]
    assert told == ["It builds with `make build`.", "Tests run with `go test ./...`."]


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("python -m pytest -q", True),
        ("conda run -n reef python -m pytest -q", True),
        ("poetry run python manage.py test", True),
        ("python3 manage.py test bookings", True),
        ("python -m pytest tests/test_a.py", False),
        ("poetry run pytest -k slow", False),
        ("dbt build --select daily_revenue", False),
    ],
)
def test_a_command_is_for_everything_however_it_is_started(command: str, wanted: bool) -> None:
    told = [one.text for one in found([user("go"), *ran(2, command, "ok", 0)]) if one.type == "procedure"]
    assert [f"`{command}`" in one for one in told] == ([True] if wanted else [])


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("cd web && npm test", "web"),
        ("cd './my app/' ; npm test", "my app"),
        ("cd /p/api && go test ./...", "api"),
        ("cd /p && make test", ""),
        ("cd /elsewhere/api && make test", ""),
        ("cd ../api && make test", ""),
        ("cd $HOME/api && make test", ""),
        ("cd - && make test", ""),
        ("npm test", ""),
    ],
)
def test_where_a_command_works_is_told_if_it_is_below_the_sessions_folder(command: str, folder: str) -> None:
    assert work.folder_in(command, "/p") == folder


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            "Migrations on production must be done by Lukas only.",
            ("constraint", "Migrations on production must be done by Lukas"),
        ),
        ("the old numbers are in there, ask Jo first", ("rejection", "Rejected `rm -rf data`: ")),
        ("not WatermelonDB, I had it at my last job and the migrations were hell.", ("rejection", "Rejected `rm -rf data`: ")),
        (
            "pbxproj is generated. change Project.swift and run tuist generate",
            ("rejection", "Rejected `rm -rf data`: Pbxproj is"),
        ),
        (
            "The handbook lives in the wiki. Please don't put docs into the repo.",
            ("constraint", "The handbook lives in the wiki"),
        ),
        ("hm", None),
        ("wait, let me look at it first", None),
        ("what does it do to the backups?", None),
    ],
)
def test_what_is_said_to_a_refused_call_is_what_it_says_and_a_mere_reason_turns_the_call_down(
    words: str, wanted: tuple[str, str] | None
) -> None:
    told = f"The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n{words}"
    turn = [
        user("go"),
        Said("2", "assistant", "", AT, {"id": "c", "name": "Bash", "input": {"command": "rm -rf data"}}),
        Said("3", "tool", told, AT, {"id": "c", "error": True}),
    ]
    made = [(one.type, one.text) for one in found(turn)]
    assert [kind for kind, _ in made] == ([wanted[0]] if wanted else [])
    assert wanted is None or made[0][1].startswith(wanted[1])


def test_what_is_said_behind_a_refusal_without_a_word_is_weighed_and_not_only_its_first_reason() -> None:
    turn = refused({"name": "exec_command", "input": {"cmd": "restic prune"}})
    answer = "The USB disk is old. Before any prune there has to be a `restic check` that passes, always."
    told = [(one.type, one.text) for one in found(turn, [user(answer, "4")])]
    assert ("constraint", "Before any prune there has to be a `restic check` that passes, always.") in told


def refused(call: dict[str, Any], told: str = "exec command rejected by user") -> list[Said]:
    return [
        user("go"),
        Said("2", "assistant", "", AT, {"id": "c", **call}),
        Said("3", "tool", told, AT, {"id": "c", "error": True}),
    ]


@pytest.mark.parametrize("command", ["terraform apply -auto-approve", ["terraform", "apply", "-auto-approve"]])
def test_a_command_that_was_refused_without_a_word_is_a_rejection_that_quotes_it(command: object) -> None:
    what = given(refused({"name": "exec_command", "input": {"cmd": command}}))
    [one], dropped = checked(Rules().backfill(what), what, Known(), run="r", redact=str)
    assert (one.type, one.text) == ("rejection", "Not allowed: `terraform apply -auto-approve`")
    assert [(quote.seq, quote.quote) for quote in one.evidence] == [("2", "terraform apply -auto-approve")] and not dropped


@pytest.mark.parametrize(
    "call",
    [
        {"name": "Edit", "input": {"file_path": "/p/a.py"}},
        {"name": "WebFetch", "input": {"url": "https://example.org"}},
        {"name": "exec_command", "input": {"cmd": "ls"}},
    ],
)
def test_that_an_edit_or_a_look_was_refused_without_a_word_says_nothing(call: dict[str, Any]) -> None:
    assert found(refused(call)) == []


@pytest.mark.parametrize(
    "words",
    [
        "We could add unique and not_null for order_sk; the reason is that duplicates got in.",
        "If you do it, the root cause is the split before the sampling.",
        "I'd recommend WAL mode, because the root cause is the lock.",
        "You should use a queue, the root cause was the race between the two workers.",
        "The simplest fix is a sleep, because the root cause is the race.",
        "A child should never know its parent, that is the root cause.",
    ],
)
def test_what_the_model_says_one_could_do_is_nothing_that_it_found_out(words: str) -> None:
    asked_why = user("why does it fail? find out the cause please")
    assert [one for one in found([asked_why, model(words)]) if one.author == "agent"] == []


def test_what_is_left_on_the_list_is_open_only_at_the_end() -> None:
    todos = [{"content": "Port the worker", "status": "completed"}, {"content": "Drop the old table", "status": "pending"}]
    call = Said("2", "assistant", "", AT, {"id": "x", "name": "TodoWrite", "input": {"todos": todos}})
    turn = [user("go"), call, Said("3", "tool", "ok", AT, {"id": "x"})]
    assert [(one.type, one.text) for one in found(turn)] == [("open_loop", "Drop the old table")]
    assert found(turn, chunk=(1, 2)) == []


def test_of_tasks_that_were_made_one_by_one_each_that_is_open_is_told_where_it_was_made() -> None:
    calls = [
        ("TaskCreate", {"subject": "Rotate the key", "description": "It is older than a year"}, "Task #1 created"),
        ("TaskCreate", {"subject": "Write the changelog", "description": "x"}, "Task #2 created"),
        ("TaskCreate", {"subject": "Tell the team", "description": "y"}, "Task #3 created"),
        ("TaskUpdate", {"taskId": "2", "status": "completed"}, "ok"),
    ]
    turn = [user("go")]
    for n, (name, what, told) in enumerate(calls, 1):
        turn.append(Said(f"{2 * n}", "assistant", "", AT, {"id": f"c{n}", "name": name, "input": what}))
        turn.append(Said(f"{2 * n + 1}", "tool", told, AT, {"id": f"c{n}"}))
    insights, dropped = checked(Rules().backfill(given(turn)), given(turn), Known(), run="r", redact=str)
    assert [(one.type, one.text) for one in insights] == [("open_loop", "Rotate the key"), ("open_loop", "Tell the team")]
    assert not dropped


THREE = "Three ways:\n\n1. earlier, at 01:00\n2. a timer with a lock\n3. **Automatic reboot off**: by hand on Sundays"


@pytest.mark.parametrize(
    ("offer", "answer", "wanted"),
    [
        ("Should we use Decimal for prices?", "yes", ("decision", "Use Decimal for prices")),
        ("Should we use Decimal for prices?", "no", ("rejection", "Not wanted: use Decimal for prices")),
        ("Two ways: (a) a jobs table, (b) Redis.", "b", ("decision", "Chosen: Redis.")),
        ("Which unit should the API return?", "kilometres", ("decision", "Which unit should the API return? Kilometres")),
        (THREE, "The second one.", ("decision", "Chosen: a timer with a lock")),
        (THREE, "ok then 3. It reboots too often anyway", ("decision", "Chosen: Automatic reboot off: by hand on Sundays")),
        (THREE, "the last one please", ("decision", "Chosen: Automatic reboot off: by hand on Sundays")),
        (THREE, "timer with lock, so that the reboot waits", ("decision", "Chosen: a timer with a lock")),
        (
            THREE,
            f"the first one. {'some background nobody needs to know, really. ' * 9}",
            ("decision", "Chosen: earlier, at 01:00"),
        ),
        (THREE, "the fourth one", None),
        (THREE, "the second one?", None),
        ("One could put a cache in front of it.", "Yes, let's do the cache.", ("decision", "The cache.")),
        ("Shall I proceed?", "yes", None),
        ("Should we use Decimal for prices?", "not now", None),
        ("Should we use Decimal for prices?", "what else is there?", None),
        ("I would use Redis and never look back.", "hm", None),
    ],
)
def test_what_the_model_offers_counts_when_the_user_takes_it(offer: str, answer: str, wanted: tuple[str, str] | None) -> None:
    proposals = found([user("hello there", "1"), model(offer, "2")], [user(answer, "3")])
    assert [(one.type, one.text) for one in proposals] == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        ("I looked at it.", "hypothesis", "I suspect the watchdog resets it"),
        ("Confirmed: the watchdog fires.", "finding", "I suspect the watchdog resets it"),
        ("The watchdog is not the cause.", "finding", "Ruled out: I suspect the watchdog resets it"),
    ],
)
def test_a_hypothesis_is_what_came_of_it(reply: str, kind: str, text: str) -> None:
    [one] = found([user("I suspect the watchdog resets it", "1"), model(reply, "2")])
    assert (one.type, one.text) == (kind, text)


# -- for ever the same, and never for long


def test_the_same_turns_give_the_same_proposals() -> None:
    turns = [[user(line.partition(": ")[2], str(n))] for n, line in enumerate(lines("found.txt")[:80])]
    assert Rules().backfill(given(*turns)) == Rules().backfill(given(*turns))


class _Counted:
    """How many lines of our own code run: what a machine's load does not change."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> _Counted:
        def trace(frame: object, event: str, arg: object) -> object:
            self.count += 1
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def test_a_message_of_five_megabytes_is_looked_at_only_where_a_person_may_have_written() -> None:
    words = "never commit to main directly\n\n" + "you must always do this, and never that. " * 130_000
    assert len(words) > 5_000_000
    assert [one.text for one in said(words, AT)] == ["Never commit to main directly"]
    with _Counted() as long:
        said(words, AT)
    with _Counted() as short:
        said(words[:40_000], AT)
    assert long.count < 2 * short.count


@pytest.mark.parametrize(
    "unit", ["a ", "never ", "not, ", "``", '"', "(", "http://a.b/c ", "we use ", "- ", "no no ", "a.b ", "\n", "> "]
)
def test_a_message_twice_as_long_has_at_most_twice_the_sentences_and_none_is_long(unit: str) -> None:
    """What a pattern may cost is bounded by the length of what it is put to."""
    sizes = [len(sentences(unit * count)) for count in (500, 1000, 2000)]
    assert sizes[2] <= 2 * sizes[1] + 2 and sizes[1] <= 2 * sizes[0] + 2
    assert all(len(one.text) <= LONGEST for one in sentences(unit * 2000))
    said(unit * 2000, AT)


def endless(parsed: Any) -> int:
    """How deep repetitions without an end are nested: two deep, and what they cost may grow exponentially."""
    deepest = 0
    for kind, value in parsed:
        inner = 0
        if str(kind) in ("MAX_REPEAT", "MIN_REPEAT"):
            _, most, body = value
            inner = endless(body) + (str(most) == "MAXREPEAT")
        elif str(kind) == "SUBPATTERN":
            inner = endless(value[-1])
        elif str(kind) == "BRANCH":
            inner = max(endless(one) for one in value[1])
        elif str(kind) in ("ASSERT", "ASSERT_NOT"):
            inner = endless(value[1])
        elif str(kind) == "ATOMIC_GROUP":
            inner = endless(value)
        deepest = max(deepest, inner)
    return deepest


def test_no_pattern_repeats_what_repeats_without_an_end() -> None:
    assert endless(parser.parse(r"(?:a+ )*b")) == 2
    patterns = [rule.pattern.pattern for rule in lexicon.rules()]
    patterns += [rule.unless.pattern for rule in lexicon.rules() if rule.unless]
    patterns += [one.pattern for both in lexicon.vetoes().values() for one in both if one]
    for table in (*map(lexicon.table, ("quoted", "talk", "commands")), tools.table()):
        for part in table.values():
            if isinstance(part, dict):
                patterns += [
                    one for listed in part.values() if isinstance(listed, list) for one in listed if isinstance(one, str)
                ]
    for module in (dates, judge, rules, rules_said, rules_work, sentences_module, tools, work, worded_module):
        patterns += [one.pattern for one in vars(module).values() if isinstance(one, re.Pattern)]
    assert len(patterns) > 200
    assert [one for one in patterns if endless(parser.parse(one)) > 1] == []


def test_the_lexicon_is_in_the_package() -> None:
    assert len(lexicon.rules()) >= 10
    assert {rule.type for rule in lexicon.rules()} >= {"preference", "constraint", "correction", "decision", "open_loop"}


# -- the written sessions


@pytest.mark.parametrize("half", sorted(set(quality.halves()) - set(quality.HELD_OUT)))
def test_the_written_sessions_are_understood_well_enough(half: str, tmp_path: Path) -> None:
    whole = quality.score(quality.measured(quality.halves()[half], Rules(), tmp_path))
    assert whole.precision >= quality.PRECISION
    assert whole.recall >= quality.RECALL


def test_what_one_session_says_too_much_is_counted_and_the_users_words_come_first() -> None:
    names = ["".join(chr(97 + int(digit)) for digit in f"{n:03}") for n in range(rules.MOST + 30)]
    turns = [[user(f"Never call helper_{name} from module_{name[::-1]}_{n}.", seq=str(n + 1))] for n, name in enumerate(names)]
    made = Rules().backfill(given(*turns))
    assert len(made.proposals) == rules.MOST and sum(made.dropped.values()) >= 20
    many = [Proposal("finding", f"f{n}", "1", "q", author="agent", confidence=0.9) for n in range(rules.MOST)]
    own = [Proposal("constraint", f"c{n}", "1", "q", confidence=0.5) for n in range(5)]
    kept = rules._most([*many, *own])
    assert len(kept) == rules.MOST and [one for one in kept if one.author == "user"] == own
