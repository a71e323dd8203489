"""What the model offered, and the user took or turned down: the choice in his words, with what it answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from dreamkeep.dream import lexicon
from dreamkeep.dream.given import Proposal, Said
from dreamkeep.dream.rules_said import asked, is_answer, said
from dreamkeep.dream.sentences import plain, sentences
from dreamkeep.dream.worded import shortened, worded
from dreamkeep.dream.work import Prompt, Reply, Step

_WORDS = re.compile(r"[A-Za-z0-9_][\w./@:+#-]*[\w]|`[^`]+`|\w")
#: Before an answer, and behind it.
_LEAD = re.compile(
    r"^(?:(?:yes|yeah|ok(?:ay)?|hm+|uh|ah|oh|well|then|i think|i guess|rather|good question"
    r"|let.?s (?:say|do|take|go with|go for))[,. ]{1,3}){1,4}",
    re.IGNORECASE,
)
_END = re.compile(r"[,.;:!]\s|\s[—–-]+\s")
#: A reason that is longer is none to keep.
_REASON = 120
#: Of a message that is longer only the first sentence may be an answer, if it has no more words than that.
_LONG, _MANY = 300, 12
_PLACES = {"first": 0, "former": 0, "second": 1, "third": 2, "fourth": 3, "last": -1, "latter": -1}


def _talk(part: str, name: str) -> re.Pattern[str]:
    return lexicon.pattern("talk", part, name, re.IGNORECASE | re.MULTILINE if name == "option" else re.IGNORECASE)


def offers(steps: Sequence[Step]) -> Iterator[Proposal]:
    reply: Reply | None = None
    #: The last reply with a list to choose from: a user may ask back before he does.
    listed: Reply | None = None
    for step in steps:
        if isinstance(step, Reply):
            reply = step
            listed = step if len(_options(step.said)) > 1 else listed
        elif isinstance(step, Prompt):
            if reply is not None and not step.known and (answer := _answer(step.said)) is not None:
                found = list(_chosen(listed.said, answer)) if listed is not None else []
                yield from found or _taken(reply.said, answer)
                listed = None if found else listed
            reply = None


def _answer(said: Said) -> Said | None:
    """A short message; of a long one what it begins with: "the second one. some context: …"."""
    if len(said.text) <= _LONG:
        return said
    own = sentences(said.text)
    return said._replace(text=own[0].quote) if own and len(own[0].text.split()) <= _MANY else None


def _options(offer: Said) -> dict[str, str]:
    return {label.lower(): text for label, text in _talk("reply", "option").findall(offer.text[-1500:])}


def _chosen(offer: Said, answer: Said) -> Iterator[Proposal]:
    """Of a list: "ok, 2 then. the other is too much work"; "the second one"; "binary greedy. but write it yourself"."""
    options = _options(offer)
    for words in [one.quote for one in sentences(answer.text)[:3]] or [answer.text.strip()]:
        if "?" in words:
            continue
        put_off = _talk("answer", "later").search(words) is not None
        if found := _by_place(words, options) or (not put_off and (_by_label(words, options) or _by_name(words, options))):
            yield _decided(f"Chosen: {found.replace('**', '').strip()}", offer, answer, words, found)
            return


def _by_label(words: str, options: Mapping[str, str]) -> str:
    named = _talk("answer", "named").match(words)
    return options.get(named[1].lower(), "") if named and len(words.split()) <= 8 else ""


def _by_place(words: str, options: Mapping[str, str]) -> str:
    placed = _talk("answer", "placed").match(words)
    if not placed or len(words.split()) > 8:
        return ""
    place = _PLACES[placed[1].lower()]
    found = list(options.values())
    return found[place] if place < len(found) else ""


def _by_name(words: str, options: Mapping[str, str]) -> str:
    """If all that he names stands in one of them, and in no other."""
    bare = _END.split(_LEAD.sub("", words.strip(" .!")), maxsplit=1)[0]
    named = {word for word in _words(bare) if len(word) > 2}
    if len(bare.split()) > 4 or not any(len(word) > 3 for word in named) or not is_answer(bare):
        return ""
    found = [one for one in options.values() if named <= set(_words(one))]
    return found[0] if len(found) == 1 else ""


def _taken(offer: Said, answer: Said) -> Iterator[Proposal]:
    words = answer.text.strip()
    first = words.partition("\n")[0][:200]
    tail = offer.text[-1500:]
    asked = _talk("reply", "offer").search(tail)
    if asked and not _talk("answer", "later").search(first) and len(first.split()) <= 14 and "?" not in first:
        what = worded(asked[1], answer.at)
        if _talk("answer", "yes").match(first):
            yield _decided(what, offer, answer, first, asked[0])
            return
        if _talk("answer", "no").match(first) and not said(words):
            yield _decided(f"Not wanted: {what[:1].lower()}{what[1:]}", offer, answer, first, asked[0], kind="rejection")
            return
    yield from list(_picked(offer, answer, first)) or _echoed(offer, answer)


def _echoed(offer: Said, answer: Said) -> Iterator[Proposal]:
    """ "I could limit the depth or add random moves." — "depth 2, random feels unfair": his words name what was offered."""
    own = sentences(answer.text)
    might = [one for one in sentences(offer.text[-1500:])[-3:] if _talk("reply", "might").search(plain(one.text))]
    if not own or not might or "?" in answer.text:
        return
    sure = _talk("answer", "yes").match(own[0].text) is not None
    bare = _LEAD.sub("", own[0].text)
    chosen = _END.split(bare, maxsplit=1)[0]
    if len(own[0].text.split()) > 16 or len(chosen.split()) > (6 if sure else 4) or not is_answer(chosen):
        return
    words = {word for word in about(chosen).split() if len(word) > 3}
    for one in might:
        if words & set(_words(one.text)) and not said(answer.text, reply=offer.text):
            yield _decided(worded(bare, answer.at), offer, answer, own[0].quote, one.quote)
            return


def _picked(offer: Said, answer: Said, first: str) -> Iterator[Proposal]:
    """ "Postgres or SQLite?" — "sqlite, the small one"."""
    question = asked(offer.text)
    bare = _LEAD.sub("", first.strip(" .!,"))
    if not question or _is_procedural(question) or _is_factual(question) or not _talk("reply", "choice").search(question):
        return
    if not about(bare) or said(answer.text, reply=offer.text):
        return
    chosen = _END.split(bare, maxsplit=1)[0]
    whole = len(bare.split()) <= 10 and is_answer(bare)
    if whole or (len(chosen.split()) <= 5 and is_answer(chosen) and _is_among(chosen, question)):
        told = bare if whole or len(bare) <= _REASON else chosen
        yield _decided(f"{question} {worded(told, answer.at)}", offer, answer, first, question)


def _is_procedural(question: str) -> bool:
    """Only whether to go on; not if there is something to choose from."""
    return _talk("reply", "procedural").search(question) is not None and " or " not in question


def _is_factual(question: str) -> bool:
    """ "How often do you read it?": the answer tells, and decides nothing."""
    return _talk("reply", "factual").search(question) is not None and _talk("reply", "wish").search(question) is None


def _is_among(chosen: str, question: str) -> bool:
    """Whether it names one of the things asked about, or a number."""
    words = set(about(chosen).split())
    return bool(words & set(_words(question))) or re.match(r"\W*\d", chosen) is not None


def _words(text: str) -> list[str]:
    return [word.strip("`'").lower() for word in _WORDS.findall(text)]


def _decided(text: str, offer: Said, answer: Said, quote: str, offered: str, kind: str = "decision") -> Proposal:
    more = ((offer.seq, offered),) if offered in offer.text else ()
    return Proposal(kind, shortened(text), answer.seq, quote, author="user", confidence=0.75, more=more)


def about(text: str) -> str:
    stop = set(lexicon.table("said")["text"]["stop"])
    found: list[str] = []
    for word in _WORDS.findall(text):
        bare = word.strip("`'").lower()
        if bare not in stop and len(bare) > 2 and bare not in found:
            found.append(bare)
    return " ".join(found[:6])
