"""Secrets that only their place betrays: a column of a table, a field of a Kubernetes Secret. Pure, and in linear time.

Access key ID,Secret access key        kind: Secret
AKIA…,…                                data:
                                         anything: …
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

Span = tuple[int, int]

#: How columns of exported tables are called.
_COLUMNS = (
    "password|passwort|mot de passe|contraseña|senha|passwd|pwd|pass|login_password|passphrase|secret|secret access key"
    "|secret key|client secret|token|access token|api key|apikey|api_key|api_token|access_token|private key|private_key|pin|totp"
    "|otp|otpauth|login_totp|psk"
)
_COLUMN = re.compile(rf"(?i)(?:{_COLUMNS})")
#: One of them, at the end of a cell; and any other name of a column.
_HEADER = re.compile(rf"(?m)(?:{_COLUMNS})(?=[,;\t\"\r]|$)")
_NAME = re.compile(r"[^\W\d][\w .#/()\-]{0,59}")
_CELL = re.compile(r"[ \t]*(?:\"((?:[^\"\n]|\"\"){0,2000})\"|([^,;\t\n\"]{0,2000}))[ \t]*\r?(?=[,;\t\n]|\Z)")
_MOST_COLUMNS = 200


def in_tables(text: str, lower: str) -> Iterator[Span]:
    """The cells below such a column, as far as the lines have as many cells as the line that names the columns. `lower`: the text
    in lower case, of the same length."""
    after = 0
    for header in _HEADER.finditer(lower):
        if header.start() < after or not (header.start() == 0 or text[header.start() - 1] in ',;\t"\n'):
            continue
        # Where the table is a text in JSON, its first line begins behind a quote.
        start = max(
            text.rfind(before, max(0, header.start() - 4000), header.start()) + len(before) for before in ("\n", ': "', ':"')
        )
        start, after = max(0, start), _line_end(text, header.end())
        names = [text[slice(*cell)] for cell in _cells(text, start, after)]
        if len(names) < 2 or not all(map(_NAME.fullmatch, names)) or ", " in text[start:after]:
            continue  # a sentence, or a program
        columns = [n for n, name in enumerate(names) if _COLUMN.fullmatch(name)]
        while after < len(text):
            start, after = after + 1, _line_end(text, after + 1)
            cells = _cells(text, start, after)
            if len(cells) != len(names):
                after = start
                break
            yield from (cells[n] for n in columns if _is_value(text, cells[n]))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _cells(text: str, at: int, end: int) -> list[Span]:
    found: list[Span] = []
    while at <= end and len(found) < _MOST_COLUMNS and (cell := _CELL.match(text, at, end)):
        found.append(cell.span(1) if cell[1] is not None else cell.span(2))
        at = cell.end() + 1
    return found if at > end else []


def _is_value(text: str, cell: Span) -> bool:
    value = text[slice(*cell)].strip()
    return len(value) >= 4 and not re.fullmatch(
        r"(?i)[*x.\-\s]+|none|null|true|false|n/a|string|text|varchar.*|<.*>|\$.*|[-:| ]+", value
    )


_KIND = re.compile(r"(?m)(?:^|\")[ \t\-\d→:|>]{0,20}kind:[ \t]{0,4}[\"']?Secret[\"']?[ \t\r]{0,4}$")
_KIND_JSON = re.compile(r"\"kind\"\s{0,8}:\s{0,8}\"Secret\"")
_DATA = re.compile(
    r"(?m)^(?P<in>[ \t]{0,40})(?:data|stringData):[ \t\r]{0,8}\n(?P<block>(?:(?P=in)[ \t]{1,40}[^\n]{0,100000}(?:\n|\Z))+)"
)
_DATA_JSON = re.compile(r"\"(?:data|stringData)\"\s{0,8}:\s{0,8}\{(?P<block>[^{}]{0,100000})\}")
_KEY = r"[\w.\-/]{1,253}:(?:[ \t]{0,8}(?:[|>][+\-\d]{0,2})?[ \t\r]{0,8}$|[ \t]{1,8})"
_FIELD = re.compile(rf"(?m)^[ \t]{{0,80}}(?:{_KEY})?[\"']?(?P<s>[^\s\"'#][^\n\"']{{0,100000}})?")
_FIELD_JSON = re.compile(r":\s{0,8}\"(?P<s>[^\"\\]{1,100000})\"")
_DOCUMENT = re.compile(r"(?m)^---[ \t\r]{0,8}$")


def in_kubernetes(text: str) -> Iterator[Span]:
    """The values of a Secret's fields, whatever these are called."""
    if "Secret" not in text or "ata" not in text:
        return
    borders = [0, *(match.end() for match in _DOCUMENT.finditer(text)), len(text)]
    for start, end in pairwise(borders):
        for kind, data, field in ((_KIND, _DATA, _FIELD), (_KIND_JSON, _DATA_JSON, _FIELD_JSON)):
            if kind.search(text, start, end):
                for block in data.finditer(text, start, end):
                    found = (match.span("s") for match in field.finditer(text, *block.span("block")) if match["s"])
                    yield from (span for span in found if _is_value(text, span))
