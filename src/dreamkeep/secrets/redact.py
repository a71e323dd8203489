"""Masks secrets in texts, before they go to a model or become a note. Pure, deterministic, in linear time.

    redact(text) -> (text, how many)          redact_all(texts) -> (texts, how many), for texts that follow each other

A secret is found by its form, by the command or sentence around it (forms.py), by the words before it (words.py), by its place
in a table or a Kubernetes Secret (structures.py), or as the block of a private key. Then:

* A secret that was found once is masked everywhere in the same texts, also where nothing else shows it (`hunter2x` in a log).
* Secrets that two texts share are found too: a key block that continues in the next message, a token that was cut in the middle.

Commit hashes, checksums, UUIDs, images and ids of calls and messages are no secrets. They stay unless a word before them says
otherwise. A masked secret reads `[redacted]`. Masking again changes nothing.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from dreamkeep.secrets.forms import COMMANDS, FORMS, SAID, SAID_WORDS
from dreamkeep.secrets.structures import in_kubernetes, in_tables
from dreamkeep.secrets.words import find_values, is_reference, machine_made, may_name_secret

MARK = "[redacted]"

Span = tuple[int, int]

#: The beginning of a word; also after an escape of JSON or a URL that ends with a letter or digit.
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))"
_FORMS = re.compile(_BEGIN + "(?:" + "|".join(form.replace("(?P<s>", f"(?P<s{n}>") for n, form in enumerate(FORMS)) + ")")
#: A form can match only inside such a run, which is cheaper to search.
_RUN = re.compile(r"[A-Za-z0-9_\-.+/=~%$:@]{16,}+")
_RUN_BEGIN, _RUN_END = re.compile(r"[A-Za-z0-9_\-.+/=~%$:@]*+"), re.compile(r"[A-Za-z0-9_\-.+/=~%$:@]*\Z")
_ON = re.compile(r"[A-Za-z0-9_\-]*+")
_COMMANDS = [(word, re.compile(pattern)) for word, pattern in COMMANDS]
_SAID = [re.compile(pattern) for pattern in SAID]
_SAID_WORDS = re.compile(SAID_WORDS)
_DIGIT = re.compile(r"\d")
_BASIC = re.compile(r"\b[Bb]asic[ \t]{1,4}(?P<s>[A-Za-z0-9+/]{6,400}+={0,2})")
_USER = re.compile(r"(?P<user>[^\s/@:\"'<>?#\\`]{0,200}+)(?::(?P<s>[^\s\"'<>/`]{1,300}))?@(?=[\w.\-\[])")
_USER_SLASH = re.compile(r"[^\s/@:\"'<>?#\\`]{0,200}+:(?!\d{1,5}/)(?P<s>[^\s\"'<>@`]{1,300})@(?=[\w.\-\[])")


def redact(text: str, known: Iterable[str] = ()) -> tuple[str, int]:
    """`known`: secrets that the caller knows. They are masked everywhere."""
    texts, count = redact_all((text,), known)
    return texts[0], count


def redact_all(texts: Sequence[str], known: Iterable[str] = ()) -> tuple[list[str], int]:
    """`texts`: in the order of the conversation."""
    spans = [find_secrets(text) for text in texts]
    extend_open_blocks(texts, spans)
    _find_across(texts, spans)
    pattern = pattern_for_found(texts, spans, known)
    masked, count = [], 0
    for text, own in zip(texts, spans, strict=True):
        if pattern is not None:
            own += [match.span() for match in pattern.finditer(text)]
        text, times = _mask(text, own)
        masked.append(text)
        count += times
    return masked, count


def named_secret(name: str, value: str) -> bool:
    """Whether a name like `password` shows that its value is a secret."""
    if not name or not may_name_secret(name) or not value or len(value) > 500 or any(sign.isspace() for sign in value):
        return False
    masked, count = redact(f"{name}={value}")
    return count > 0 and masked.startswith(f"{name}={MARK}")


def _mask(text: str, spans: list[Span]) -> tuple[str, int]:
    pieces, at, count = [], 0, 0
    for start, end in merge_spans(spans):
        pieces += [text[at:start], MARK]
        at, count = end, count + 1
    return "".join(pieces) + text[at:], count


def merge_spans(spans: list[Span]) -> Iterator[Span]:
    """In order. Spans that touch or overlap become one."""
    if not spans:
        return
    ordered = sorted(spans)
    start, end = ordered[0]
    for first, last in ordered[1:]:
        if first > end:
            yield start, end
            start, end = first, last
        end = max(end, last)
    yield start, end


# -- one text


def find_secrets(text: str) -> list[Span]:
    """The secrets that this text alone shows. They are in no order and may overlap."""
    if len(text) < 6:
        return []
    found = _find_unescaped(text) if "\\" in text else _find_plain(text)
    return [span for span in found if MARK not in text[span[0] : span[1]]] + _find_blocks(text)


#: The escapes of JSON for a line end, a quote or a letter. JSON in JSON has more backslashes.
_ESCAPE = re.compile(r"\\++(?:([nrt\"'])|u(?![dD][89a-fA-F])([0-9a-fA-F]{4}))")
_SIGNS = {"n": "\n", "r": "\r", "t": "\t"}


def _find_unescaped(text: str) -> list[Span]:
    """Search the text as it is, and with its escapes decoded: a command may follow an escaped line feed. If both find a secret at
    the same place, the second has the right end."""
    raw = [_whole_escapes(text, span) for span in _find_plain(text)]
    pieces: list[str] = []
    #: The place of each escape's character in the decoded text, and the escape's end in the original.
    signs, ends = array("Q"), array("Q")
    at = size = 0
    for escape in _ESCAPE.finditer(text):
        pieces += (text[at : escape.start()], _SIGNS.get(escape[1], escape[1]) if escape[1] else chr(int(escape[2], 16)))
        size += escape.start() - at
        signs.append(size)
        ends.append(escape.end())
        at, size = escape.end(), size + 1
    if not signs:
        return raw

    def place(sign: int) -> int:
        n = bisect_left(signs, sign)  # the number of escapes before it
        return ends[n - 1] + sign - signs[n - 1] - 1 if n else sign

    read = [(place(start), place(end)) for start, end in _find_plain("".join((*pieces, text[at:])))]
    begun = {start for start, _ in read}
    return read + [span for span in raw if span[0] not in begun]


def _whole_escapes(text: str, span: Span) -> Span:
    """Without the backslashes at its end that belong to the quote after it."""
    start, end = span
    if text[end : end + 1] in ('"', "'"):
        end = start + len(text[start:end].rstrip("\\"))
    return start, end


def _find_plain(text: str) -> Iterator[Span]:
    for run in _RUN.finditer(text):
        for match in _FORMS.finditer(text, *run.span()):
            start, end = match.span(match.lastgroup or 0)
            # A form has a minimal length. Characters that continue it belong to the secret.
            yield start, _ON.match(text, end).end()  # type: ignore[union-attr]
    yield from find_values(text)
    yield from _in_urls(text)
    lower = text.lower()
    if len(lower) != len(text):
        lower = text  # some letters change their length in lower case: then only lower case is found
    yield from in_tables(text, lower)
    yield from in_kubernetes(text)
    for word, pattern in _COMMANDS:
        if word in lower:
            yield from (
                m.span("s") for m in pattern.finditer(text) if not is_reference(m["s"], quoted=True) and not _is_port(m["s"])
            )
    yield from _find_spoken(text, lower)
    for match in _BASIC.finditer(text) if "basic" in lower else ():
        if _is_basic(match["s"]):
            yield match.span("s")


def _find_spoken(text: str, lower: str) -> Iterator[Span]:
    """Codes, PINs and logins in sentences. Only places near certain words and with a digit are searched."""
    around = [(max(0, word.start() - 60), word.end() + 200) for word in _SAID_WORDS.finditer(lower)]
    for start, end in merge_spans(around):
        if _DIGIT.search(text, start, end):
            for pattern in _SAID:
                found = (match for match in pattern.finditer(text, start, end))
                yield from (m.span("s") for m in found if m["s"][0].isdigit() or not is_reference(m["s"], quoted=True))


def _is_port(value: str) -> bool:
    return re.fullmatch(r"[\d.:\-]+(?:/(?:tcp|udp))?", value) is not None


def _is_basic(value: str) -> bool:
    import base64
    import binascii

    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return False


def _in_urls(text: str) -> Iterator[Span]:
    """`scheme://user:password@host`, and a token in the user's place."""
    at = text.find("://")
    while at >= 0:
        match = _USER.match(text, at + 3)
        if match and match["s"] is None:
            if machine_made(match["user"]) and len(match["user"]) >= 16:
                yield match.span("user")
        else:
            match = match or _USER_SLASH.match(text, at + 3)
            if match and not is_reference(match["s"], quoted=True):
                yield match.span("s")
        at = text.find("://", at + 3)


