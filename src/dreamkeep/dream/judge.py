"""One sentence of a user: what it is, if anything. Pure.

    vetoes (questions, what-ifs, one-offs, others' rules, irony …) ─► rules, the most telling first

Both are data (data/said.toml). A sentence that is vetoed may hold a clause that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from dreamkeep.dream import lexicon
from dreamkeep.dream.sentences import Sentence, plain, spans
from dreamkeep.dream.worded import without_lead

_CLAUSE = re.compile(
    r"""[;:—–]\s+|\s+-+\s+|,\s+(?:and\s+|but\s+|so\s+|also\s+|then\s+)?|\s+but\s+|\s+(?:and|then)\s+"""
    r"""(?=(?:from now on|never|always|don|do not|please|we|leave|keep|no |stop|make sure|remember|remind)\b)""",
    re.IGNORECASE,
)
_OURS = re.compile(r"(?:we|i|our|not|use|so we)\b", re.IGNORECASE)
_NO_BEGINNING = re.compile(r"(?:have|has|had|is|are|was|not|only|which|who|or|than|as)\b", re.IGNORECASE)
#: Rules that a heading outdoes.
_PLAIN = ("states", "states a rule", "states a habit", "here", "contrast")
_NORMS = ("constraint", "finding")
_STRONG = ("open_loop", "constraint", "decision", "procedure")
#: Clauses and neighbours are looked at again and again; sentences come again, too.
_KEPT = 2048
#: Of the words before the lead is cut off, too.
_WHOLE = ("sarcasm", "others", "oneoff", "question")


class Judged(NamedTuple):
    type: str
    sure: float
    rule: str


@lru_cache(512)
def judged(sentence: Sentence, *, first: bool) -> tuple[tuple[Sentence, Judged], ...]:
    """The sentence with what it is, or those of its clauses that are something. `first`: see lexicon.Rule.later."""
    return tuple(_judged(sentence, first))


def _judged(sentence: Sentence, first: bool) -> Iterator[tuple[Sentence, Judged]]:
    parts = list(clauses(sentence))
    sentence = _without_task(sentence, parts)
    found, one = judge(sentence.text, first=first)
    if one is None or one.rule in _PLAIN:
        one = _headed(sentence.text) or one
    if one is None and sentence.item:
        one = _listed(sentence, found)
    if one is not None:
        yield sentence, one
    elif not found & {"sarcasm", "hypothetical"} and not sentence.text.rstrip().endswith("?") and len(parts) > 1:
        for n, clause in enumerate(parts):
            if "others" not in found or (n and _OURS.match(clause.text)):
                # Of a thing to be made every clause says what it is to be.
                yield from (one for one in _clause(clause) if "feature" not in found or one[1].type not in _NORMS)


def _clause(clause: Sentence) -> Iterator[tuple[Sentence, Judged]]:
    if len(clause.text.split()) >= 3:
        _, one = judge(clause.text, first=True)
        if one is not None:
            yield clause, one._replace(sure=one.sure - 0.05)


def standing(sentence: Sentence) -> tuple[Sentence, Judged] | None:
    """The clause that stands by itself, where the sentence's beginning does not: "leave it, but the fixture needs …"."""
    for clause in list(clauses(sentence))[1:]:
        if len(clause.text.split()) >= 4 and not hangs(clause.text) and not _NO_BEGINNING.match(clause.text):
            _, one = judge(clause.text, first=True)
            if one is not None and one.type in _STRONG:
                return clause, one
    return None


def _without_task(sentence: Sentence, parts: Sequence[Sentence]) -> Sentence:
    """Without the clauses before it that only say what to do now: "commit this, and never sign commits"."""
    start = 0
    while start < len(parts) - 1 and hits(plain(without_lead(parts[start].text)), "task"):
        if judge(parts[start].text, first=True)[1]:
            break
        start += 1
    if not start or (len(parts[start].text.split()) < 3 and start == len(parts) - 1):
        return sentence
    skip = parts[start].start - sentence.start
    quote = sentence.quote[skip:]
    rest = sentence._replace(text=" ".join(quote.split()), quote=quote, start=sentence.start + skip)
    return rest if judge(rest.text, first=True)[1] else sentence


@lru_cache(_KEPT)
def judge(text: str, *, first: bool) -> tuple[frozenset[str], Judged | None]:
    whole, core = plain(text), plain(without_lead(text))
    if len(core) < 6:
        return frozenset(), None
    found = hits(core) | (hits(whole, *_WHOLE) if whole != core else frozenset())
    for rule in lexicon.rules():
        if found - rule.despite or (rule.later and first) or (rule.needs and not rule.needs.search(whole)):
            continue
        told = rule.pattern.search(core) or (whole != core and rule.pattern.search(whole))
        if told and not (rule.unless and (rule.unless.search(core) or (whole != core and rule.unless.search(whole)))):
            return found, Judged(rule.type, rule.sure, rule.name)
    return found, None


@lru_cache(_KEPT)
def hits(words: str, *names: str) -> frozenset[str]:
    """Which vetoes (of all, or of those named) the words of a sentence meet."""
    known = lexicon.vetoes()
    found = []
    for name in names or known:
        pattern, unless = known[name]
        if pattern.search(words) and not (unless and unless.search(words)):
            found.append(name)
    return frozenset(found)


@cache
def _headings() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, lexicon.any_of(patterns)) for kind, patterns in lexicon.table("said")["items"].items())


@cache
def _heads() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, lexicon.any_of(patterns)) for kind, patterns in lexicon.table("said")["headed"].items())


def _headed(text: str) -> Judged | None:
    """ "Outcome: one database per service"."""
    head, colon, rest = without_lead(text).partition(": ")
    if not colon or len(head.split()) > 8 or not rest.strip() or hits(plain(rest)) - {"task", "once", "oneoff"}:
        return None
    words = plain(head)
    least = {"decision": 1}
    fits = (kind for kind, pattern in _heads() if len(rest.split()) >= least.get(kind, 3) and pattern.search(words))
    return next((Judged(kind, 0.7, "headed") for kind in fits), None)


def _listed(sentence: Sentence, found: frozenset[str]) -> Judged | None:
    """In a list of rules, an entry is one even without a word that says so."""
    if not sentence.under or found & {"question", "others", "sarcasm", "hypothetical"}:
        return None
    for kind, heading in _headings():
        if heading.search(sentence.under):
            return Judged(kind, 0.75, f"under {kind}")
    return None


def clauses(sentence: Sentence) -> Iterator[Sentence]:
    start = 0
    whole = spans(sentence.quote)
    cuts = [cut for cut in _CLAUSE.finditer(sentence.quote) if not any(a < cut.start() < b for a, b in whole)]
    for cut in [*cuts, None]:
        end = cut.start() if cut else len(sentence.quote)
        words = sentence.quote[start:end]
        if words.strip():
            skip = len(words) - len(words.lstrip())
            yield sentence._replace(text=" ".join(words.split()), quote=words.strip(), start=sentence.start + start + skip)
        start = cut.end() if cut else end


def hangs(text: str, how: str = "hangs") -> bool:
    """Whether it says nothing without the sentence before; `leans`: whether it says less."""
    return lexicon.pattern("said", "text", how).search(without_lead(text)) is not None
