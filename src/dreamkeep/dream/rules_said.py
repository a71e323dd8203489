"""What a user says → what it is: preferences, constraints, corrections, decisions and so on, in his own words. Pure.

    message ─► sentences (his own) ─► vetoes (questions, what-ifs, one-offs, others' rules, irony) ─► rules, the most telling first

What the words mean is in data/said.toml. A sentence that says nothing by itself ("do that before every commit") is joined with the
one before, or dropped. A sentence that is vetoed may hold a clause that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from dreamkeep.dream import lexicon
from dreamkeep.dream.dates import resolved
from dreamkeep.dream.sentences import Sentence, plain, sentences, spans

TEXT = 240
QUOTE = 400
#: Of one message; the surest.
MOST = 10
_CLAUSE = re.compile(
    r"""[;:—–]\s+|\s+-+\s+|,\s+(?:and\s+|but\s+|so\s+|also\s+|then\s+)?|\s+but\s+|\s+(?:and|then)\s+(?=(?:from now on|never|always|don|do not|please|we|leave|keep|no |stop|make sure|remember|remind)\b)""",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"""(?:,\s*|\s+-\s+|\s+)(?:(?:and\s+|so\s+)?(?:can|could) you|(?:so|and|then),?\s+(?:please\s+)?(?:stop here|go ahead|go on"""
    r"""|open (?:this|it|a|the)|commit|push|continue|proceed|merge)|thanks|thank you|thx|ok\?|right\?|got it\?|lol)\b.*$""",
    re.IGNORECASE,
)
_NO = re.compile(
    r"^\s*(?:no+|nope|nah|wrong|hm+,? no|wait,? no|actually,? no)\b\s*[,.!:;—–-]+|^\s*(?:no|nope|nah)\s*$", re.IGNORECASE
)
_NO = re.compile(r"\s*(?:no+|nope|nah|wrong|hm+,? no|wait,? no|actually,? no)\b\s*[,.!:;—–-]", re.IGNORECASE)
_WORD = re.compile(r"[\w'’/.@#+-]+")
_STRICT = frozenset(("others", "sarcasm", "hypothetical"))


class Found(NamedTuple):
    """`start`, `end`: where the quote stands in the message."""

    type: str
    text: str
    quote: str
    start: int
    sure: float
    rule: str


class _Judged(NamedTuple):
    type: str
    sure: float
    rule: str


def said(message: str, at: str | None = None, *, refused: bool = False, reply: str = "", first: bool = False) -> list[Found]:
    """`refused`: the user said it when he did not allow a call. `reply`: what the model said before: he may answer a question.
    `first`: it is the prompt that the session began with."""
    own = _merged(sentences(message), message)
    if not own or _is_joke(own):
        return []
    found: list[Found] = []
    last: dict[int, int] = {}
    no = _NO.match(message) is not None
    # One plain statement and nothing else is mostly what is to be mended.
    first = first or (len(own) == 1 and len(own[0].text.split()) <= 8 and not re.search(r"[,;:(]", message) and not asked(reply))
    ironic = _ironic(own)
    for n, sentence in enumerate(own):
        if n in ironic:
            continue
        judged = list(_judged(sentence, first=first)) or list(_agreed(sentence, reply))
        if n - 1 in last and _is_fragment(sentence) and (not judged or sentence.text.lower().startswith("back to")):
            _join(found, last[n - 1], sentence, at, judged)
            last[n] = last[n - 1]
            continue
        hangs, leans = _hangs(sentence.text), _hangs(sentence.text, "leans")
        carried = n > 0 and (n - 1 in last or _may_carry(own[n - 1]))
        if not hangs and not (leans and carried):
            for part, one in judged:
                if _hangs(part.text):
                    continue
                one = _in_context(one, found[last[n - 1]] if n - 1 in last else None, refused=refused, no=no)
                if n - 1 in last and _goes_on(found[last[n - 1]], part, one):
                    _join(found, last[n - 1], part, at, judged)
                    last[n] = last[n - 1]
                else:
                    head = own[n - 1] if n and part is sentence and n - 1 not in last and _is_head(own[n - 1]) else None
                    found.append(_both(head, part, message, at, one) if head else _made(part, at, one))
                    last[n] = len(found) - 1
        elif n and n - 1 in last:
            _join(found, last[n - 1], sentence, at, judged)
            last[n] = last[n - 1]
        elif n and judged and _may_carry(own[n - 1]):
            found.append(_both(_request(own[n - 1]), sentence, message, at, judged[0][1]))
            last[n] = len(found) - 1
        elif judged and n == 0:
            alone = _made(sentence, at, judged[0][1])
            if question := asked(reply):
                found.append(alone._replace(text=shortened(f"{question} {alone.text}")))
            elif rest := _standing(sentence):
                found.append(_made(rest[0], at, rest[1]))
            elif _stands(sentence.text):
                found.append(alone._replace(sure=alone.sure - 0.1))
            else:
                continue
            last[n] = len(found) - 1
        elif rest := _standing(sentence):
            found.append(_made(rest[0], at, rest[1]))
            last[n] = len(found) - 1
    if refused:
        found += _reasons(own, at, [one.start for one in found])
    best = sorted(range(len(found)), key=lambda n: (-found[n].sure, n))[:MOST]
    return [found[n] for n in sorted(best) if len(found[n].text) > 5]


def _merged(own: Sequence[Sentence], message: str) -> list[Sentence]:
    """Two or more scraps in a row are one sentence: "utc. everywhere. log, ui, exports."."""
    found: list[Sentence] = []
    for sentence in own:
        before = found[-1] if found else None
        if before is not None and before.block == sentence.block and _is_scrap(before) and _is_scrap(sentence):
            quote = message[before.start : sentence.start + len(sentence.quote)]
            found[-1] = before._replace(text=" ".join(quote.split()), quote=quote)
        else:
            found.append(sentence)
    return found


def _is_scrap(sentence: Sentence) -> bool:
    words = re.sub(r"[.!]", " ", sentence.text).split()
    return (
        len(words) <= 5
        and all(len(one.split()) <= 3 for one in re.split(r"[.!]", sentence.text))
        and not _hits(plain(sentence.text), tuple(lexicon.vetoes()))
    )


def asked(reply: str) -> str:
    """The question that a model's words end with."""
    own = sentences(reply[-1500:])
    return own[-1].text if own and own[-1].text.endswith("?") and len(own[-1].text) <= 140 else ""


