"""One frozen Config, read once: defaults, then `keep.toml` in the keep, then `DREAMKEEP_*` variables, then flags.

An unknown key or a value out of range is an error that names it: a setting that is silently ignored is worse than none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dreamkeep.errors import BadConfig, Unsupported

PREFIX = "DREAMKEEP_"
#: Variables that are not settings of a keep.
_OTHER_VARIABLES = frozenset(("DREAMKEEP_KEEP", "DREAMKEEP_OFF", "DREAMKEEP_DREAMING", "DREAMKEEP_TOKEN"))
BACKENDS = ("rules", "openai", "anthropic", "command")

Check = Callable[[Any], Any]


def _number(kind: type[int] | type[float], low: float, high: float) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = kind(value)
            except ValueError:
                pass  # refused below
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not low <= value <= high:
            raise ValueError(f"must be a number from {low:g} to {high:g}")
        return kind(value)

    return check


def _flag(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a string")
    return value


def _file_name(value: Any) -> str:
    """A file name that leads to no other folder. 200 bytes leave room for the suffix that it has while it is written."""
    name = _text(value)
    if name in (".", "..") or any(sign in "/\\" or not sign.isprintable() for sign in name) or len(name.encode()) > 200:
        raise ValueError("must be a file name without a path, of at most 200 bytes")
    return name


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(os.pathsep) if part]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _backend(value: Any) -> str:
    if value not in BACKENDS:
        raise ValueError(f"must be one of {', '.join(BACKENDS)}")
    return str(value)


def _url(value: Any) -> str:
    from urllib.parse import urlsplit

    try:
        found = urlsplit(_text(value))
        sound = found.scheme in ("http", "https") and found.hostname and found.port != 0
    except ValueError:
        sound = False  # a bad port; the exception's own text would repeat it
    if not sound:
        raise ValueError("must be a URL that begins with https:// or http://")
    if found.username is not None or found.query or found.fragment:
        raise ValueError("must have no user, password or query: put the key in an environment variable (dream.model.key_env)")
    return str(value)


def _variable(value: Any) -> str:
    """The name of a variable. If somebody writes the key itself here, the error does not repeat it."""
    import re

    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", value):
        raise ValueError("must be the name of an environment variable, never the key itself")
    return value


def _words(value: Any) -> tuple[str, ...]:
    """A command: as a list, as in keep.toml, or as one text that is split like in a shell."""
    if isinstance(value, str):
        value = _typed(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) and "\0" not in word for word in value):
        raise ValueError("must be a command: a list of strings")
    return tuple(value)


def _typed(value: str) -> Any:
    import json
    import shlex

    try:
        return json.loads(value) if value.lstrip().startswith("[") else shlex.split(value)
    except (ValueError, RecursionError):
        return None


class Setting(NamedTuple):
    """`private`: an error does not repeat a wrong value, because it may be a key in the wrong place."""

    default: Any
    check: Check
    private: bool = False


_MANY = 10**9
SETTINGS: Mapping[str, Setting] = {
    "dream.session_count": Setting(5, _number(int, 1, 10_000)),
    "dream.time_hours": Setting(24.0, _number(float, 0.01, 24 * 365)),
    "dream.backend": Setting("rules", _backend),
    "dream.max_attempts": Setting(5, _number(int, 1, 1000)),
    "dream.max_calls": Setting(None, _number(int, 1, _MANY)),
    "dream.max_tokens": Setting(None, _number(int, 1, _MANY)),
    "dream.max_usd": Setting(None, _number(float, 0.0, 1e6)),
    "dream.max_tokens_per_day": Setting(None, _number(int, 1, _MANY)),
    "dream.max_usd_per_day": Setting(None, _number(float, 0.0, 1e6)),
    "dream.auto": Setting(True, _flag),
    "dream.loss_guard": Setting(0.25, _number(float, 0.0, 1.0)),
    "dream.model.url": Setting(None, _url, private=True),
    "dream.model.model": Setting(None, _text),
    "dream.model.key_env": Setting(None, _variable, private=True),
    "dream.model.command": Setting((), _words, private=True),
    "dream.model.timeout_s": Setting(120.0, _number(float, 0.1, 3600)),
    "dream.model.retries": Setting(3, _number(int, 0, 20)),
    "dream.model.chunk_tokens": Setting(20_000, _number(int, 500, 1_000_000)),
    "dream.model.max_output": Setting(4096, _number(int, 64, 200_000)),
    "dream.model.price_in": Setting(None, _number(float, 0.0, 10_000.0)),
    "dream.model.price_out": Setting(None, _number(float, 0.0, 10_000.0)),
    "hygiene.stale_hours": Setting(24.0, _number(float, 0.01, 24 * 365)),
    "page.max_lines": Setting(200, _number(int, 1, 1_000_000)),
    "page.max_bytes": Setting(25_600, _number(int, 256, 1 << 30)),
    "page.max_tokens": Setting(None, _number(int, 1, _MANY)),
    "page.target": Setting("MEMORY.md", _file_name),
    "capture.exclude": Setting((), _texts),
    "capture.scrape": Setting(True, _flag),
    "capture.redact_raw": Setting(False, _flag),
    "capture.expansion": Setting(200.0, _number(float, 0.0, _MANY)),
    "capture.source_mb_per_day": Setting(2048.0, _number(float, 0.0, _MANY)),
    "capture.reserve_mb": Setting(None, _number(float, 0.0, _MANY)),
    "recall.redact": Setting(True, _flag),
    "recall.budget": Setting(2_000, _number(int, 100, 200_000)),
    "retention.compress_days": Setting(7.0, _number(float, 0.0, 36_500)),
    "retention.quota_mb": Setting(0.0, _number(float, 0.0, _MANY)),
}


class Config:
    """`config["dream.session_count"]`; what is not set has its default. Read once, never changed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]


