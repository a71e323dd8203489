"""The way in for a newcomer: short pages, links that lead somewhere, ids that exist, and no talk about how it was made."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dreamkeep

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "dreamkeep"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "bench").glob("*.md"), *PACKAGE.rglob("*.md")})
MODULES = sorted(PACKAGE.rglob("*.py"))
#: The letters of docs/SPEC.md: rules, then failures of others.
ID = re.compile(r"\b[ACGJMPRUX]\d{1,2}b?\b|\b[BDKSTW]\d{1,2}\b")
STANDS = re.compile(r"^- \*\*(\w+)\*\* ", re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: What only the people who made this would understand.
PROCESS = re.compile(
    r"\btesters?\b|\bfresh eyes\b|\badversarial\b"
    r"|\b(?:fir|seco|thi|four|fif|six|seven|eigh|nin|ten)\w* round\b|\b\d+ minutes each\b"
    r"|\bfound by (?:an? |the )?(?:tester|review|reading|chance)|\bIssue \d|\bthe issue (?:says|asks|wants)\b|\b\d of 5:"
)


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(("page", "most"), [("KNOWN_LIMITS.md", 80), ("ARCHITECTURE.md", 200)])
def test_a_page_that_must_stay_short_is_short(page: str, most: int) -> None:
    assert len((DOCS / page).read_text().splitlines()) <= most


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as a forge makes them."""
    outside = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.*)$", outside, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_relative_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists() and place.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(place), link


def test_every_guide_can_be_reached_from_the_index() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall((DOCS / "index.md").read_text())}
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= linked


def test_the_index_goes_from_installing_to_internals() -> None:
    heads = re.findall(r"^## (.*)$", (DOCS / "index.md").read_text(), re.M)
    order = "Install, Quickstart, Your agents, The memory page, Search, Recover, Python, Reference, Internals"
    assert heads == order.split(", ")


def cited() -> Iterator[tuple[str, str]]:
    """(id, where) of every docstring in the tests."""
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                for one in ID.findall(ast.get_docstring(node) or ""):
                    yield one, names(file)


def test_every_id_that_a_test_cites_stands_in_the_spec() -> None:
    stands = set(STANDS.findall((DOCS / "SPEC.md").read_text()))
    found = list(cited())
    assert len(found) > 500
    assert [(one, where) for one, where in found if one not in stands] == []


def test_no_id_stands_twice_in_the_spec() -> None:
    counts = Counter(STANDS.findall((DOCS / "SPEC.md").read_text()))
    assert [one for one, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    "text",
    ["what two testers saw", "the eighth round", "Issue 6: packs", "found by reading it", "20 minutes each", "3 of 5: recovery"],
)
def test_talk_about_the_making_is_known(text: str) -> None:
    assert PROCESS.search(text)


def test_no_page_test_or_comment_speaks_of_how_the_project_was_made() -> None:
    code = [file for place in ("src", "tests", "bench", "examples") for file in (ROOT / place).rglob("*.py")]
    told = [
        f"{names(file)}:{n}: {line.strip()}"
        for file in (*PAGES, *code, *(ROOT / "tests").rglob("*.md"))
        if file != Path(__file__)
        for n, line in enumerate(file.read_text().splitlines(), 1)
        if PROCESS.search(line)
    ]
    assert told == []


def test_every_folder_of_the_package_has_a_line_in_the_architecture_page() -> None:
    page = (DOCS / "ARCHITECTURE.md").read_text()
    for folder in sorted(one.parent.name for one in PACKAGE.glob("*/__init__.py")):
        assert re.search(rf"^\| `{folder}/", page, re.M), folder


@pytest.mark.parametrize("module", [one for one in MODULES if one.name != "__main__.py"], ids=names)
def test_every_module_says_at_its_head_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text()))


def test_development_tools_are_a_group_and_no_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {"pytest", "ruff", "mypy"} <= {one.partition("==")[0] for one in project["dependency-groups"]["dev"]}
    assert "dev" not in project["project"]["optional-dependencies"]


def test_the_citation_names_the_version_of_the_package() -> None:
    assert f"\nversion: {dreamkeep.__version__}\n" in (ROOT / "CITATION.cff").read_text()
