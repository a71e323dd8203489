"""What the rules know of words, as data: `data/*.toml`, read once and compiled. Patterns know no apostrophes: see `plain`.

A pattern may name others in braces, which stand in `[words]` of the same file. Patterns are only ever put to one sentence or one
line, both of bounded length, so that what a pattern costs is bounded, too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

_NAMED = re.compile(r"\{([a-z_]+)\}")
#: `plain` words are in lower case, but for CODE and QUOTED: to look at case once more costs a third of the time.
_LOWER = 0


class Rule(NamedTuple):
    """A sentence that `pattern` finds, and `unless` does not, is a `type`. `despite`: vetoes that do not count for it."""

    name: str
    type: str
    sure: float
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None
    despite: frozenset[str]
    #: Not in the first prompt of a session, which tells what is to be done.
    later: bool = False
    #: A second sign without which the first is too little.
    needs: re.Pattern[str] | None = None


@cache
def table(name: str) -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("data", f"{name}.toml").read_text(encoding="utf-8"))


def spelled(pattern: str, words: Mapping[str, str]) -> str:
    """With every name in braces replaced by what it stands for; names may stand in names."""
    for _ in range(4):
        pattern = _NAMED.sub(lambda found: f"(?:{words[found[1]]})", pattern)
    return pattern


def any_of(patterns: Iterable[str], words: Mapping[str, str] | None = None, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{spelled(one, words or {})})" for one in patterns), flags)


@cache
def rules() -> tuple[Rule, ...]:
    said = table("said")
    words = said["words"]
    return tuple(
        Rule(
            one["name"],
            one["type"],
            float(one["sure"]),
            any_of(one["any"], words, _LOWER),
            any_of(one["unless"], words, _LOWER) if "unless" in one else None,
            frozenset(one.get("despite", ())),
            bool(one.get("later")),
            any_of(one["needs"], words, _LOWER) if "needs" in one else None,
        )
        for one in said["rule"]
    )


@cache
def vetoes() -> Mapping[str, tuple[re.Pattern[str], re.Pattern[str] | None]]:
    said = table("said")
    words = said["words"]
    return {
        name: (any_of(one["any"], words, _LOWER), any_of(one["unless"], words, _LOWER) if "unless" in one else None)
        for name, one in said["veto"].items()
    }


@cache
def pattern(file: str, part: str, name: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """One list of patterns as one."""
    found = table(file)
    return any_of(found[part][name], found.get("words"), flags)


@cache
def each(file: str, part: str, name: str) -> tuple[re.Pattern[str], ...]:
    """The same, one by one, in order."""
    return tuple(any_of((one,)) for one in table(file)[part][name])


@cache
def names(file: str, part: str, name: str) -> frozenset[str]:
    return frozenset(table(file)[part][name])
