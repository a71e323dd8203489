"""A user's message → the sentences that are his own words. Pure; linear in the message's length.

Left out: code, quoted and pasted documents, logs, tables, what a client wrote. A sentence knows where it stands, so that its
quote is verbatim, and under which line ("Ground rules:") it stands in a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from dreamkeep.dream import lexicon

#: A longer message was pasted: only where a person may have written something of his own is looked at.
LONG = 24_000
ENDS = 4_000
#: No sentence of a person is longer; what is is cut into such pieces by nobody.
LONGEST = 420
_LINE = 2_000
#: So long a sentence has a comma, or nobody wrote it.
_BREATH = 160
_THOUGHT = re.compile(
    r"\s+(?=(?:and (?!not\b)|so (?:you|we|i|that|the)|but|because|now|then|okay|anyway|well|when|is that|i mean|yes)\b)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)")
_RULE = re.compile(r"^\s*(?:-{3,}|={3,}|\*{3,}|_{3,}|(?:-\s){3,})\s*$")
_ITEM = re.compile(r"^\s*(?:[-*•+–]|\(?\d{1,2}[.)]|\(?[a-z][.)])\s+")
_TAG = re.compile(r"<([A-Za-z][\w-]{1,40})(?:\s[^<>]{0,200})?>")
_STOP = re.compile(r"(?<=[\w)\]\"'`%!?.…’”])[.!?…]+[)\"'”’*_`]*(?=\s)|[。！？]|\s[—–](?=\s)(?!.)")
_SHORT = re.compile(
    r"(?:\b(?:e\.?g|i\.?e|etc|vs|approx|resp|cf|incl|no|nr|fig|sec|ca|al|dr|mr|mrs|ms|st|inc|ltd|max|min|ch|chap|eq|ref|vol|pp|ex|ext|dept|tel|est|prof|spec|ver|temp|avg|std)|\b[A-Za-z])\.$",
    re.IGNORECASE,
)
_CODE = re.compile(r"`[^`\n]{1,300}`")
_QUOTES = re.compile(r"[\"“”„«»]([^\"“”„«»\n]{1,400})[\"“”„«»]")
_SINGLE = re.compile(r"(?<![\w])['‘]((?:[^'‘’\n]|(?<=\w)['’](?=\w)){1,400})['’](?!\w)")
#: Behind these, "lets" is "let us"; behind others somebody lets something.
_LETS = frozenset(("ok", "okay", "so", "and", "then", "yes", "yeah", "but", "now", "please", "well", "", "alright", "cool", "no"))
_TOKEN = re.compile(r"[\w/'’+#@.-]+|\s+|.", re.DOTALL)


class Sentence(NamedTuple):
    """`quote` stands in the message at `start`. `under`: the line that introduces the list it stands in."""

    text: str
    quote: str
    start: int
    block: int
    under: str = ""
    item: bool = False


class _Line(NamedTuple):
    start: int
    text: str


def sentences(message: str) -> list[Sentence]:
    return list(_sentences(message))


def own_words(message: str) -> str:
    """What somebody wrote in a message of several lines, without what was pasted into it."""
    return message if "\n" not in message.strip() else " ".join(one.text for one in sentences(message))


@lru_cache(128)  # each rule asks for them, of a message and of the few before it
def _sentences(message: str) -> tuple[Sentence, ...]:
    if lexicon.pattern("quoted", "lines", "program").match(message[:400]):
        return ()
    found: list[Sentence] = []
    for offset, piece in _pieces(message):
        found += _of_piece(piece, offset, len(found))
    return tuple(found)


def _pieces(message: str) -> Iterator[tuple[int, str]]:
    if len(message) <= LONG:
        yield 0, message
        return
    head = message[:ENDS]
    yield 0, head[: head.rfind("\n\n") if "\n\n" in head else head.rfind("\n") + 1]
    tail = len(message) - ENDS
    cut = message.find("\n\n", tail)
    if cut >= 0:
        yield cut + 2, message[cut + 2 :]


def _of_piece(piece: str, offset: int, blocks: int) -> list[Sentence]:
    found: list[Sentence] = []
    under = ""
    for number, (block, item) in enumerate(_blocks(_own_lines(piece))):
        start, end = block[0].start, block[-1].start + len(block[-1].text)
        text = piece[start:end]
        if item is False and text.rstrip().endswith(":"):
            under = text.strip()
            continue
        if not item:
            under = ""
        skip = len(text) - len(_ITEM.sub("", text)) if item else 0
        for at, words in _split(text[skip:]):
            found.append(
                Sentence(" ".join(words.split()), words, offset + start + skip + at, blocks + number, under if item else "", item)
            )
    return [short for one in found for short in _spoken(one) if 1 < len(short.text) <= LONGEST]


def _spoken(sentence: Sentence) -> Iterator[Sentence]:
    """Dictated, without a single stop: cut where a speaker goes on to the next thought."""
    if len(sentence.text) <= _BREATH or re.search(r"[,;:.!?—–]\s", sentence.quote):
        yield sentence
        return
    start = 0
    for cut in [*_THOUGHT.finditer(sentence.quote), None]:
        end = cut.start() if cut else len(sentence.quote)
        words = sentence.quote[start:end].strip()
        if words:
            at = sentence.quote.index(words, start)
            yield sentence._replace(text=" ".join(words.split()), quote=words, start=sentence.start + at)
        start = end


# -- which lines are the user's own


def _own_lines(piece: str) -> list[_Line | None]:
    """None: a gap (an empty line, or lines of somebody else)."""
    lines = _lines(piece)
    own: list[_Line | None] = []
    fence = tag = ""
    foreign = False
    ruled = _ruled(lines)
    pasted = _pasted(lines)
    for n, line in enumerate(lines):
        text = line.text
        if n in ruled:
            own.append(None)
            continue
        if fence:
            fence = "" if text.strip().startswith(fence) else fence
            own.append(None)
            continue
        if found := _FENCE.match(text):
            fence = found[1]
            foreign = False
            own.append(None)
            continue
        tag, inside = _tagged(text, tag)
        if inside or _is_foreign(text) or (n in pasted):
            own.append(None)
            continue
        foreign = _announced(lines, n, own, foreign)
        own.append(None if foreign or not text.strip() else line)
    return own


def _ruled(lines: Sequence[_Line]) -> frozenset[int]:
    """Between two lines of dashes somebody else's words are set off."""
    rules = [n for n, line in enumerate(lines) if _RULE.match(line.text)]
    pairs = zip(rules[::2], rules[1::2], strict=False)
    return frozenset(n for first, last in pairs for n in range(first, last + 1))