def is_answer(text: str) -> bool:
    """Whether a few words could be what somebody wants: no question, no what-if, nothing to do now."""
    return not _hits(plain(text), tuple(lexicon.vetoes())) and not _hangs(text)


def _in_context(one: _Judged, before: Found | None, *, refused: bool, no: bool) -> _Judged:
    """What follows a decision spells it out; what follows a "no" corrects."""
    if one.rule in ("states", "contrast") and before is not None and before.type in ("decision", "constraint", "correction"):
        return one._replace(type=before.type)
    if refused and (one.rule.startswith("states") or one.rule in ("contrast", "how")):
        return one._replace(type="constraint")
    if no and one.rule in ("states", "states a rule", "contrast", "here"):
        return one._replace(type="correction")
    return one


def _goes_on(before: Found, part: Sentence, one: _Judged) -> bool:
    """Whether it tells more of the same: a finding that speaks of "it", or a few words more."""
    words = _WORD.findall(part.text)
    if one.rule == "states" and before.rule == "states" and len(words) <= 6:
        return True
    return one.type == before.type == "finding" and any(word.lower() in ("it", "it's", "its", "they") for word in words)


def _is_fragment(sentence: Sentence) -> bool:
    """A few words that are no sentence, behind one that is: "Back to UTC."; "Ids only."."""
    return 1 < len(sentence.text.split()) <= 3 and not _hits(plain(sentence.text), tuple(lexicon.vetoes()))


def _is_head(sentence: Sentence) -> bool:
    """A lone command or name before the sentence that speaks of it."""
    bare = sentence.text.rstrip(".!")
    return (bare.startswith("`") and bare.endswith("`")) or (
        len(bare.split()) <= 2 and re.search(r"[/._-]|[A-Z]{2}|\d", bare) is not None and _is_fragment(sentence)
    )


def _reasons(own: Sequence[Sentence], at: str | None, known: Sequence[int]) -> Iterator[Found]:
    """Whatever else a user says when he refuses a call is why, or what to do in its place. Only if nothing better was found."""
    for n, sentence in enumerate(own):
        if n and known or any(sentence.start <= start < sentence.start + len(sentence.quote) for start in known):
            continue
        core = plain(without_lead(sentence.text))
        hits = _hits(core, tuple(lexicon.vetoes())) - {"task"}
        if len(_WORD.findall(core)) >= 5 and not hits and not re.match(r"(?:i|of course|you|it|that|this|haha|lol)\b", core):
            yield _made(sentence, at, _Judged("constraint", 0.55, "reason"))


_FINE = re.compile(
    r"^(?P<what>.{3,80}?) (?:is|are|sounds|seems|works|looks|would be) (?:fine|ok|okay|enough|plenty)(?: (?:for|with|by) (?:me|us|now))?[.!]?$"
)


