"""What was done in a session is the same, whichever agent wrote it down: commands, refusals, answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.agents.registry import BUILT_IN as AGENTS
from dreamkeep.dream.backends import steps as work
from dreamkeep.dream.backends.api import Given, GivenMessage, TurnGiven
from dreamkeep.dream.backends.steps import AnswerStep, CommandStep, PromptStep, RefusalStep, Step
from dreamkeep.session.reading import tools
from tests.helpers.agent_samples import load_generator
from tests.planted import quality
from tests.planted import written as w

AT = "2026-09-03T10:00:00Z"


def steps(*messages: GivenMessage) -> list[Step]:
    return work.steps(Given("claude:s", "claude", "p", "/p", "", (), (TurnGiven("t", "completed", messages),)))


def called(name: str, given: Any, output: str = "ok", mark: str = "", **result: Any) -> list[Step]:
    call = GivenMessage("1", "assistant", "", AT, {"id": "c", "name": name, "input": given}, mark)
    return steps(call, GivenMessage("2", "tool", output, AT, {"id": "c", "name": name, **result}, mark))


# -- every agent's own forms


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_commands_of_a_generated_home_come_out_as_they_were(agent: str, tmp_path: Path) -> None:
    sample = load_generator(agent)
    if not hasattr(sample, "COMMANDS"):
        pytest.skip(f"the module of {agent}'s sample has no COMMANDS: (command, whether it failed), in any order")
    sample.write(tmp_path / "home")
    ran: list[tuple[str, bool | None]] = []
    with Keep.open(tmp_path / "keep", environment={}) as keep:
        list(keep.ingest(agents=[agent], home=tmp_path / "home"))
        for session in sorted(keep.sessions(), key=lambda one: (one.started_at or "", one.id)):
            found = work.steps(quality.given(keep.show(session.id)))
            ran += [(step.command, step.failed) for step in found if isinstance(step, CommandStep)]
    assert sorted(map(str, ran)) == sorted(map(str, sample.COMMANDS))


def written(agent: str) -> w.Written:
    ends = "interrupted" if agent != "hermes" else "completed"
    refused = w.Rejected("Bash", {"command": "rm -rf data"}, "keep the data, it is the only copy" if agent in w.SAYS_WHY else "")
    done: list[w.Step] = [
        w.Run("make check", "E   assert 1 == 2", 2),
        w.Edit("src/a.py", "-1\n+2"),
        w.Run("make check", "3 passed", 0),
        w.Run("git commit -qam 'Count from two'", "[main 1] Count from two", 0),
        w.Todo((("Write it down", "completed"), ("Tell the others", "pending"))),
    ]
    if agent not in w.LACKS or w.Ask not in w.LACKS[agent]:
        done.append(w.Ask("Which unit?", ("km", "miles"), "km"))
    if agent == "claude":
        done.append(w.Plan("1. Use a queue\n2. Drop the table", True, ""))
    last: list[w.Step] = [refused] if ends == "interrupted" else [refused, w.Say("I did not.")]
    session = "0199d3a1-4c00-7a11-8f00-0000000a0099" if agent != "hermes" else "20260903_100000_abc123"
    return w.Written(
        name="all",
        agent=agent,
        session=session,
        cwd="/home/dev/thing",
        started_at=datetime(2026, 9, 3, 10, tzinfo=UTC),
        title="All of it",
        story="",
        turns=(
            w.Turn("do it", None, (*done, w.Say("Done.")), "completed"),
            w.Turn("clean up", None, tuple(last), ends),
        ),
        expect=(),
        optional=(),
        decoys=(),
    )


@pytest.mark.parametrize("agent", w.AGENTS)
def test_every_agents_records_show_everything_that_can_be_done(agent: str, tmp_path: Path) -> None:
    [(_, what)] = list(quality.captured([written(agent)], tmp_path))
    found = work.steps(what)
    assert [(one.command, one.failed) for one in found if isinstance(one, CommandStep)] == [
        ("make check", True),
        ("make check", False),
        ("git commit -qam 'Count from two'", False),
    ]
    [refused] = [one for one in found if isinstance(one, RefusalStep)]
    assert refused.words == ("keep the data, it is the only copy" if agent in w.SAYS_WHY else "")
    asks = agent not in w.LACKS or w.Ask not in w.LACKS[agent]
    assert [one.answer for one in found if isinstance(one, AnswerStep)] == (["km"] if asks else [])
    assert [one.said.text for one in found if isinstance(one, PromptStep)] == ["do it", "clean up"]


# -- forms that no home has


@pytest.mark.parametrize(
    ("name", "given", "command"),
    [
        ("Bash", {"command": "make"}, "make"),
        ("exec_command", {"cmd": "make"}, "make"),
        ("shell", {"command": ["bash", "-lc", "make all"]}, "make all"),
        ("local_shell", {"type": "exec", "command": ["ls", "-l"]}, "ls -l"),
        ("run_shell_command", {"command": "make", "is_background": False}, "make"),
        ("developer__shell", {"command": "make"}, "make"),
        ("Shell", {"command": "make"}, "make"),
        ("execute", {"command": "make", "title": "make"}, "make"),
    ],
)
def test_a_command_is_known_under_every_name(name: str, given: Any, command: str) -> None:
    [one] = called(name, given)
    assert isinstance(one, CommandStep) and one.command == command and one.failed is False


@pytest.mark.parametrize(
    ("output", "result", "failed"),
    [
        ("Exit code 1\nboom", {"error": True}, True),
        ("Exit code 2\nboom", {}, True),
        ("out\nCommand exited with code 3", {}, True),
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nfine", {}, False),
        ("Output: boom\nExit Code: 1\nProcess Group PGID: 4", {}, True),
        ("boom\n<exited with exit code 7>", {}, True),
        ("fine", {"exit_code": 0}, False),
        ("1 failed", {"exit_code": 0}, False),
        ("2 failed, 3 passed", {}, True),
        ("Traceback (most recent call last):\n  File", {}, True),
        ("all fine", {}, False),
        ("", {"exit_code": 0, "error": False}, False),
    ],
)
def test_the_exit_code_or_the_words_show_how_a_command_ended(output: str, result: dict[str, Any], failed: bool) -> None:
    [one] = called("Bash", {"command": "make"}, output, **result)
    assert isinstance(one, CommandStep) and one.failed is failed


def test_the_same_command_is_the_same_however_it_was_called() -> None:
    for other in ("cd /p && pytest -q", "CI=1 FOO='a b' pytest -q", "pytest -q 2>&1 | tail -20", "timeout 60 pytest -q || true"):
        assert work.key_of(other) == "pytest -q"
    assert work.key_of("pytest -q tests") != "pytest -q"


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"file_path": "a.py"}, ["a.py"]),
        ({"filePath": "a.py"}, ["a.py"]),
        ({"command": "create", "path": "a.py"}, ["a.py"]),
        ({"command": "view", "path": "a.py"}, []),
        ("*** Begin Patch\n*** Update File: a.py\n@@\n*** Add File: b.py\n*** End Patch", ["a.py", "b.py"]),
        ({"input": "*** Begin Patch\n*** Delete File: a.py\n*** End Patch"}, ["a.py"]),
    ],
)
def test_the_files_of_an_edit_are_known_in_every_form(given: Any, paths: list[str]) -> None:
    assert tools.edited_files(given) == paths


def test_a_patch_that_is_handed_to_a_shell_is_no_command() -> None:
    assert called("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Update File: a.py\n*** End Patch"]}) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("The user doesn't want to proceed with this tool use. STOP what you are doing and wait.", ""),
        (
            "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nuse trash\n\n"
            "Note: The user's next message may contain a correction or preference.",
            "use trash",
        ),
        ("The user doesn't want to proceed with this tool use. the user said:\nThe user wants to clarify these questions.", ""),
        (
            "The user rejected permission to use this specific tool call with the following feedback: no new packages",
            "no new packages",
        ),
        ("exec command rejected by user", ""),
        ("[Operation Cancelled] Reason: User did not allow tool call", ""),
        ("The tool call is rejected by the user. User feedback: not on prod", "not on prod"),
        ("The user has declined to run this tool. DO NOT attempt to call this tool again.", ""),
        ('Plan rejected. User feedback: "smaller steps"\n\nThe plan is stored at: x.md', "smaller steps"),
        ('{"output": "", "exit_code": -1, "error": "BLOCKED: User denied this potentially dangerous command."}', ""),
        ("permission denied", None),
        ("the README says: the user rejected this", None),
    ],
)
def test_a_refusal_is_no_failure(told: str, words: str | None) -> None:
    assert tools.refusal_words(GivenMessage("2", "tool", told, AT), "Bash") == words


@pytest.mark.parametrize(
    ("given", "told", "wanted"),
    [
        (
            {},
            'User has answered your questions: "Which db?"="sqlite", "Where?"="here". You can now continue.',
            [("Which db?", "sqlite"), ("Where?", "here")],
        ),
        (
            {"questions": [{"id": "a", "question": "Which db?"}]},
            json.dumps({"answers": {"a": {"answers": ["sqlite"]}}}),
            [("Which db?", "sqlite")],
        ),
        ({"questions": [{"question": "Which db?"}]}, json.dumps({"answers": {"0": "sqlite"}}), [("Which db?", "sqlite")]),
        ({"question": "Which db?"}, json.dumps({"question": "Which db?", "user_response": "sqlite"}), [("Which db?", "sqlite")]),
        (
            {"questions": [{"question": "Which db?"}]},
            "User has provided the following answers:\n\n**DB**: sqlite",
            [("Which db?", "sqlite")],
        ),
        ({"question": "Which db?"}, "User responded: sqlite", [("Which db?", "sqlite")]),
        ({"question": "Which db?"}, "sqlite", [("Which db?", "sqlite")]),
        ({"question": "Which db?"}, "{broken", []),
    ],
)
def test_an_answer_is_read_in_every_form(given: Any, told: str, wanted: list[tuple[str, str]]) -> None:
    assert tools.answers(given, told) == wanted


def test_a_call_and_its_result_in_one_record_are_both() -> None:
    def both(seq: str, name: str, given: Any, told: str, code: int) -> GivenMessage:
        return GivenMessage(seq, "tool", told, AT, {"name": name, "input": given, "output": told, "exit_code": code})

    ran, again = steps(
        both("1", "bash", {"command": "pytest -q"}, "1 failed", 1),
        both("3", "bash", {"command": "pytest -q"}, "1 passed", 0),
    )
    assert isinstance(ran, CommandStep) and ran.failed and ran.result is ran.call
    assert isinstance(again, CommandStep) and again.failed is False


# -- what the line is that says what was wrong


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("Exit code 1\n==== FAILURES ====\nE   assert 1 == 2\n1 failed", "E   assert 1 == 2"),
        ("error[E0277]: can't compare\n  --> a.rs:1\nerror: could not compile `a`", "error[E0277]: can't compare"),
        ("npm ERR! code ELIFECYCLE\nTypeError: x is undefined\n    at a.js:1", "TypeError: x is undefined"),
        ("make: *** No rule\nmake: *** [all] Error 2", ""),
        ("--- FAIL: TestRotate\n    rotate_test.go:44: got 2\nFAIL logship/rotate 0.031s", "rotate_test.go:44: got 2"),
        ("Output: 12:01:03 Failure in test x", "Failure in test x"),
        ("12:01:03  Error: no such column", "Error: no such column"),
        (json.dumps({"output": "line\nValueError: no “such” thing", "exit_code": 1}), "ValueError: no “such” thing"),
        ("", ""),
    ],
)
def test_the_line_that_says_what_was_wrong_is_found(output: str, line: str) -> None:
    said = GivenMessage("2", "tool", output, AT)
    assert tools.error_line(said) == line
    assert not line or work.quoted(said, line)


def test_what_bears_a_mark_and_what_was_never_answered_is_not_there() -> None:
    assert called("Bash", {"command": "make"}, mark="copied") == []
    [one] = steps(GivenMessage("1", "assistant", "", AT, {"id": "c", "name": "Bash", "input": {"command": "make"}}))
    assert isinstance(one, CommandStep) and one.failed is None


def test_an_id_that_comes_again_belongs_to_the_last_call() -> None:
    call = {"id": "c", "name": "Bash"}
    found = steps(
        GivenMessage("1", "assistant", "", AT, {**call, "input": {"command": "one"}}),
        GivenMessage("2", "tool", "", AT, {"id": "c", "exit_code": 1, "error": True}),
        GivenMessage("3", "assistant", "", AT, {**call, "input": {"command": "two"}}),
        GivenMessage("4", "tool", "", AT, {"id": "c", "exit_code": 0}),
    )
    assert [(one.command, one.failed) for one in found if isinstance(one, CommandStep)] == [("one", True), ("two", False)]


@pytest.mark.parametrize(
    "given", [None, 7, "x", [], {}, {"command": None}, {"todos": 3}, {"questions": "x"}, {"todos": [1, None]}]
)
def test_tools_that_are_called_with_nonsense_stop_nothing(given: Any) -> None:
    for name in ("Bash", "Edit", "TodoWrite", "AskUserQuestion", "ExitPlanMode", "TaskCreate", "TaskUpdate", "unknown", ""):
        called(name, given, "{}")


def test_of_an_output_of_fifty_megabytes_only_both_ends_are_read() -> None:
    output = "x" * 25_000_000 + "\n" + "y" * 25_000_000 + "\nExit code 3"
    [one] = called("Bash", {"command": "make"}, output)
    assert isinstance(one, CommandStep) and one.result is not None and tools.outcome(one.command, one.result) == (3, True)
    assert len(tools.output_of(one.result)) < 20_000
