"""Forms that other scanners know (data/secrets/scanner_forms.tsv), with values made by chance; which we leave, and why."""

from __future__ import annotations

import random
import re
import string
from typing import NamedTuple

from tests.paths import TESTS

TABLE = TESTS / "data" / "secrets" / "scanner_forms.tsv"
_ALNUM = string.ascii_letters + string.digits
_ALPHABETS = {
    "digit": "123456789",
    "hex": "0123456789abcdef",
    "low": string.ascii_lowercase + string.digits,
    "b32": string.ascii_lowercase + "234567",
    "B32": string.ascii_uppercase + "234567",
    "b58": "".join(sign for sign in _ALNUM if sign not in "0OIl"),
    "upper": string.ascii_uppercase + string.digits,
    "any": _ALNUM,
    "url": _ALNUM + "-_",
    "b64": _ALNUM + "+/",
}
_ID = "it says who somebody is and opens nothing"
_PLACE = "it is an address and opens nothing"
#: The end of a rule's name → why what it finds is not masked.
_REASONS = {
    **dict.fromkeys(("client-id", "application-id", "app-id", "auth-id", "key-id", "account-id", "tenant-id", "access-id"), _ID),
    **dict.fromkeys(("service-account-id", "token-id", "api-id", "planetscale-id", "username", "name"), _ID),
    **dict.fromkeys(("url", "domain", "host", "address", "-repository"), _PLACE),
    "cloudinary-api-key": "the number of an account, of digits alone; its secret is masked",
    "mailgun-pub-key": "a public key",
}


class Form(NamedTuple):
    rule: str
    text: str
    #: None of these may be seen.
    secrets: tuple[str, ...]


def forms(seed: int = 1) -> list[Form]:
    return [_made(rule, form, random.Random(f"{rule} {seed}")) for rule, form in _table() if form != "-"]


def left() -> dict[str, str]:
    """Rules whose findings are not masked → the reason; "" where nobody gave one."""
    rules = [rule for rule, form in _table() if form == "-"]
    return {rule: next((why for end, why in _REASONS.items() if rule.endswith(end)), "") for rule in rules}


def _table() -> list[tuple[str, str]]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return [(rule, form) for rule, form in (line.split("\t") for line in lines)]


def _made(rule: str, form: str, chance: random.Random) -> Form:
    secrets: list[str] = []

    def fill(match: re.Match[str]) -> str:
        signs, count = _ALPHABETS[match[2]], int(match[3])
        value = [chance.choice(signs) for _ in range(count)]
        if count > 3 and match[2] != "digit":  # never by chance without a digit, nor with a sign at an end
            ends = [sign for sign in "bcdefBCDEF" if sign in signs]
            value[0], value[count // 2], value[-1] = chance.choice(ends), chance.choice("234567"), chance.choice(ends)
        if match[1] == "{" and count > 5:
            secrets.append("".join(value))
        return "".join(value)

    text = re.sub(r"([{<])(\w+):(\d+)[}>]", fill, form).replace("\\n", "\n")
    return Form(rule, text, tuple(secrets))