def _agreed(sentence: Sentence, reply: str) -> Iterator[tuple[Sentence, _Judged]]:
    """ "A window of five days is fine": what the model offered is decided, if it offered that."""
    core = plain(without_lead(sentence.text))
    fine = _FINE.match(core)
    if not reply or not fine or _hits(core, ("question", "sarcasm", "hypothetical")):
        return
    words = {word for word in _WORD.findall(fine["what"]) if len(word) > 3 or word.isdigit()}
    if words & set(_WORD.findall(plain(reply[-2000:]))) or re.search(r"\d", fine["what"]):
        yield sentence, _Judged("decision", 0.65, "fine")


def _ironic(own: Sequence[Sentence]) -> frozenset[int]:
    """A joke, and what goes with it: what a lone "lol" is about, and a few words that go on with it."""
    found = [n for n, one in enumerate(own) if _hits(plain(one.text), ("sarcasm",))]
    before = [n - 1 for n in found if n and len(own[n].text.split()) <= 3]
    after = [n + 1 for n in found if n + 1 < len(own) and len(own[n + 1].text.split()) <= 5]
    return frozenset((*found, *before, *after))


def _is_joke(own: Sequence[Sentence]) -> bool:
    """Irony in a short message, or at its end, is the whole message's."""
    ironic = [n for n, one in enumerate(own) if _hits(plain(one.text), ("sarcasm",))]
    return bool(ironic) and (len(own) <= 2 or (ironic[-1] == len(own) - 1 and len(own) <= 3))


# -- what a sentence is


def _judged(sentence: Sentence, *, first: bool) -> Iterator[tuple[Sentence, _Judged]]:
    """The sentence with what it is, or those of its clauses that are something."""
    clauses = list(_clauses(sentence))
    sentence = _without_task(sentence, clauses)
    hits, one = _judge(sentence.text, first=first)
    if one is None and sentence.item:
        one = _listed(sentence, hits)
    if one is not None:
        yield sentence, one
        return
    if hits & (_STRICT - {"others"}) or sentence.text.rstrip().endswith("?") or len(clauses) < 2:
        return
    for n, clause in enumerate(clauses):
        if "others" in hits and not (n and re.match(r"(?:we|i|our|not|use|so we)\b", clause.text, re.IGNORECASE)):
            continue
        if len(clause.text.split()) >= 3:
            _, one = _judge(clause.text, first=True)
            if one is not None:
                yield clause, one._replace(sure=one.sure - 0.05)


def _without_task(sentence: Sentence, clauses: Sequence[Sentence]) -> Sentence:
    """Without the clauses before it that only say what to do now: "commit this, and never sign commits"."""
    start = 0
    while start < len(clauses) - 1 and _hits(plain(without_lead(clauses[start].text)), ("task",)):
        if _judge(clauses[start].text, first=True)[1]:
            break
        start += 1
    if not start or (len(_WORD.findall(clauses[start].text)) < 3 and start == len(clauses) - 1):
        return sentence
    skip = clauses[start].start - sentence.start
    quote = sentence.quote[skip:]
    rest = sentence._replace(text=" ".join(quote.split()), quote=quote, start=sentence.start + skip)
    return rest if _judge(rest.text, first=True)[1] else sentence


def _judge(text: str, *, first: bool) -> tuple[frozenset[str], _Judged | None]:
    whole, core = plain(text), plain(without_lead(text))
    if len(core) < 6:
        return frozenset(), None
    hits = _hits(core, tuple(lexicon.vetoes())) | _hits(whole, ("sarcasm", "others", "oneoff", "question"))
    for rule in lexicon.rules():
        if hits - rule.despite or (rule.later and first):
            continue
        if rule.unless and (rule.unless.search(core) or rule.unless.search(whole)):
            continue
        if rule.pattern.search(core) or rule.pattern.search(whole):
            return hits, _Judged(rule.type, rule.sure, rule.name)
    return hits, None


def _hits(words: str, names: Sequence[str]) -> frozenset[str]:
    known = lexicon.vetoes()
    found = []
    for name in names:
        pattern, unless = known[name]
        if pattern.search(words) and not (unless and unless.search(words)):
            found.append(name)
    return frozenset(found)


@cache
def _headings() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, lexicon.any_of(patterns)) for kind, patterns in lexicon.table("said")["items"].items())


def _listed(sentence: Sentence, hits: frozenset[str]) -> _Judged | None:
    """In a list of rules, an entry is one even without a word that says so."""
    if not sentence.under or hits & {"question", "others", "sarcasm", "hypothetical"}:
        return None
    for kind, heading in _headings():
        if heading.search(sentence.under):
            return _Judged(kind, 0.75, f"under {kind}")
    return None


def _clauses(sentence: Sentence) -> Iterator[Sentence]:
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


# -- what it says, by itself


