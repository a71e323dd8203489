"""Which of what the rules found in a message is kept, and what they missed, by weight (weigh.py). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from dreamkeep.dream import lexicon
from dreamkeep.dream.judge import Judged, clauses, hangs, hits, judge
from dreamkeep.dream.rules_said import QUOTE, Found, made
from dreamkeep.dream.sentences import Sentence, plain, sentences
from dreamkeep.dream.weigh import Around, Weighed, bare, of_user, weighed
from dreamkeep.dream.worded import TEXT, shortened, without_lead, worded

#: From which weight on something is kept by itself; what a rule finds; what is said as a rule in so many words; what the user
#: took of an offer.
ALONE, KEEP, NORM, TAKEN = 3.0, 1.75, -2.0, -2.0
NORM_ALONE = 0.0
#: What one rule finds, by words that bind ("needs", "only", "do not"): who says them mostly means them.
MUST = ("must", 0.5)
#: An order for good in a clause of its own; what is put off, or changed to something else, in so many words. What stands around
#: it makes it hardly less.
ORDER, OUTRIGHT = -2.0, -4.0
#: How much more must speak for another type than for the one that a rule tells.
DOUBT = 0.5
#: So few words are an answer, and say nothing without the question.
_SHORT = 6
#: So few are no sentence.
_SCRAP = 3
#: So many at most for a clause to be told with its whole sentence.
_WHOLE = 25
_CHOICES = ("decision", "rejection")
#: Whoever asks, jokes or supposes does not mean it.
_NOT_MEANT = ("question", "hypothetical", "sarcasm", "others")
_LOOK = 800
MOST = 10


class Message:
    """A user's message with what the rules found in it. `taken`: (type, quote) of what the model offered and the user took."""

    def __init__(
        self, text: str, when: str | None, found: Sequence[Found], around: Around, taken: Sequence[tuple[str, str]]
    ) -> None:
        self._text = text
        self._at = when
        self._found = found
        self._around = around
        said = [(one.start, one.start + len(one.quote), (one.type, one.rule, one.sure)) for one in found]
        offers = [(at, at + len(quote), (kind, "offer", 0.75)) for kind, quote in taken if (at := text.find(quote)) >= 0]
        self._known = (*said, *offers)
        self.own = sentences(text)

    def marks(self) -> Iterator[frozenset[str]]:
        """For each sentence; what the weights are learnt from, too."""
        for n, one in enumerate(self.own):
            known = [what for start, end, what in self._known if _meets(one, start, end)]
            yield of_user(self.own, n, self._around, known)

    @cached_property
    def _each(self) -> list[Weighed]:
        return [weighed("user", one) for one in self.marks()]

    def chosen(self) -> list[Found]:
        """What was found and weighs enough, and what weighs enough by itself."""
        kept = [found for one in self._found if (found := self._typed(one)) is not None]
        more = [
            self._alone(n, kind)
            for n, kind in enumerate(self._each)
            if kind.keep >= self._least_alone(self.own[n])
            and not any(_meets(self.own[n], start, end) for start, end, _ in self._known)
        ]
        return sorted((*kept, *more), key=lambda one: one.start)[:MOST]

    def _typed(self, one: Found) -> Found | None:
        """As what its heaviest sentence is, if that weighs enough. What no sentence holds was found by other means."""
        kind = self._heaviest(one.start, one.start + len(one.quote))
        if kind is None:
            return one
        if kind.keep < self._least(one):
            return None
        doubt = kind.types.get(kind.type, 0.0) - kind.types.get(one.type, 0.0)
        typed = self._whole(one._replace(type=kind.type) if doubt >= DOUBT else one)
        if typed.type == "open_loop" and self._is_ordered(one):
            typed = typed._replace(type="constraint")  # "for the next time: please never …" is nothing to be done then
        offer = self._offer(one.quote, typed.type)
        return typed._replace(text=_behind(offer, typed.text)) if offer else typed

    def _is_ordered(self, one: Found) -> bool:
        return any(_orders(each) for each in self.own if _meets(each, one.start, one.start + len(one.quote)))

    def _whole(self, one: Found) -> Found:
        """Of a clause the sentence it stands in: what is said beside it is mostly what it is about, or why."""
        end = one.start + len(one.quote)
        for each in self.own:
            is_part = each.start <= one.start and end <= each.start + len(each.quote) and len(one.quote) < len(each.quote)
            if (
                is_part
                and len(each.text.split()) <= _WHOLE
                and not each.text.endswith("?")
                and one.text == worded(one.quote, self._at)
            ):
                return one._replace(text=worded(each.text, self._at), quote=each.quote[:QUOTE], start=each.start)
        return one

    def _least(self, one: Found) -> float:
        """Who says "must", "never" or "we decided", with nothing that speaks against it, means it."""
        end = one.start + len(one.quote)
        met = [each for each in self.own if _meets(each, one.start, end)]
        outright = [least for each in met if (least := _least_outright(each)) is not None]
        plain_least = MUST[1] if one.rule == MUST[0] else KEEP
        return min(outright, default=NORM if any(_is_norm(each.text) for each in met) else plain_least)

    def _least_alone(self, one: Sentence) -> float:
        """What a session begins with says what is to be made: there "it must" is no rule by itself. A few words answer. What is
        told by the way is told to be known."""
        if (outright := _least_outright(one)) is not None:
            return outright
        if _is_aside(one.text):
            return NORM_ALONE
        if not self._around.first and _is_worded_as_norm(one.text):
            return NORM_ALONE if _is_norm(one.text) else KEEP
        return KEEP if len(one.text.split()) <= _SHORT and self._around.reply else ALONE

    def holds(self, quote: str) -> bool:
        """Whether what rests on this quote is kept."""
        start = self._text.find(quote)
        kind = self._heaviest(start, start + len(quote))
        return kind is None or kind.keep >= TAKEN

    def _heaviest(self, start: int, end: int) -> Weighed | None:
        met = [kind for one, kind in zip(self.own, self._each, strict=True) if _meets(one, start, end)]
        return max(met, key=lambda kind: kind.keep, default=None)

    def _alone(self, n: int, kind: Weighed) -> Found:
        one = self.own[n]
        sure = round(min(0.9, 0.5 + kind.keep / 10), 2)
        before = self._around.asked if len(one.text.split()) <= _SHORT else ""
        if before := before or self._offer(one.text, kind.type):
            return Found(kind.type, _behind(before, worded(one.text, self._at)), one.quote, one.start, sure, "weight")
        if n and hangs(one.text) and (both := self._both(self.own[n - 1], one)):
            return Found(kind.type, *both, sure, "weight")
        return made(one, self._at, Judged(kind.type, sure, "weight"))

    def _offer(self, text: str, kind: str) -> str:
        """What a scrap chooses from, where nothing was asked: the model's sentence that names most of it, the later the better.
        What is a sentence by itself stays so: said again elsewhere, it is to be known again."""
        if self._around.asked or kind not in _CHOICES or not _is_scrap(text):
            return ""
        words = set(bare(text))
        told = [one.text for one in sentences(self._around.reply[-_LOOK:]) if len(one.text.split()) > _SCRAP]
        return max(((len(words & set(bare(one))), n, one) for n, one in enumerate(told)), default=(0, 0, ""))[2]

    def _both(self, before: Sentence, one: Sentence) -> tuple[str, str, int] | None:
        quote = self._text[before.start : one.start + len(one.quote)]
        text = f"{worded(before.text, self._at).rstrip('.')}. {worded(one.text, self._at)}"
        return (text, quote, before.start) if len(quote) <= QUOTE and len(text) <= TEXT else None


