"""Forms of secrets that can be told by their look alone: vendors' keys, tokens, hashes of passwords. Pure: only a table.

Each is a pattern for what stands behind a word's beginning, with a length that is bounded below, so that a name that only begins
alike (`sk-learn`, `xoxb-` in a sentence) is left alone. A group named `s` is the secret; without one all of it is. What needs the
words around it (passwords, `TOKEN=…`) is in redact.py.
"""

from __future__ import annotations

_W = r"[A-Za-z0-9_\-]"
_A = r"[A-Za-z0-9]"
_HEX = r"[0-9a-f]"
#: Far enough to see a digit in: `sk-some-plain-words-joined` has none.
_DIGIT = r"(?=[A-Za-z_\-]{0,48}[0-9])"

#: Models and what is around them.
_MODELS = (
    rf"sk-(?:proj|svcacct|admin|ant|or|lf|None|service)-{_W}{{16,400}}+",
    rf"sk-{_DIGIT}{_W}{{20,400}}+",
    rf"pk-lf-{_W}{{20,80}}+",
    rf"hf_{_A}{{30,60}}+",
    rf"api_org_{_A}{{30,60}}+",
    rf"r8_{_A}{{30,60}}+",
    rf"gsk_{_A}{{30,80}}+",
    rf"xai-{_W}{{40,120}}+",
    rf"pplx-{_W}{{32,80}}+",
    rf"fw_{_DIGIT}{_A}{{20,60}}+",
    rf"pa-{_W}{{40,60}}+",
    rf"tvly-{_W}{{20,80}}+",
    rf"csk-{_A}{{30,80}}+",
    rf"nvapi-{_W}{{40,100}}+",
    rf"pcsk_{_W}{{30,100}}+",
    rf"lsv2_(?:pt|sk)_{_HEX}{{32}}_{_HEX}{{10}}",
    rf"wandb_v1_{_W}{{30,120}}+",
    rf"sk_{_HEX}{{32,64}}+",
    r"ABSK[A-Za-z0-9+/]{80,300}+={0,2}",
    r"bedrock-api-key-[A-Za-z0-9+/]{40,2000}+={0,2}",
    rf"AQ\.Ab8RN6{_W}{{40,60}}+",
    rf"sk_car_{_W}{{20,40}}+",
    rf"fc-{_HEX}{{32}}(?!{_A})",
    rf"tgp_v1_{_W}{{40,60}}+",
    rf"jina_{_W}{{40,80}}+",
    rf"llx-{_A}{{40,60}}+",
    rf"apify_api_{_A}{{30,40}}+",
    rf"BSA{_DIGIT}{_W}{{24,40}}+(?!{_A})",
    rf"rpa_{_DIGIT}{_A}{{30,60}}+",
    r"apk_(?:user_)?[A-Za-z0-9+/]{80,200}+={0,2}",
    rf"cog_[a-z2-7]{{52}}(?!{_A})",
    rf"{_HEX}{{32}}\.{_A}{{16}}(?!{_A})",
    rf"unkey_{_DIGIT}{_A}{{20,32}}+",
)
#: Code hosts, package registries, builders.
_CODE = (
    rf"gh[pousr]_{_A}{{30,255}}+",
    rf"github_pat_{_W}{{40,255}}+",
    rf"gl(?:pat|dt|rt|rtr|ptt|cbt|soat|ft|imt|agent|oas|ffct|wt)-{_W}{{18,300}}+(?:\.{_W}{{2,80}}+)*",
    rf"GR1348941{_W}{{20}}",
    rf"npm_{_A}{{30,60}}+",
    rf"pypi-{_W}{{40,400}}+",
    rf"rubygems_{_HEX}{{48}}",
    rf"cio{_DIGIT}{_A}{{32}}(?!{_A})",
    rf"oy2{_A}{{43}}(?!{_A})",
    rf"dckr_(?:pat|oat)_{_W}{{20,80}}+",
    rf"ATATT3{_W}{{50,400}}+(?:={_W}+)?",
    rf"AT(?:CTT3|BB){_W}{{24,300}}+",
    rf"ATAT{_W}{{100,400}}+",
    rf"bk(?:ua|aa|aj|ar|ct|pt|pat|ps)_{_DIGIT}{_W}{{40,400}}+",
    rf"sgp_(?:(?:{_HEX}{{16}}|local)_)?{_DIGIT}{_A}{{40,64}}+",
    r"BBDC-[A-Za-z0-9+/]{32,80}+",
    rf"dd[op]_{_DIGIT}{_A}{{36}}(?!{_A})",
    rf"packagist_(?:ort|out|acs|ack)_{_HEX}{{28,96}}+",
    rf"CLOJARS_{_A}{{60}}",
    rf"csa_{_HEX}{{30}}{_A}{{6}}(?!{_A})",
    rf"ion_{_DIGIT}{_A}{{42}}(?!{_A})",
    rf"API-{_DIGIT}[A-Z0-9]{{26}}(?!{_A})",
    rf"PMAT-{_A}{{26}}(?!{_A})",
    rf"mergify_application_key_{_W}{{30,80}}+",
    rf"AIK_(?:CI|SECRET)_{_A}{{20,64}}+",
    rf"_gitlab_session=(?P<s>{_HEX}{{32}})",
    rf"vtwn_{_DIGIT}{_W}{{20,80}}+",
    rf"configcat-sdk-1/(?P<s>{_W}{{22}}/{_W}{{22}})",
    rf"dvc_(?:server|client|mobile)_{_DIGIT}{_W}{{8,60}}+",
    rf"incoming\+[\w.\-]{{1,100}}-(?P<s>{_A}{{20,30}})-issue@",
    rf"CCI(?:PAT|PRJ)_{_W}{{20,120}}+",
    rf"sq[pua]_{_HEX}{{40}}",
    rf"pul-{_HEX}{{40}}",
    rf"AKCp{_A}{{60,90}}+",
    rf"cmVmd{_A}{{56,70}}+",
    rf"PMAK-{_HEX}{{24}}-{_HEX}{{34}}",
    rf"CFPAT-{_W}{{40,60}}+",
    rf"jira_{_A}{{30,60}}+",
)
#: Clouds and hosting.
_CLOUDS = (
    r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/=%]{40,2000}+",
    rf"AIza{_W}{{35}}",
    rf"ya29\.{_W}{{20,400}}+",
    rf"GOCSPX-{_W}{{24,40}}+",
    rf"1//0{_W}{{30,200}}+",
    r"[A-Za-z0-9_~.\-]{3}\dQ~[A-Za-z0-9_~.\-]{31,40}+",
    rf"{_A}{{52}}JQQJ9{_A}{{27}}",
    rf"{_A}{{33}}AzSe{_A}{{10,15}}",
    rf"{_A}{{76}}AZDO{_A}{{4}}",
    rf"do[opr]_v1_{_HEX}{{64}}",
    rf"HRKU-{_W}{{30,80}}+",
    rf"vc[pkarit]_{_DIGIT}{_W}{{20,80}}+",
    rf"vercel_blob_rw_{_A}{{10,40}}+_{_A}{{20,60}}+",
    rf"nfp_{_A}{{30,60}}+",
    r"fm[12][ar]?_[A-Za-z0-9+/=]{60,2000}+",
    rf"fo1_{_W}{{30,80}}+",
    rf"rnd_{_DIGIT}{_A}{{20,60}}+",
    rf"sb(?:p|s)_{_A}{{30,60}}+",
    rf"sb_(?:secret|publishable)_{_W}{{20,80}}+",
    r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.\-]{30,80}+",
    rf"napi_{_A}{{40,80}}+",
    rf"dapi{_HEX}{{32}}(?:-\d)?",
    rf"LTAI{_A}{{12,24}}(?!{_A})",
    rf"AKID{_A}{{24,40}}(?!{_A})",
    rf"AQVN{_W}{{35,40}}",
    rf"sha256~{_W}{{43}}",
    rf"v1\.0-{_HEX}{{24}}-{_HEX}{{100,150}}+",
    rf"dt0[a-z]\d\d\.{_A}{{24}}\.{_A}{{64}}",
    rf"4b1d{_DIGIT}{_A}{{38}}(?!{_A})",
    rf"CCDB1_{_A}{{22}}_{_A}{{40}}",
    rf"AstraCS:{_A}{{20,40}}+(?::{_HEX}{{40,80}}+)?",
    r"SWM(?:TKN|KEY)-1-(?P<s>[A-Za-z0-9+/\-]{40,120}+)",
    rf"essu_{_W}{{60,200}}+={{0,2}}",
    rf"EXO{_DIGIT}{_A}{{24,30}}(?!{_A})",
    rf"pat\.{_W}{{22}}\.{_HEX}{{24}}\.{_A}{{20}}",
    rf"mdb_sa_sk_{_W}{{40,60}}+",
    rf"pnu_{_DIGIT}{_A}{{36}}(?!{_A})",
    rf"ico-{_DIGIT}{_A}{{32}}(?!{_A})",
    rf"tk-us-{_DIGIT}{_W}{{48}}",
    rf"ucat_{_DIGIT}{_A}{{24,40}}+",
    rf"zpka_{_A}{{32}}_{_HEX}{{8}}",
    rf"tskey-[a-z]{{2,12}}-{_W}{{16,80}}+",
    rf"{_A}{{14}}\.atlasv1\.{_W}{{50,80}}+",
    r"hv[sbr]\.[A-Za-z0-9_\-]{20,400}+",
    rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:{_W}{{2,40}}+\.)?{_W}{{36,60}}+",
)
#: Talk, money, work.
_SERVICES = (
    rf"xox[abcdeoprs]-{_W}{{10,400}}+",
    rf"xapp-\d{{1,12}}-{_W}{{16,300}}+",
    rf"xoxe\.xox[bp]-\d-{_A}{{100,200}}+",
    rf"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>T{_A}{{6,14}}/{_A}{{6,24}}/{_A}{{16,60}}+)",
    rf"discord(?:app)?\.com/api/webhooks/\d{{10,25}}+/(?P<s>{_W}{{50,90}}+)",
    rf"[MNO]{_W}{{22,27}}\.{_W}{{6}}\.{_W}{{27,40}}+",
    rf"\d{{8,10}}:AA{_W}{{32,34}}(?!{_A})",
    r"[A-Za-z0-9.\-]{1,60}\.webhook\.office\.com/webhookb2/(?P<s>[A-Za-z0-9@/\-]{60,200}+)",
    rf"SK{_HEX}{{32}}(?!{_A})",
    rf"SG\.{_W}{{16,32}}\.{_W}{{16,64}}+",
    r"SG\.[A-Za-z0-9_.\-]{66}",
    rf"key-{_HEX}{{32}}(?!{_A})",
    rf"{_HEX}{{32}}-us\d{{1,2}}(?!{_A})",
    rf"xkeysib-{_HEX}{{64}}-{_A}{{16}}",
    rf"re_{_A}{{6,12}}_{_A}{{16,40}}+",
    rf"(?:sk|rk|pk|sk_org)_(?:live|test)_{_A}{{10,250}}+",
    r"whsec_[A-Za-z0-9+/=]{24,80}+",
    rf"shp(?:at|ca|pa|ss)_{_A}{{30,40}}+",
    rf"(?<![+/])EAAA[A-Za-z0-9]{_W}{{55,65}}+",
    rf"sq0(?:atp|csp|idp)-{_W}{{22,50}}+",
    rf"(?<![+/])EAA{_A}{{80,300}}+",
    rf"access_token\$(?:production|sandbox)\${_A}{{16}}\${_HEX}{{32}}",
    rf"access-(?:sandbox|development|production)-{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    rf"FLW(?:SEC|PUB)K(?:_TEST)?-{_A}{{12,40}}+(?:-X)?",
    rf"lin_(?:api|oauth)_{_A}{{30,80}}+",
    rf"secret_{_A}{{43}}(?!{_A})",
    rf"ntn_{_A}{{40,60}}+",
    rf"pat{_A}{{14}}\.{_HEX}{{64}}",
    rf"fig[dou]r?_{_W}{{36,60}}+",
    r"gl(?:c|sa)_[A-Za-z0-9_+/=]{32,400}+",
    rf"NR(?:AK|JS|II|RA|BR|AA)-{_A}{{19,40}}+",
    r"sntry[us]_[A-Za-z0-9_+/=.]{40,400}+",
    rf"ph[cxs]_{_W}{{40,60}}+",
    r"[ps]k\.eyJ[A-Za-z0-9_\-.]{40,300}+",
    rf"sl\.(?:[a-z]\.)?{_DIGIT}{_W}{{60,1500}}+",
    r"(?<![+/])AAAAAAAAAAAAAAAAAAAAA[A-Za-z0-9%]{50,150}+",
    rf"tfp_{_W}{{40,80}}+",
    rf"aio_{_A}{{28}}(?!{_A})",
    rf"shippo_(?:live|test)_{_HEX}{{40}}",
    rf"rdme_{_A}{{60,80}}+",
    r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}",
    rf"p8e-{_DIGIT}{_A}{{32}}(?!{_A})",
    rf"\$aact_(?:prod|hmlg)_{_W}{{20,200}}+",
    rf"(?:sc|ext|scauth|authress)_{_A}{{5,30}}\.{_A}{{4,6}}\.acc[_\-][A-Za-z0-9\-]{{10,32}}\.[A-Za-z0-9+/_=\-]{{30,120}}+",
    rf"cnvca{_DIGIT}{_W}{{51}}",
    rf"duffel_(?:test|live)_{_W}{{43}}",
    rf"EZ[AT]K{_DIGIT}{_A}{{54}}(?!{_A})",
    rf"fio-u-{_W}{{64}}",
    rf"s-s4t2ud-{_HEX}{{64}}",
    rf"lip_{_DIGIT}{_A}{{16,24}}+",
    rf"mlsn\.{_A}{{30,80}}+",
    rf"{_A}{{6}}_{_A}{{29}}_mmk(?!{_A})",
    rf"mercury_(?:production|sandbox)_{_W}{{40,80}}+",
    rf"eyJtaXJv{_A}{{10,200}}+_{_W}{{20,200}}+",
    rf"nyk_{_DIGIT}{_A}{{60,80}}+",
    rf"os_v2_(?:app|org)_{_A}{{90,120}}+",
    rf"api_(?:live|sandbox)(?:_[a-z]{{2}})?\.{_DIGIT}{_W}{{20,80}}+",
    rf"pdl_(?:live|sdbx)_apikey_{_W}{{40,80}}+",
    rf"persona_(?:production|sandbox)_{_W}{{20,80}}+",
    rf"pina_{_DIGIT}{_W}{{20,120}}+",
    rf"polar_(?:at|oat|pat)_{_DIGIT}{_W}{{20,100}}+",
    rf"prf_(?:cli_)?{_DIGIT}{_W}{{20,80}}+",
    rf"ramp_sec_{_A}{{48}}",
    rf"rootly_{_HEX}{{64}}",
    rf"samsara_api_{_A}{{26,32}}+",
    rf"sm_(?:aat|pat|sat)_{_DIGIT}{_A}{{16,40}}+",
    rf"tss_{_DIGIT}{_W}{{20,80}}+",
    rf"xnd_(?:production|development)_{_A}{{40,80}}+",
    rf"(?<![+/])[A-Za-z0-9+/]{{22}}==:{_A}{{32}}(?!{_A})",
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,62}+",
)
#: Made by anybody: signed tokens, hashed passwords, a key's beginning in base64.
_ANYBODY = (
    rf"eyJ{_W}{{8,8000}}+\.{_W}{{6,16000}}+(?:\.{_W}{{0,8000}}+)*",
    r"eyJrIjoi[A-Za-z0-9+/]{40,400}+={0,2}",
    r"ZXlKaGJHY2lPaU[A-Za-z0-9+/]{40,4000}+={0,2}",
    r"ops_eyJ[A-Za-z0-9_+/=\-]{60,4000}+",
    r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]{20,20000}+",
    r"(?P<crypt>\$(?:1|2[abxy]|5|6|7|y|gy|apr1|argon2(?:id|i|d)|scrypt|pbkdf2[a-z0-9\-]{0,12})\$[A-Za-z0-9./$=,+\-]{20,300}+)",
)

