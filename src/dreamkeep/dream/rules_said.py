"""What a user says in a message → what it is, in his own words: preferences, constraints, corrections, decisions … Pure.

Here is what a sentence means where it stands: one that says nothing by itself ("do that before every commit") is joined with the
one before, or dropped; what follows a "no" corrects; a joke is none of it. What a single sentence is, judge.py knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from dreamkeep.dream import lexicon
from dreamkeep.dream.judge import Judged, hangs, hits, judged, standing
from dreamkeep.dream.sentences import Sentence, plain, sentences
from dreamkeep.dream.worded import TEXT, shortened, without_lead, worded

QUOTE = 400
#: Of one message; the surest.
MOST = 10
_NO = re.compile(r"\s*(?:no+|nope|nah|wrong|hm+,? no|wait,? no|actually,? no)\b\s*[,.!:;—–-]", re.IGNORECASE)
_TURNS_DOWN = re.compile(r"(?:not|no|never|do not)\b")
_NAMES = re.compile(r"\b(?:is|are|be|gets?) (?:called|named)\b", re.IGNORECASE)
#: "You renamed the fixtures. Don't, others import them."
_YOU_DID = re.compile(
    r"(?:\w+[,:] )?(?:you|you've|you have) (?:just |also |again )?(?:\w+ed|made|put|took|wrote|cut|split)\b", re.IGNORECASE
)
_DO_NOT = re.compile(r"(?:please )?(?:don['’]?t|do not|never)(?:[,;:]| [—–-]) ?\w+ \w+", re.IGNORECASE)
_WORD = re.compile(r"[\w'’/.@#+-]+")
_ASKS = re.compile(r"^(?:and |also |so |ok |then )*(?:can|could|would|will) you (?:please |also |maybe )*", re.IGNORECASE)
_FINE = re.compile(
    r"^(?P<what>.{3,80}?) (?:is|are|sounds|seems|works|looks|would be) (?:fine|ok|okay|enough|plenty)"
    r"(?: (?:for|with|by) (?:me|us|now))?[.!]?$"
)
#: What a wish may be taken for.
_OF_THINGS = ("constraint", "procedure", "preference", "finding")
#: Rules that see no more than a statement.
_WEAK = ("states", "states a rule", "states a habit", "here", "contrast")
_IT = ("it ", "it's ", "its ", "this ", "that's ", "that is ")


class Found(NamedTuple):
    """`start`: where the quote stands in the message. `rule`: which one found it."""

    type: str
    text: str
    quote: str
    start: int
    sure: float
    rule: str


def said(message: str, at: str | None = None, *, refused: bool = False, reply: str = "", first: bool = False) -> list[Found]:
    """`refused`: the user said it when he did not allow a call. `reply`: what the model said before: he may answer a question.
    `first`: it is the prompt that the session began with. `at`: when it was said."""
    own = _merged(sentences(message), message)
    if not own or _is_joke(own) or _tells("unsure", plain(own[-1].text)):
        return []
    # One plain statement and nothing else is mostly what is to be mended.
    lone = len(own) == 1 and len(own[0].text.split()) <= 8 and not re.search(r"[,;:(]", message) and not asked(reply)
    told = _Told(message, own, at, reply=reply, refused=refused, first=first or lone)
    ironic = _ironic(own)
    for n in range(len(own)):
        if n not in ironic:
            told.sentence(n)
    found = [*told.found, *(_reasons(own, at, [one.start for one in told.found]) if refused else ())]
    best = sorted(range(len(found)), key=lambda n: (-found[n].sure, n))[:MOST]
    return [found[n] for n in sorted(best) if len(found[n].text) > 5]


class _Told:
    """A message, sentence by sentence, with what was found so far and in which sentence."""

    def __init__(self, message: str, own: Sequence[Sentence], at: str | None, *, reply: str, refused: bool, first: bool) -> None:
        self.found: list[Found] = []
        self._message = message
        self._own = own
        self._at = at
        self._reply = reply
        self._refused = refused
        self._first = first
        self._no = _NO.match(message) is not None
        self._builds = any(builds(one) for one in own)
        self._puzzled = any(_tells("puzzled", plain(one.text)) for one in own)
        #: Of each sentence in which something was found: which of `found`.
        self._last: dict[int, int] = {}

    def sentence(self, n: int) -> None:
        one = self._own[n]
        kinds = list(judged(one, first=self._first)) or list(_agreed(one, self._reply))
        if self._builds:
            kinds = [(part, kind) for part, kind in kinds if not _is_wish(part, kind)]
        if self._puzzled:
            kinds = [(part, kind) for part, kind in kinds if not _is_symptom(one, kind)]
        before = self._last.get(n - 1)
        if n and not kinds and before is None and _DO_NOT.match(one.text) and _YOU_DID.match(self._own[n - 1].text):
            self._put(n, self._both(self._own[n - 1], one, Judged("correction", 0.8, "you did")))
            return
        carried = before is not None or (n > 0 and _may_carry(self._own[n - 1]))
        if before is not None and _is_fragment(one) and (not kinds or one.text.lower().startswith("back to")):
            self._join(n, before, one, kinds)
        elif not hangs(one.text) and not (carried and hangs(one.text, "leans")):
            for part, kind in kinds:
                if not hangs(part.text):
                    self._stands(n, part, kind, kinds)
        elif before is not None:
            self._join(n, before, one, kinds)
        elif kinds and (carried or (n > 0 and kinds[0][1].type == "open_loop" and _may_carry(self._own[n - 1], idle=True))):
            self._put(n, self._both(_request(self._own[n - 1]), one, kinds[0][1]))
        elif kinds and n == 0:
            self._alone(one, kinds[0][1])
        elif rest := standing(one):
            self._put(n, self._made(*rest))

    def _put(self, n: int, one: Found) -> None:
        self.found.append(one)
        self._last[n] = len(self.found) - 1

    def _stands(self, n: int, part: Sentence, kind: Judged, kinds: Sequence[tuple[Sentence, Judged]]) -> None:
        before = self._last.get(n - 1)
        known = self.found[before] if before is not None else None
        kind = _in_context(kind, known, refused=self._refused, no=self._no, named=_NAMES.search(part.text) is not None)
        if before is not None and _goes_on(self.found[before], part, kind):
            self._join(n, before, part, kinds)
        elif n and before is None and part.start == self._own[n].start and _is_head(self._own[n - 1]):
            self._put(n, self._both(self._own[n - 1], part, kind))
        else:
            self._put(n, self._made(part, kind))

    def _alone(self, one: Sentence, kind: Judged) -> None:
        """It begins with "it", and nothing stands before it: perhaps the model asked, or "it" is what the session is about."""
        alone = self._made(one, kind)
        if question := asked(self._reply):
            self._put(0, alone._replace(text=shortened(f"{question} {alone.text}")))
        elif rest := standing(one):
            self._put(0, self._made(*rest))
        elif without_lead(one.text).lower().startswith(_IT) and len(_telling(one.text)) >= 2:
            self._put(0, alone._replace(sure=alone.sure - 0.1))

    def _made(self, part: Sentence, kind: Judged) -> Found:
        return made(part, self._at, kind)

    def _both(self, before: Sentence, one: Sentence, kind: Judged) -> Found:
        quote = self._message[before.start : one.start + len(one.quote)]
        text = f"{worded(before.text, self._at).rstrip('.')}. {worded(one.text, self._at)}"
        if len(quote) > QUOTE or len(text) > TEXT:
            quote, start = one.quote[:QUOTE], one.start
        else:
            start = before.start
        return Found(kind.type, shortened(text), quote, start, kind.sure - 0.1, kind.rule)

    def _join(self, n: int, before: int, one: Sentence, kinds: Sequence[tuple[Sentence, Judged]]) -> None:
        """It goes on with what the one before says: its reason, or how often. The more telling of both says what it is."""
        self._last[n] = before
        known = self.found[before]
        text = f"{known.text.rstrip('.')}. {worded(one.text, self._at)}"
        if len(text) > TEXT or one.text.rstrip().endswith("?") or (not kinds and hits(plain(one.text))):
            return
        self.found[before] = known._replace(text=text)
        if kinds and known.rule.startswith("states") and not kinds[0][1].rule.startswith("states"):
            kind = kinds[0][1]
            self.found[before] = self.found[before]._replace(type=kind.type, sure=kind.sure, rule=kind.rule)


def made(part: Sentence, at: str | None, kind: Judged) -> Found:
    return Found(kind.type, worded(part.text, at), part.quote[:QUOTE], part.start, kind.sure, kind.rule)


# -- what a sentence means where it stands


def _in_context(one: Judged, before: Found | None, *, refused: bool, no: bool, named: bool) -> Judged:
    """What follows a decision spells it out, so does what it calls something; what follows a "no" corrects."""
    if one.rule in ("states", "contrast") and before is not None and before.type in ("decision", "constraint", "correction"):
        return one._replace(type=before.type)
    if one.rule == "found" and before is not None and before.type == "decision" and named:
        return one._replace(type="decision")
    if refused and (one.rule.startswith("states") or one.rule in ("contrast", "how")):
        return one._replace(type="constraint")
    if no and one.rule in ("states", "states a rule", "contrast", "here"):
        return one._replace(type="correction")
    return one


def _goes_on(before: Found, part: Sentence, one: Judged) -> bool:
    """Whether it tells more of the same: a finding that speaks of "it", or a few words more."""
    words = _WORD.findall(part.text)
    if one.rule == "states" and before.rule == "states" and len(words) <= 6:
        return True
    return one.type == before.type == "finding" and any(word.lower() in ("it", "it's", "its", "they") for word in words)


def _agreed(sentence: Sentence, reply: str) -> Iterator[tuple[Sentence, Judged]]:
    """ "A window of five days is fine": what the model offered is decided, if it offered that."""
    core = plain(without_lead(sentence.text))
    fine = _FINE.match(core)
    if not reply or not fine or hits(core, "question", "sarcasm", "hypothetical"):
        return
    words = {word for word in _WORD.findall(fine["what"]) if len(word) > 3 or word.isdigit()}
    if words & set(_WORD.findall(plain(reply[-2000:]))) or re.search(r"\d", fine["what"]):
        yield sentence, Judged("decision", 0.65, "fine")


def _reasons(own: Sequence[Sentence], at: str | None, known: Sequence[int]) -> Iterator[Found]:
    """Whatever else a user says when he refuses a call is why, or what to do in its place. Only if nothing better was found."""
    for n, sentence in enumerate(own):
        if (n and known) or any(sentence.start <= start < sentence.start + len(sentence.quote) for start in known):
            continue
        core = plain(without_lead(sentence.text))
        # "Not Redux, at my last job it was a mess": where it was learnt does not matter to who turns it down.
        despite = {"task", "others", "report", "narrates"} if _TURNS_DOWN.match(core) else {"task"}
        told = len(_WORD.findall(core)) >= 5 and not hits(core) - despite
        if told and not re.match(r"(?:i|of course|you|it|that|this|haha|lol)\b", core):
            yield made(sentence, at, Judged("constraint", 0.55, "reason"))


def asked(reply: str) -> str:
    """The question that a model's words end with."""
    own = sentences(reply[-1500:])
    return own[-1].text if own and own[-1].text.endswith("?") and len(own[-1].text) <= 140 else ""