def _pasted(lines: Sequence[_Line]) -> frozenset[int]:
    """Right behind a line of a log comes more of it, unless it looks typed."""
    found: set[int] = set()
    for n, line in enumerate(lines[1:], 1):
        text = line.text.strip()
        if (n - 1 in found or _is_log(lines[n - 1].text)) and text and not text[0].islower() and not text.endswith("?"):
            found.add(n)
    return frozenset(found)


def _is_log(text: str) -> bool:
    return bool(text.strip()) and lexicon.pattern("quoted", "lines", "log", 0).match(text[:_LINE]) is not None


def _lines(piece: str) -> list[_Line]:
    found, start = [], 0
    for text in piece.split("\n"):
        found.append(_Line(start, text))
        start += len(text) + 1
    return found


def _tagged(text: str, tag: str) -> tuple[str, bool]:
    """Inside `<tag>` … `</tag>` over several lines; a pair on one line is judged by `_is_foreign`."""
    if tag:
        return ("" if f"</{tag}>" in text else tag), True
    found = _TAG.match(text.strip()[:300])
    if found and f"</{found[1]}>" not in text and text.strip() == found[0]:
        return found[1], True
    return "", False


def _is_foreign(text: str) -> bool:
    head = text[:_LINE]
    if head.lstrip().startswith((">", "│", "┃")) or (len(head) - len(head.lstrip()) >= 4 and not _ITEM.match(head)):
        return True
    return len(text) > _LINE or lexicon.pattern("quoted", "lines", "log", 0).match(head) is not None


def _announced(lines: Sequence[_Line], n: int, own: Sequence[_Line | None], foreign: bool) -> bool:
    """Whether this line is within words that a line before announced as another's ("The README says:")."""
    text = lines[n].text.strip()
    if not foreign:
        before = next((one for one in reversed(own) if one is not None), None)
        if before is None or not text or not before.text.rstrip().endswith(":"):
            return False
        return is_announcement(before.text)
    if not text or lines[n - 1].text.strip():
        return True
    return not _resumes(text, last=not any(not one.text.strip() for one in lines[n : len(lines) - 1]))


