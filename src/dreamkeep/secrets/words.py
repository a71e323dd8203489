"""Secrets that only the words before them betray: `DB_PASSWORD=…`, `"apiKey": "…"`, `--token …`, "the password is …". Pure.

    <name with a telling word> <what stands between> <value>

How much a value must look like a secret depends on the word:

    strong   `password` and its like: nearly everything that is not a reference (`$X`, `settings.x`), a type, or a placeholder
    keyish   `token`, `api key`: the value must look machine-made
    weak     a bare `key`, `sig`: only what is long and random

The search goes from the word on and is bounded, so time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

STRONG, KEYISH, WEAK = "strong", "keyish", "weak"

#: Words for a password.
_PASSWORDS = (
    *("password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "wachtwoord"),
    *("contraseña", "contrasena", "mot de passe", "senha", "palavra-passe", "пароль", "비밀번호"),
    *("密码", "密碼", "口令", "パスワード"),
)
#: "the password FOR the staging box IS NOW …", in the same languages; Chinese, Japanese and Korean put no space there.
_FOR = (
    "for|to|of|on|in|at|für|fuer|zum|zur|zu|von|vom|des|der|pour|de|du|d|sur|para|del|da|do|en|no|na|van|voor|для|от"
    "|that|which|i|we|you"
)
_IS = (
    "has been set to|was changed to|was reset to|was set to|changed to|reset to|set to|to|is nu|will be|should be|is|was|equals"
    "|ist|war|lautet|heißt|heisst|wäre|est|était|sera|c'est|es|era|será|é|foi|это"
)
_NOW = "now|set to|just|still|currently|:|jetzt|nun|noch|maintenant|toujours|ahora|todavía|agora|ainda"
_IS_CJK = "是|为|為|就是|改成|改为|设为|は|が|を|는|은"

_KEYS = (
    "api|access|private|secret|encryption|decryption|signing|sign|master|account|auth|client|storage|service|deploy|webhook"
    "|license|admin|role|bot|hmac|aes|jwt|integration|subscription|ingest|app|application|server|shared|root|consumer|write|sas"
)
#: In lower case; plain words only, which the regex engine finds fast.
_WORD = re.compile(
    "|".join(_PASSWORDS) + "|secret|token|credential|pass|pwd|pw|psk|mdp|clave|authorization|auth|bearer|jwt|cookie|otp|key"
    "|signature|sig|sid|session|code"
)
#: These may stand inside a longer word (`mypassword`, `authtoken`).
_INSIDE = {
    **dict.fromkeys((*_PASSWORDS, "secret"), STRONG),
    **dict.fromkeys(("token", "credential"), KEYISH),
}
_ALONE = {
    **dict.fromkeys(("pass", "pwd", "pw", "psk", "mdp", "clave"), STRONG),
    **dict.fromkeys(("authorization", "auth", "bearer", "jwt", "cookie", "otp"), KEYISH),
    **dict.fromkeys(("key", "signature", "sig", "sid", "session", "code"), WEAK),
}
_STRENGTH = {**_ALONE, **_INSIDE}
#: Before `key`.
_KIND_OF_KEY = re.compile(rf"(?:{_KEYS})[_\-. ]?$")
#: Before such a word: then it names no secret (`public key`, `error code`).
_NOT_BEFORE = re.compile(
    r"(?:public|primary|foreign|cache|sort|partition|hash|index|object|dict|map|lookup|row|idempotency|dedup|group|rout(?:e|ing)"
    r"|query|translation|i18n|locale|host|hot|short|next|page|continuation|cursor|pad|eos|bos|unk|special|stop|mask|max|min|num"
    r"|status|exit|error|return|response|language|country|zip|post|source|commit|file|content)[_\-. ]?$"
)
_NOT_BEHIND = re.compile(
    r"(?:ur[li]s?|commands?|cmd|paths?|files?|filename|dir|folder|names?|ids?|types?|counts?|limits?|budget|length|len|sizes?|expir\w*|ttl|age"
    r"|endpoint|headers?|fields?|prefix|suffix|policy|manager|provider|arn|env|vars?|ref|versions?|index|stdin|required|enabled"
    r"|hint|reset|rotation|class|formats?|min|max|window|usage|used|cost|price|column|label|placeholder|input|rules?|strength"
    r"|validator|store|algorithm|alg|method|scheme|scope|issuer|audience|at|date|time|on|in|by|total|per|regex|pattern)$"
)
#: Glued to the word: only these do not make another word of it (as in `secretary`, `tokenizer`).
_GLUED = re.compile(r"s?(?:key|token|hash|value|base|string|word)?s?\d*(?:[_\-.].*)?$")
_BEHIND = re.compile(
    rf"""(?P<tail>[A-Za-z0-9_\-.]{{0,40}}+)
    (?P<close>[\\"'`\])*]{{0,6}}+)
    (?P<between>
        [ \t]{{0,8}}+(?::=|=>|===?|!=|=|:(?!:[\w<&*~$])|：|→|,|\|)[ \t*]{{0,40}}+(?:\\?\r?\n\s{{0,8}}+)?
      | [ \t]{{1,4}}+(?i:(?:(?:{_FOR})[ \t']{{1,4}}+(?:[\w.\-@/]{{1,40}}+[ \t]{{1,4}}+){{1,3}}?){{0,2}}
        (?:(?:{_NOW.replace(" ", "[ ]")})[ \t]{{1,4}}+)?(?:{_IS.replace(" ", "[ ]")})
        (?:[ \t]{{1,4}}+(?:{_NOW.replace(" ", "[ ]")}))?):?[ \t*]{{1,6}}+
      | [ \t]{{0,4}}+(?:{_IS_CJK})[ \t：:]{{0,4}}+
      | [ \t]{{1,8}}+
    )
    (?:(?:str|string|String|bytes|SecretStr)(?:[ ]?\|[ ]?None)?[ \t]{{0,4}}+=[ \t]{{0,4}}+)?
    (?:(?:Bearer|Basic|Token|Bot|ApiKey|Key)[ ]{{1,4}}+)?
    (?P<open>(?:[frbu]{{0,2}}+\\{{0,3}}+["'`]{{1,3}}+|[“„‘‚「『]|«[ \u00a0]?)?)""",
    re.X,
)
#: `src/password.js:14:const x1`: the word is a part of a file's name, and the number is a line of that file.
_FILE = re.compile(
    r"\.(?:py|pyi|[cm]?[jt]sx?|vue|svelte|rb|go|rs|java|kts?|swift|cs|cpp|hpp|[ch]|php|exs?|erl|scala|lua|sh|sql|ya?ml|md)$"
)
_LINE_IN_FILE = re.compile(r"\d{1,6}:")
#: `Linux-node-<sha256>`: a cache's key, made of the name of its content.
_CHECKSUM = re.compile(r"[A-Za-z0-9][_\-.:/](?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})$")
#: A value in quotes ends at its quote. A backslash before n, r, t or a quote ends it too: that is JSON in a text.
_OTHER_QUOTES = (("“", "”“"), ("„", "“”"), ("‘", "’"), ("‚", "‘’"), ("「", "」"), ("『", "』"))
_IN_QUOTES = {
    **{quote: re.compile(rf"(?:[^{quote}\\\n]|\\(?![{quote}nrt])[^\n]){{1,300}}") for quote in ('"', "'", "`")},
    **{quote: re.compile(rf"[^{ends}\n]{{1,300}}") for quote, ends in _OTHER_QUOTES},
    **dict.fromkeys("«\u00a0 ", re.compile(r"[^»\s]{1,300}")),
}
#: Behind `密码是`, `パスワードは`: what follows it without a space is the sentence again.
_ASCII_WORD = re.compile(r"[!-&(-;=?-_a-~]{1,300}")
_SHELL_WORD = re.compile(r"(?:[^\s\"'`<>|\\]|\\(?![nrt\"'\\])[^\s])(?:[^\s\"'`|\\]|\\(?![nrt\"'\\])[^\s]){0,300}")
_CODE_WORD = re.compile(r"(?:[^\s\"'`<>|,;&)}\]\\]|\\(?![nrt\"'\\])[^\s]){1,300}")

#: A value goes on behind an ampersand, unless there the next field of a form begins (`&user=me`), or a command ends (`&& ls`).
_AND_ON = re.compile(r"[.:!?*]{0,8}&(?!&|(?:amp;)?[\w.\-\[\]%]{0,60}+=|quot;|[lg]t;|#x?\w{1,5};)[^\s\"'`<>|,;&)}\]\\]{1,300}+")
_REST = re.compile(r"[^\s\"'`<>|,;\\]*+")

_PLACEHOLDER = re.compile(
    r"(?:x{3,}|(?:%[sdr]|[\W_])+|0+|1234|null|none|nil|true|false|yes|no|on|off|undefined|todo|tbd|n/?a|empty|unset|missing"
    r"|required|optional|enabled|disabled|string|str|int|integer|bytes|bool|boolean|object|any|unknown|text|varchar|secretstr"
    r"|redacted|hidden|masked|removed|omitted|password|passwd|pass|pwd|secret|token|key|value|apikey|api_key|credentials?"
    r"|username|user|changeme|change[_-]me|replace[_-]?me|bearer|basic|auth|jwt|hs256|rs256|es256|sha256|sha512|md5|bcrypt"
    r"|argon2|base64|utf-?8|oauth2?|(?:u?int|bytes|float|[uif])\d+|<.*>?)",
    re.I | re.S,
)
#: A place to fill in, by its words. With a digit in it, it may be filled in already.
_FILL_IN = re.compile(
    r"(?:your|the|an?|some|insert|enter|example)[_\- ]\D*|your(?:own|password|token|key|secret|api)\D*|\D*[_\-]here"
    r"|(?:example|placeholder|dummy)[a-z_\- ]*",
    re.I | re.S,
)
_REFERENCE = re.compile(
    r"\\?\$[A-Za-z_({0-9@*#?]|[<{\[(]|%[({%A-Z]|!(?:Ref|Sub|GetAtt|vault|env|ENV)\b|@[./~]|env[.:(\[]|process\.|os\.|vault:|secret://|op://|ssm:|arn:|file:|https?:|data:"
)
#: `settings.db.password`, `args[0]`, `self->x`: names, not values.
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::|\?\.)[A-Za-z_]\w*|\[[^\]]*\]?)+;?")
_PATH = re.compile(
    r"(?:~|\.{0,2})/[\w.\-@ ]*(?:/[\w.\-@ ]*)*|[A-Za-z]:[\\/].*"
    r"|[\w.\-/]+\.(?:pem|key|txt|json|ya?ml|toml|py|js|ts|go|rs|md|env|crt|sh|sql|html)"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d.*|\d+(?:[.,:]\d+)*[a-zA-Z%]{0,3}")
#: `advanced-tool-use-2025-11-20`: words and numbers, each by itself.
_WORDY = re.compile(r"(?:[A-Z]?[a-z]{1,20}|[A-Z]{1,20}|\d{1,8})(?:[_\-./:](?:[A-Z]?[a-z]{1,20}|[A-Z]{1,20}|\d{1,8}))+")
_RUNS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
#: `hunter2secret`: a number between words and glued to the next. Names in programs have it only after these few.
_TYPED = re.compile(
    r"(?!(?i:base|utf|u?int|float|sha|md|aes|ed|[ehr]s|oauth|auth|ipv|http|tls|web|win|str|json|log|neo|py|python|node|vue"
    r"|gpt|bert|llama|qwen|gemma|ec|[a-z])\d)[A-Za-z]{1,40}\d{1,8}[a-z][A-Za-z0-9]{0,80}"
)
#: "username bob password …", "user: bob / pass …".
_SOMEBODYS = re.compile(
    r"(?i)\b(?:user|username|user name|login|e-?mail|account|benutzer|benutzername|utilisateur|identifiant|usuario|usuário)"
    r"[ \t:=]{1,4}(?:is[ \t])?[\w.@+\-]{1,50}['\"`]?\s{0,3}[,/|;&]?\s{0,3}(?:(?:and|with|und|mit|et|y|e|con|com)[ \t])?"
    r"(?:the[ \t])?$"
)
#: "changed the password to …".
_TO = re.compile(r"(?i)(?<!set)(?<!changed)\sto\s+$")
_CHANGED = re.compile(r"(?i)\b(?:chang|set|reset|updat|rotat|switch)\w{0,4}[ \t](?:[\w.\-'’]{1,30}[ \t]){0,3}$")
#: "use password …", "mit dem Passwort …".
_USED = re.compile(
    r"(?i)\b(?:use|used|using|with|try|enter|type|mit|nutze|avec|utilise|con|usa|com)[ \t]"
    r"(?:(?:the|this|my|dem|das|le|la|a|o)[ \t])?$"
)
#: After `--password`: a sentence about the flag, not its value.
_PROSE = frozenset(
    re.findall(
        r"\w+",
        """
    flag flags option options argument arguments is and or to for with from as in on if when instead which that the
    a an was not can must should will has via parameter value prompt switch so but then it are be may at by of into
    """,
    )
)


def find_values(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the values, in order."""
    lower = text.lower() if text.isascii() else text.translate(_LOWER)
    after = 0
    for word in _WORD.finditer(lower):
        # A value that was just taken may hold such a word itself.
        if word.start() >= after and (span := _value_of(text, lower, word)):
            yield span
            after = span[1]
            if (end := _extend(text, after)) > after:
                # Both: as a field of a form it may stand elsewhere without what follows it here.
                yield span[0], end
                after = end


def _extend(text: str, end: int) -> int:
    """Where a value ends that may go on behind ampersands; searched in a bounded stretch."""
    most = end + 300
    while end < most and (more := _AND_ON.match(text, end)):
        end = more.start() + len(more[0].rstrip(".,;:!?)*"))
        if end < more.end():
            break
    return end


def may_name_secret(name: str) -> bool:
    """Whether a name may be that of a secret at all."""
    return _WORD.search(name.lower()) is not None


def names_secret(name: str) -> bool:
    """Whether a name is that of a secret, and none that programs use for many things (`signature`, `session`, `key`, `code`)."""
    lower = name.lower()
    return any(
        _STRENGTH[word[0]] != WEAK or _KIND_OF_KEY.search(lower, max(0, word.start() - 14), word.start())
        for word in _WORD.finditer(lower)
    )


#: `str.lower` may change the length (İ), and then no place would fit.
_LOWER = {
    code: code + 32 for code in (*range(ord("A"), ord("Z") + 1), *range(ord("À"), ord("Ö") + 1), *range(ord("Ø"), ord("Þ") + 1))
}


def _value_of(text: str, lower: str, word: re.Match[str]) -> tuple[int, int] | None:
    start = word.start()
    strength = _STRENGTH[word[0]]
    if word[0] == "key" and _KIND_OF_KEY.search(lower, max(0, start - 14), start):
        strength = KEYISH
    elif word[0] in _ALONE and not _begins_word(text, start):
        return None
    if strength != STRONG and _NOT_BEFORE.search(lower, max(0, start - 16), start):
        return None
    behind = _BEHIND.match(text, word.end())
    if behind is None or not _same_word(text, word.end(), behind["tail"]):
        return None
    if behind["between"] == ":" and _FILE.search(behind["tail"]) and _LINE_IN_FILE.match(text, behind.end()):
        return None
    return _find_value(text, start, strength, behind)


def _begins_word(text: str, at: int) -> bool:
    return (
        at == 0 or not text[at - 1].isalpha() or (text[at].isupper() and text[at - 1].islower()) or text[at - 2 : at] in _ESCAPES
    )


_ESCAPES = ("\\n", "\\t", "\\r")


def _same_word(text: str, end: int, tail: str) -> bool:
    """False for `tokenizer`, `password_url`, `secretary`."""
    if not tail:
        return True
    glued = tail[0].isalpha() and not (tail[0].isupper() and text[end - 1].islower())
    if glued and not _GLUED.match(tail.lower()):
        return False
    last = re.split(r"[_\-.]|(?<=[a-z])(?=[A-Z])", tail)[-1]
    return not _NOT_BEHIND.match(last.lower())


def _find_value(text: str, start: int, strength: str, behind: re.Match[str]) -> tuple[int, int] | None:
    at = behind.end()
    name = _name(text, start, behind)
    between = behind["between"]
    shell = bool(re.search(r"(?<!\w)--?[\w\-]*\Z", text[max(0, start - 40) : start]))
    # `PASS: test_login`, as a test run says it, sets nothing.
    environment = name.isupper() and between in ("=", ": ", ":") and (name != "PASS" or between == "=")
    quote = behind["open"][-1:]
    if quote:
        value = _IN_QUOTES[quote].match(text, at)
    elif not text[start].isascii() or not between.isascii():
        value = _ASCII_WORD.match(text, at)
    else:
        value = (_SHELL_WORD if environment or shell else _CODE_WORD).match(text, at)
    if value is None:
        return None
    words = value[0] if quote or environment else value[0].rstrip(".,;:!?)*")
    if not quote:
        words = words.rstrip(",;")
    for end in _ends(text, at, at + len(words)):
        case = _Candidate(
            name, between, text[at:end], bool(quote), environment, shell, text[end : end + 1], text[max(0, start - 60) : start]
        )
        if _is_secret(strength, case):
            # Judged by its beginning, which bounds the work; but all of it goes.
            return at, (_REST.match(text, end).end() if end - at >= 280 else end)  # type: ignore[union-attr]
    return None


def _ends(text: str, at: int, end: int) -> Iterator[int]:
    """A value that is too short before its ampersand (`a1&b2&c3d4`) may be one as a whole; but not `flags&MASK` of a program."""
    yield end
    whole = _extend(text, end)
    if whole > end and _mixed(text[at:whole].replace("&", "")):
        yield whole


def _name(text: str, start: int, behind: re.Match[str]) -> str:
    """All of the name that the word is a part of."""
    begin = start
    while begin > start - 40 and begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] in "_-."):
        begin -= 1
    return text[begin : behind.end("tail")]


class _Candidate(NamedTuple):
    """A name and a value that stand together. `environment`: as in `NAME=value`; `shell`: as in `--name value`. `before`: the
    text before the name; `behind`: the character after the value."""

    name: str
    between: str
    value: str
    quoted: bool
    environment: bool
    shell: bool
    behind: str
    before: str


def _is_secret(strength: str, case: _Candidate) -> bool:
    value = case.value
    if is_reference(value, quoted=case.quoted) or _names_itself(case):
        return False
    if case.between == ":" and value.startswith("?"):
        return False  # `${PASSWORD:?set it}`
    if "," in case.between:
        return strength != WEAK and case.quoted and case.between == ", " and machine_made(value)
    if "|" in case.between:  # a table
        return strength != WEAK and case.between.startswith(" ") and case.between.endswith(" ") and machine_made(value)
    if "\n" in case.between:
        return not case.quoted and random_looking(value)
    if case.between.strip() == "":
        return _is_secret_after_space(strength, case)
    if strength == STRONG:
        return _is_password(case)
    if strength == KEYISH:
        return machine_made(value) or (case.environment and len(value) >= 12 and mean_run(value) < 4.5) or _is_typed_token(case)
    if _CHECKSUM.search(value):
        return False
    # Ids of sessions, cache keys: what has no capitals is one of those, unless it is called a signature.
    both = value != value.lower() and value != value.upper()
    return len(value) >= 20 and random_looking(value) and (both or "sig" in case.name.lower())


def _is_secret_after_space(strength: str, case: _Candidate) -> bool:
    if case.shell:
        return _is_secret_of_option(strength, case)
    if strength == STRONG and re.search(r"\blogin\s+\S+\s+$", case.before):  # .netrc
        return len(case.value) >= 4
    if strength == STRONG and _is_password_in_sentence(case):
        return True
    return strength != WEAK and random_looking(case.value)


def _is_secret_of_option(strength: str, case: _Candidate) -> bool:
    """`--password hunter2`"""
    value = case.value
    if value.startswith("-"):
        return False
    if strength != STRONG:
        return strength == KEYISH and machine_made(value)
    if _normalise(case.name) in ("pass", "pw") and not _mixed(value):
        return False  # `--pass next`: how often, or which one
    return len(value) >= 4 and value.lower() not in _PROSE


def _is_password_in_sentence(case: _Candidate) -> bool:
    """`use password hunter2`, `username bob password hunter2`, `(password hunter2)`"""
    value = case.value
    if "secret" in case.name.lower() or not _mixed(value) or len(value) < 6:
        return False
    if _SOMEBODYS.search(case.before) or (_USED.search(case.before) and not _WORDY.fullmatch(value)):
        return True
    if case.before.endswith("(") and case.behind in (")", "!", "?"):
        return True
    return len(value) >= 8 and re.search(r"\d.*[!@#$%^&*?~]|[!@#$%^&*?~].*\d", value) is not None


def _is_typed_token(case: _Candidate) -> bool:
    """`token: hunter2secret`: a person made it of words and a number between them."""
    if not re.search("token|credential", case.name.lower()) or not _TYPED.fullmatch(case.value):
        return False
    # `f(token=str2token)` of a program.
    is_argument = "=" in case.between and (case.behind in (",", ")") or case.before[-1:] in ("(", ","))
    return len(case.value) >= 10 and (case.quoted or not is_argument)


def _is_password(case: _Candidate) -> bool:
    value = case.value
    mixed = _mixed(value)
    if _TO.search(case.between) and not (mixed and _CHANGED.search(case.before)):
        return False
    if " " in value or "\t" in value:
        return _is_passphrase(case)
    if case.environment:
        return len(value) >= 3 and not _PATH.fullmatch(value)
    if "secret" in case.name.lower() and "pass" not in case.name.lower():
        return _is_value_of_secret(case)
    if "!" in case.between or any(sign.isalpha() for sign in case.between):  # a sentence
        return (mixed and len(value) >= 6) or (case.quoted and len(value) >= 5 and _normalise(case.name) != "pass")
    if case.quoted:
        return len(value) >= 4
    if mixed or (len(value) >= 12 and mean_run(value) < 4):
        return len(value) >= 5
    return _is_in_connection_string(case)


def _is_passphrase(case: _Candidate) -> bool:
    """Of several words."""
    if not case.quoted or case.value.count(" ") >= 12:
        return False
    return (case.environment and len(case.value) >= 8) or case.name.lower().endswith(("phrase", "psk"))


def _is_value_of_secret(case: _Candidate) -> bool:
    """`client_secret = "…"`: a secret, and not a password."""
    value = case.value
    if case.quoted and "=" in case.between and len(value) >= 8 and value.isalnum():
        return True
    return machine_made(value) or (_mixed(value) and len(value) >= 6 and mean_run(value) < 4.5)


def _is_in_connection_string(case: _Candidate) -> bool:
    """`password=swordfish`, not `connect(password=pw)` of a program."""
    is_argument = case.behind in (",", ")") or case.before[-1:] in ("(", ",")
    return case.between == "=" and len(case.value) >= 6 and case.value.isalpha() and not is_argument


def _mixed(value: str) -> bool:
    letters = any(c.isalpha() for c in value)
    return (letters and any(c.isdigit() or c in "!@#$%^&*+?~" for c in value)) or (value.isdigit() and len(value) >= 6)


def _names_itself(case: _Candidate) -> bool:
    """`password=user_password`, `token=TOKEN`: a program passes it on; it is not the secret itself."""
    value, name = _normalise(case.value), _normalise(case.name)
    if value == name or (name.endswith(value) and (len(value) >= 8 or not case.quoted)):
        return True
    if _mixed(case.value) and (mean_run(case.value) < 4 or _TYPED.fullmatch(case.value)):
        return False
    name_like = not case.quoted and re.fullmatch(r"[A-Za-z_]\w*;?", case.value)
    return bool(name_like) and re.search(r"(?:pass|pw|secret|token|key|cred)[a-z]*\d?$", value) is not None


def _normalise(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# -- how a value looks


def is_reference(value: str, *, quoted: bool = False) -> bool:
    """Whether it stands for something else: a variable, a call, a file, a type, a place to fill in."""
    if _FILL_IN.fullmatch(value) and mean_run(value) > 3:
        return True
    if _REFERENCE.match(value) or _PLACEHOLDER.fullmatch(value) or _DATE.fullmatch(value):
        return not (value.isdigit() and len(value) >= 6)
    if not quoted and ("(" in value or "{" in value or "==" in value.rstrip("=")):
        return True
    if not quoted and _DOTTED.fullmatch(value) and not (random_looking(value) or (len(value) >= 40 and _digits(value) >= 6)):
        return True
    return _PATH.fullmatch(value) is not None and not (len(value) >= 24 and random_looking(value))


def mean_run(value: str) -> float:
    """The mean length of stretches of one kind of character: long in words, short in what a machine made."""
    found = _RUNS.findall(value)
    return sum(map(len, found)) / len(found) if found else 99.0


def _digits(value: str) -> int:
    return sum(sign.isdigit() for sign in value)


def machine_made(value: str) -> bool:
    """Near a word that says so: eight signs with letters and digits are enough."""
    if len(value) < 8 or not re.search(r"[A-Za-z]", value) or re.search(r"\s", value) or _WORDY.fullmatch(value):
        return False
    if re.fullmatch(r"(?:0x)?[0-9a-fA-F]{24,}", value):
        return True
    digits = _digits(value)
    if digits >= 8 and len(value) >= 32 and "/" not in value:
        return True
    if digits:
        mixed = mean_run(value) < (5 if len(value) >= 16 and digits >= 4 else 4)
        return mixed or (digits >= 4 and value.isalnum())
    return len(value) >= 20 and mean_run(value) < 3.2 and not re.search(r"[.\[\](){}]", value)


def random_looking(value: str) -> bool:
    """By itself: long, letters and digits, and no words in it."""
    if len(value) < 16 or re.search(r"\s", value):
        return False
    if not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)):
        return len(value) >= 28 and mean_run(value) < 2.9 and value.lower() != value != value.upper()
    return mean_run(value) < 3.3 and len(set(value)) >= 8
