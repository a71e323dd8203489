"""Secrets are masked, and harmless text stays as it is."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.secrets.redact import MARK, redact, redact_all
from tests.helpers.secrets import INNOCENT, LETTERS, Planted, key_lines, planted, said, some
from tests.paths import ROOT, SHARED

PLANTED = planted()
SAID = said()


def test_there_are_enough_planted_secrets_for_the_measurements() -> None:
    assert len(PLANTED) >= 50 and len(INNOCENT) >= 60
    assert len({one.kind for one in PLANTED}) == len(PLANTED)


def leaks(text: str, one: Planted) -> list[str]:
    return [secret for secret in one.secrets if secret in text]


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.kind)
def test_a_planted_secret_is_masked_and_the_words_around_it_stay(one: Planted) -> None:
    """M12"""
    text, count = redact(f"First I looked around.\n{one.text}\nThen it worked.")
    assert not leaks(text, one), text
    assert count >= 1 and MARK in text
    assert text.startswith("First I looked around.\n") and text.endswith("\nThen it worked.")


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.kind)
def test_a_planted_secret_is_masked_inside_json_too(one: Planted) -> None:
    text, _ = redact(json.dumps({"type": "tool", "output": one.text}, ensure_ascii=False))
    assert not any(json.dumps(secret)[1:-1] in text for secret in one.secrets), text


@pytest.mark.parametrize("one", SAID, ids=lambda one: one.kind)
def test_a_secret_that_only_a_sentence_or_its_place_shows_is_masked(one: Planted) -> None:
    for text in (one.text, f"First I looked around.\n{one.text}\nThen it worked."):
        masked, count = redact(text)
        assert count >= 1 and not leaks(masked, one), masked
        assert redact(masked) == (masked, 0)
    inside, _ = redact(json.dumps({"type": "tool", "output": one.text}, ensure_ascii=False))
    assert not any(json.dumps(secret, ensure_ascii=False)[1:-1] in inside for secret in one.secrets), inside


@pytest.mark.parametrize("text", INNOCENT)
def test_harmless_text_stays(text: str) -> None:
    assert redact(text) == (text, 0)
    assert redact(f"a line\n  {text}\nanother line") == (f"a line\n  {text}\nanother line", 0)


@pytest.mark.parametrize("secret", ["hunter2secret", "Tr0ub4dor&3", "P4ss!&word", "summer24pass", "a1&b2&c3d4"])
@pytest.mark.parametrize(
    "around",
    [
        *("password={}", "password: {}", "the password is {}", "My password is {}, thanks", "(password: {})", "passwd={}"),
        *("pwd: {}", "secret={}", "db_password = {}", "DB_PASSWORD={}", "x --password {} y", "?password={}&user=me"),
        *("password={}&amp;user=me", "sshpass -p '{}' ssh me@host", "curl -u admin:{} https://ci/api", "password={} && ls"),
    ],
)
def test_all_of_a_password_that_a_person_chose_is_masked(around: str, secret: str) -> None:
    assert redact(around.replace("{}", secret)) == (around.replace("{}", MARK), 1)


@pytest.mark.parametrize("around", ["token: {}", "token={}", "the token is {}.", '"token": "{}"', "credentials: {}"])
def test_a_token_of_words_and_a_number_is_masked(around: str) -> None:
    assert redact(around.replace("{}", "hunter2secret"))[0] == around.replace("{}", MARK)


def test_a_password_before_an_ampersand_is_masked_with_and_without_what_follows() -> None:
    texts, _ = redact_all(["POST /login?password=Sup3rCache&remember", "it says Sup3rCache", "and Sup3rCache&remember"])
    assert texts == [f"POST /login?password={MARK}", f"it says {MARK}", f"and {MARK}"]


def test_a_secret_that_was_found_once_is_masked_everywhere() -> None:
    secret = "hunter22x"
    texts, count = redact_all([f"the log says {secret} twice", "nothing here", f"DB_PASSWORD={secret}", f"https://x/?q={secret}"])
    assert not any(secret in text for text in texts) and count == 3
    assert texts[1] == "nothing here"


def test_a_password_that_is_a_common_word_does_not_wipe_that_word_out() -> None:
    text, _ = redact("POSTGRES_PASSWORD=postgres\nwe use postgres here")
    assert text == f"POSTGRES_PASSWORD={MARK}\nwe use postgres here"


def test_a_password_that_is_a_word_is_masked_where_it_stands_as_one() -> None:
    text, _ = redact("psql 'user=app password=swordfish'\nit said swordfish, and swordfishes stay")
    assert text == f"psql 'user=app password={MARK}'\nit said {MARK}, and swordfishes stay"
    often = "--password kangaroo\n" + "the kangaroo jumps\n" * 20
    assert redact(often)[0].count("kangaroo") == 20


def test_twelve_words_are_masked_wherever_they_stand_and_whatever_follows_them() -> None:
    [phrase] = next(one.secrets for one in PLANTED if one.kind == "seed phrase")
    texts, _ = redact_all([f"my seed phrase: {phrase} please keep that", f"ok {phrase}"])
    assert texts[1] == f"ok {MARK}" and phrase not in texts[0]


def test_a_secret_known_beforehand_is_masked_without_any_sign_of_it() -> None:
    assert redact("it says zebra crossing 9", known=["zebra crossing 9"])[0] == f"it says {MARK}"


FORMED = [
    one for one in PLANTED if one.kind.split()[0] in ("openai", "anthropic", "github", "gitlab", "npm", "jwt", "hugging", "vault")
]


@pytest.mark.parametrize("one", FORMED, ids=lambda one: one.kind)
def test_a_token_cut_between_two_messages_is_masked_on_both_sides(one: Planted) -> None:
    [secret] = one.secrets
    for cut in range(1, len(secret)):
        left, right = f"here: {secret[:cut]}", f"{secret[cut:]} and so on"
        texts, _ = redact_all([left, right])
        assert secret not in "".join(texts), cut
        # What is left of it is too short to be of use.
        rest = "".join(texts).replace("here: ", "").replace(" and so on", "").replace(MARK, "")
        assert len(rest) <= 9, (cut, texts)


@pytest.mark.parametrize("pieces", [2, 3, 4])
def test_a_key_block_over_several_messages_is_masked_in_all_of_them(pieces: int) -> None:
    lines = key_lines(12)
    whole = ["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----"]
    size = -(-len(whole) // pieces)
    said = ["\n".join(whole[n : n + size]) for n in range(0, len(whole), size)]
    texts, _ = redact_all(["look:\n" + said[0], *said[1:-1], said[-1] + "\nthat is all"])
    assert not [line for line in lines for text in texts if line in text]
    assert texts[0].startswith("look:\n") and texts[-1].endswith("\nthat is all")


def test_a_key_without_its_end_or_its_beginning_is_masked_as_far_as_it_goes() -> None:
    lines = key_lines(6)
    head, _ = redact("\n".join(["a", "-----BEGIN RSA PRIVATE KEY-----", *lines, "…", "the rest was cut, said the tool"]))
    tail, _ = redact("\n".join(["cut before this", *lines, "-----END RSA PRIVATE KEY-----", "b"]))
    assert head == f"a\n{MARK}\n…\nthe rest was cut, said the tool"
    assert tail == f"cut before this\n{MARK}\nb"


@pytest.mark.parametrize("size", [80, 130, 200, 300])
def test_a_key_that_was_made_one_line_and_cut_is_masked(size: int) -> None:
    """As in a session's title."""
    for kind in ("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"):
        lines = key_lines(6)
        line = " ".join([f"use -----BEGIN {kind}-----", *lines])
        assert redact(line[:size])[0] == f"use {MARK}"
        assert redact(f"{line[:size]}…")[0].removesuffix("…") == f"use {MARK}"
    sentence = "the file begins with -----BEGIN RSA PRIVATE KEY----- and internationalization-words follow it"
    assert redact(sentence)[0] == sentence


