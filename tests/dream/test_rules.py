"""The rules keep few things, and only certain ones: standing sentences that a user typed, and commands that worked.

data/rules/nothing.txt has messages that are nothing to remember, one a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from dreamkeep.dream.backends import steps
from dreamkeep.dream.backends.api import Given, GivenMessage, Proposal, TaskGiven, TurnGiven
from dreamkeep.dream.backends.checks import KnownInsights, checked
from dreamkeep.dream.backends.rules import dates, rules
from dreamkeep.dream.backends.rules.dates import resolved
from dreamkeep.dream.backends.rules.rules import Rules, standing
from dreamkeep.session.reading import tools
from tests.paths import TESTS
from tests.planted import quality

NOTHING = (TESTS / "data" / "rules" / "nothing.txt").read_text().splitlines()
#: A Thursday.
AT = "2026-09-03T10:00:00Z"


def user(text: str, seq: str = "1", **more: str) -> GivenMessage:
    return GivenMessage(seq, "user", text, AT, **more)  # type: ignore[arg-type]


def model(text: str, seq: str = "2") -> GivenMessage:
    return GivenMessage(seq, "assistant", text, AT)


def ran(seq: int, command: str, output: str, code: int) -> tuple[GivenMessage, GivenMessage]:
    call = {"id": f"c{seq}", "name": "Bash", "input": {"command": command}}
    result = {"id": f"c{seq}", "name": "Bash", "exit_code": code, "error": code != 0}
    return GivenMessage(str(seq), "assistant", "", AT, call), GivenMessage(str(seq + 1), "tool", output, AT, result)


def given(*turns: Sequence[GivenMessage], known: int = 0, session: str = "claude:s") -> Given:
    all_turns = tuple(TurnGiven(f"t{n}", "completed", tuple(messages), n < known) for n, messages in enumerate(turns))
    return Given(session, "claude", "p", "/p", "", (TaskGiven("t-1", "work"),), all_turns)


def found(*turns: Sequence[GivenMessage], **more: object) -> list[Proposal]:
    return list(Rules().backfill(given(*turns, **more)).proposals)  # type: ignore[arg-type]


# -- standing sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Always run mise run fmt before pushing.",
        "never commit to main directly, it all goes through a pull request",
        "please never edit files in gen/ by hand",
        "Tests must never send real mail.",
        "you should always write the test first",
        "make sure to always sign commits",
        "do not ever delete the backups folder",
        "from now on use British spelling in names",
        "going forward we write changelogs by hand",
        "in the future, please ask before adding a dependency",
        "in this repo we use pnpm, not npm",
        "we keep migrations in db/ in this project",
        "remember that the staging database is shared with support",
        "our convention is one commit for each change",
        "Nutze immer pnpm statt npm.",
        "Bitte nie direkt auf main pushen",
        "ab jetzt schreiben wir Commits auf Englisch",
        "in diesem Projekt verwenden wir keine Floats für Preise",
        "Merk dir: die Testdatenbank gehört dem Support",
        "Utilise toujours pnpm pour les paquets",
        "Ne jamais pousser directement sur main",
        "désormais on écrit les tests d’abord",
        "dans ce projet on utilise pnpm",
        "Usa siempre pnpm para los paquetes",
        "Nunca hagas push directo a main",
        "a partir de ahora escribimos los commits en inglés",
        "en este proyecto usamos tabs",
        "Use sempre pnpm para os pacotes",
        "Nunca faça push direto na main",
        "a partir de agora escrevemos os commits em inglês",
        "neste projeto usamos tabs",
        "请始终使用 pnpm 安装依赖",
        "永远不要直接推送到 main 分支",
        "从现在开始提交信息用英文写",
        "在这个项目里我们使用制表符缩进",
        "必ずテストを先に書いてください",
        "今後はコミットメッセージを英語で書いてください",
        "このプロジェクトではpnpmを使います",
    ],
)
def test_a_short_sentence_with_a_standing_word_is_kept(sentence: str) -> None:
    [one] = standing(sentence, AT)
    assert one.type in ("constraint", "fact") and one.quote == sentence.strip()
    assert len(standing(f"I looked at the tests. {sentence}\nthanks")) == 1, "wherever it stands in a message"


@pytest.mark.parametrize("message", [line.replace("\\n", "\n") for line in NOTHING if line and not line.startswith("#")])
def test_what_is_chatter_question_whim_or_for_now_gives_nothing(message: str) -> None:
    assert standing(message, AT) == []


@pytest.mark.parametrize(
    "message",
    [
        "why does it always fail on Mondays",
        "should we always squash?",
        "can you always mention the file?",
        "do you remember the port",
        "it always fails on CI",
        "we never wrote tests for the parser",
        "you never answered my question",
        "never mind",
        "for now always use the staging key",
        "in this PR never touch the lock file",
        "always use it like that",
        "from now on do the same",
        "maybe we should always lint first",
        "add a flag to never prompt",
        "Add a cache, always invalidate it on write",
        "this allows users to always see the spinner",
        "remember to update the changelog",
        "the docs say you should never mutate state",
        "a colleague swears you should never use Lombok",
        "the guide: 'Writers must always address the reader. Never use the passive voice.'",
        'the vendor wrote "always keep two backups of everything"',
        "> Always sign off.\n> Never use VLAs in the driver.",
        "here is the ticket:\n\nA nurse must never swap two nights in a row.\nAlways log the swap.",
        "---\nA nurse must never swap two nights in a row.\n---\nstart with the tests",
        "so:\n1. parse the flags\n2. if there is an error, always exit with 1\n3. print",
        "the runbook says\n\n    On-call must always acknowledge within 5 minutes.\n\nuseless",
        "```\nAlways run the cleaner first.\n```",
        "warum schlägt das immer fehl",
        "Das ist immer noch kaputt",
        "ça échoue toujours sur la CI",
        "esto siempre falla en CI",
        "isso sempre falha na CI",
        "为什么总是失败？",
        "いつも失敗します",
    ],
)
def test_what_describes_asks_quotes_or_orders_for_now_is_not_kept(message: str) -> None:
    assert standing(message, AT) == []


def test_a_long_sentence_and_a_long_message_are_not_kept() -> None:
    assert standing("always " + "check the list of names " * 12) == []
    assert standing("never commit to main directly\n\n" + "you must see this. " * 2000) == []


def test_a_list_under_a_line_that_says_rules_is_the_users_own() -> None:
    message = "ground rules:\n- never commit to main directly\n- always write the test first\nnow fix the login"
    assert [one.text for one in standing(message)] == ["Never commit to main directly", "Always write the test first"]


def test_a_greeting_is_no_part_of_the_note_and_days_are_dates() -> None:
    """D14"""
    [one] = standing("ok, one more thing: starting today, deploys go through staging", AT)
    assert one.text == "Starting today (2026-09-03), deploys go through staging"
    assert one.quote == "ok, one more thing: starting today, deploys go through staging"
    [one] = standing("from Monday on we squash before merging", AT)
    assert one.text == "From 2026-09-07 on we squash before merging"


def test_the_words_of_an_agent_or_a_tool_are_pasted_where_they_come_back() -> None:
    words = "Always run the generator twice before the tests, because the first run only fills the cache."
    assert len(found([user(words)])) == 1
    assert found([user("hi", "1"), model(words, "2")], [user(f"look at this\n\n{words}", "3")]) == []
    assert found([user("hi", "1"), *ran(2, "cat notes", words, 0)], [user(f"look at this\n\n{words}", "4")]) == []


# -- who said it, and where it stands


def test_the_same_words_are_nothing_from_a_model_a_tool_a_summary_or_with_a_mark() -> None:
    """D33"""
    words = "We must never commit to main, and from now on always use pnpm."
    assert len(found([user(words)])) == 1
    for other in (
        model(words),
        GivenMessage("1", "tool", words, AT, {"id": "x", "name": "Bash"}),
        GivenMessage("1", "summary", words, AT),
        GivenMessage("1", "system", words, AT),
        GivenMessage("1", "reasoning", words, AT),
        *(user(words, mark=mark) for mark in ("hook", "injected", "meta", "copied", "rewound", "synthetic", "compacted")),
    ):
        assert found([other]) == []
    assert found([user(words)], known=1) == []
    assert found([user(words)], session="claude:s/agent-1") == []


REFUSAL = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"


def refused(seq: int, words: str) -> tuple[GivenMessage, GivenMessage]:
    call = {"id": f"c{seq}", "name": "Bash", "input": {"command": "git push"}}
    told = f"{REFUSAL}{words}" if words else "The user doesn't want to proceed with this tool use."
    return GivenMessage(str(seq), "assistant", "", AT, call), GivenMessage(
        str(seq + 1), "tool", told, AT, {"id": f"c{seq}", "error": True}
    )


def test_a_reason_with_a_standing_word_is_kept_and_a_refusal_without_one_is_not() -> None:
    [one] = found([user("go"), *refused(2, "never push to main, open a pull request")])
    assert (one.type, one.text, one.author) == ("constraint", "Never push to main, open a pull request", "user")
    assert found([user("go"), *refused(2, "")]) == found([user("go"), *refused(2, "not now, wait for me")]) == []


def test_every_proposal_holds_against_the_messages() -> None:
    turns = (
        [user("build it"), *ran(2, "make", "", 0), model("Done. Always run make first.", "8")],
        [user("never touch gen/, it is generated", "9"), *refused(10, "never push to main on a Friday")],
    )
    what = given(*turns)
    insights, dropped = checked(Rules().backfill(what), what, KnownInsights(), run="r", redact=str, trusted=True)
    assert not dropped
    assert [one.type for one in insights] == ["constraint", "constraint", "procedure"]
    assert [one.evidence[0].origin for one in insights] == ["typed", "answer", "typed"]


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
    turns = [user("from now on use bubbletea for the menus", "1"), model("That is 900 lines.", "2")]
    assert len(found(turns)) == 1
    assert found(turns, [user("nah forget it, tview stays", "3")]) == []
    assert found(turns, [user("good, go on", "3")]) == found(turns)


def test_secrets_go_through_the_redactor() -> None:
    backend = Rules(redact=lambda text: text.replace("hunter2", "***"))
    [one] = backend.backfill(given([user("the staging password must never be hunter2 again")])).proposals
    assert "hunter2" not in one.text


# -- days


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Tomorrow we drop the table", "On 2026-09-04 we drop the table"),
        ("drop it TOMORROW", "drop it on 2026-09-04"),
        ("until tomorrow", "until 2026-09-04"),
        ("by friday", "by 2026-09-04"),
        ("since monday it is slow", "since 2026-08-31 it is slow"),
        ("from Monday on we squash", "from 2026-09-07 on we squash"),
        ("starting friday, tag releases", "starting 2026-09-04, tag releases"),
        ("open from monday to friday", "open from monday to friday"),
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


# -- commands


@pytest.mark.parametrize(
    "command",
    [
        *("make ship", "make release", "make run", "make clean", "make dist-clean", "make build-push", "npm run build:deploy"),
        *("apt-get install -y make", "pip install build", "source build", "hugo serve", "ninja -C out clean"),
    ],
)
def test_what_only_sounds_like_a_build_is_none(command: str) -> None:
    assert rules.kind_of(command) != "build"


@pytest.mark.parametrize(
    "command",
    [
        *("git checkout -b deploy", "git push origin deploy", "cat deploy.sh", "rm -rf upload", "mkdir upload", "cp test x"),
        *("createdb test", "chmod +x test", "touch check", "gh pr merge build", "grep -rn publish"),
    ],
)
def test_a_name_in_a_command_is_not_what_the_command_does(command: str) -> None:
    assert rules.kind_of(command) == ""


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
    assert rules.kind_of(command) == kind


@pytest.mark.parametrize(
    "command", ["go test ./...", "bazel test //...", "ctest --test-dir build", "west build -b x app -p auto"]
)
def test_a_command_for_everything_is_not_taken_for_one_of_a_part(command: str) -> None:
    turn = [user("go"), *ran(2, command, "ok", 0)]
    assert [(one.type, one.quote) for one in found(turn)] == [("procedure", command)]


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
    assert steps.folder_in(command, "/p") == folder


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


def test_of_commands_in_one_line_each_is_told_that_must_have_succeeded() -> None:
    turn = [user("go"), *ran(2, "mise run fmt && mise run lint", "ok", 0)]
    assert [one.text for one in found(turn)] == [
        "Code is formatted with `mise run fmt`.",
        "The linter runs with `mise run lint`.",
    ]
    for command in ("mise run fmt; mise run lint", "make lint || make format", "make test | sort", "make a && cd b && make test"):
        assert found([user("go"), *ran(2, command, "ok", 0)]) == []


def test_a_command_that_failed_is_nothing() -> None:
    assert found([user("go"), *ran(2, "make test", "2 failed", 1), *ran(4, "pytest -q 2>&1 | tail -5", "2 failed", 0)]) == []


# -- for ever the same, and never for long


def test_the_same_turns_give_the_same_proposals() -> None:
    turns = [[user(f"never call helper_{n} from the loader", str(n))] for n in range(1, 20)]
    assert Rules().backfill(given(*turns)) == Rules().backfill(given(*turns))


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
    patterns: list[str] = []

    def collect(table: Any) -> None:
        for value in table.values() if isinstance(table, dict) else table:
            if isinstance(value, str):
                patterns.append(re.sub(r"{[a-z]+}", "x", value))
            else:
                collect(value)

    collect({name: part for name, part in rules._load_table().items() if name != "says"})
    for module in (dates, rules, tools, steps):
        patterns += [one.pattern for one in vars(module).values() if isinstance(one, re.Pattern)]
    assert len(patterns) > 150
    assert [one for one in patterns if endless(parser.parse(one)) > 1] == []


def test_what_one_session_says_too_much_is_counted() -> None:
    turns = [[user(f"Never call helper_{n} from the loader.", seq=str(n))] for n in range(1, rules.MOST + 31)]
    made = Rules().backfill(given(*turns))
    assert len(made.proposals) == rules.MOST and sum(made.dropped.values()) == 30


# -- the written sessions


@pytest.mark.parametrize("name", quality.sets())
def test_no_decoy_of_the_written_sessions_becomes_a_note(name: str, tmp_path: Path) -> None:
    found = quality.taken(quality.sets()[name], tmp_path)
    assert [(one.session.name, insight.text) for one in found for insight in one.on_decoys] == []
    assert sum(len(one.others) for one in found) <= 1, "nor much else that its author does not expect"