# -- blocks: private keys

_FENCE = re.compile(
    r"-----(?P<what>BEGIN|END) (?P<of>[A-Z0-9 ]{0,40}+)-----|(?P<putty>Private-Lines: \d{1,3})|(?P<mac>Private-MAC: )"
)
#: A line of such a block, with what editors and diffs put before it, and with line numbers.
_LINE = re.compile(
    r"[ \t>|+\-]{0,40}+(?:\d{1,6}[→:|\t ]\s{0,8})?[ \t\"'+\-]{0,40}(?P<b>[A-Za-z0-9+/]{16,4000}+={0,2})[\"',\\nr]{0,8}+\s*\Z"
)
_HEADER = re.compile(r"[ \t>|+]{0,40}+(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): .{0,200}\Z")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{24}")
#: Such lines joined into one line, as in a title. The last may be cut.
_KEY_WORD = re.compile(r"[ \t]{1,40}(?:\d{1,6}[→:|])?[A-Za-z0-9+/]{24,4000}={0,2}(?![^\s\"'…])")
_CUT_WORD = re.compile(r"[ \t]{1,40}(?:\d{1,6}[→:|])?[A-Za-z0-9+/]{1,4000}={0,2}(?=…?\s*\Z)")
#: The end of a line, also if it is written as `\\n`.
_LINE_END = re.compile(r"\n|\\n")
_LONGEST_LINE = 4_200
#: The most characters between the two fences of a key.
_LONGEST_BLOCK = 40_000