def is_answer(text: str) -> bool:
    """Whether a few words could be what somebody wants: no question, no what-if, nothing to do now."""
    return not hits(plain(text)) and not hangs(text)


# -- what is to be built


def builds(sentence: Sentence) -> bool:
    """Whether somebody wants something built or mended."""
    core = plain(without_lead(sentence.text))
    return _tells("builds", core) and not hits(core, "hypothetical", "others")


def _is_wish(sentence: Sentence, kind: Judged) -> bool:
    """Whether it only says what the thing must do that is to be built: "the export needs a header row"."""
    if kind.type not in _OF_THINGS or kind.rule == "found" or sentence.item:
        return False
    core = plain(without_lead(sentence.text))
    return (kind.rule in _WEAK or _tells("feature", core)) and not _tells("beyond", core)


def _is_symptom(sentence: Sentence, kind: Judged) -> bool:
    """Whether it only says what is seen, where somebody does not know why: "the board resets every 20 minutes"."""
    return (kind.rule in _WEAK or kind.rule == "found") and not _tells("knows", plain(sentence.text))


def _tells(what: str, words: str) -> bool:
    return lexicon.pattern("said", "text", what, 0).search(words) is not None


# -- scraps, requests, jokes


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
    parts = re.split(r"[.!]", sentence.text)
    return (
        sum(len(one.split()) for one in parts) <= 5
        and max(len(one.split()) for one in parts) <= 3
        and not hits(plain(sentence.text))
    )


