"""What of a text is searched, and what of a query is looked for. Pure; the same for every store.

    indexed(text)    what a full-text index is given: the text, with
                       - runs of CJK and other scripts without spaces as pairs of signs: 日本語 → 日本 本語 語
                       - the pieces of camelCase and of letters with digits behind it: parseConfig E0203 → … parse Config E 0203
    terms(query)     what is looked for; any text is legal

Punctuation separates words: OPS-306, snake_case and a/path.py are several words that follow each other. So a query that holds one
looks for the words in a row (the whole), and for each of them (in part). A long run of hexadecimal digits is looked for by its
beginning: commits are quoted in any length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import add
from typing import NamedTuple

#: Scripts that are written without spaces between words, or whose words grow long by endings.
_CJK = "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_CJK += "\uf900-\ufaff\uff66-\uff9f\u0e01-\u0e30\u0e32-\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u1780-\u17b3\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_CJK}]+")
_PIECE = re.compile(f"[{_CJK}]+|[^{_CJK}]+")
#: A word with something inside that separates words for the index, and no space.
_CHUNK = re.compile(r"[^\s\"'`“”‘’«»()\[\]{}<>,;!?|]+")
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])|[A-Z][a-z]?|[0-9]+")
_ALNUM = re.compile(r"[^\W_]+")
#: Where a word with pieces may be, and what one is.
_HINT = re.compile(r"[a-z][A-Z]|[A-Za-z][0-9][0-9]")
_MIXED = re.compile(r"(?=[A-Za-z0-9]*[a-z][A-Z])[A-Za-z0-9]{4,40}|[A-Za-z]{1,6}[0-9]{2,8}")
_LONGEST_MIXED = 40
_HASH = re.compile(r"(?=[0-9a-f]{0,63}[0-9])(?=[0-9a-f]{0,63}[a-f])[0-9a-f]{7,64}")
#: Texts beyond this are searched by their words alone.
_PIECES_OF = 200_000
#: Of a query: more than this says no more, and a pasted file must not take minutes.
_LONGEST_QUERY = 10_000
_MOST_TERMS = 48

_STOP = """
    a about above after again all also am an and any are as at be because been before being below between both but by can could
    did do does doing down during each few for from further had has have having he her here hers herself him himself his how i if
    in into is it its itself just me more most my myself no nor not now of off on once only or other our ours ourselves out over
    own s same she should so some such t than that the their theirs them themselves then there these they this those through to
    too under until up very was we were what when where which while who whom why will with would you your yours yourself
    yourselves don didn doesn isn wasn ll re ve d m
    der das und ist nicht ein eine einen dem zu mit von für auf im ich wir sie wie wann warum
    le les une et est pas que qui dans pour sur los las por para con del"""
STOP = frozenset(_STOP.split())


_IRREGULAR = """
    begin began begun | bring brought | build built | buy bought | catch caught | choose chose chosen | come came |
    deal dealt | draw drew drawn | drink drank drunk | drive drove driven | eat ate eaten | fall fell fallen | feel felt |
    fight fought | find found | fly flew flown | forget forgot forgotten | get got gotten | give gave given | go went gone |
    grow grew grown | hear heard | hide hid hidden | hold held | keep kept | know knew known | lead led | leave left |
    lose lost | make made | mean meant | meet met | pay paid | ride rode ridden | ring rang rung | rise rose risen | run ran |
    say said | see saw seen | sell sold | send sent | shake shook shaken | sing sang sung | sit sat | sleep slept |
    speak spoke spoken | spend spent | stand stood | steal stole stolen | swim swam swum | take took taken | teach taught |
    tell told | think thought | throw threw thrown | understand understood | wake woke woken | wear wore worn | win won |
    write wrote written | child children | foot feet | man men | mouse mice | person people | tooth teeth | woman women |
    index indices | vertex vertices | analysis analyses"""
#: What no stemmer sees: each of these is looked for together with its other forms.
IRREGULAR = {word: tuple(group.split()) for group in _IRREGULAR.split("|") for word in group.split()}


class Term(NamedTuple):
    """One thing to look for: any of `forms`, each a word or words in a row; `prefix`: or words that begin so."""

    forms: tuple[str, ...]
    prefix: bool = False

    @property
    def word(self) -> str:
        return self.forms[0]


def indexed(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", " ")
    whole = text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
        whole = _RUN.sub(_pairs, text) if _RUN.search(text) else text
    pieces = " ".join(_pieces(text[:_PIECES_OF]))
    return f"{whole}\n{pieces}" if pieces else whole


def _pairs(run: re.Match[str]) -> str:
    signs = run[0]
    return f" {' '.join(map(add, signs, signs[1:]))} {signs[-1]} "


def _pieces(text: str) -> Iterator[str]:
    """Of each word that has some, once. Looked for by two signs, for most words have none: this goes over every text there is."""
    seen = set()
    past = 0
    for hint in _HINT.finditer(text):
        if hint.start() < past:
            continue
        start = hint.start()
        while start > past and hint.start() - start <= _LONGEST_MIXED and text[start - 1].isalnum():
            start -= 1
        run = _ALNUM.match(text, start)
        past = run.end() if run else hint.end()
        word = text[start:past]
        if len(word) <= _LONGEST_MIXED and word not in seen and _MIXED.fullmatch(word) and not _HASH.fullmatch(word):
            seen.add(word)
            yield from _CAMEL.findall(word)


def first_words(text: str, most: int) -> Term | None:
    """The first words of a text in a row, as they stand in what is `indexed`; None for a text without words. The last one may be
    cut where the text is, and is left out."""
    shown = text.encode("utf-8", "replace").decode().replace("\0", " ")
    words = _WORD.findall(_RUN.sub(_pairs, shown))[: most + 1]
    return Term((" ".join(words[:-1] or words),)) if words else None


def terms(query: str) -> list[Term]:
    """In the order of the query, each once. Words that say nothing are left out unless there are no others."""
    query = query[:_LONGEST_QUERY].encode("utf-8", "replace").decode().replace("\0", " ")
    found = dict.fromkeys(term for chunk in _CHUNK.findall(query) for term in _of_chunk(chunk))
    said = [term for term in found if term.word.lower() not in STOP]
    return (said or list(found))[:_MOST_TERMS]


def _of_chunk(chunk: str) -> Iterator[Term]:
    words: list[str] = []
    plain = True
    for piece in _PIECE.findall(chunk):
        if _RUN.match(piece):
            plain = False
            yield _of_run(piece)
        else:
            words += _WORD.findall(piece)
    if plain and len(words) > 1:
        yield Term((" ".join(words),))
    for word in words:
        yield from _of_word(word)


def _of_run(signs: str) -> Term:
    if len(signs) == 1:
        return Term((signs,), prefix=True)
    return Term((" ".join(signs[n : n + 2] for n in range(len(signs) - 1)),))


def _of_word(word: str) -> Iterator[Term]:
    if _HASH.fullmatch(word.lower()):
        shorter = tuple(word[:n] for n in (12, 10, 9, 8, 7) if n < len(word))
        yield Term((word, *shorter), prefix=True)
        return
    pieces = _CAMEL.findall(word) if _MIXED.fullmatch(word) else []
    if len(pieces) > 1:
        yield Term((word, " ".join(pieces)))
        if any(len(piece) > 1 and piece.islower() != piece[:1].isupper() for piece in pieces):
            yield from (Term((piece,)) for piece in pieces if len(piece) > 2)
    else:
        yield Term(_forms(word))


def _forms(word: str) -> tuple[str, ...]:
    small = word.lower()
    group = IRREGULAR.get(small) or IRREGULAR.get(small.removesuffix("ing")) or IRREGULAR.get(small.removesuffix("s")) or ()
    return (word, *(other for other in group if other != small))
