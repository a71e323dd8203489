"""Secrets to plant: each with a text around it as agents' transcripts have them. Made by chance with a fixed seed, so that no
file of ours holds anything that looks like somebody's key.
"""

from __future__ import annotations

import base64
import random
import re
import string
from typing import NamedTuple

_chance = random.Random(20261116)
LETTERS = string.ascii_letters + string.digits
LOW = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
URL = LETTERS + "-_"
B64 = LETTERS + "+/"


def some(signs: str, count: int) -> str:
    made = [_chance.choice(signs) for _ in range(count)]
    # Never by chance without a digit, nor with a sign at an end where a text around it would not show where it ends.
    made[0], made[count // 2], made[-1] = _chance.choice("bcdef"), _chance.choice("23456789"), _chance.choice("bcdef")
    return "".join(made)


def key_lines(count: int = 8) -> list[str]:
    return [some(B64, 64) for _ in range(count)] + [some(B64, 30) + "=="]


class Planted(NamedTuple):
    kind: str
    text: str
    #: None of these may be seen.
    secrets: tuple[str, ...]


def _plant(kind: str, text: str, *secrets: str) -> Planted:
    return Planted(kind, text, secrets)


def _one(kind: str, around: str, secret: str) -> Planted:
    return Planted(kind, around.replace("{}", secret), (secret,))


def _block(name: str) -> Planted:
    lines = key_lines()
    return Planted(name, "\n".join([f"cat key\n-----BEGIN {name}-----", *lines, f"-----END {name}-----\n$ "]), tuple(lines))


def planted() -> list[Planted]:
    _chance.seed(20261116)
    jwt = ".".join(("eyJ" + some(URL, 33), "eyJ" + some(URL, 60), some(URL, 43)))
    service = key_lines(4)
    numbered = key_lines(5)
    basic = base64.b64encode(f"deploy:{some(LETTERS, 14)}".encode()).decode()
    return [
        _one("openai project key", "set OPENAI_API_KEY to {} please", "sk-proj-" + some(URL, 60)),
        _one("openai old key", "I pasted {} by mistake", "sk-" + some(LETTERS, 48)),
        _one("anthropic key", "curl -H 'x-api-key: {}' https://api.anthropic.com", "sk-ant-api03-" + some(URL, 90)),
        _one("openrouter key", "key {}.", "sk-or-v1-" + some(HEX, 64)),
        _one("github token", "git clone https://{}@github.com/a/b", "ghp_" + some(LETTERS, 36)),
        _one(
            "github fine token", "gh auth login --with-token <<< {}", "github_pat_" + some(LETTERS, 22) + "_" + some(LETTERS, 59)
        ),
        _one("gitlab token", "PRIVATE-TOKEN: {}", "glpat-" + some(URL, 20)),
        _one("slack bot token", '{"token":"{}"}', f"xoxb-{some('123456789', 12)}-{some('123456789', 12)}-{some(LETTERS, 24)}"),
        _one(
            "slack webhook",
            "curl -d x https://hooks.slack.com/services/{}",
            f"T{some('ABCDEFGH123', 9).upper()}/B{some('ABCDEFGH123', 9).upper()}/{some(LETTERS, 24)}",
        ),
        _one("stripe key", "stripe.api_key = '{}'", "sk_live_" + some(LETTERS, 24)),
        _one("stripe webhook secret", "STRIPE_WEBHOOK_SECRET={}", "whsec_" + some(LETTERS, 32)),
        _one("aws key id", "aws_access_key_id = {}", "AKIA" + some("ABCDEFGHIJKLMNOP234567", 16).upper()),
        _one("aws secret", "aws_secret_access_key = {}", some(B64, 40)),
        _one("aws configure", "aws configure set aws_secret_access_key {}", some(LETTERS, 40)),
        _one("gcp key", "https://maps.googleapis.com/maps/api/js?key={}&v=3", "AIza" + some(URL, 35)),
        _one("gcp oauth", "Authorization: Bearer {}", "ya29." + some(URL, 80)),
        _plant(
            "gcp service account",
            '{"type":"service_account","private_key":"-----BEGIN PRIVATE KEY-----\\n'
            + "\\n".join(service)
            + '\\n-----END PRIVATE KEY-----\\n","client_id":"1"}',
            *service,
        ),
        _one(
            "azure storage",
            "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={};EndpointSuffix=core.windows.net",
            some(B64, 86) + "==",
        ),
        _one("azure signature", "https://acct.blob.core.windows.net/c/f?sv=2022-11-02&sig={}", some(LETTERS, 40) + "%3D"),
        _one("azure client secret", "client_secret: {}", some(LETTERS, 3) + "8Q~" + some(URL, 34)),
        _one("npm token", "//registry.example.org/:_authToken={}", "npm_" + some(LETTERS, 36)),
        _one("pypi token", "TWINE_PASSWORD={}", "pypi-" + some(URL, 120)),
        _one("docker token", "docker login -u me -p {}", "dckr_pat_" + some(URL, 27)),
        _one("hugging face", "huggingface-cli login --token {}", "hf_" + some(LETTERS, 34)),
        _one("sendgrid", "SENDGRID={}", f"SG.{some(URL, 22)}.{some(URL, 43)}"),
        _one("telegram", "bot {} started", "7123456789:AA" + some(URL, 33)),
        _one("digitalocean", "doctl auth init -t {}", "dop_v1_" + some(HEX, 64)),
        _one("vault", "export VAULT_TOKEN={}", "hvs." + some(URL, 90)),
        _one("linear", "Authorization: {}", "lin_api_" + some(LETTERS, 40)),
        _one("tailscale", "tailscale up --authkey {}", "tskey-auth-" + some(LETTERS, 17) + "-" + some(LETTERS, 32)),
        _one("jwt", "the cookie holds {} and nothing else", jwt),
        _one("bearer", "curl -H 'Authorization: Bearer {}' localhost:8080", some(LETTERS, 32)),
        _plant("basic", f"Authorization: Basic {basic}", basic),
        _block("RSA PRIVATE KEY"),
        _block("OPENSSH PRIVATE KEY"),
        _block("PGP PRIVATE KEY BLOCK"),
        _plant(
            "numbered lines",
            "     1→-----BEGIN EC PRIVATE KEY-----\n"
            + "\n".join(f"{n:6}→{line}" for n, line in enumerate(numbered, 2))
            + "\n     9→-----END EC PRIVATE KEY-----",
            *numbered,
        ),
        _one("postgres url", "DATABASE_URL=postgres://app:{}@db.internal:5432/app", some(LETTERS, 16)),
        _one("redis url", "redis://:{}@cache:6379/0", "Sup3rCache"),
        _one("mongo url", 'connect("mongodb+srv://root:{}@cluster0.abcde.mongodb.net/x")', "p%40ss" + some(LETTERS, 8)),
        _one("url with an at", "amqp://guest:{}@mq:5672", "p@" + some(LETTERS, 9)),
        _one("libpq words", "psql 'host=db user=app password={} dbname=x'", "swordfish"),
        _one("sql server string", "Server=tcp:db;Database=x;User Id=sa;Password={};Encrypt=true", "Yukon_9" + some(LETTERS, 6)),
        _one(".env password", "NODE_ENV=production\nDB_PASSWORD={}\nPORT=3000", "letmein"),
        _one(".env quoted", 'SECRET_KEY_BASE="{}"', some(HEX, 64)),
        _one(".env token", "export API_TOKEN={}", some(LOW, 24)),
        _one("django", "SECRET_KEY = '{}'", "django-insecure-" + some(LOW + "!@#$%^&*(-_=+)", 50)),
        _one("json", '{"user":"me","password":"{}","remember":true}', "correct-horse-9"),
        _one("json in json", '{"body":"{\\"apiKey\\":\\"{}\\"}"}', some(LETTERS, 24)),
        _one("yaml", "database:\n  username: app\n  password: {}\n", "Tr0ub4dor&3"),
        _one("python keyword", 'client = Client(host="db", password="{}")', "hunter22"),
        _one("flag", "mysqladmin --password {} status", "opensesame"),
        _one("flag with =", "mongosh --username root --password={}", some(LETTERS, 12)),
        _one("mysql -p", "mysql -u root -p{} -e 'show tables'", "r00tpw!"),
        _one("PGPASSWORD", "PGPASSWORD={} psql -h db -U app", "pgpw77"),
        _one("sshpass", "sshpass -p '{}' ssh root@host", "Adm1n#Box"),
        _one("curl -u", "curl -s -u admin:{} https://ci/api", some(LETTERS, 12)),
        _one("redis-cli -a", "redis-cli -h cache -a {} ping", some(LETTERS, 14)),
        _one("sql", "ALTER USER app WITH PASSWORD '{}';", "n3w-pass word"),
        _one("netrc", "machine api.example.org login me password {}", some(LETTERS, 12)),
        _one("pgpass", "localhost:5432:app:me:{}", some(LETTERS, 12)),
        _one("said", "btw the password for staging is {}, don't tell", "Winter2026!"),
        _one("said token", "my token is {}", some(LETTERS, 24)),
        _one("shadow", "root:{}:19000:0:99999:7:::", "$6$" + some(LETTERS, 8) + "$" + some(LETTERS + "./", 86)),
        _one(
            "kubernetes secret",
            "apiVersion: v1\nkind: Secret\ndata:\n  password: {}\n",
            base64.b64encode(b"hunter22-prod!").decode(),
        ),
        _one("helm", "helm upgrade app ./c --set auth.password={}", some(LETTERS, 12)),
        _one("sudo", "echo '{}' | sudo -S apt-get update", "s3cretsudo"),
        _one("hex key by its word", "DD_API_KEY: {}", some(HEX, 32)),
        _one("totp", "otpauth://totp/x?secret={}&issuer=y", "JBSWY3DPEHPK3PXP"),
        _one(
            "seed phrase",
            "my seed phrase: {}",
            "abandon ability able about above absent absorb abstract absurd abuse access accident",
        ),
        _one("login call", 'smtp.login("me@example.org", "{}")', "mail-pw-77"),
        _one("typed python", 'api_key: str = "{}"', some(LETTERS, 28)),
        _one("age", "age key: {}", "AGE-SECRET-KEY-1" + some("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58).upper()),
        _one("table", "| user | me |\n| password | {} |", "Abc123xyz"),
        _one("another language", "la contraseña: {}", "Hola1234"),
        _one("documented example", "AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"),
        _one("plain hex", "X-Api-Key: {}", "0123456789abcdef" * 2),
        _one("words with dashes", "POSTGRES_PASSWORD: {}", "fake-secret-pw"),
        _one("secret in quotes", "secret = '{}'", "topsecretvalue"),
        _one("sentry", "SENTRY_DSN=https://{}@o1.ingest.sentry.io/2", some(HEX, 32)),
    ]


#: A password said in a sentence.
_SENTENCES = (
    *("the password is {}", "The password is: {}", "the password is now {}", "password for the staging db is {}", "my pw is {}"),
    *("the password that we use is {}", "the password was changed to {}", "changed the password to {}", "the password is `{}`"),
    *(
        "the root password on prod is {}",
        "ssh bob@host (password {})",
        "wifi password is {}",
        "sudo password is {}",
        "password → {}",
    ),
    *("username bob password {}", "user bob / pass {}", "user: bob, password: {}", "use password {} for the staging box"),
    *("User: bob\nPassword {}", "with the password {}", "creds are admin:{}", "creds: admin / {}", "credentials are bob / {}"),
    *("log in with bob / {}", "login with bob:{}", "login: bob / {}", "sign in as bob with {}", "log in as bob@example.org / {}"),
    *(
        "das Passwort ist {}",
        "Das Passwort lautet {}.",
        "Passwort: {}",
        "Das Kennwort für den Server ist {}",
        "mein Passwort ist jetzt {}",
    ),
    *("das Passwort für die Datenbank heißt {}", "Benutzer bob Passwort {}", "mit dem Passwort {}", "Passwort ist „{}“"),
    *(
        "le mot de passe est {}",
        "Le mot de passe de la base est {}.",
        "mot de passe : {}",
        "le mdp est {}",
        "le mot de passe c'est {}",
    ),
    *("utilisateur bob mot de passe {}", "avec le mot de passe {}", "le mot de passe est « {} »", "MOT DE PASSE : {}"),
    *("la contraseña es {}", "contraseña: {}", "La contraseña del servidor es {}.", "LA CONTRASEÑA ES {}", "la clave es {}"),
    *("el usuario es bob y la contraseña es {}", "con la contraseña {}", "la contraseña ahora es {}"),
    *("a senha é {}", "A senha do banco é {}.", "senha: {}", "a palavra-passe é {}", "usuário bob senha {}", "com a senha {}"),
    *("密码是{}", "密码为{}", "密码：{}", "数据库密码是 {}。", "密码是{}，不要告诉别人", "口令是{}", "密碼是{}", "密码改成{}了"),
    *(
        "パスワードは{}",
        "パスワードは{}です。",
        "パスワードは「{}」です",
        "パスワード：{}",
        "DBのパスワードは {} です",
        "비밀번호는 {}",
    ),
)
#: A code said in a sentence.
_CODES = (
    *(
        "the PIN is {4}",
        "PIN: {4}",
        "my PIN for the card is {4}.",
        "use PIN {4}",
        "PIN code: {4}",
        "die PIN lautet {4}",
        "code PIN : {4}",
    ),
    *(
        "el PIN es {4}",
        "o PIN é {4}",
        "PIN码是{4}",
        "暗証番号は{4}です",
        "PINコードは{4}",
        "the door code is {4}",
        "security code is {4}",
    ),
    *(
        "the code is {6}",
        "your verification code: {3} {3}",
        "Your verification code is {3}-{3}.",
        "verification code {6}",
        "OTP: {6}",
    ),
    *("the 2FA code is {6}", "{6} is your verification code", "{6} is your Acme code", "my code is {3} {3}", "otp is {6}"),
    *("der Code ist {6}", "der Bestätigungscode lautet {6}", "le code est {6}", "code de vérification : {6}", "el código es {6}"),
    *(
        "código de verificación: {6}",
        "o código é {6}",
        "código de verificação: {6}",
        "验证码是{6}",
        "验证码：{6}",
        "認証コードは{6}です",
    ),
    *(
        "確認コード: {6}",
        "2FA backup codes:\n1. {4} {4}\n2. {4} {4}",
        "backup codes\n{8}\n{8}\n",
        "recovery codes: {8}, {8}, {8}",
    ),
)


def _chosen() -> tuple[str, ...]:
    """As people choose them; never twice the same."""
    return f"Winter{_chance.randrange(10_000, 99_999)}", f"hunter{some(LOW, 6)}", f"s3cr{some(LOW, 5)}-Horse"


def said() -> list[Planted]:
    """What only a sentence or a place betrays."""
    _chance.seed(20261118)
    found = [_one(f"said: {around} {n}", around, secret) for around in _SENTENCES for n, secret in enumerate(_chosen())]
    found += [_code(around) for around in _CODES]
    secret, key = some(B64, 40), "AKIA" + some("ABCDEFGHIJKLMNOP234567", 16).upper()
    field, other = (base64.b64encode(text.encode()).decode() for text in ("hunter22-prod!", "another-one"))
    found += [
        _plant("access keys", f"Access key ID,Secret access key\n{key},{secret}\n", secret, key),
        _plant(
            "access keys of a user",
            f"User name,Password,Access key ID,Secret access key,Console login link\nbob,kittens,{key},{secret},https://x.example.org\n",
            *(secret, key, "kittens"),
        ),
        _plant(
            "exported logins",
            'name,url,username,password\nci,https://ci,bob,swordfish\ndb,https://db,"al","a,b c"\n',
            "swordfish",
            "a,b c",
        ),
        _one("terraform", 'variable "db_password" {\n  type    = string\n  default = "{}"\n}', "opensesame"),
        _one("terraform in a line", 'variable "api_token" { default = "{}" }', "opensesame"),
        _plant(
            "kubernetes fields",
            f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  db: {field}\n  other: {other}\ntype: Opaque\n",
            *(field, other),
        ),
        _plant("kubernetes, data first", f"- apiVersion: v1\n  data:\n    db: {field}\n  kind: Secret\n", field),
        _plant("kubernetes as json", f'{{"kind": "Secret", "data": {{"db": "{field}", "x": "{other}"}}}}', field, other),
        _plant(
            "kubernetes lines", "kind: Secret\nstringData:\n  conf: |\n    user bob\n    opensesame please\n", "opensesame please"
        ),
        _one("otpauth", "otpauth://totp/Acme:bob?secret={}&issuer=Acme", some("ABCDEFGHIJKLMNOP234567", 16).upper()),
        _one("wifi", "network={\n  ssid=home\n  psk={}\n}", "kittens99"),
        _one("wifi, quoted", 'psk="{}"', "my kittens"),
        _one("wifi as a code", "WIFI:S:home;T:WPA;P:{};;", "kittens99"),
        _one("okta", "Authorization: SSWS {}", "00" + some(URL, 40)),
        _one("firecrawl", "use {} for the crawl", "fc-" + some(HEX, 32)),
        _one("together", "use {} please", "tgp_v1_" + some(URL, 43)),
        _one("jina", "use {} please", "jina_" + some(LETTERS, 60)),
        _one("sourcegraph", "use {} please", f"sgp_{some(HEX, 16)}_{some(HEX, 40)}"),
        _one("dropbox", "use {} please", "sl.u." + some(URL, 120)),
    ]
    return found


def _code(around: str) -> Planted:
    secrets: list[str] = []

    def fill(match: re.Match[str]) -> str:
        secrets.append("".join(_chance.choice("3456789") for _ in range(int(match[1]))))
        return secrets[-1]

    return Planted(f"code: {around}", re.sub(r"\{(\d)\}", fill, around), tuple(secrets))


#: Must stay as they are, word for word.
INNOCENT = [
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "fixed in 9f8e7d6",
    "HEAD is now at a1b2c3d Fix the token parser",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "md5 d41d8cd98f00b204e9800998ecf8427e  empty.txt",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
    "session 5f0c2d1e-0000-4000-8000-000000000001 ended",
    '"session_id": "0199d3a1-4c00-7a11-8f00-0000000a0002"',
    '"session": "3f6c1c9e-0b52-4d5e-9a37-51c2a7d0e101"',
    "toolu_01A09q90qw90lq917835lq9",
    "call_abc123DEF456ghi789JKL012",
    "msg_01XFDUDYJgAACzvnptvVoYEL",
    "chatcmpl-9aBcDeFgHiJkLmNoPqRsTuVwXyZ01",
    "request id req_011CSHoEeqs5C35K2UUqR7Fy",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "password: str",
    "password: string;",
    "password: Optional[str] = None",
    "def login(user, password):",
    "def login(self, password: str | None = None) -> Token:",
    "connect(host=host, password=password)",
    "connect(host=host, password=pw)",
    'password = os.environ["DB_PASSWORD"]',
    "password = getpass.getpass()",
    "token = get_token(request)",
    "const token = req.headers.authorization",
    "apiKey: process.env.OPENAI_API_KEY",
    "API_KEY=$API_KEY",
    "export TOKEN=${TOKEN:-}",
    "TOKEN=$(cat /run/token)",
    'PASSWORD="<your password>"',
    "password=********",
    'api_key="YOUR_API_KEY"',
    "OPENAI_API_KEY=your-key-here",
    "secret: null",
    "max_tokens=4096",
    '"max_tokens": 8192, "temperature": 0',
    "tokens: 12345 in, 678 out",
    "token_count: 1532",
    "the tokenizer splits on spaces",
    "Unexpected token '<' in JSON at position 0",
    "the secret is to rest the dough",
    "the key is under the mat",
    "the password must have at least 12 characters",
    "the password is required",
    "password: must have 12 characters",
    "password=user2_password",
    "password: oauth2Password",
    "password = flags&MASK",
    "secret = a && b1c2d3",
    "token: see docs",
    "token: base64encoded",
    "token: sha256digest of the body",
    "parse(token=parser2token, at=0)",
    "passwords are hashed with bcrypt",
    "the --password flag is required",
    "use --password-stdin instead",
    "cargo run -p station -- --dry --pass next",
    "docker run -p 8080:80 nginx",
    "mkdir -p src/dreamkeep/memory",
    "ssh -p 2222 dev@host",
    "git clone git@github.com:acme/widgets.git",
    "https://github.com/acme/widgets/pull/42#discussion_r1234567890",
    "http://localhost:8080/path@v2",
    "postgres://user:password@localhost/db",
    "postgres://app:$DB_PASS@db/app",
    "primary_key=True",
    'cache_key = "user:42:profile:v3"',
    'sort_key: "created_at_2024_desc"',
    'React key="item-17-of-list"',
    "keyboard_shortcut_handler_v2",
    "sk-learn is not sk-something-else-that-is-a-long-name",
    "PWD=/home/dev/work",
    "PASSWORD_FILE=/run/secrets/db_password",
    "next_token: eyJ",
    "model gpt-4o-mini-2024-07-18",
    "claude-opus-4-1-20250805",
    '"betas":["advanced-tool-use-2025-11-20","thinking-token-count-2026-05-13"]',
    "author: agent; authority: none; secretary: yes",
    "auth_method: oauth2",
    "password_hash_algorithm = argon2id",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    'assert text.startswith("-----BEGIN RSA PRIVATE KEY-----")',
    "src/auth/token_store.py:120: error: Missing return",
    "tests/test_password_reset.py::test_token_expires PASSED",
    "tests/test_auth.py::test_login_v2 PASSED",
    "tests/test_auth.py::test_password_is_hashed[argon2id-v19] PASSED",
    "FAILED tests/test_password.py::TestReset::test_v2[bcrypt-12] - AssertionError",
    "src/password.js:14:const x1 = 2",
    "src/secret.js:7:module.exports2 = a1",
    "app/password.rb:12:in `check2'",
    "use crate::password::Hash2x;",
    "Password::Bcrypt2",
    "auth.password::Argon2id",
    "secret::Store2::new",
    "Cache restored from key: Linux-node-3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081929",
    "AWS_REGION=eu-central-1",
    "arn:aws:secretsmanager:eu-central-1:123456789012:secret:prod/db-AbCdEf",
    "exit code: 137",
    "use the `key` argument of sorted()",
    "cookie banner: accept or reject",
    "Basic English words and basic arithmetic",
    "pass: 120, fail: 3, skipped: 7",
    "2026-11-15T18:51:41.637Z",
    "node_modules/.pnpm/@types+node@20.11.5/node_modules/@types/node",
    "/nix/store/0c5bpyf5hj0fbr9wkk5g8pbpx5a4qgsi-hello-2.12",
]