def _find_blocks(text: str) -> list[Span]:
    """A block with both fences is masked from one to the other. With one fence, the lines there that look like a key's are."""
    spans: list[Span] = []
    if "-----" not in text and "Private-" not in text:
        return spans
    begun: int | None = None
    for fence in _FENCE.finditer(text):
        if fence["what"] and "PRIVATE KEY" not in fence["of"]:
            continue
        if fence["what"] == "BEGIN" or fence["putty"]:
            spans += _block_without_end(text, begun)
            begun = fence.start() if fence["what"] else fence.end()
        elif begun is not None and fence.end() - begun <= _LONGEST_BLOCK:
            # A program that only names the two fences has no key between them.
            spans += [(begun, fence.end())] if _KEY_LINE.search(text, begun + 20, fence.start()) else []
            begun = None
        else:
            spans += _block_without_beginning(text, fence)
    return spans + _block_without_end(text, begun)


def _block_without_beginning(text: str, fence: re.Match[str]) -> list[Span]:
    """From the first line that looks like a part of it to its last fence."""
    start = _key_lines_start(text, fence.start()) if fence["what"] else fence.start()
    return [(start, fence.end())] if start < fence.start() else []


def _block_without_end(text: str, start: int | None) -> list[Span]:
    """From a block's beginning to the end of the last line that looks like a part of it."""
    if start is None:
        return []
    first = _FENCE.match(text, start)
    at = first.end() if first else start
    line = _key_words_end(text, at)
    end = _key_lines_end(text, line, line)
    return [(start, end)] if end > at or at == len(text.rstrip()) else []


def _key_words_end(text: str, at: int) -> int:
    """The end of the last word of this line that looks like a line of a key."""
    start = at
    while found := _KEY_WORD.match(text, at):
        at = found.end()
    cut = _CUT_WORD.match(text, at) if at > start else None
    return cut.end() if cut else at


