"""What surfaces need without an open keep."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamkeep.verbs.access import AccessToken


def run_hook(words: Sequence[str], keep: str = "") -> None:
    """One call of an agent's hook, in this process."""
    from dreamkeep.capture import hook

    hook.main(list(words), keep)


def run_untapped(command: Sequence[str]) -> int:
    """Become that program. Returns, with an exit code, only if it can't be started."""
    from dreamkeep.capture.tap import tap

    return tap.become(command, os.environ)


def find_http_token(where: str | None) -> AccessToken:
    """What clients of this keep must send over HTTP. Works also where the keep itself can't be opened."""
    from dreamkeep import config
    from dreamkeep.host import RealHost
    from dreamkeep.verbs.access import access_token

    return access_token(RealHost(), config.keep_path(where, os.environ, sys.platform), os.environ)


def mask_secrets(text: str) -> str:
    """A message of ours as it may be printed: it may quote what somebody typed, or what a file says."""
    from dreamkeep.secrets.redact import redact

    return redact(text)[0]
