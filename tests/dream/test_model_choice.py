"""`dreamkeep model`: finds what could be asked, says what it costs, and asks nobody until the user says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture.setup import tomledit
from dreamkeep.dream.backends.api import Usage
from dreamkeep.dream.backends.model import at_hand
from dreamkeep.dream.backends.model.budget import DayLimit, Prices, TokenBudget
from dreamkeep.dream.backends.model.requests import OURS
from dreamkeep.errors import BadConfig, BadUsage, OverBudget
from dreamkeep.host import RealHost
from tests.helpers import loopback
from tests.helpers.answers import answer, kind_of, talk
from tests.paths import ROOT

KEY = "sk-" + "q7W" * 12
LINTER = "always run the linter before a commit"


class Later(RealHost):
    def __init__(self, days: float) -> None:
        self._ns = int(days * 86_400 * 1_000_000_000)

    def now(self) -> int:
        return super().now() + self._ns


class Server(loopback.Server):
    """A server of models, as Ollama is one."""

    def __init__(self, models: Any = ({"id": "small:1b"},)) -> None:
        super().__init__(_Handler)
        self.models, self.asked, self.posted = models, list[str](), list[bytes]()


class _Handler(loopback.Handler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send(json.dumps({"object": "list", "data": self.server.models}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append(body)
        system, user = (one["content"] for one in json.loads(body)["messages"])
        found = json.dumps(answer({"kind": kind_of(system), "user": user}))
        message = {"message": {"role": "assistant", "content": found}, "finish_reason": "stop"}
        self.send(json.dumps({"choices": [message], "usage": {"prompt_tokens": 50_000, "completion_tokens": 100}}).encode())


def serving(models: Any = ({"id": "small:1b"},)) -> AbstractContextManager[Server]:
    return loopback.serving(Server(models))


def at(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ollama is looked for, it answers; nobody else does."""
    monkeypatch.setattr(at_hand, "PORTS", {"ollama": server.server_address[1]})


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on the machine that tests."""
    monkeypatch.setattr(at_hand, "PORTS", {})


def program(folder: Path, name: str, words: str = "pass") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{sys.executable}\n{words}\n")
    (folder / name).chmod(0o755)


def opened(root: Path, environment: Mapping[str, str] | None = None, host: Any = None) -> Keep:
    return Keep.open(root, environment=environment or {}, host=host)


# -- what is found


def test_agents_programs_are_found_on_the_path_and_keys_by_their_variable(tmp_path: Path) -> None:
    for name in ("claude", "codex", "gemini", "qwen", "opencode"):
        program(tmp_path / "bin", name)
    (tmp_path / "bin" / "codex").chmod(0o644)
    environment = {"PATH": f"relative:{tmp_path}/none:{tmp_path}/bin", "ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": " "}
    with opened(tmp_path / "k", environment) as keep:
        told = keep.model()
    assert [one["name"] for one in told["found"]] == ["claude", "gemini", "qwen", "opencode", "anthropic"]
    assert told["backend"] == "rules" and KEY not in json.dumps(told)
    assert not (tmp_path / "k").exists(), "looking makes nothing"


def test_a_server_on_this_machine_is_asked_only_for_the_names_of_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(tmp_path / "k", "a", LINTER)
    with serving(({"id": "small:1b"}, {"id": 7}, {"id": "bad\nname"}, {"id": "large"})) as server:
        at(server, monkeypatch)
        with opened(tmp_path / "k") as keep:
            [found] = keep.model()["found"]
        assert found["name"] == "ollama" and found["models"] == ("small:1b", "large") and found["stays"]
        assert (server.asked, server.posted) == (["/v1/models"], [])


@pytest.mark.parametrize("models", ["x", None, 5, {"id": "a"}, ["a", None, []]])
def test_who_answers_like_no_server_of_models_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: Any
) -> None:
    with serving(models) as server:
        at(server, monkeypatch)
        with opened(tmp_path / "k") as keep:
            assert [one for one in keep.model()["found"] if one["models"]] == []


def test_each_agents_program_is_told_to_use_no_tools_and_to_keep_no_session_where_it_can() -> None:
    flags = at_hand.commands()
    assert flags["claude"][flags["claude"].index("--tools") + 1] == "" and "--no-session-persistence" in flags["claude"]
    assert "--ephemeral" in flags["codex"] and "read-only" in flags["codex"] and flags["codex"][-1] == "-"
    assert "--chat-recording=false" in flags["qwen"] and "none" in flags["gemini"]
    assert OURS in flags["opencode"], "what it keeps is known as ours, and is never dreamed of"


# -- the user's yes


def test_an_agents_program_dreams_once_it_is_chosen_and_our_hooks_are_off_in_it(tmp_path: Path) -> None:
    """A program in its place: it is run as the agent would be, and answers as the agent would."""
    root, bin = tmp_path / "k", tmp_path / "bin"
    seen = tmp_path / "seen"
    words = f"""