@cache
def _lead() -> re.Pattern[str]:
    said = lexicon.table("said")["text"]
    sign, space = "|".join(said["lead_sign"]), "|".join(said["lead_space"])
    return re.compile(rf"^\s*(?:(?:{sign})\s*(?:[,:;.!…]+|\s[—–-]+)\s*|(?:{space})\s+)(?=\S)", re.IGNORECASE)


def without_lead(text: str) -> str:
    for _ in range(5):
        shorter = _lead().sub("", text, count=1)
        if shorter == text or len(shorter) < 4:
            break
        text = shorter
    return text


def _hangs(text: str, how: str = "hangs") -> bool:
    return lexicon.pattern("said", "text", how).search(without_lead(text)) is not None


def _stands(text: str) -> bool:
    """ "It has to work offline": "it" is what the session is about."""
    words = [word for word in _WORD.findall(plain(without_lead(text))) if word not in _stop()]
    return without_lead(text).lower().startswith(("it ", "it's ", "its ", "this ", "that's ", "that is ")) and len(words) >= 2


@cache
def _stop() -> frozenset[str]:
    return frozenset(lexicon.table("said")["text"]["stop"])


_ASKS = re.compile(r"^(?:and |also |so |ok |then )*(?:can|could|would|will) you (?:please |also |maybe )*", re.IGNORECASE)


def _request(sentence: Sentence) -> Sentence:
    """ "Can you put the date in every mail?" as what is asked for."""
    if _ASKS.match(sentence.text):
        return sentence._replace(text=_ASKS.sub("", sentence.text).rstrip("? "))
    return sentence


def _may_carry(sentence: Sentence) -> bool:
    sentence = _request(sentence)
    words = plain(sentence.text)
    hits = _hits(words, ("question", "hypothetical", "others", "sarcasm", "idle"))
    return not hits and len(_WORD.findall(words)) >= 3 and not sentence.text.rstrip().endswith("?")


def worded(text: str, at: str | None = None) -> str:
    """As a note says it: no greeting before it, no request behind it, days as dates, one line, not too long."""
    found = without_lead(" ".join(text.split()))
    found = resolved(found, at)
    cut = _TAIL.sub("", found)
    if len(cut) >= 20:
        found = cut
    found = shortened(found.strip(" ,;:–—"))
    return found[:1].upper() + found[1:] if re.match(r"[a-z]+(?:['’]\w+)?\b(?![./_:@-]\w)", found) else found


def shortened(text: str, most: int = TEXT) -> str:
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    for sign in (". ", "; ", ", ", " "):
        place = cut.rfind(sign)
        if place > most // 2:
            return cut[:place].rstrip(" ,;:") + "…"
    return cut + "…"


def _made(sentence: Sentence, at: str | None, one: _Judged) -> Found:
    return Found(one.type, worded(sentence.text, at), sentence.quote[:QUOTE], sentence.start, one.sure, one.rule)


def _both(before: Sentence, sentence: Sentence, message: str, at: str | None, one: _Judged) -> Found:
    end = sentence.start + len(sentence.quote)
    quote = message[before.start : end]
    text = f"{worded(before.text, at).rstrip('.')}. {worded(sentence.text, at)}"
    if len(quote) > QUOTE or len(text) > TEXT:
        return Found(one.type, shortened(text), sentence.quote[:QUOTE], sentence.start, one.sure - 0.1, one.rule)
    return Found(one.type, text, quote, before.start, one.sure - 0.1, one.rule)


def _join(found: list[Found], n: int, sentence: Sentence, at: str | None, judged: Sequence[tuple[Sentence, _Judged]]) -> None:
    """A sentence that goes on with what the one before says: its reason, or how often. The more telling one says what it is."""
    one = found[n]
    text = f"{one.text.rstrip('.')}. {worded(sentence.text, at)}"
    if len(text) > TEXT or sentence.text.rstrip().endswith("?"):
        return
    if judged or not _hits(plain(sentence.text), tuple(lexicon.vetoes())):
        found[n] = one._replace(text=text)
        if judged and one.rule.startswith("states") and not judged[0][1].rule.startswith("states"):
            found[n] = found[n]._replace(type=judged[0][1].type, sure=judged[0][1].sure, rule=judged[0][1].rule)


_VERB = re.compile(r"(?:have|has|had|is|are|was|not|only|which|who|or|than|as)\b", re.IGNORECASE)


def _standing(sentence: Sentence) -> tuple[Sentence, _Judged] | None:
    """The clause of a sentence that stands by itself, where its beginning does not: "leave it, but the fixture needs …"."""
    for clause in list(_clauses(sentence))[1:]:
        if len(clause.text.split()) >= 4 and not _hangs(clause.text) and not _VERB.match(clause.text):
            _, one = _judge(clause.text, first=True)
            if one is not None and one.type in ("open_loop", "constraint", "decision", "procedure"):
                return clause, one
    return None
