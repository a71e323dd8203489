"""Names that say what a thing is: one class name for one meaning, and no module or function named by a word that says nothing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "dreamkeep"
FILES = sorted(PACKAGE.rglob("*.py"))

#: Class names that several modules may have, and why.
SHARED = {"Reader": "the contract of agents: each reader module has a class of this name (agents/CONTRACT.md)"}
#: Bare participles, adverbs and words that only sound like something.
EMPTY_WORDS = frozenset(
    (
        *("again", "alone", "bar", "bequeath", "bury", "child", "drawer", "each", "found", "given", "hasten", "heir", "held"),
        *("imitate", "judge", "known", "met", "net", "one", "ours", "plain", "said", "so_far", "told", "together", "voices"),
        *("weigh", "worded"),
    )
)
MOST_FILES = 15
_BETTER = "it says nothing to somebody who reads it alone: name it by what it makes or does (CONTRIBUTING.md)"


def test_a_class_name_has_one_meaning_in_the_whole_package() -> None:
    modules: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(str(file.relative_to(PACKAGE)))
    doubled = {name: sorted(found) for name, found in modules.items() if len(found) > 1 and name not in SHARED}
    assert doubled == {}, "a class has this name already: name each by what it makes or does"


def test_no_module_is_named_by_a_word_that_says_nothing() -> None:
    assert [str(file.relative_to(PACKAGE)) for file in FILES if file.stem.strip("_") in EMPTY_WORDS] == [], _BETTER


def test_no_function_is_named_by_a_word_that_says_nothing() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.strip("_") in EMPTY_WORDS
    ]
    assert found == [], _BETTER


def test_a_folder_holds_at_most_fifteen_modules() -> None:
    folders = {file.parent for file in FILES if file.parent != PACKAGE / "agents"}
    counts = {str(folder.relative_to(PACKAGE)): len(list(folder.glob("*.py"))) for folder in folders}
    full = {folder: count for folder, count in counts.items() if count > MOST_FILES}
    assert full == {}, f"more than {MOST_FILES} modules: move those that belong together into a folder of their own"
