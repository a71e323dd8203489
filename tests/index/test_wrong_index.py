"""Whatever lies where the index belongs, every command answers from the journal, and the audit and its repair know about it.

tests/data/indexes holds one index file for each version and schema that was ever in use. Each was made by the program of its
time, over the keep in tests/data/keep-format-1.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import zstandard

from dreamkeep import Keep
from dreamkeep.host import RealHost
from dreamkeep.index.sqlite import VERSION, SqliteStore
from tests.helpers.cli import Ran
from tests.paths import TESTS

DATA = TESTS / "data"
OLD = sorted((DATA / "indexes").glob("*.sqlite.zst"))
VERBS: list[list[str]] = [["status"], ["sessions"], ["search", "build"], ["pack"], ["dream"], ["audit"], ["repair"]]


def unpack(old: Path) -> bytes:
    return zstandard.ZstdDecompressor().decompress(old.read_bytes())


def change(path: Path, sql: str, version: int | None = None) -> None:
    db = apsw.Connection(str(path))
    db.execute(sql)
    if version is not None:
        db.pragma("user_version", version)
    db.close()


def drop_column(path: Path) -> None:
    change(path, "ALTER TABLE messages DROP COLUMN heard")


def add_column(path: Path) -> None:
    change(path, "ALTER TABLE sessions ADD COLUMN mood TEXT")


def drop_table(path: Path) -> None:
    change(path, "DROP TABLE turns")


def drop_search_table(path: Path) -> None:
    change(path, "DROP TABLE words")


def drop_table_of_the_search(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    db.execute("PRAGMA writable_schema=1; DELETE FROM sqlite_master WHERE name = 'words_data'")
    db.close()


def newer(path: Path) -> None:
    change(path, "CREATE TABLE mood(at TEXT)", VERSION + 1)


def foreign(path: Path) -> None:
    path.unlink()
    change(path, "CREATE TABLE bookmarks(url TEXT); INSERT INTO bookmarks VALUES ('https://example.org')")


def foreign_with_our_version(path: Path) -> None:
    path.unlink()
    change(path, "CREATE TABLE places(url TEXT); INSERT INTO places VALUES ('https://example.org')", VERSION)


def no_tables(path: Path) -> None:
    path.unlink()
    change(path, "", VERSION)


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(7, 256)) * 64)


def garbage_behind_a_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100] + bytes(range(7, 256)) * 64)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("This is not a database.\n")


def header_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def first_page_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "letter.txt").write_text("somebody's own words")


def folder_for_the_log(path: Path) -> None:
    Path(f"{path}-wal").mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def bad_utf8(path: Path) -> None:
    change(path, "UPDATE sessions SET title = CAST(x'ff41' AS TEXT), cwd = CAST(x'ff41' AS TEXT)")


def rows_of_nobody(path: Path) -> None:
    change(path, "UPDATE sessions SET fold = 'x', lineage = 'x'; UPDATE places SET sums = 7; DELETE FROM embedder")


WRONG: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (
        drop_column,
        add_column,
        drop_table,
        drop_search_table,
        drop_table_of_the_search,
        newer,
        foreign,
        foreign_with_our_version,
        no_tables,
        garbage,
        garbage_behind_a_header,
        empty,
        text,
        header_only,
        first_page_only,
        half,
        folder,
        folder_for_the_log,
    )
}
#: What the commands mend, too; but an audit leaves it to its user, or only its answers betray it.
ALSO_WRONG: dict[str, Callable[[Path], None]] = {one.__name__: one for one in (pipe, link_to_nothing, bad_utf8, rows_of_nobody)}


@pytest.fixture
def index(root: str) -> Path:
    """The index of a keep that has journals of format 1."""
    shutil.copytree(DATA / "keep-format-1", root)
    with Keep.open(root) as keep:
        keep.sessions()
    return Path(root) / "index.sqlite"


def place_old(index: Path, old: Path) -> None:
    for extra in index.parent.glob("index.sqlite-*"):
        extra.unlink()
    index.write_bytes(unpack(old))


def answers(root: str) -> str:
    with Keep.open(root) as keep:
        sessions = keep.sessions()
        found: dict[str, Any] = {
            "sessions": [keep.as_json(one) for one in sessions],
            "show": [keep.show(one.id) for one in sessions],
            "search": [keep.search(words) for words in ("build", "hello", "the")],
            "status": keep.status(),
            "notes": keep.notes(),
        }
        return json.dumps(found, sort_keys=True)


def classes(root: str, home: Path) -> list[str]:
    with Keep.open(root) as keep:
        found = [one["class"] for one in keep.audit(home=str(home))["faults"]]
    return sorted(one for one in found if one != "open_to_others")  # that is up to the umask of whoever runs the tests


def is_right(index: Path) -> bool:
    SqliteStore(str(index)).close()
    return True


def test_there_is_an_old_index_of_every_version() -> None:
    versions = {int(one.name[1:3]) for one in OLD}
    assert versions == set(range(1, max(versions) + 1)) and max(versions) >= VERSION - 1, "add one of the version before"


@pytest.mark.parametrize("old", OLD, ids=lambda one: one.name[:-11])
def test_a_keep_with_an_index_of_any_version_gives_the_same_answers(index: Path, old: Path) -> None:
    before = answers(str(index.parent))
    place_old(index, old)
    assert answers(str(index.parent)) == before
    assert is_right(index)


@pytest.mark.parametrize("old", OLD, ids=lambda one: one.name[:-11])
def test_an_audit_reports_an_index_of_another_version_and_repair_makes_a_new_one(index: Path, old: Path, tmp_path: Path) -> None:
    root = str(index.parent)
    before = classes(root, tmp_path)
    place_old(index, old)
    if f"v{VERSION}." in old.name:
        pytest.skip("this version")
    assert classes(root, tmp_path) == sorted([*before, "index_unusable"])
    with Keep.open(root) as keep:
        [found] = [one for one in keep.audit(home=str(tmp_path))["faults"] if one["class"] == "index_unusable"]
        assert found["repairable"] and f"this version of dreamkeep writes {VERSION}" in found["what"]
        keep.repair(apply=True, home=str(tmp_path))
    assert is_right(index)
    assert "index_unusable" not in classes(root, tmp_path)


@pytest.mark.parametrize("wrong", [*WRONG, *ALSO_WRONG])
def test_a_keep_with_anything_at_the_place_of_its_index_gives_the_same_answers(index: Path, wrong: str) -> None:
    before = answers(str(index.parent))
    {**WRONG, **ALSO_WRONG}[wrong](index)
    assert answers(str(index.parent)) == before
    assert is_right(index)


@pytest.mark.parametrize("wrong", WRONG)
def test_an_audit_reports_a_wrong_index_and_repair_makes_a_new_one(index: Path, wrong: str, tmp_path: Path) -> None:
    root = str(index.parent)
    before = classes(root, tmp_path)
    WRONG[wrong](index)
    assert classes(root, tmp_path) == sorted([*before, "index_unusable"])
    with Keep.open(root) as keep:
        assert keep.repair(apply=True, home=str(tmp_path))["undo_id"]
    assert is_right(index)
    assert "index_unusable" not in classes(root, tmp_path)


@pytest.mark.parametrize("verb", ["sessions", "repair"])
def test_a_folder_at_the_place_of_the_index_keeps_its_files(index: Path, verb: str, tmp_path: Path) -> None:
    folder(index)
    with Keep.open(str(index.parent)) as keep:
        if verb == "repair":
            keep.repair(apply=True, home=str(tmp_path))
        else:
            keep.sessions()
    assert is_right(index)
    kept = [one for one in index.parent.glob("aside/**/*") if one.is_file()]
    assert b"somebody's own words" in [one.read_bytes() for one in kept]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """What each command answers where the index is right."""
    place = tmp_path_factory.mktemp("right")
    found = {}
    for words in VERBS:
        keep = place / words[0]
        shutil.copytree(DATA / "keep-format-1", keep)
        with Keep.open(keep) as opened:
            opened.sessions()
        found[words[0]] = command(keep, place, words)
    return found


def command(keep: Path, home: Path, words: list[str]) -> Ran:
    given = [sys.executable, "-m", "dreamkeep", "--keep", str(keep), *words, "--json"]
    done = subprocess.run(given, capture_output=True, text=True, env={**os.environ, "HOME": str(home)}, timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("wrong", ["v12", "v20", "newer", "garbage", "empty", "foreign_with_our_version", "folder"])
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_command_works_on_a_keep_with_a_wrong_index(
    index: Path, right: dict[str, Ran], tmp_path: Path, wrong: str, words: list[str]
) -> None:
    """The exit code and the answer are those of a keep whose index is right; only an audit and a repair add a fault."""
    if wrong in WRONG:
        WRONG[wrong](index)
    else:
        place_old(index, DATA / "indexes" / f"{wrong}.sqlite.zst")
    found, expected = command(index.parent, tmp_path, words), right[words[0]]
    assert found.code == expected.code, found.err
    assert found.json.keys() == expected.json.keys()
    if words == ["audit"]:
        assert "index_unusable" in [one["class"] for one in found.json["faults"]]
    if words == ["repair"]:
        assert ("rebuild", str(index)) in [(one["action"], one["where"]) for one in found.json["plan"]]
    if words == ["sessions"]:
        assert found.json == expected.json


def test_what_an_old_index_knew_of_a_lost_end_is_known_to_the_new_one(index: Path, tmp_path: Path) -> None:
    """From the version on that has today's columns."""
    root = str(index.parent)
    place_old(index, DATA / "indexes" / "v23.sqlite.zst")
    [lost] = index.parent.glob("journal/sessions/codex/other-*/000002.jsonl")
    lost.unlink()
    with Keep.open(root) as keep:
        keep.sessions()
    assert "journal_missing_part" in classes(root, tmp_path)


