"""The command line as tests call it: what one call gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


#: The fixture `cli`: the words of a command, and what is in the environment for it.
Cli = Callable[..., Ran]
