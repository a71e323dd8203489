"""Our own packs in agents' records: recognised by their mark, and cut out of what is to be learned. Pure.

    <!-- dreamkeep:pack v1 -->          as a hook prints it, and as Claude, Codex, Copilot, Hermes, Kimi and OpenCode write it
    down &lt;!-- dreamkeep:pack v1 --&gt;    as Gemini and Qwen do, so that a hook's tag never looks like one of theirs

A pack ends with its own last line. A pack that was cut ends where the text does: better miss a user's word than learn a memory
from itself.
"""

from __future__ import annotations

import re

#: The part of the mark that stays, however an agent escapes its brackets.
SIGN = "!-- dreamkeep:pack"
_PACK = re.compile(r"(?:<|&lt;|\\u003c)" + SIGN + r".*?(?:!-- dreamkeep:end --(?:>|&gt;|\\u003e)|\Z)", re.DOTALL)


def holds_pack(text: str) -> bool:
    return SIGN in text


def without_packs(text: str) -> str:
    """A text without the packs in it."""
    return _PACK.sub("\n\n", text) if SIGN in text else text
