"""What other scanners find is masked, and honest text stays.

A table contains the forms of Betterleaks, the successor of Gitleaks. Kingfisher runs too if it is installed (`make test-scanners`
installs it): whatever it still finds in a masked text is a leak.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dreamkeep.secrets.redact import redact, redact_all
from tests.helpers.scanners import Form, forms, left
from tests.helpers.secrets import planted, said
from tests.paths import TESTS

HONEST = (TESTS / "data" / "secrets" / "honest.txt").read_text().splitlines()
FORMS = forms()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.rule)
def test_a_form_that_other_scanners_know_is_masked(form: Form) -> None:
    masked, _ = redact(f"First I looked around.\n{form.text}\nThen it worked.")
    assert form.secrets and not [secret for secret in form.secrets if secret in masked]
    assert masked.startswith("First I looked around.\n") and masked.endswith("\nThen it worked.")
    assert redact(masked) == (masked, 0)


def test_other_random_values_of_each_form_are_masked_too() -> None:
    for seed in range(2, 8):
        for form in forms(seed):
            masked, _ = redact(f"it says {form.text}" if "\n" not in form.text else form.text)
            assert not [secret for secret in form.secrets if secret in masked], (form.rule, seed)


def test_each_form_that_is_not_masked_has_a_reason() -> None:
    assert len(FORMS) > 400
    assert [rule for rule, why in left().items() if not why] == []


def test_of_three_hundred_honest_lines_at_most_one_is_masked() -> None:
    assert len(set(HONEST)) >= 600
    masked = [line for line in HONEST if redact(line)[1]]
    assert len(masked) * 300 <= len(HONEST), masked


def test_honest_lines_that_follow_each_other_stay_as_well() -> None:
    texts, _ = redact_all(HONEST)
    changed = [line for line, text in zip(HONEST, texts, strict=True) if line != text]
    assert len(changed) * 300 <= len(HONEST), changed
    whole = "\n".join(HONEST)
    assert redact(whole)[1] * 300 <= len(HONEST)


def _kingfisher() -> str | None:
    return os.environ.get("KINGFISHER") or shutil.which("kingfisher")


@pytest.mark.slow
@pytest.mark.skipif(_kingfisher() is None, reason="kingfisher is not installed: `make test-scanners` fetches it")
def test_kingfisher_finds_nothing_in_what_was_masked(tmp_path: Path) -> None:
    texts = [*(one.text for one in planted()), *(one.text for one in said()), *(one.text for one in FORMS)]
    plain, masked = tmp_path / "plain", tmp_path / "masked"
    for folder in (plain, masked):
        folder.mkdir()
    for n, text in enumerate(texts):
        (plain / f"{n}.txt").write_text(f"look:\n{text}\nok\n")
        (masked / f"{n}.txt").write_text(redact(f"look:\n{text}\nok\n")[0])
    assert len(_found(plain)) > 200, "it does not look at all"
    reasons = left()
    still = [(rule, file) for rule, file in _found(masked) if not reasons.get(rule)]
    assert still == []


def _found(folder: Path) -> list[tuple[str, str]]:
    """(rule, file) of each finding; nothing is validated, so nothing leaves this machine."""
    command = [
        str(_kingfisher()),
        "scan",
        str(folder),
        "--no-validate",
        "--format",
        "jsonl",
        "--no-update-check",
        "--confidence",
        "low",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [_finding(json.loads(line)) for line in output.splitlines() if line.startswith("{") and '"rule"' in line]


def _finding(report: dict[str, dict[str, str]]) -> tuple[str, str]:
    rule = report["rule"]["id"].split(".", 1)[1]
    return rule.rstrip("0123456789").rstrip("."), report["finding"].get("path", "")