class Refusing(RealHost):
    """Nothing can be made, moved or taken away where the index lies."""

    @staticmethod
    def create(path: str) -> int:
        if "index.sqlite" in path:
            raise OSError(errno.ENOSPC, "no space left", path)
        return RealHost().create(path)

    @staticmethod
    def remove(path: str) -> None:
        if "index.sqlite" in path:
            raise OSError(errno.EROFS, "read-only file system", path)
        os.remove(path)


@pytest.mark.parametrize("wrong", ["v16", "garbage", "half", "missing"])
def test_a_wrong_index_that_can_not_be_replaced_stops_no_answer(index: Path, wrong: str) -> None:
    before = answers(str(index.parent))
    if wrong == "missing":
        index.unlink()
    elif wrong in WRONG:
        WRONG[wrong](index)
    else:
        place_old(index, DATA / "indexes" / f"{wrong}.sqlite.zst")
    with Keep.open(str(index.parent), host=Refusing()) as keep:
        assert [one.id for one in keep.sessions()] == [one["id"] for one in json.loads(before)["sessions"]]
        assert keep.search("the") is not None


def test_an_index_is_never_seen_half_made(index: Path) -> None:
    """A crash while a new one is made leaves a file of another name, and that is no index."""
    index.unlink()
    Path(f"{index}.new").write_bytes(b"half")
    before = answers(str(index.parent))
    assert is_right(index) and not Path(f"{index}.new").exists()
    assert json.loads(before)["sessions"]