FORMS = (*_MODELS, *_CODE, *_CLOUDS, *_SERVICES, *_ANYBODY)

#: What may stand for a password in a command: in quotes to their end, else to the end of a shell word; an ampersand inside it is
#: a part of it. (A reference to a variable is sorted out later.)
_P = r"(?P<s>(?<=['\"])[^\s'\"]{3,200}(?=['\"])|(?:[^\s'\"`|;&<>]|&(?![&\s'\"])){3,200})"
_Q = r"['\"]?"
#: The rest of a command line, a bounded stretch of it.
_ON = r"[^\n|;&]{0,200}?"
_QUOTE = r"\s{0,3}\\{0,3}['\"]"
#: ("somebody", "a password")
_PAIR = rf"{_QUOTE}[^'\"\n\\]{{1,100}}\\{{0,3}}['\"]\s{{0,3}},{_QUOTE}(?P<s>[^'\"\n\\]{{3,200}}+)"
_TWELVE = r"[^a-z\n]{0,12}(?:is[^a-z\n]{0,4})?\s{0,3}(?P<s>(?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b"
#: A password that a person chose, in a sentence: letters with a digit or a sign among them. Its last sign is its own.
_CHOSEN = (
    r"(?P<s>(?=[^\s\d!@#$%^&*+?~]{0,60}[\d!@#$%^&*+?~])(?=[^\sA-Za-z]{0,60}[A-Za-z])"
    r"[^\s\"'`,;()<>\[\]/|]{4,79}[^\s\"'`,;()<>\[\]/|.:?])"
)
#: Who somebody is, and what stands between that and a password: `bob:…`, `bob / …`.
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

#: (a word that must be there at all, in lower case; the pattern). Only the command tells what a short flag means.
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

#: A number that opens something: as one, or in groups; not the beginning of a longer one, of a price or of a time.
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

#: Around these words a sentence is looked at more closely.
SAID_WORDS = (
    r"code|código|codigo|(?<![a-z])pin(?![a-z])|otp(?![a-z])|2fa|geheimzahl|cred(?:s|ential)|log[ \t]?in|log[ \t]on|logged[ \t]in"
    "|sign[ \t]?in|验证码|驗證碼|校验码|动态码|コード|番号|ワンタイム|pin码|pin碼"
)
#: What is said of them is all that tells: codes and PINs, and what somebody logs in with.
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
