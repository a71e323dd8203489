"""What was said, as a note says it: one line, by itself, and not too long. Pure."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from dreamkeep.dream import lexicon
from dreamkeep.dream.dates import resolved

TEXT = 240
#: A request behind it is no part of what is said.
_TAIL = re.compile(
    r"""(?:,\s*|\s+-\s+|\s+)(?:(?:and\s+|so\s+)?(?:can|could) you|(?:so|and|then),?\s+(?:please\s+)?(?:stop here|go ahead|go on"""
    r"""|open (?:this|it|a|the)|commit|push|continue|proceed|merge)|thanks|thank you|thx|ok\?|right\?|got it\?|lol)\b.*$""",
    re.IGNORECASE,
)
#: A word, and no name of a file, a package or a command.
_PLAIN_WORD = re.compile(r"[a-z]+(?:['’]\w+)?\b(?![./_:@-]\w)")


@cache
def _lead() -> re.Pattern[str]:
    text = lexicon.table("said")["text"]
    sign, space = "|".join(text["lead_sign"]), "|".join(text["lead_space"])
    return re.compile(rf"^\s*(?:(?:{sign})\s*(?:[,:;.!…]+|\s[—–-]+)\s*|(?:{space})\s+)(?=\S)", re.IGNORECASE)


@lru_cache(2048)
def without_lead(text: str) -> str:
    """Without "ok so, btw, just so you know:"."""
    for _ in range(5):
        shorter = _lead().sub("", text, count=1)
        if shorter == text or len(shorter) < 4:
            break
        text = shorter
    return text


def worded(text: str, at: str | None = None) -> str:
    """No greeting before it, no request behind it, days as dates (by `at`, when it was said)."""
    found = resolved(without_lead(" ".join(text.split())), at)
    cut = _TAIL.sub("", found)
    found = shortened((cut if len(cut) >= 10 else found).strip(" ,;:–—"))
    return found[:1].upper() + found[1:] if _PLAIN_WORD.match(found) else found


def shortened(text: str, most: int = TEXT) -> str:
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    for sign in (". ", "; ", ", ", " "):
        place = cut.rfind(sign)
        if place > most // 2:
            return cut[:place].rstrip(" ,;:") + "…"
    return cut + "…"