def test_a_complete_token_at_the_end_does_not_eat_the_next_messages_first_word() -> None:
    [token] = PLANTED[4].secrets
    assert redact_all([f"use {token}", "Sure, I will."])[0] == [f"use {MARK}", "Sure, I will."]


@given(
    st.lists(st.sampled_from([*(one.text for one in (*PLANTED, *SAID)), *INNOCENT, "words\n", " ", MARK]), max_size=8),
    st.randoms(),
)
@settings(max_examples=150)
def test_masking_again_changes_nothing(pieces: list[str], chance: random.Random) -> None:
    once, _ = redact_all(pieces)
    assert redact_all(once) == (once, 0)
    joined = "\n".join(pieces)
    masked, _ = redact(joined)
    assert redact(masked) == (masked, 0)


@given(st.text(max_size=400))
@settings(max_examples=200)
def test_any_text_is_legal(text: str) -> None:
    masked, count = redact(text)
    assert (count == 0) == (masked == text)
    assert redact(masked) == (masked, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "password=",
        "a" * 50,
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "-----END RSA PRIVATE KEY-----\n",
        "://",
        "://a:b",
        "token is ",
        "pw:a&",
        "password:a1&b",
        "password=abc123&b",
        "eyJ",
        "eyJhbGciOiJ9.",
        "mysql -p ",
        "Ab1",
        "--password ",
        "curl -u a:",
        "echo ",
        "\\n",
        '"key": "',
        "a.b.c.d.",
        "AAAA",
        "0123456789abcdef\n",
    ],
)
def test_a_text_made_to_be_slow_is_searched_in_linear_time(piece: str) -> None:
    """No time is measured: with quadratic work the test would not end."""
    text = piece * (300_000 // len(piece))
    once, _ = redact(text)
    assert redact(once)[0] == once


def test_many_different_secrets_in_one_text_are_all_masked() -> None:
    secrets = [some(LETTERS, 24) for _ in range(2000)]
    text, _ = redact("\n".join(f"API_TOKEN={secret}\nseen {secret} there" for secret in secrets))
    assert not [secret for secret in secrets if secret in text]


TRANSCRIPTS = Path(os.environ.get("DREAMKEEP_TRANSCRIPTS") or SHARED / "data" / "transcripts")


@pytest.mark.skipif(not TRANSCRIPTS.is_dir(), reason="no real transcripts at hand")
def test_nothing_is_masked_in_real_transcripts_without_secrets() -> None:
    """They were made with a stub model and contain no secret, so anything masked is a mistake."""
    for file in sorted(TRANSCRIPTS.rglob("*.jsonl")):
        for line in file.read_text(errors="replace").splitlines():
            assert redact(line)[1] == 0, file.name


def test_nothing_is_masked_in_our_docs_and_planted_sessions() -> None:
    root = ROOT
    for file in [*root.glob("docs/**/*.md"), *root.glob("tests/planted/**/*.json"), root / "README.md"]:
        assert redact(file.read_text())[1] == 0, file.name


def test_a_command_that_prints_a_password_is_no_password() -> None:
    for text in ("restic --password-command 'pass show restic' init", 'borg: passphrase_command = "pass show borg"'):
        assert redact(text) == (text, 0)


def test_no_pattern_needs_what_older_pythons_match_wrongly() -> None:
    """Before 3.11.5 a possessive group (`(…|…){1,9}+`) may match what it should not: then a secret stays."""
    folder = ROOT / "src" / "dreamkeep" / "memory"
    group = re.compile(r"\)(?:\{{1,2}[0-9,]*\}{1,2}|[*?+])\+(?=[^+\s])")
    assert {file.name: found for file in folder.glob("*.py") if (found := group.findall(file.read_text()))} == {}


def test_a_masked_command_does_not_claim_a_flag_of_the_next_message() -> None:
    pieces = ["mongosh --username root --password=exv7CI5IV3hf", "cargo run -p station -- --dry --pass next"]
    once, _ = redact_all(pieces)
    assert once[1] == pieces[1] and redact_all(once)[0] == once


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.kind)
def test_a_secret_behind_a_written_out_line_feed_is_found(one: Planted) -> None:
    """In JSON lines, in cut JSON, in JSON inside JSON: none of these is parsed as JSON."""
    line = json.dumps({"n": 1, "cmd": f"First.\n{one.text}\nThen."})
    for text, inside in ((f'{line}\n{{"n":2}}', 1), (line[:-1], 1), (json.dumps({"body": line})[:-1], 2)):
        masked, count = redact(text)
        assert count and redact(masked) == (masked, 0)
        for secret in one.secrets:
            written = secret
            for _ in range(inside):
                written = json.dumps(written)[1:-1]
            assert secret not in masked and written not in masked
    assert json.loads(redact(f'{line}\n{{"n":2}}')[0].split("\n")[0])["n"] == 1