def _is_scrap(text: str) -> bool:
    """ "token bucket", "30 days then": it begins with what it names, not with who or what to do."""
    words = without_lead(text).split()
    return 0 < len(words) <= _SCRAP and bool(bare(words[0]))


def _behind(before: str, answer: str) -> str:
    """The answer is never what is cut."""
    return f"{shortened(before, max(0, TEXT - len(answer) - 1))} {answer}"


def _meets(one: Sentence, start: int, end: int) -> bool:
    return start < one.start + len(one.quote) and one.start < end


def _is_norm(text: str) -> bool:
    return _is_worded_as_norm(text) and not judge(text, first=False)[0] - {"report"}


def _least_outright(one: Sentence) -> float | None:
    """ "…, please never start it on the login node": what is said before and behind does not matter. None: it is nothing such."""
    if hits(plain(one.text), *_NOT_MEANT):
        return None
    if lexicon.pattern("talk", "text", "outright").search(plain(without_lead(one.text))):
        return OUTRIGHT
    return ORDER if _orders(one) else None


@lru_cache(512)
def _orders(one: Sentence) -> bool:
    """Whether one of its clauses is an order for good, with nothing in it that speaks against that."""
    orders = lexicon.pattern("talk", "text", "orders")
    return any(orders.match(plain(each.text)) and not judge(each.text, first=False)[0] - {"report"} for each in clauses(one))


def _is_aside(text: str) -> bool:
    told = lexicon.pattern("talk", "text", "asides").match(text)
    return told is not None and not judge(text, first=False)[0]


def _is_worded_as_norm(text: str) -> bool:
    return lexicon.pattern("talk", "text", "norms").search(plain(without_lead(text))) is not None
