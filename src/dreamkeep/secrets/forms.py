"""Patterns of secrets: their look (forms.txt), the command they are given to, the sentence that says them. Pure: only tables.

A group named `s` is the secret; without one all of the match is. Names with a value (`TOKEN=…`) are in words.py.
"""

from __future__ import annotations

import pkgutil

_W = r"[A-Za-z0-9_\-]"
_A = r"[A-Za-z0-9]"
#: What the signs in forms.txt stand for.
_SIGNS = {"{W}": _W, "{A}": _A, "{H}": "[0-9a-f]", "{D}": r"(?=[A-Za-z_\-]{0,48}[0-9])"}


def _read_forms() -> tuple[str, ...]:
    table = (pkgutil.get_data(__package__, "forms.txt") or b"").decode()
    for sign, pattern in _SIGNS.items():
        table = table.replace(sign, pattern)
    return tuple(line for line in table.splitlines() if line and not line.startswith("#"))


FORMS = _read_forms()

#: A password in a command: in quotes to their end, else to the end of a shell word; an ampersand inside it is a part of it. (A
#: reference to a variable is sorted out later.)
_P = r"(?P<s>(?<=['\"])[^\s'\"]{3,200}(?=['\"])|(?:[^\s'\"`|;&<>]|&(?![&\s'\"])){3,200})"
_Q = r"['\"]?"
#: A bounded stretch of the rest of a command line.
_ON = r"[^\n|;&]{0,200}?"
_QUOTE = r"\s{0,3}\\{0,3}['\"]"
#: ("somebody", "a password")
_PAIR = rf"{_QUOTE}[^'\"\n\\]{{1,100}}\\{{0,3}}['\"]\s{{0,3}},{_QUOTE}(?P<s>[^'\"\n\\]{{3,200}}+)"
_TWELVE = r"[^a-z\n]{0,12}(?:is[^a-z\n]{0,4})?\s{0,3}(?P<s>(?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b"
#: A password that a person chose, in a sentence: letters with a digit or a special character among them.
_CHOSEN = (
    r"(?P<s>(?=[^\s\d!@#$%^&*+?~]{0,60}[\d!@#$%^&*+?~])(?=[^\sA-Za-z]{0,60}[A-Za-z])"
    r"[^\s\"'`,;()<>\[\]/|]{4,79}[^\s\"'`,;()<>\[\]/|.:?])"
)
#: A user's name, and what stands between it and a password: `bob:…`, `bob / …`.
_SOMEBODY = r"['\"`]?[\w.+\-]{2,60}(?:@[\w.\-]{3,60})?['\"`]?"
_AND = r"(?::|[ \t]{1,3}[:/|][ \t]{1,3}|[ \t]{1,3}(?:and|with|und|mit|et|avec|y|con|e|com)[ \t]{1,3}|,[ \t]{1,3})['\"`]?"
#: One of a list of backup codes.
_BACKUP = (
    r"(?:(?=[A-Za-z\-]{0,10}\d)[A-Za-z0-9]{4,6}(?:-[A-Za-z0-9]{4,6}){1,3}|\d{4}[ ]\d{4}|\d{6,10}"
    r"|(?=[a-z]{0,11}\d)[a-z0-9]{8,12})(?![\w\-])"
)
_BACKUPS = (
    r"[ \t_\-](?:verification[ \t]|backup[ \t]|recovery[ \t])?codes?\b[^\n\d]{0,40}?[:=\n][\s*\-•]{0,8}"
    rf"(?P<s>(?:\d{{1,2}}[.)][ \t])?{_BACKUP}(?:[\s,;|*\-•]{{1,8}}(?:\d{{1,2}}[.)][ \t])?{_BACKUP}){{0,40}})"
)
_TELLING = r"(?:password|passwd|passphrase|secret|token|api_?key|access_?key|private_?key|credential)"
_MACHINE = r"(?:localhost|\*|\d{1,3}(?:\.\d{1,3}){3}|[a-z0-9\-]{1,60}(?:\.[a-z0-9\-]{1,60}){2,5})"