_MEBIBYTE = 1 << 20
#: Texts that keep a pattern busy when repeated: beginnings that never become a secret, and endings that fit nothing.
_BUSY = [
    *("password ", "password is ", "password for the ", "the password for a b c ", "das Passwort für ", "密码是", "パスワードは"),
    *(
        "creds are a:",
        "log in with a / ",
        "login: a / ",
        "username bob password ",
        "user a user a ",
        "code ",
        "the code is 12345 ",
    ),
    *(
        "PIN ",
        "PIN for a b c ",
        "verification code for a ",
        "backup codes: ",
        "backup codes:\n1234 5678\n",
        "12345678 is your a a a ",
    ),
    *(
        "password,",
        "a,password\n",
        "a,password\nb,c\n",
        '"',
        'password,"',
        "kind: Secret\n",
        "data:\n  a: b\n",
        "kind: Secret\ndata:\n a: b\n",
    ),
    *(
        '"kind":"Secret","data":{',
        'variable "password" {',
        '<add key="password" ',
        "AKIA",
        "WIFI:P:",
        "SSWS ",
        "00D",
        "sl.",
        "eyJ",
        "a.b-",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "sk-",
        "0123456789abcdef",
        "://a:",
        "Aa1",
        "\\n",
        "\\u0070",
        "&",
        "e ",
        "\t",
        "\n",
        "é",
        "İ",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", _BUSY)
def test_a_mebibyte_that_was_made_to_be_slow_is_masked_before_long(piece: str) -> None:
    """No time is measured: with quadratic work the test would not end."""
    text = (piece * (_MEBIBYTE // len(piece) + 1))[:_MEBIBYTE]
    masked, _ = redact(text)
    assert len(masked) <= len(text) * 2