def _resumes(text: str, *, last: bool) -> bool:
    """Whether with this paragraph the user speaks again, behind another's words."""
    if _ITEM.match(text) or text.startswith(('"', "“", "#", "*")):
        return False
    if text.endswith(":") and not is_announcement(text):
        return True
    if lexicon.pattern("quoted", "lines", "back").match(text[:_LINE]):
        return True
    return last and lexicon.pattern("quoted", "lines", "resumes").search(text[:_LINE]) is not None


def is_announcement(line: str) -> bool:
    head = line.strip()[-200:]
    if lexicon.pattern("quoted", "lines", "own").search(head) and not lexicon.pattern("quoted", "lines", "foreign").search(head):
        return False
    return lexicon.pattern("quoted", "lines", "announces").search(head) is not None


# -- lines → blocks → sentences


def _blocks(own: Sequence[_Line | None]) -> Iterator[tuple[list[_Line], bool]]:
    """Lines that belong together: a paragraph, or one item of a list. (lines, whether it is an item)."""
    block: list[_Line] = []
    item = False
    for line in [*own, None]:
        starts = line is not None and (_ITEM.match(line.text) is not None or line.text.lstrip().startswith("#"))
        if block and (line is None or starts or not _goes_on(block[-1].text, line.text)):
            yield block, item
            block = []
        if line is not None:
            if not block:
                item = _ITEM.match(line.text) is not None
            block.append(line)


def _goes_on(before: str, text: str) -> bool:
    """Whether a line is only wrapped: the one before does not end a sentence, and this one does not look like a new one."""
    if before.rstrip().endswith((".", "!", "?", ":", ";", "…")):
        return False
    return text.strip()[:1].islower() or len(before) > 60


def _split(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    code = spans(text)
    for stop in _STOP.finditer(text):
        if any(a < stop.start() < b for a, b in code) or _SHORT.search(text[max(0, stop.start() - 8) : stop.start() + 1]):
            continue
        yield from _trimmed(text, start, stop.end())
        start = stop.end()
    yield from _trimmed(text, start, len(text))


def spans(text: str) -> list[tuple[int, int]]:
    """Where code and quotations stand: nothing is cut in there."""
    return [found.span() for pattern in (_CODE, _QUOTES, _SINGLE) for found in pattern.finditer(text)]


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    words = text[start:end]
    if words.strip():
        yield start + len(words) - len(words.lstrip()), words.strip()


# -- the words of a sentence, for patterns


@cache
def _spelling() -> dict[str, str]:
    return dict(lexicon.table("quoted")["spelling"]["words"])


@cache
def _near() -> dict[str, str]:
    """Every signal word with one letter left out, or two exchanged: what a slip of the pen makes of it."""
    found: dict[str, str] = {}
    for word in lexicon.table("quoted")["spelling"]["signal"]:
        for n in range(1, len(word)):
            found.setdefault(word[:n] + word[n + 1 :], word)
            found.setdefault(word[:n] + word[n + 1 : n + 2] + word[n] + word[n + 2 :], word)
            found.setdefault(word[:n] + word[n] + word[n:], word)
    known = {
        "refer",
        "lease",
        "hold",
        "swish",
        "gong",
        "goin",
        "decide",
        "avid",
        "void",
        "form",
        "support",
        "commits",
        "commit",
        "requires",
        "afer",
    }
    signals = set(lexicon.table("quoted")["spelling"]["signal"])
    return {wrong: right for wrong, right in found.items() if len(wrong) > 4 and wrong not in known and wrong not in signals}


@lru_cache(2048)
def plain(text: str) -> str:
    """For patterns: lower case, no apostrophes, code and quotations as one word each, common misspellings mended."""
    text = _CODE.sub(" CODE ", text.replace("’", "'").replace("‘", "'"))
    for quotes in (_QUOTES, _SINGLE):
        text = quotes.sub(lambda found: " QUOTED " if len(found[1].split()) > 3 else f" {found[1]} ", text)
    words = []
    for token in _TOKEN.findall(text):
        if token in ("CODE", "QUOTED") or not token.strip():
            words.append(token)
            continue
        low = token.lower()
        bare = low.rstrip(".")
        if bare == "lets" and words and (words[-2:] or [""])[0].strip(",") not in _LETS:
            words.append(low)
            continue
        words.append(_spelling().get(bare, _near().get(bare, bare)) + low[len(bare) :])
    return " ".join("".join(words).split())
