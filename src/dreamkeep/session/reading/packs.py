"""Our own packs in what agents wrote down: told by their mark, and taken out of what is to be learned. Pure.

    <!-- dreamkeep:pack v1 -->          as a hook says it, and Claude, Codex, Copilot, Hermes, Kimi and OpenCode pass it on
    &lt;!-- dreamkeep:pack v1 --&gt;    as Gemini and Qwen do: no tag of a hook's may look like one of theirs

A pack ends with its own last line. One that was cut by somebody ends where the text does: better a word of a user that is not
learned than a memory that is learned from itself.
"""

from __future__ import annotations

import re

#: What is left of the mark however an agent escapes its brackets.
SIGN = "!-- dreamkeep:pack"
_PACK = re.compile(r"(?:<|&lt;|\\u003c)" + SIGN + r".*?(?:!-- dreamkeep:end --(?:>|&gt;|\\u003e)|\Z)", re.DOTALL)


def holds_pack(text: str) -> bool:
    return SIGN in text


def without_packs(text: str) -> str:
    """A text without the packs in it."""
    return _PACK.sub("\n\n", text) if SIGN in text else text