def _key_lines_end(text: str, at: int, end: int) -> int:
    """The end of the last line from `at` on that looks like a part of a key; `end` where none does."""
    last = min(len(text), at + _LONGEST_BLOCK)
    while at < last:
        stop = _LINE_END.search(text, at, min(last, at + _LONGEST_LINE))
        if stop is None and at + _LONGEST_LINE < last:
            return end  # no key has a line of that length
        words = text[at : stop.start() if stop else last]
        if words.strip() and not _LINE.match(words) and not _HEADER.match(words) and not _is_last_key_line(words):
            return end
        if words.strip():
            end = at + len(words)
        if stop is None or stop.end() >= len(text):
            return len(text) if words.strip() and last == len(text) else end
        at = stop.end()
    return end


def _is_last_key_line(words: str) -> bool:
    return re.fullmatch(r"\s*[A-Za-z0-9+/]{1,64}={1,2}\s*", words) is not None


def _key_lines_start(text: str, end: int) -> int:
    """From a block's end back to its first line that looks like a part of it."""
    start = at = end
    while at > max(0, end - _LONGEST_BLOCK):
        line = max(text.rfind("\n", max(0, at - 4200), at), text.rfind("\\n", max(0, at - 4200), at) + 1)
        words = text[line + 1 : at] if line >= 0 else text[max(0, at - 4200) : at]
        if words.strip() and not _LINE.match(words) and not _is_last_key_line(words) and not _HEADER.match(words):
            break
        if words.strip():
            start = at - len(words)
        at -= len(words) + 1
        if line > 0 and text[line - 1 : line + 1] == "\\n":
            at -= 1
    return start


# -- over the border of two texts


def extend_open_blocks(texts: Sequence[str], spans: list[list[Span]]) -> None:
    """A key that a text begins and does not end continues in the next texts, as far as their lines look like a key's."""
    open = False
    for text, own in zip(texts, spans, strict=True):
        if open and (end := _key_lines_end(text, 0, 0)):
            own.append((0, end))
        ends = len(text.rstrip())
        begun = [span for span in own if span[1] >= ends and _is_begun(text, span)]
        open = bool(begun) or (open and bool(own) and own[-1][0] == 0 and own[-1][1] >= ends)


def _is_begun(text: str, span: Span) -> bool:
    fences = [m for m in _FENCE.finditer(text, *span) if m["putty"] or (m["what"] and "PRIVATE KEY" in m["of"])]
    return (bool(fences) and fences[-1]["what"] != "END") or (not fences and text[: span[0]].rstrip().endswith("Private-Lines:"))


_TAIL = 300
_WORDS_END = re.compile(r"[^\s\"'`,;()<>\[\]]+")


def _find_across(texts: Sequence[str], spans: list[list[Span]]) -> None:
    """Find secrets that continue from one text into the next: search the end of the one with the beginning of the other."""
    for (left, right), (own, following) in zip(pairwise(texts), pairwise(spans), strict=True):
        tail, head = left[-_TAIL:], right[:_TAIL]
        if not _may_be_cut(tail, head):
            continue
        if any(end == len(left) for _, end in own):
            following += _find_rest(head)
            continue
        for start, end in _find_over_border(tail, head):
            if start < 0:
                own.append((len(left) + start, len(left)))
            following.append((max(0, start), end))


def _may_be_cut(tail: str, head: str) -> bool:
    """Whether a secret may begin in one text and end in the next."""
    if not tail or not head or tail[-1].isspace() or head[0].isspace():
        return False
    if tail.endswith(MARK):
        return False  # masked before, and so was its rest
    return len(_RUN_END.search(tail)[0]) + len(_RUN_BEGIN.match(head)[0]) >= 16  # type: ignore[index]


def _find_rest(head: str) -> list[Span]:
    """For a text that follows one ending with a secret. If it begins like a secret, that is the rest of it."""
    match = _WORDS_END.match(head)
    return [match.span()] if match and len(match[0]) >= 8 and re.search(r"\d|[a-z][A-Z]", match[0]) else []