def load(
    toml: bytes | None, environment: Mapping[str, str], flags: Mapping[str, Any] | None = None, *, where: str = ""
) -> Config:
    """`toml`: the bytes of keep.toml, None when there is none."""
    values = {key: setting.default for key, setting in SETTINGS.items()}
    for key, value in _from_toml(toml, where).items():
        values[key] = _checked(key, value, where)
    for key, (variable, value) in _from_environment(environment).items():
        values[key] = _checked(key, value, variable)
    for key, value in (flags or {}).items():
        values[key] = _checked(key, value, "the command line")
    return Config(values)


def _checked(key: str, value: Any, where: str) -> Any:
    setting = SETTINGS.get(key)
    if setting is None:
        raise BadConfig(f"unknown setting `{key}`", where=where, next=f"Known settings: {', '.join(SETTINGS)}.")
    try:
        return setting.check(value)
    except (ValueError, TypeError) as problem:
        given = "" if setting.private else f", not {value!r}"
        raise BadConfig(f"`{key}` {problem}{given}", where=where, next="Correct it or remove it.") from (
            None if setting.private else problem
        )


def _from_toml(toml: bytes | None, where: str) -> dict[str, Any]:
    if toml is None:
        return {}
    import tomllib

    try:
        tables = tomllib.loads(toml.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadConfig(f"not valid TOML ({problem})", where=where, next="Correct it. The file was not changed.") from problem
    found = {}
    for section, entries in tables.items():
        if not isinstance(entries, dict):
            raise BadConfig(f"`{section}` must be a table", where=where, next=f"Write [{section}] above its keys.")
        found.update(_flat(section, entries))
    return found


def _flat(section: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """`{"dream.model.url": …}` from nested tables."""
    found = {}
    for key, value in entries.items():
        if isinstance(value, dict):
            found.update(_flat(f"{section}.{key}", value))
        else:
            found[f"{section}.{key}"] = value
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = {PREFIX + key.upper().replace(".", "_"): key for key in SETTINGS}
    found = {}
    for variable, value in environment.items():
        if variable in names:
            found[names[variable]] = (variable, value)
        elif variable.startswith(PREFIX) and variable not in _OTHER_VARIABLES:
            raise BadConfig(f"no setting belongs to `{variable}`", where="environment", next="Unset it, or correct its name.")
    return found


def keep_path(given: str | None, environment: Mapping[str, str], platform: str) -> str:
    """Where the keep is: the flag, else DREAMKEEP_KEEP, else the user's data folder."""
    if given == "":
        raise BadConfig("the path is empty", where="--keep", next="Name a folder, or leave it out to use the default one.")
    where = given or environment.get("DREAMKEEP_KEEP") or _data_folder(environment, platform)
    scheme, found, rest = where.partition("://")
    if found and scheme == "file":
        where = rest
    elif found and scheme in ("postgresql", "postgres"):
        raise Unsupported("keeps on PostgreSQL are not supported yet", where=f"{scheme}://…", next="Name a folder instead.")
    elif found:
        raise BadConfig(f"a keep can't be at `{scheme}://…`", where="--keep", next="Name a folder.")
    if "\0" in where:
        raise BadConfig("a path can't contain a NUL character", where="--keep", next="Name a folder.")
    return os.path.abspath(os.path.expanduser(where))


def _data_folder(environment: Mapping[str, str], platform: str) -> str:
    """As `platformdirs` finds it (a test compares them), without its 27 ms of import at every start."""
    home = environment.get("HOME") or os.path.expanduser("~")
    if platform == "darwin":
        return f"{home}/Library/Application Support/dreamkeep"
    base = environment.get("XDG_DATA_HOME", "").strip()
    return f"{base or home + '/.local/share'}/dreamkeep"


def switched_off(environment: Mapping[str, str]) -> bool:
    return environment.get("DREAMKEEP_OFF", "") not in ("", "0")