import json, os, sys
sys.path[:0] = {[str(ROOT)]!r}
from tests.helpers.answers import answer, kind_of
text = sys.stdin.read()
told = {{"off": os.environ.get("DREAMKEEP_OFF"), "dreaming": os.environ.get("DREAMKEEP_DREAMING"), "words": sys.argv[1:]}}
with open({str(seen)!r}, "a") as file:
    print(json.dumps(told), file=file)
found = answer({{"kind": kind_of(text), "user": text}})
usage = {{"input_tokens": 2000, "output_tokens": 100}}
print(json.dumps({{"type": "result", "is_error": False, "result": json.dumps(found), "usage": usage, "total_cost_usd": 0.01}}))
"""
    program(bin, "claude", words)
    talk(root, "a", LINTER)
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
    with opened(root, environment) as keep:
        assert not seen.exists() and keep.model()["backend"] == "rules"
        told = keep.model_use("claude")
        assert told["backend"] == "command" and not seen.exists(), "choosing sends nothing"
    with opened(root, environment) as keep:
        assert keep.dream()["status"] == "completed"
        assert [note["text"] for note in keep.notes()] == ["Always run the linter before a commit"]
        spent = keep.model()["caps"]["spent_today"]
        assert spent["calls"] >= 2 and spent["usd"] == pytest.approx(0.01 * spent["calls"])
    runs = [json.loads(line) for line in seen.read_text().splitlines()]
    assert all(one["off"] == one["dreaming"] == "1" and one["words"] == list(at_hand.commands()["claude"][1:]) for one in runs)


def test_a_local_server_dreams_once_it_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "k"
    talk(root, "a", LINTER)
    with serving() as server:
        at(server, monkeypatch)
        with opened(root) as keep:
            assert keep.dream_status() and keep.model_use("ollama")["model"] == "small:1b"
            assert server.posted == []
        with opened(root) as keep:
            assert keep.dream()["status"] == "completed" and server.posted
            assert [note["text"] for note in keep.notes()] == ["Always run the linter before a commit"]


def test_what_is_not_there_or_not_named_whole_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "claude")
    environment = {"PATH": str(tmp_path / "bin"), "OPENAI_API_KEY": KEY}
    with serving(({"id": "one"}, {"id": "two"})) as server:
        at(server, monkeypatch)
        with opened(tmp_path / "k", environment) as keep:
            for what in ("codex", "", "openai", "ollama", "ollama:three", "claude:opus", "anthropic:x"):
                with pytest.raises(BadUsage):
                    keep.model_use(what)
    assert not (tmp_path / "k").exists()


OWN = """# my settings
[page]
max_lines = 90  # short

[dream]
# often
session_count = 3