def _find_over_border(tail: str, head: str) -> Iterator[Span]:
    """The secrets that end after the border, with places counted from it. Only values that look like secrets by themselves count:
    `PASSWORD=` at the end of one text says nothing about the next."""
    text, border = tail + head, len(tail)
    for start, end in _find_plain(text):
        if end > border and MARK not in text[start:end] and machine_made(text[start:end]):
            yield start - border, end - border


# -- what was found once, wherever it stands

#: Passwords that are also names: the names must stay readable.
_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
    postgres mysql mariadb mongodb redis rabbitmq elastic minio docker grafana keycloak admin administrator default
    production staging development testing localhost public private master guest manager system service oracle jenkins
    vagrant ubuntu debian dreamkeep
    """,
    )
)
#: A word that occurs elsewhere more often than this is one of the session's own words.
_OFTEN = 5


def pattern_for_found(texts: Sequence[str], spans: list[list[Span]], known: Iterable[str]) -> re.Pattern[str] | None:
    """One pattern for all found secrets and those that the caller knows. A plain word is masked only where it is a whole word."""
    found = [text[start:end] for text, own in zip(texts, spans, strict=True) for start, end in own]
    words = Counter(value for value in found if _is_plain(value))
    values = {value for value in known if len(value) >= 6}
    values.update(part for value in found if not _is_plain(value) for part in _recognisable(value))
    plain = {word for word, times in words.items() if _is_rare(word, times, texts)}
    patterns = []
    if values:
        patterns.append(_alternatives(_longest_first({form for value in values for form in _spellings(value)}), 4))
    if plain:
        patterns.append(rf"(?<![A-Za-z0-9]){_alternatives(_longest_first(plain), 4)}(?![A-Za-z0-9])")
    return re.compile("|".join(patterns)) if patterns else None


def _is_plain(value: str) -> bool:
    """A word or a number, which may mean something else elsewhere."""
    return (value.isalpha() or value.isdigit()) and len(value) < 16


def _recognisable(value: str) -> list[str]:
    """The parts of a secret to mask in all texts."""
    if "PRIVATE KEY" in value or "\n" in value or len(value) > 2000:
        return re.findall(r"[A-Za-z0-9+/]{32,}={0,2}", value.replace("\\n", "\n"))
    if not _is_distinctive(value):
        return []
    # What follows the twelve words of a seed phrase may be the sentence around them.
    return [value, " ".join(value.split(" ")[:12])] if value.count(" ") >= 11 else [value]


def _is_distinctive(value: str) -> bool:
    """Long or unusual enough to mean nothing else elsewhere."""
    if len(value) < 6 or is_reference(value, quoted=True):
        return False
    return len(value) >= 16 or (any(c.isalpha() for c in value) and not value.isalpha())


def _is_rare(word: str, found: int, texts: Sequence[str]) -> bool:
    if len(word) < 6 or word.lower() in _NAMES or is_reference(word, quoted=True):
        return False
    return sum(text.count(word) for text in texts) - found <= _OFTEN


def _longest_first(forms: Iterable[str]) -> list[str]:
    return sorted(forms, key=lambda form: (-len(form), form))


def _alternatives(forms: list[str], depth: int) -> str:
    """A pattern for any of these, as a tree over their first `depth` characters. The longest come first, so that a secret is
    matched as a whole."""
    if depth == 0 or len(forms) == 1:
        return "(?:" + "|".join(re.escape(form) for form in forms) + ")"
    below: dict[str, list[str]] = {}
    for form in forms:
        below.setdefault(form[0], []).append(form[1:])
    return "(?:" + "|".join(re.escape(sign) + _alternatives(rest, depth - 1) for sign, rest in below.items()) + ")"


def _spellings(value: str) -> Iterator[str]:
    """As it is, in a URL, and inside JSON."""
    from json import dumps
    from urllib.parse import quote

    yield value
    try:
        yield quote(value, safe="")
    except UnicodeEncodeError:
        pass  # lone surrogates are in no URL
    yield dumps(value, ensure_ascii=False)[1:-1]