#: (a word that the text must hold, in lower case; the pattern). Only the command tells what a short flag means.
COMMANDS = (
    ("sshpass", rf"(?i)\bsshpass\s+-p\s*{_Q}{_P}"),
    ("mysql", rf"(?i)\bmysql(?:dump|admin|import|sh)?\b{_ON}\s-p{_Q}{_P}"),
    ("maria", rf"(?i)\bmariadb(?:-dump|-admin)?\b{_ON}\s-p{_Q}{_P}"),
    (
        "login",
        rf"(?i)\b(?:docker|podman|helm|az|oc|buildah|skopeo|crane|oras|nerdctl|cf|registry)\b{_ON}\blogin\b{_ON}\s-p[\s=]{_Q}{_P}",
    ),
    ("mongo", rf"(?i)\bmongo(?:sh|dump|restore|export|import)?\b{_ON}\s-p[\s=]?{_Q}{_P}"),
    ("redis-cli", rf"(?i)\bredis-cli\b{_ON}\s-a\s+{_Q}{_P}"),
    ("sqlcmd", rf"\bsqlcmd\b{_ON}\s-P\s*{_Q}{_P}"),
    ("ldap", rf"\bldap[a-z]+\b{_ON}\s-w\s+{_Q}{_P}"),
    ("zip", rf"\b(?:un)?zip\b{_ON}\s-P\s+{_Q}{_P}"),
    ("7z", rf"\b7z[a-z]?\b{_ON}\s-p{_Q}{_P}"),
    ("curl", rf"(?i)\bcurl\b[^\n]{{0,400}}?\s(?:-u|--user|-U|--proxy-user)[\s=]?{_Q}[^\s:'\"]{{1,100}}:{_P}"),
    ("pass:", rf"-pass(?:in|out)?\s+pass:{_P}"),
    ("identified", r"(?i)\bidentified\s+(?:with\s+\S{1,40}\s+)?by\s+(?:password\s+)?['\"](?P<s>[^'\"\n]{3,200}+)"),
    ("password '", r"(?i)\bpassword\s+'(?P<s>[^'\n]{3,200}+)'"),
    ("chpasswd", rf"(?i)\becho\s+(?:-\w\s+)?{_Q}[\w.\-]{{1,60}}:(?P<s>[^\s'\"`|]{{3,200}}+){_Q}\s*\|[^\n]{{0,60}}?chpasswd"),
    ("sudo", rf"(?i)\becho\s+(?:-\w\s+)?{_Q}(?P<s>[^\s'\"`|]{{3,200}}+){_Q}\s*\|\s*sudo\s+-S"),
    (
        "stdin",
        rf"(?i)\becho\s+(?:-\w\s+)?{_Q}(?P<s>[^\s'\"`|]{{6,400}}+){_Q}\s*\|[^\n|]{{0,200}}?--?\w*-?(?:password|token|key)-?\w*stdin",
    ),
    ("htpasswd", rf"\bhtpasswd\s+-\w*b\w*\s+(?:-\w+\s+)*\S{{1,200}}\s+\S{{1,80}}\s+{_Q}{_P}"),
    ("convertto-securestring", rf"(?i)\bConvertTo-SecureString\s+(?:-String\s+)?['\"]{_P}"),
    ("generic-password", rf"\badd-(?:generic|internet)-password\b{_ON}\s-w\s+{_Q}{_P}"),
    ("secret set", rf"\bsecret\s+set\b{_ON}\s(?:-b|--body)[\s=]+{_Q}{_P}"),
    ("auth", rf"(?i)\b(?:http)?(?:basic)?_?auth(?:enticate)?\s{{0,3}}[=(]\s{{0,3}}\(?{_PAIR}"),
    ("login(", rf"(?i)\blogin\({_PAIR}"),
    ("phrase", rf"(?i)\b(?:seed|recovery|backup|secret)\s+phrase\b{_TWELVE}"),
    ("mnemonic", rf"(?i)\bmnemonic\b{_TWELVE}"),
    *((word, rf"(?i)\b{word}{_BACKUPS}") for word in ("backup", "recovery", "scratch", "rescue", "emergency", "2fa", "mfa")),
    ("akia", r"\bAKIA[A-Z0-9]{16}[\"']?[ \t]{0,4}[,;\t|][ \t]{0,4}[\"']?(?P<s>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"),
    (
        "variable",
        rf"(?i)\bvariable\s{{1,4}}\"[^\"\n]{{0,60}}{_TELLING}[^\"\n]{{0,60}}\"\s{{0,4}}\{{[^{{}}]{{0,800}}?\bdefault\s{{0,8}}=\s{{0,4}}\"(?P<s>[^\"\n]{{3,300}})\"",
    ),
    ("value=", rf"(?i)\b(?:key|name)=\"[^\"\n]{{0,60}}{_TELLING}s?\"\s{{1,8}}value=\"(?P<s>[^\"\n]{{3,300}})\""),
    ("wifi:", r"(?i)\bWIFI:[^\n]{0,120}?\bP:(?P<s>[^;\n]{4,80})"),
    ("ssws", rf"\bSSWS[ \t]{{1,4}}(?P<s>{_W}{{20,80}})"),
    ("flyv1", r"\bFlyV1[ \t]{1,4}(?P<s>[A-Za-z0-9=_\-,/+]{60,2000})"),
    ("00d", rf"\b00D{_A}{{12}}!(?P<s>[A-Za-z0-9._\-]{{60,300}})"),
    ("|", rf"\b\d{{15,16}}\|(?P<s>(?=[A-Za-z_\-]{{0,40}}\d){_W}{{27,40}})(?!{_A})"),
    (":", rf"(?<![\w.\-]){_MACHINE}:(?:\d{{4,5}}|\*):[^:\s]{{1,60}}:[^:\s]{{1,60}}:(?P<s>[^\s\"'\\]{{3,200}}+)(?![^\s\"\\])"),
)