def _is_fragment(sentence: Sentence) -> bool:
    """A few words that are no sentence, behind one that is: "Back to UTC."; "Ids only."."""
    return 1 < len(sentence.text.split()) <= 3 and not hits(plain(sentence.text))


def _is_head(sentence: Sentence) -> bool:
    """A lone command or name before the sentence that speaks of it."""
    bare = sentence.text.rstrip(".!")
    if bare.startswith("`") and bare.endswith("`"):
        return True
    return len(bare.split()) <= 2 and re.search(r"[/._-]|[A-Z]{2}|\d", bare) is not None and _is_fragment(sentence)


def _telling(text: str) -> list[str]:
    return [word for word in _WORD.findall(plain(without_lead(text))) if word not in _stop()]


@cache
def _stop() -> frozenset[str]:
    return frozenset(lexicon.table("said")["text"]["stop"])


def _request(sentence: Sentence) -> Sentence:
    """ "Can you put the date in every mail?" as what is asked for."""
    if _ASKS.match(sentence.text):
        return sentence._replace(text=_ASKS.sub("", sentence.text).rstrip("? "))
    return sentence


def _may_carry(sentence: Sentence, *, idle: bool = False) -> bool:
    """Whether a sentence that hangs may lean on this one. `idle`: though it only says what is needed."""
    sentence = _request(sentence)
    words = plain(sentence.text)
    found = hits(words, "question", "hypothetical", "others", "sarcasm", *(() if idle else ("idle",)))
    return not found and len(_WORD.findall(words)) >= 3 and not sentence.text.rstrip().endswith("?")


def _ironic(own: Sequence[Sentence]) -> frozenset[int]:
    """A joke, and what goes with it: what a lone "lol" is about, and a few words that go on with it."""
    found = [n for n, one in enumerate(own) if hits(plain(one.text), "sarcasm")]
    before = [n - 1 for n in found if n and len(own[n].text.split()) <= 3]
    after = [n + 1 for n in found if n + 1 < len(own) and len(own[n + 1].text.split()) <= 5]
    return frozenset((*found, *before, *after))


def _is_joke(own: Sequence[Sentence]) -> bool:
    """Irony in a short message, or at its end, is the whole message's."""
    ironic = [n for n, one in enumerate(own) if hits(plain(one.text), "sarcasm")]
    return bool(ironic) and (len(own) <= 2 or (ironic[-1] == len(own) - 1 and len(own) <= 3))
