"""Records that could have been written by nobody, from names and words that a reader looks for. Seeded: a failure comes again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.contract import Reader

_ODDITIES: Sequence[Any] = (
    None,
    True,
    0,
    -1,
    1.5e300,
    10**30,
    "",
    "\0",
    "\ud800",
    "x" * 300,
    [],
    {},
    [[]],
    {"": None},
    [None, 1],
)


def record(random: Random, names: Sequence[str], words: Sequence[Any], depth: int = 4) -> dict[str, Any]:
    """An object with some of the names, and values that may be what they should be, or anything."""
    return {name: _value(random, names, words, depth) for name in random.sample(names, random.randint(1, min(8, len(names))))}


def _value(random: Random, names: Sequence[str], words: Sequence[Any], depth: int) -> Any:
    kind = random.random()
    if depth and kind < 0.3:
        return record(random, names, words, depth - 1)
    if depth and kind < 0.5:
        return [_value(random, names, words, depth - 1) for _ in range(random.randint(0, 3))]
    return random.choice(words) if kind < 0.85 else random.choice(_ODDITIES)


def damaged(random: Random, whole: str) -> str:
    """Cut short, with something else in it, or with two characters exchanged."""
    at = random.randrange(len(whole) + 1)
    other = random.randrange(len(whole) + 1)
    return random.choice((whole[:at], whole[:at] + random.choice('"[]{},:\\\0') + whole[at:], whole[:at] + whole[other:]))


def resumed(state: dict[str, Any]) -> dict[str, Any]:
    """The state as another process gets it."""
    found: dict[str, Any] = json.loads(json.dumps(state))
    return found


def changed(random: Random, value: Any, chance: float) -> Any:
    """The same, but that here and there, at any depth, something else stands instead."""
    if random.random() < chance:
        return random.choice((*_ODDITIES, "x", 10**18, {"type": []}))
    if isinstance(value, dict):
        return {key: changed(random, one, chance) for key, one in value.items()}
    return [changed(random, one, chance) for one in value] if isinstance(value, list) else value


def read_changed(
    make: Callable[[dict[str, Any]], Reader], lines: Iterable[str], *, seed: int, times: int, chance: float = 0.1
) -> None:
    """Reads the lines again and again, each time otherwise changed, going on from the state as JSON after each of them."""
    random = Random(seed)
    whole = [json.loads(line) for line in lines]
    for _ in range(times):
        reader = make({})
        for one in whole:
            data = changed(random, one, chance)
            list(reader.read(f.Record("file", data if isinstance(data, dict) else None, "?")))
            reader = make(resumed(reader.state))