#: A code: a number as one, or in groups; not the beginning of a longer number, of a price or of a time.
_SIX = r"['\"`「*]{0,3}(?P<s>\d{3}[ \-]\d{3}(?:[ \-]\d{2,3})?|\d{6,8})(?![A-Za-z0-9_%]|[.,:/\-]\d)"
_BEFORE = r"(?<![\w.#\-])(?P<s>\d{3}[ \-]\d{3}|\d{4,8})"
_FOUR = _SIX.replace(r"\d{6,8}", r"\d{4,8}")
_FOR = r"(?:[ \t](?:for|to|of|on|für|zum|zur|vom|von|pour|de|du|para|del|da|do)(?:[ \t][\w.\-@']{1,30}){1,3}?)?"
_IS = (
    r"(?:[ \t]{1,3}(?:is|was|will be|ist|war|lautet|est|es|era|é)(?:[ \t](?:now|still|jetzt|nun))?:?[ \t]{1,3}"
    r"|[ \t]?[:=：][ \t]{0,3})"
)
_OF_CODE = (
    r"(?:verification|security|confirmation|one[ \-]time|otp|2fa|mfa|two[ \-]factor|authentication|authenticator|login"
    r"|sign[ \-]in|sms|access|pairing|unlock|door|gate|alarm|backup|recovery|activation|bestätigungs|sicherheits"
    r"|zugangs|freischalt|einmal"
    r"|verifizierungs|anmelde)"
)
_CODE_OF = (
    r"(?:de[ \t]|d['’])(?:vérification|sécurité|confirmation|connexion|accès|validation|verificación|seguridad|acceso"
    r"|confirmación|verificação|segurança|acesso|confirmação)"
)
_CODE_CJK = "验证码|驗證碼|校验码|动态码|認証コード|確認コード|認証番号|暗証番号|ワンタイムパスワード|PINコード|PIN码|PIN碼"
_MINE = r"(?:the|your|my|this|der|dein|ihr|mein|le|votre|ton|mon|el|tu|su|mi|o|seu|meu)"

#: Only around these words a sentence is searched for codes and logins.
SAID_WORDS = (
    r"code|código|codigo|(?<![a-z])pin(?![a-z])|otp(?![a-z])|2fa|geheimzahl|cred(?:s|ential)|log[ \t]?in|log[ \t]on|logged[ \t]in"
    "|sign[ \t]?in|验证码|驗證碼|校验码|动态码|コード|番号|ワンタイム|pin码|pin碼"
)
#: Codes, PINs and logins, which only the sentence tells.
SAID = (
    rf"(?i)(?<![\w\-])pin(?:[ \-]?(?:code|number|nummer))?{_FOR}{_IS}{_FOUR}",
    rf"(?<![\w\-])PIN[ \t]{_FOUR}",
    rf"(?i)\bcode[ \t]pin{_IS}{_FOUR}",
    rf"(?i)\bgeheimzahl{_FOR}{_IS}{_FOUR}",
    rf"(?i)\b{_OF_CODE}[ \-]?code{_FOR}(?:{_IS}|[ \t](?=\D?\d{{6}}|\D?\d{{3}}[ \-]\d{{3}})){_FOUR}",
    rf"(?i)\bcode[ \t]{_CODE_OF}{_IS}{_FOUR}",
    rf"(?i)\bc[óo]digo[ \t]{_CODE_OF}{_IS}{_FOUR}",
    rf"(?i)\b{_MINE}[ \t]code{_FOR}{_IS}{_SIX}(?![ \t](?:lines|bytes|rows|chars|characters|zeilen|lignes|líneas|linhas))",
    rf"(?i)\b{_MINE}[ \t]c[óo]digo{_FOR}{_IS}{_SIX}",
    rf"(?i){_BEFORE}[ \t](?:is|ist)[ \t](?:your|my|the|dein|ihr)[ \t](?:[\w\-]{{1,20}}[ \t]){{0,4}}(?:code|pin|otp)\b",
    rf"(?i)(?<![a-z])t?otp(?:[ \t]code)?(?:{_IS}|[ \t]){_SIX}",
    rf"(?i)\b2fa{_IS}{_SIX}",
    rf"(?:{_CODE_CJK})[ ]?(?:是|为|為|は|：|:|=)[ ]?{_FOUR}",
    rf"(?i)\b(?:login[ \t])?cred(?:ential)?s?\b(?:[ \t]{{1,3}}(?:are|is)\b:?|[ \t]?[:=])[ \t]{{1,3}}{_SOMEBODY}{_AND}{_CHOSEN}",
    rf"(?i)\b(?:log[ \t]?in|log[ \t]on|logged[ \t]in)[ \t](?:with|using|as|via)[ \t]{_SOMEBODY}{_AND}{_CHOSEN}",
    rf"(?i)\blogin(?::|[ \t]is)[ \t]{_SOMEBODY}{_AND}{_CHOSEN}",
    rf"(?i)\bsign[ \t]?in[ \t](?:with|using|as)[ \t]{_SOMEBODY}{_AND}{_CHOSEN}",
)
