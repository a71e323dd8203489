"""The command line: what scripts rely on (JSON, exit codes), what people see, and that starting it is cheap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dreamkeep import Keep, __version__
from dreamkeep.journal.places import folder_of
from dreamkeep.surfaces.cli import parser
from tests.helpers.cli import Cli, Ran
from tests.helpers.journals import part


@pytest.fixture
def sample(keep: Keep) -> Keep:
    session = keep.session("chat-42", cwd=".", title="")
    with session.submit("Why does it fail?\nSecond line") as turn:
        turn.add("assistant", "Because \x1b[31mred\x07 …", tool={"name": "sh"})
    session.record("Again", ("assistant", "Yes"))
    keep.session("other", agent="codex").record("Hello")
    return keep


def test_sessions_has_every_field_of_the_contract(sample: Keep, cli: Cli) -> None:
    rows = cli("sessions", "--json").json["sessions"]
    assert [r["id"] for r in rows] == ["codex:other", "python:chat-42"]
    fields = (
        "id agent native_id project cwd title started_at last_at ended_at state turns messages segments compactions bytes lineage"
    )
    assert set(fields.split()) <= set(rows[0])
    chat = rows[1]
    assert (chat["title"], chat["turns"], chat["messages"], chat["state"]) == ("Why does it fail?", 2, 4, "active")
    assert chat["cwd"] == os.getcwd() and chat["started_at"].endswith("Z") and chat["segments"] == 1
    assert [r["id"] for r in cli("sessions", "--json", "--agent", "python").json["sessions"]] == ["python:chat-42"]
    assert len(cli("sessions", "--limit", "1", "--json").json["sessions"]) == 1
    assert cli("sessions", "--json", "--project", "none") == Ran(0, '{"sessions":[]}\n', "")


def test_show_has_every_field_of_the_contract(sample: Keep, cli: Cli) -> None:
    shown = cli("show", "chat-42", "--json").json
    assert set(shown) >= {"session", "turns", "segments", "compactions", "messages"}
    assert set(shown["turns"][0]) >= {"id", "state", "prompt", "submitted_at", "settled_at"}
    assert set(shown["segments"][0]) >= {"id", "opened_seq", "closed_seq", "end_reason", "precision"}
    assert set(shown["messages"][0]) >= {"seq", "role", "text", "at", "turn", "segment"}
    assert [m["seq"] for m in shown["messages"]] == [3, 5, "7.1", "7.2"]
    assert shown["messages"][1]["tool"] == {"name": "sh"}


def test_a_tool_call_is_shown_by_its_input_and_an_empty_result_as_nothing(keep: Keep, cli: Cli) -> None:
    with keep.session("quiet").submit("Go") as turn:
        turn.add("assistant", "", tool={"name": "sh", "input": {"command": "true"}})
        turn.add("tool", "", tool={"name": "sh", "exit_code": 0})
    shown = cli("show", "quiet").out
    assert '  assistant [sh]: {"command":"true"}\n  tool [sh]: (nothing)\n' in shown


def test_a_session_is_found_by_id_bare_id_or_unique_beginning(sample: Keep, cli: Cli) -> None:
    for name in ("python:chat-42", "chat-42", "chat", "python:c"):
        assert cli("show", name, "--json").json["session"]["id"] == "python:chat-42"
    sample.session("chat-43").record("x")
    ran = cli("show", "chat")
    assert ran.code == 1 and "python:chat-42, python:chat-43" in ran.err and "more of the id" in ran.err
    assert cli("show", "nothing").code == 1


def test_captured_text_cannot_reach_the_terminal_as_commands(sample: Keep, cli: Cli) -> None:
    """X1: escape sequences are shown, not executed."""
    out = cli("show", "chat-42").out
    assert "\x1b" not in out and "\x07" not in out and "\\x1b[31mred" in out


def test_lone_surrogates_survive_json_and_do_not_break_text(keep: Keep, cli: Cli) -> None:
    """W7"""
    keep.session("s").record("\ud800 odd", {"role": "assistant", "text": "x", "tool": {"n": float("nan")}})
    shown = cli("show", "s", "--json").json
    assert shown["messages"][0]["text"] == "\ud800 odd" and shown["messages"][1]["tool"] == {"n": "nan"}
    assert "odd" in cli("show", "s", environment={"PYTHONIOENCODING": "ascii"}).out


def test_the_lifecycle_by_hand(sample: Keep, cli: Cli) -> None:
    assert cli("suspend", "other", "--json").json["state"] == "suspended"
    assert cli("resume", "other", "--json").json["state"] == "active"
    ended = cli("end", "other", "--json").json
    assert ended["state"] == "ended" and ended["ended_at"]
    assert cli("end", "other", "--json").json == ended, "ending twice is ending once"
    refused = cli("suspend", "other")
    assert refused.code == 2 and "ended session" in refused.err and "Resume it first" in refused.err
    assert cli("resume", "other", "--json").json["ended_at"] is None


def test_delete_leaves_no_word_and_nothing_brings_it_back(sample: Keep, root: str, cli: Cli) -> None:
    """K2 K7"""
    sample.session("secret").record("xylophone", ("assistant", "xylophonist"))
    file = part(f"{root}/{folder_of('python:secret')}")
    with file.open("ab") as torn:
        torn.write(b'{"half":"xylophone')
    sample.session("secret").record("settles the tail")
    sample.search("xylophone")
    assert cli("delete", "secret", "--json").json["state"] == "deleted"
    left = [p for p in Path(root).rglob("*") if p.is_file() and b"xylophon" in p.read_bytes()]
    assert left == []
    assert cli("show", "secret").code == 1 and len(cli("sessions", "--json").json["sessions"]) == 2
    with pytest.raises(Exception, match="deleted"), Keep.open(root) as keep:
        keep.session("secret")
    assert cli("reindex", "--from-zero").code == 0 and cli("show", "secret").code == 1
    assert cli("undelete", "secr").code == 0
    with Keep.open(root) as keep:
        keep.session("secret").record("new life")
    assert [m["text"] for m in cli("show", "secret", "--json").json["messages"]] == ["new life"]
    assert cli("undelete", "nobody").code == 1


def test_status_and_doctor_say_what_is_here_and_what_is_wrong(sample: Keep, root: str, cli: Cli) -> None:
    status = cli("status", "--json").json
    assert (status["keep"], status["exists"], status["sessions"], status["turns"], status["messages"]) == (root, True, 2, 3, 5)
    assert cli("doctor").code == 0
    os.chmod(root, 0o755)
    Path(root, "OFF").touch()
    doctor = cli("doctor", "--json")
    bad = {c["check"]: c["next"] for c in doctor.json["checks"] if not c["ok"]}
    assert doctor.code == 1 and not doctor.json["ok"]
    assert bad == {"folder": f"chmod 700 {root}", "switch": f"rm {root}/OFF"}
    assert cli("status", "--json").json["off"] is True
    off = cli("doctor", "--json", environment={"DREAMKEEP_OFF": "1"}).json["checks"]
    assert "unset DREAMKEEP_OFF" in [c["next"] for c in off if not c["ok"]]


def test_search_by_words_alone_is_a_hint_and_no_fault(sample: Keep, cli: Cli) -> None:
    from importlib.util import find_spec

    told = [(c["ok"], "embed" in c["next"]) for c in cli("doctor", "--json").json["checks"] if c["check"] == "search"]
    assert told == ([] if find_spec("wordllama") else [(True, True)])


def test_doctor_finds_a_broken_index_and_says_how_to_mend_it(sample: Keep, root: str, cli: Cli) -> None:
    cli("status")
    Path(root, "index.sqlite").write_bytes(b"no database" * 100)
    ran = cli("doctor")
    assert ran.code == 1 and "dreamkeep reindex --from-zero" in ran.out
    assert cli("reindex", "--from-zero").code == 0 and cli("doctor").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nonsense"], 2),
        (["sessions", "--limit", "-5"], 2),
        (["sessions", "--limit", "0"], 2),
        (["sessions", "--limit", "1e9"], 2),
        (["show"], 2),
        (["show", "x", "--what"], 2),
        (["completion", "cmd"], 2),
        ([], 2),
        (["show", "x"], 1),
        (["delete", ""], 2),
        (["undelete", ""], 2),
        (["show", "\udcff"], 1),
        (["sessions", "--project", "\udcff"], 0),
        (["sessions", "--limit", "99999999999999999999"], 2),
        (["--keep", "", "status"], 2),
    ],
)
def test_bad_input_gets_its_exit_code_and_a_message(cli: Cli, words: list[str], code: int) -> None:
    """W13: negative and absurd numbers are refused before anything happens."""
    ran = cli(*words)
    assert ran.code == code and (ran.err or ran.out), ran
    assert "Traceback" not in ran.err


def test_a_bad_setting_is_named(sample: Keep, root: str, cli: Cli) -> None:
    """D4 D35"""
    Path(root, "keep.toml").write_text("[dream]\nsession_count = 0\n")
    ran = cli("status")
    assert ran.code == 2 and "dream.session_count" in ran.err and "keep.toml" in ran.err
    Path(root, "keep.toml").unlink()
    assert "DREAMKEEP_DREEM" in cli("status", environment={"DREAMKEEP_DREEM": "1"}).err


def test_a_keep_that_cannot_be_written_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from dreamkeep import Keep; Keep.open(sys.argv[1]).session('x')",
            str(tmp_path / "file"),
        ],
        capture_output=True,
        text=True,
    )
    assert "BadUsage: a keep is a folder, but this is a file" in done.stderr.splitlines()[-1]


def test_an_error_is_a_json_document_too(sample: Keep, root: str, cli: Cli) -> None:
    error = cli("show", "nobody", "--json").json["error"]
    assert "nobody" in error["what"] and error["next"]
    Path(root, "keep.toml").mkdir()
    assert "keep.toml must be a file" in cli("status", "--json").json["error"]["what"]


def test_text_of_one_line_stays_on_one_line(keep: Keep, cli: Cli) -> None:
    """X1: a title with a line feed does not make a session that is not there."""
    keep.session("s", title="real\npython:fake  active").record("x")
    assert len(cli("sessions").out.splitlines()) == 2


def test_output_cut_short_by_head_is_no_error(sample: Keep, root: str) -> None:
    for n in range(30):
        sample.session(f"many{n}").record("x" * 3000)
    done = subprocess.run(
        ["sh", "-c", '"$0" -m dreamkeep --keep "$1" sessions --json | head -c 10', sys.executable, root],
        capture_output=True,
        text=True,
    )
    assert done.stderr == "" and done.stdout == '{"sessions'


def test_help_names_every_verb_and_every_verb_has_help(cli: Cli) -> None:
    top = cli("--help").out
    for verb in (one.name for one in parser.VERBS):
        assert f"\n    {verb}" in top, verb
        assert cli(verb, "--help").code == 0
    assert cli("--version").out == f"dreamkeep {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_verbs(cli: Cli, shell: str) -> None:
    script = cli("completion", shell)
    assert script.code == 0 and "reindex" in script.out and "from-zero" in script.out
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=script.out, text=True).returncode == 0


def _modules(*words: str) -> set[str]:
    program = f"import sys; {words[0]}; print(chr(10).join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", program, *words[1:]], capture_output=True, text=True, check=True).stdout
    return set(out.split("\n"))


def test_importing_the_package_loads_no_third_party_module() -> None:
    loaded = {m.partition(".")[0] for m in _modules("import dreamkeep")} - {m.partition(".")[0] for m in _modules("pass")}
    assert loaded - sys.stdlib_module_names == {"dreamkeep"}


def test_status_on_an_indexed_keep_loads_only_what_it_needs(sample: Keep, root: str) -> None:
    """Starting is cheap: no JSON library but the standard one, no compression, no dataclasses."""
    sample.status()
    sample.close()
    Keep.open(root).status()
    call = "from dreamkeep.surfaces.cli import main; main(['--keep', sys.argv[1], 'status', '--json'])"
    loaded = _modules(call, root)
    assert "apsw" in loaded
    assert not loaded & {"dreamkeep.surfaces.cli.manual", "dreamkeep.index.words", "urllib.parse"}
    assert not loaded & {
        "textwrap",
        "shutil",
        "unicodedata",
        "orjson",
        "zstandard",
        "dataclasses",
        "inspect",
        "tomllib",
        "shtab",
        "ctypes",
        "asyncio",
        "pathlib",
    }


def test_json_is_one_document_and_nothing_else_on_stdout(sample: Keep, root: str, cli: Cli) -> None:
    os.remove(f"{root}/index.sqlite") if os.path.exists(f"{root}/index.sqlite") else None
    for words in (
        ["status"],
        ["sessions"],
        ["show", "chat-42"],
        ["reindex"],
        ["reindex", "--from-zero"],
        ["doctor"],
        ["end", "other"],
    ):
        ran = cli(*words, "--json")
        assert len(ran.out.splitlines()) == 1 and isinstance(json.loads(ran.out), dict)


def test_the_parser_of_one_verb_accepts_what_the_whole_parser_accepts() -> None:
    """Only what was typed is built; a name that is no verb is told by all."""
    whole = parser.parser()
    typed = ("--json show x --live", "--keep show status", "search a --limit 3", "dream why n")
    for words in map(str.split, typed):
        assert vars(parser.parser(parser.named(words)).parse_args(words)) == vars(whole.parse_args(words))
    assert parser.named(["--keep", "show"]) == "" and parser.named(["--json", "show", "x"]) == "show"
    assert parser.parser("nonsense").format_help() == whole.format_help()