[dream.model]
url = "http://127.0.0.1:9"
model = "old"
price_in = 1.0
price_out = 2.0
retries = 1
"""


def test_every_other_byte_of_the_settings_stays_and_no_key_is_written(tmp_path: Path) -> None:
    root = tmp_path / "k"
    root.mkdir()
    (root / "keep.toml").write_text(OWN)
    with opened(root, {"ANTHROPIC_API_KEY": KEY}) as keep:
        told = keep.model_use("anthropic:a-model")
        assert (told["backend"], told["model"]) == ("anthropic", "a-model")
    text = (root / "keep.toml").read_text()
    left = [line for line in OWN.splitlines() if not line.startswith(("url", "model", "price"))]
    assert [line for line in text.splitlines() if line in left] == left and KEY not in text
    assert "http://127.0.0.1:9" not in text, "a vendor's sessions would go to the old address"
    assert "price_in" not in text, "another model has other prices"
    with opened(root, {"ANTHROPIC_API_KEY": KEY}) as keep:
        assert keep.config["dream.session_count"] == 3 and keep.config["dream.max_tokens_per_day"] == 2_000_000
        assert keep.model_off()["backend"] == "rules"
    with opened(root) as keep:
        assert keep.config["dream.backend"] == "rules" and keep.config["dream.model.model"] == "a-model"


def test_prices_stay_where_the_same_model_is_chosen_again(tmp_path: Path) -> None:
    environment = {"ANTHROPIC_API_KEY": KEY}
    with opened(tmp_path / "k", environment) as keep:
        keep.model_use("anthropic:a-model")
    path = tmp_path / "k" / "keep.toml"
    path.write_text(f"{path.read_text()}price_in = 3.0\nprice_out = 15.0\n")
    with opened(tmp_path / "k", environment) as keep:
        keep.model_use("anthropic:a-model")
        assert keep.config["dream.model.price_in"] == 3.0


@pytest.mark.parametrize("text", ['dream.backend = "rules"\n', "dream = {session_count = 3}\n"])
def test_settings_that_can_not_be_changed_safely_stay_as_they_are(tmp_path: Path, text: str) -> None:
    root = tmp_path / "k"
    root.mkdir()
    (root / "keep.toml").write_text(text)
    with opened(root, {"ANTHROPIC_API_KEY": KEY}) as keep, pytest.raises(BadConfig, match="by hand"):
        keep.model_use("anthropic:a-model")
    assert (root / "keep.toml").read_text() == text


def test_a_variable_that_says_something_else_is_told_instead_of_writing_in_vain(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "k", {"ANTHROPIC_API_KEY": KEY, "DREAMKEEP_DREAM_BACKEND": "rules"}) as keep,
        pytest.raises(BadConfig, match="variable"),
    ):
        keep.model_use("anthropic:a-model")
    assert not (tmp_path / "k").exists()


def test_entries_go_from_a_table_and_nothing_else_does() -> None:
    text = '[a]\nx = 1\n\n[a.b]\n# why\nurl = """\nlong\n"""\nkeep = 2 # yes\n[c]\nurl = 3\n'
    assert tomledit.unset(text, ("a", "b"), ["url", "none"]) == "[a]\nx = 1\n\n[a.b]\n# why\nkeep = 2 # yes\n[c]\nurl = 3\n"
    assert tomledit.unset(text, ("d",), ["url"]) == text
    assert tomledit.put("[a.b]\nx = 1\n", ("a",), {"y": 2}) == "[a.b]\nx = 1\n\n[a]\ny = 2\n"


# -- what it costs


def test_the_estimate_counts_the_finished_sessions_of_thirty_days_and_their_price(tmp_path: Path) -> None:
    root = tmp_path / "k"
    talk(root, "a", LINTER, "thanks " * 100)
    talk(root, "open", LINTER, end=False)
    (root / "keep.toml").write_text("[dream.model]\nprice_in = 3.0\nprice_out = 15.0\n")
    with opened(root) as keep:
        size = keep.model()["estimate"]
        assert (size["days"], size["sessions"]) == (30, 1) and size["tokens"] >= 100
        assert size["tokens_in"] > size["tokens"] and size["usd"] == pytest.approx(
            Prices(3.0, 15.0).of(size["tokens_in"], size["tokens_out"]), abs=1e-4
        )
    with opened(root, host=Later(31)) as keep:
        assert keep.model()["estimate"]["sessions"] == 0
    (root / "keep.toml").unlink()
    with opened(root) as keep:
        assert keep.model()["estimate"]["usd"] is None, "what nobody knows is not guessed"


def test_what_was_estimated_is_not_less_than_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "k"
    for n in range(4):
        talk(root, f"s{n}", LINTER, "and now the other thing " * 40, cwd=f"/p{n}")
    with serving() as server:
        at(server, monkeypatch)
        with opened(root) as keep:
            told = keep.model_use("ollama")["estimate"]
        with opened(root) as keep:
            keep.dream()
        asked = sum(len(one) for one in server.posted) // 4
        assert len(server.posted) <= 3 * told["sessions"] and asked <= 1.2 * told["tokens_in"]


# -- a limit a day


def test_a_limit_a_day_counts_the_runs_of_the_last_24_hours_and_only_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "k"
    talk(root, "a", LINTER)
    with serving() as server:
        at(server, monkeypatch)
        with opened(root) as keep:
            keep.model_use("ollama")
        with opened(root) as keep:
            keep.dream()
            spent = keep.model()["caps"]["spent_today"]
        assert spent["tokens_in"] == 50_000 * spent["calls"] > 0
        path = root / "keep.toml"
        path.write_text(path.read_text().replace("2000000", str(spent["tokens_in"])))
        talk(root, "b", "never push to main")
        asked = len(server.posted)
        with opened(root) as keep, pytest.raises(OverBudget, match="max_tokens_per_day"):
            keep.dream()
        assert len(server.posted) == asked, "nothing was asked"
        with opened(root, host=Later(1.01)) as keep:
            assert keep.dream()["status"] == "completed"


def test_a_limit_of_a_day_that_ends_in_a_run_puts_sessions_off_and_blames_none() -> None:
    budget = TokenBudget(day=DayLimit(tokens=1000, spent=Usage(1, 500, 100)))
    budget.set_aside(Usage(1, 300, 0))
    with pytest.raises(OverBudget) as told:
        budget.set_aside(Usage(1, 200, 0))
    assert told.value.today and not told.value.never and "max_tokens_per_day" in str(told.value)
    with pytest.raises(OverBudget) as told:
        TokenBudget(day=DayLimit(usd=0.1)).set_aside(Usage(1, 0, 0, 0.2))
    assert told.value.never


def test_a_limit_of_a_day_below_one_call_is_an_error_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "k"
    talk(root, "a", LINTER)
    with serving() as server:
        at(server, monkeypatch)
        with opened(root) as keep:
            keep.model_use("ollama")
        with opened(root, {"DREAMKEEP_DREAM_MAX_TOKENS_PER_DAY": "10"}) as keep, pytest.raises(BadConfig, match="per_day"):
            keep.dream()
        with opened(root, {"DREAMKEEP_DREAM_MAX_USD_PER_DAY": "1"}) as keep, pytest.raises(BadConfig, match="price"):
            keep.dream()


# -- old sessions again


def test_what_rules_have_read_can_be_read_again_with_a_model_and_once_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, words = tmp_path / "k", "never use tabs in this repository"
    talk(root, "a", words, "thanks")
    with opened(root) as keep:
        keep.dream()
        with pytest.raises(BadUsage, match="only a model"):
            keep.dream(again=True)
        with pytest.raises(BadUsage):
            keep.dream(since="2026-01-01")
    with serving() as server:
        at(server, monkeypatch)
        with opened(root) as keep:
            assert keep.model_use("ollama")["estimate"]["again"]["sessions"] == 1
        with opened(root) as keep:
            assert keep.dream()["considered"] == 0 and server.posted == []
            assert keep.dream(again=True, dry_run=True)["estimate"]["sessions"] == 1 and server.posted == []
            assert keep.dream(again=True, since="2999-01-01")["considered"] == 0
            made = keep.dream(again=True)
            assert (made["considered"], made["processed"]) == (1, 1) and server.posted
            before = sorted((note["id"], note["text"]) for note in keep.notes())
            again = keep.dream(again=True, sessions=["a"])
            assert again["processed"] == 1 and again["insights_added"] == 0
            assert sorted((note["id"], note["text"]) for note in keep.notes()) == before and before
            assert keep.dream_status()["sessions"][0]["eligibility"] == "already_consolidated"
            assert keep.model()["estimate"]["again"]["sessions"] == 0


# -- on the command line


def cli(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": ":".join(filter(None, sys.path)), "HOME": str(root.parent), "PATH": str(root.parent / "bin")}
    command = [sys.executable, "-P", "-m", "dreamkeep", "--keep", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**paths, **environment})


def test_the_command_says_what_it_would_cost_and_never_a_key(tmp_path: Path) -> None:
    root = tmp_path / "k"
    talk(root, "a", LINTER)
    shown = cli(root, "model", OPENAI_API_KEY=KEY)
    assert shown.returncode == 0 and "1 finished session" in shown.stdout and "openai" in shown.stdout, shown
    assert "Nothing is sent until you choose one" in shown.stdout
    used = cli(root, "model", "use", "openai:a-model", OPENAI_API_KEY=KEY)
    assert used.returncode == 0 and used.stdout.index("1 finished session") < used.stdout.index("Dreams use: openai")
    assert "max_tokens_per_day" in used.stdout and "dreamkeep model off" in used.stdout
    assert KEY not in shown.stdout + shown.stderr + used.stdout + used.stderr + (root / "keep.toml").read_text()
    told = json.loads(cli(root, "model", "--json", OPENAI_API_KEY=KEY).stdout)
    assert set(told) >= {"backend", "found", "estimate", "caps"} and told["backend"] == "openai"
    assert cli(root, "model", "use").returncode == 2 and cli(root, "model", "off", "x").returncode == 2
    assert cli(root, "model", "off").returncode == 0


def test_init_ends_with_one_line_about_models_and_asks_nobody(tmp_path: Path) -> None:
    program(tmp_path / "bin", "claude", "open('started', 'w')")
    (tmp_path / ".claude").mkdir()
    done = cli(tmp_path / "k", "init", "--agent", "claude")
    assert done.returncode == 0, done
    last = done.stdout.strip().splitlines()[-1]
    assert "dreamkeep model" in last and "claude" in last
    assert "dreamkeep model" not in cli(tmp_path / "k", "init", "--agent", "claude", "--uninstall").stdout
    assert not list(tmp_path.rglob("started"))
