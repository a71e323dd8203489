"""The origin of the words in a user's message. Decided here, once, for the digest, the rules and every check. Pure.

    typed      the user wrote it
    pasted     it stands in the user's message, but somebody else wrote it: logs, reviews, plans, an agent's own words
    answer     the user chose it, or wrote it, when an agent's tool asked
    injected   a client, a hook or dreamkeep put it there
    agent      a model wrote it
    tool       a tool printed it

A message is cut into blocks, at blank lines and code fences. Each block is classified: by what an agent or a tool said before
(`HeardWords`); by its form (logs, code, diffs, headings, terminal signs); by what leads up to it ("I got this error:"); and by
its register: long prose without a first or second person is a review or a ticket, not an order. In doubt a block is typed,
because words that the user typed must never be lost. `origin_at` gives the origin of a quote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dreamkeep.session.reading.packs import SIGN

TYPED, PASTED, ANSWER, INJECTED, AGENT, TOOL = "typed", "pasted", "answer", "injected", "agent", "tool"

#: Origins of the user's own words.
OWN_WORDS = frozenset((TYPED, ANSWER))

#: The register of shorter prose shows nothing.
_LONG = 180
#: A shorter line proves nothing, even if an agent said it, too. Of a longer line, the beginning is searched.
SHORTEST_LINE, LONGEST_LINE = 40, 200
#: A user's lines are searched in so much of what was said before.
_MOST_HEARD = 8 << 20
#: So many lines of one block are searched.
_MOST_LINES = 24

#: Clients write this into a user's message.
_INJECTED = re.compile(
    r"\s*(?:Operation stopped by hook:|This session is being continued from a previous conversation"
    r"|\[Request interrupted by user|Caveat: The messages below were generated"
    r"|<(?:system-reminder|command-message|command-name|local-command-stdout|task-notification|environment_context"
    r"|user_instructions|INSTRUCTIONS|hook_context|session_context)>)"
)
#: A plan that the client hands to a new session: the agent wrote it.
_PLAN = re.compile(r"\s*(?:Implement|Execute|Follow|Continue with) the following plan:?\s*\n")

_MACHINE = re.compile(
    r"""^(?:
      \s*[❯➜⏺⎿✻●○│┃╭╰├└┌┐┘▶▸►✓✔✗✘×⚠█▌]
    | \s*[$%]\s\S | \s*>\s | >>>
    | (?:diff\ --git|index\ [0-9a-f]{7}|@@\s|\+\+\+\s|---\s|[+-]\s{2,}\S)
    | \s{0,8}\d{1,6}\s{0,2}[|│+-]
    | \s*\[?(?:\d{4}-\d\d-\d\d[T\ ]\d|\d\d:\d\d:\d\d)
    | \s*(?:at\s\S+\s?\(|File\s".+",\sline\s\d+|Traceback\s\(|goroutine\s\d+|panic:|Caused\ by:)
    | \s*\w+(?:\.\w+)*(?:Error|Exception):
    | \s*(?:===\s|---\s?FAIL|---\s?PASS|FAIL\b|PASS\b|ok\s{2,}|ERROR|WARN(?:ING)?\b|INFO\b|DEBUG\b)
    | \s*(?:[Ee]rror:|fatal:|remote:|hint:|npm\s|make:)
    | \s*[\[\]{}()],?;?$ | \s*"[\w./-]+":\s | \s*</?\w[^>]*>$
    | \t+\S
    | \s*(?:func|def|class|import|from|const|var|return|public|private|package|type|struct|interface|\#include)\s\S+.*[({:;,]$
    | .*[;{]$
    | \#{1,6}\s\S | \|.*\|\s*$ | \s*\*\*[^*]{1,80}\*\* | \s*[-*]\s\*\*
    | (?:Critical|High|Medium|Low|Minor|Major)\s(?:Severity|Priority|Risk)\b
    )""",
    re.VERBOSE,
)
#: A terminal pads its lines.
_FILLED = re.compile(r"\S {5,}$")
_HEADING = re.compile(r"#{1,6}\s\S|\*\*[^*]{1,80}\*\*:?\s*$")
_FINDING = re.compile(r"\s*(?:Critical|High|Medium|Low|Minor|Major) (?:Severity|Priority|Risk)\b")
_FENCE = re.compile(r"\s*(?:```|~~~|\"\"\"\s*$)")

_PERSON = re.compile(
    r"\b(?:i|i['’](?:m|d|ll|ve)|me|my|mine|we|we['’](?:re|d|ll|ve)|us|our|you|you['’](?:re|d|ll|ve)|your|let['’]?s"
    r"|pls|hmm+|btw|afaik|imo|thx|thanks|sorry"
    r"|ich|wir|du|mir|mich|uns|mein\w*|unser\w*|dir|dich|dein\w*|bitte|kannst|könntest"
    r"|je|j['’]ai|nous|tu|vous|notre|nos|votre|peux|pourrais|stp|svp"
    r"|yo|nosotros|quiero|puedes|podrías|mi|nuestr\w+|tienes|por favor"
    r"|eu|nós|você|quero|meu|minha|nosso|pode|poderia)\b",
    re.IGNORECASE,
)
#: An order often names nobody.
_ORDERS = re.compile(
    r"\s*(?:(?:ok(?:ay)?|yes|no|and|also|now|then|so|please|just|great|good|perfect|nice|first|next|finally)[,.:!]?\s+){0,3}"
    r"(?:add|change|make|use|remove|rename|update|fix|move|keep|don['’]?t|do|implement|write|create|delete|drop|revert|run"
    r"|check|look|show|tell|explain|give|put|set|try|go|stop|start|continue|commit|push|merge|rebase|open|close|find|search|read"
    r"|review|refactor|test|build|deploy|install|replace|split|extract|instead)\b",
    re.IGNORECASE,
)
#: "can you check: …": the user wrote this, not what follows.
_LEAD = re.compile(
    r"\s*(?:(?:ok(?:ay)?|hi|hey|and|also|now|so|then|please|great|next)[,.:!]?\s+){0,3}"
    r"(?:(?:can|could|would)\s(?:you|we)|let['’]?s|please|i\sgot|we\sgot)\s"
    r"(?:[\w'’]+\s){0,8}?"
    r"(?:check|verify|validate|look|fix|address|review|handle|explain|consider|feedback|comment|finding|issue|this|thoughts)"
    r"(?:\s(?:at|if|out|into|this|that|these|it|here|too|also|again|for|me|is|valid))*\s?[:,.?]?\s+",
    re.IGNORECASE,
)
_COLON = re.compile(r"[^\n]{2,160}?:\s+(?=[A-Z`\"“*\d-])")
#: Words before a paste, at the end of a block.
_QUOTES = re.compile(
    r"\b(?:feedback|errors?|output|outputs|logs?|trace|comments?|review|reviewer|finding|message|says|said|wrote|got|getting"
    r"|gives|shows?|following|failed|fails|failing|colleague|copilot|bugbot|coderabbit|docs?|ticket|issue|description|response"
    r"|fehler|ausgabe|meldung|erreur|sortie|salida|erro|saída)\b",
    re.IGNORECASE,
)
_STOP = re.compile(r"[.;:]\s+(?=[A-Z(`])")
_REVIEWS = re.compile(r"\b(?:Consider|However|Since|This means|As a result|Instead|Therefore|Additionally)\b")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile(r"[A-Za-zÀ-ɏ]")


class OriginSpan(NamedTuple):
    """A stretch of a message, and its origin."""

    start: int
    end: int
    origin: str


class HeardWords:
    """What agents and tools said before a message, to recognise it in what the user pastes."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts: list[str] = []
        self._size = 0
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        if len(text) < SHORTEST_LINE:
            return
        self._texts.append(text)
        self._size += len(text)
        while self._size > _MOST_HEARD and len(self._texts) > 1:
            self._size -= len(self._texts.pop(0))

    def has(self, piece: str) -> bool:
        """Newest first: a user mostly pastes words that they have just read."""
        return any(piece in text for text in reversed(self._texts))


class _TextBlock(NamedTuple):
    start: int
    end: int
    text: str
    fenced: bool


def split_origins(text: str, heard: Callable[[str], bool] = lambda piece: False) -> tuple[OriginSpan, ...]:
    """The stretches of a user's message in order. `heard`: whether an agent or a tool has said a line before."""
    if _INJECTED.match(text):
        return (OriginSpan(0, len(text), INJECTED),)
    if _PLAN.match(text):
        return (OriginSpan(0, len(text), PASTED),)
    blocks = list(_blocks(text))
    judged = [(part, origin) for block in blocks for part, origin in _classify(block, heard)]
    judged = _led(_smoothed(_documented(judged)))
    return _merged(text, judged)


def origin_at(spans: Sequence[OriginSpan], start: int, end: int) -> str:
    """The origin of the words from `start` to `end`; of several, the one with the most characters."""
    shares: dict[str, int] = {}
    for span in spans:
        shared = min(end, span.end) - max(start, span.start)
        if shared > 0:
            shares[span.origin] = shares.get(span.origin, 0) + shared
    return max(shares, key=lambda origin: (shares[origin], origin == PASTED), default=TYPED)


def typed_words(message: str) -> str:
    """What the user typed in a message of several lines, as one line, without pasted text."""
    if "\n" not in message.strip():
        return message
    typed = (message[span.start : span.end] for span in split_origins(message) if span.origin == TYPED)
    return " ".join(" ".join(typed).split())


# -- blocks


def _blocks(text: str) -> Iterator[_TextBlock]:
    """Blocks between blank lines. A fence with its content is one block."""
    start = at = 0
    fenced = False
    for line in text.splitlines(keepends=True):
        end = at + len(line)
        if _FENCE.match(line):
            if not fenced:
                yield from _block(text, start, at)
                start, fenced = at, True
            else:
                yield from _block(text, start, end, fenced=True)
                start, fenced = end, False
        elif not fenced and not line.strip():
            yield from _block(text, start, at)
            start = end
        at = end
    yield from _block(text, start, at, fenced=fenced)


def _block(text: str, start: int, end: int, *, fenced: bool = False) -> Iterator[_TextBlock]:
    if text[start:end].strip():
        yield _TextBlock(start, end, text[start:end], fenced)


def _part(block: _TextBlock, start: int, end: int | None = None) -> _TextBlock:
    end = len(block.text) if end is None else end
    return _TextBlock(block.start + start, block.start + end, block.text[start:end], block.fenced)


# -- one block


def _classify(block: _TextBlock, heard: Callable[[str], bool]) -> list[tuple[_TextBlock, str]]:
    if SIGN in block.text:
        return [(block, INJECTED)]
    if block.fenced or _was_heard(block.text, heard):
        return [(block, PASTED)]
    if _is_machine(block.text):
        return _around_machine(block)
    split = _lead_and_rest(block, heard)
    if split:
        return split
    return [(block, PASTED if _is_impersonal(block.text) else TYPED)]


def _is_machine(text: str) -> bool:
    """Whether half of its lines are no prose; or at least one is, and no line addresses anybody."""
    lines = [line for line in text.split("\n") if line.strip()][:200]
    machine = sum(map(_is_machine_line, lines))
    return machine * 2 >= len(lines) or (machine > 0 and len(lines) > 2 and not any(map(_turns_to, lines)))


def _is_machine_line(line: str) -> bool:
    return bool(_MACHINE.match(line) or _FILLED.search(line))


def _around_machine(block: _TextBlock) -> list[tuple[_TextBlock, str]]:
    """Lines that the user wrote before and behind a log stay typed."""
    lines = block.text.splitlines(keepends=True)
    first, last = 0, len(lines)
    while first < last and _speaks(lines[first]):
        first += 1
    while last > first and _speaks(lines[last - 1]):
        last -= 1
    head, tail = sum(map(len, lines[:first])), sum(map(len, lines[:last]))
    parts = ((_part(block, 0, head), TYPED), (_part(block, head, tail), PASTED), (_part(block, tail), TYPED))
    return [(part, origin) for part, origin in parts if part.text.strip()]


def _speaks(line: str) -> bool:
    """Whether somebody typed a line: it addresses somebody, or leads up to what follows."""
    if _is_machine_line(line):
        return False
    return _PERSON.search(line) is not None or line.rstrip().endswith((":", "?")) or _ORDERS.match(line) is not None


def _was_heard(text: str, heard: Callable[[str], bool]) -> bool:
    """Whether an agent or a tool said at least half of it before, line by line."""
    pieces = [line.strip() for line in text.split("\n")]
    telling = [piece for piece in pieces if len(piece) >= SHORTEST_LINE][:_MOST_LINES]
    if not telling:
        return False
    known = sum(len(piece) for piece in telling if heard(piece[:LONGEST_LINE]))
    return known * 2 >= sum(map(len, pieces[: 10 * _MOST_LINES]))


def _lead_and_rest(block: _TextBlock, heard: Callable[[str], bool]) -> list[tuple[_TextBlock, str]] | None:
    """ "can you check: The function returns …": the first words are typed, the rest is pasted."""
    for found in (_COLON.match(block.text), _LEAD.match(block.text)):
        if not found:
            continue
        rest = block.text[found.end() :]
        lead, behind = (_part(block, 0, found.end()), TYPED), _part(block, found.end())
        if len(rest) >= _LONG / 2 and _was_heard(rest, heard):
            return [lead, (behind, PASTED)]
        if "\n" in rest.strip() and _is_machine(rest):
            return [lead, *_around_machine(behind)]
        if _is_impersonal(rest) and (len(found[0]) <= SHORTEST_LINE or _PERSON.search(found[0])):
            return [lead, (behind, PASTED)]
    return None


def _is_impersonal(text: str) -> bool:
    """Whether it is long prose in whole sentences that addresses nobody and orders nothing."""
    words = text.strip()
    if len(words) < _LONG or _turns_to(words) or _ORDERS.match(words) or not _is_latin(words):
        return False
    sentences = len(_STOP.findall(words)) + words.endswith(".")
    return sentences >= 1 and (words[0].isupper() or _REVIEWS.search(words) is not None)


def _turns_to(text: str) -> bool:
    return "?" in text or _PERSON.search(text) is not None


def _is_latin(text: str) -> bool:
    letters = _LETTER.findall(text[:2000])
    return len(_LATIN.findall(text[:2000])) * 10 >= len(letters) * 7


# -- blocks beside each other


def _documented(judged: list[tuple[_TextBlock, str]]) -> list[tuple[_TextBlock, str]]:
    """A long message with two headings holds a pasted document, from the first heading on."""
    headings = [n for n, (block, _) in enumerate(judged) if _HEADING.match(block.text.lstrip())]
    if len(headings) < 2 or sum(len(block.text) for block, _ in judged) < 3 * _LONG:
        return judged
    first = headings[0]
    return [(block, PASTED if n >= first and origin == TYPED else origin) for n, (block, origin) in enumerate(judged)]


def _led(judged: list[tuple[_TextBlock, str]]) -> list[tuple[_TextBlock, str]]:
    """What follows "I got this feedback:" is pasted, up to words that address the agent again."""
    found: list[tuple[_TextBlock, str]] = []
    open_ = False
    for n, (block, origin) in enumerate(judged):
        if open_ and origin == TYPED and n == len(judged) - 1 and _addresses(block.text):
            open_ = False
        found.append((block, PASTED if open_ and origin == TYPED else origin))
        line = block.text.rstrip()
        if origin == TYPED and not open_ and line.endswith(":"):
            open_ = _QUOTES.search(line.rsplit("\n", 1)[-1][-160:]) is not None
    return found


def _addresses(text: str) -> bool:
    return len(text) <= 4 * _LONG and (_turns_to(text) or _ORDERS.match(text) is not None)


def _smoothed(judged: list[tuple[_TextBlock, str]]) -> list[tuple[_TextBlock, str]]:
    """A block between two pasted ones that addresses nobody is pasted, too. So is further prose of that kind behind a pasted
    block, and the title before a finding."""
    found = list(judged)
    for n, (block, origin) in enumerate(found):
        if origin != TYPED or _turns_to(block.text):
            continue
        before = n > 0 and found[n - 1][1] == PASTED
        behind = n + 1 < len(found) and judged[n + 1][1] == PASTED
        found_before = before and _FINDING.match(found[n - 1][0].text) is not None
        prose = found_before or (len(block.text.strip()) >= _LONG / 2 and block.text.strip()[0].isupper())
        titles = n + 1 < len(found) and _FINDING.match(found[n + 1][0].text) is not None
        if (before and (behind or prose)) or titles:
            found[n] = block, PASTED
    return found


def _merged(text: str, judged: list[tuple[_TextBlock, str]]) -> tuple[OriginSpan, ...]:
    """Join neighbours of one origin."""
    spans: list[OriginSpan] = []
    for block, origin in judged:
        if spans and spans[-1].origin == origin:
            spans[-1] = spans[-1]._replace(end=block.end)
        else:
            spans.append(OriginSpan(block.start, block.end, origin))
    return tuple(spans) or ((OriginSpan(0, len(text), TYPED),) if text else ())
