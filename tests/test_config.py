"""Settings: file, then environment, then flags; what is unknown or absurd is named, never ignored."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dreamkeep.config import SETTINGS, keep_path, load, switched_off
from dreamkeep.errors import BadConfig, Unsupported


def test_every_default_passes_its_own_check() -> None:
    config = load(None, {})
    for key, setting in SETTINGS.items():
        if setting.default is not None and key != "capture.exclude":
            assert setting.check(setting.default) == config[key] == setting.default


def test_the_contracts_keys_and_defaults_are_there() -> None:
    config = load(None, {})
    expected: dict[str, Any] = {
        "dream.session_count": 5,
        "dream.time_hours": 24,
        "dream.backend": "rules",
        "dream.max_attempts": 5,
        "dream.loss_guard": 0.25,
        "hygiene.stale_hours": 24,
        "page.max_lines": 200,
        "page.max_bytes": 25600,
        "page.target": "MEMORY.md",
        "capture.exclude": (),
        "capture.scrape": True,
        "capture.redact_raw": False,
        "recall.redact": True,
        "retention.compress_days": 7,
        "retention.quota_mb": 0,
    }
    assert {key: config[key] for key in expected} == expected
    assert {"dream.max_calls", "dream.max_tokens", "dream.max_usd", "page.max_tokens"} <= set(SETTINGS)


def test_environment_beats_file_and_flags_beat_both() -> None:
    toml = b"[dream]\nsession_count = 7\ntime_hours = 2\nmax_attempts = 3\n"
    config = load(toml, {"DREAMKEEP_DREAM_SESSION_COUNT": "8", "DREAMKEEP_DREAM_TIME_HOURS": "3.5"}, {"dream.time_hours": 4})
    assert (config["dream.session_count"], config["dream.time_hours"], config["dream.max_attempts"]) == (8, 4, 3)
    assert load(None, {"DREAMKEEP_CAPTURE_SCRAPE": "off"})["capture.scrape"] is False
    assert load(None, {"DREAMKEEP_CAPTURE_EXCLUDE": os.pathsep.join(["/a", "/b"])})["capture.exclude"] == ("/a", "/b")


#: Of a page: they lead out of its folder, or name no file.
BAD_NAMES = (
    "'../../../out.md'",
    "'..'",
    "'.'",
    "''",
    "'a/b.md'",
    "'/x.md'",
    "'a\\b'",
    '"a\\nb"',
    '"\\u0000"',
    "7",
    f"'{'x' * 201}'",
)


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[dream]\nsession_count = 0", "dream.session_count"),
        ("[dream]\nsession_count = -1", "dream.session_count"),
        ("[dream]\nsession_count = 999999999", "dream.session_count"),
        ("[dream]\nsession_count = true", "dream.session_count"),
        ("[dream]\nsession_count = 'many'", "dream.session_count"),
        ("[dream]\nsession_count = 1.5", "dream.session_count"),
        ("[dream]\ntime_hours = nan", "dream.time_hours"),
        ("[dream]\nbackend = 'magic'", "dream.backend"),
        ("[dream]\ntypo = 1", "dream.typo"),
        ("[dreams]\nsession_count = 1", "dreams.session_count"),
        ("session_count = 1", "session_count"),
        ("[capture]\nexclude = 'x'\nscrape = 'maybe'", "capture.scrape"),
        *((f"[page]\ntarget = {name}", "page.target") for name in BAD_NAMES),
        ("[retention]\nquota_mb = -1", "retention.quota_mb"),
        ("[retention]\nquota_mb = 'all'", "retention.quota_mb"),
        ("[retention]\nquota_mb = true", "retention.quota_mb"),
        ("not toml at all", "TOML"),
    ],
)
def test_a_bad_setting_is_an_error_that_names_it(toml: str, named: str) -> None:
    """D4 D35: an unknown backend's name never becomes another."""
    with pytest.raises(BadConfig, match=named.replace(".", r"\.")) as caught:
        load(toml.encode(), {}, where="keep.toml")
    assert caught.value.where == "keep.toml" and caught.value.next and caught.value.exit_code == 2


def test_an_unknown_variable_is_an_error_that_names_it() -> None:
    with pytest.raises(BadConfig, match="DREAMKEEP_DREAM_SESION_COUNT"):
        load(None, {"DREAMKEEP_DREAM_SESION_COUNT": "1"})
    load(None, {"DREAMKEEP_KEEP": "/x", "DREAMKEEP_OFF": "1", "PATH": "/bin"})


def test_the_keep_is_the_flag_then_the_variable_then_the_data_folder() -> None:
    assert keep_path("/a", {"DREAMKEEP_KEEP": "/b", "HOME": "/h"}, "linux") == "/a"
    assert keep_path(None, {"DREAMKEEP_KEEP": "/b", "HOME": "/h"}, "linux") == "/b"
    assert keep_path(None, {"HOME": "/h"}, "linux") == "/h/.local/share/dreamkeep"
    assert keep_path(None, {"HOME": "/h", "XDG_DATA_HOME": "/d"}, "linux") == "/d/dreamkeep"
    assert keep_path(None, {"HOME": "/h"}, "darwin") == "/h/Library/Application Support/dreamkeep"
    assert keep_path("file:///x/y", {}, "linux") == "/x/y"


def test_the_data_folder_is_the_one_platformdirs_names(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    for value in ("", "/somewhere"):
        monkeypatch.setenv("XDG_DATA_HOME", value)
        assert keep_path(None, dict(os.environ), sys.platform) == platformdirs.user_data_dir("dreamkeep")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://host/db", Unsupported),
        ("mysql://host/db", BadConfig),
        ("sqlite://x", BadConfig),
        ("s3://bucket", BadConfig),
        ("a\0b", BadConfig),
    ],
)
def test_an_unknown_store_never_becomes_a_folder(url: str, kind: type[Exception]) -> None:
    """D35"""
    with pytest.raises(kind):
        keep_path(url, {}, "linux")


def test_off_means_off() -> None:
    says: Callable[[str], bool] = lambda value: switched_off({"DREAMKEEP_OFF": value})  # noqa: E731
    assert says("1") and says("yes") and not says("0") and not says("") and not switched_off({})


@pytest.mark.parametrize("said", ['claude -p "two words"', '["claude", "-p", "two words"]'])
def test_a_command_in_a_variable_is_typed_as_in_a_shell_or_as_in_the_file(said: str) -> None:
    assert load(None, {"DREAMKEEP_DREAM_MODEL_COMMAND": said})["dream.model.command"] == ("claude", "-p", "two words")


@pytest.mark.parametrize("said", ['["claude"', '[["claude"]]', "'claude"])
def test_a_command_that_is_none_is_named(said: str) -> None:
    with pytest.raises(BadConfig, match=r"`dream\.model\.command` must be a command: a list of strings"):
        load(None, {"DREAMKEEP_DREAM_MODEL_COMMAND": said})