def test_bytes_that_changed_in_the_index_stop_no_question(root: str, tmp_path: Path) -> None:
    """SQLite has no checksums: a changed byte may show only in what an answer is taken for."""
    with Keep.open(root) as keep:
        keep.session("a", cwd=str(tmp_path)).record("Always run the linter before a commit.", ("assistant", "I will."))
        keep.session("a").end()
        keep.dream()
        expected = [one.id for one in keep.sessions()]
    path = Path(root) / "index.sqlite"
    sound = path.read_bytes()
    used = [at for at, byte in enumerate(sound) if byte]
    chance = random.Random(12)
    for _ in range(60):
        data = bytearray(sound)
        for _ in range(chance.choice((1, 5, 40))):
            data[chance.choice(used)] = chance.randrange(256)
        for extra in Path(root).glob("index.sqlite-*"):
            extra.unlink()
        path.write_bytes(data)
        with Keep.open(root) as keep:
            assert len(keep.sessions()) <= len(expected)
            keep.search("linter")
            keep.notes()
            keep.pack()
            keep.audit(home=str(tmp_path))
    path.unlink()
    with Keep.open(root) as keep:
        assert [one.id for one in keep.sessions()] == expected


def test_changed_bytes_in_the_rows_of_a_note_are_read_again_from_the_journal(root: str) -> None:
    with Keep.open(root) as keep:
        keep.note_add("Use ruff for the formatting.")
        before = keep.notes()
    change(Path(root) / "index.sqlite", "UPDATE memory SET body = replace(body, 'history', 'hixtory')")
    with Keep.open(root) as keep:
        assert keep.notes() == before
