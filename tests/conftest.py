"""What many tests need: a keep in a fresh folder, a journal of three frames, the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dreamkeep import Keep
from tests.helpers.cli import Cli, Ran

# What an attack counted is printed at the end. pytest must know these hooks before it starts its workers.
from .attack.counts import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown  # noqa: F401

# A shell starts what it runs in the background with interrupts ignored, `nohup` with hang-ups, and children inherit that: no test
# could send them one.
for _signal, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _usual)

# How long something takes here says how busy the machine is, not whether the code is right.
settings.register_profile("noisy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noisy")


@pytest.fixture(scope="session")
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="session", autouse=True)
def _no_settings_for_what_several_tests_share() -> Iterator[None]:
    """Before the first test, and not only around each: a keep that a whole file uses is made before its first one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("DREAMKEEP_") and n != "DREAMKEEP_AGENTS"]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, _scratch: str) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", _scratch)  # where a hook complains that has no keep to complain in
    for name in [n for n in os.environ if n.startswith("DREAMKEEP_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "keep")


@pytest.fixture
def keep(root: str) -> Iterator[Keep]:
    with Keep.open(root) as opened:
        yield opened


@pytest.fixture
def cli(root: str) -> Cli:
    """The command line as a user has it: another process."""

    def run(*words: str, environment: dict[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "dreamkeep", "--keep", root, *words],
            capture_output=True,
            text=True,
            env={**os.environ, **(environment or {})},
            timeout=120,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
