"""Repairs of agents' stores: each fault is repaired, an undo restores each byte, and nothing newer is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.agents.hermes_webui.recovery import documents as webui
from dreamkeep.agents.hermes_webui.recovery import repair as mend_webui
from dreamkeep.agents.hermes_webui.recovery.audit import audit_webui
from dreamkeep.agents.hermes_webui.recovery.rows import read_database_session, sidecar
from dreamkeep.host import RealHost, make_folders, read_file, replace_file
from dreamkeep.recovery.faults import CLASSES
from dreamkeep.recovery.repair.context import RepairContext
from dreamkeep.recovery.repair.ledger import Ledger
from tests.agents.hermes_webui import document, said
from tests.agents.webui_home import T0, Web, talk
from tests.helpers.claude_home import home_with
from tests.helpers.faults import FragileHost, cut_at_every_step
from tests.helpers.file_trees import tree
from tests.helpers.transcript_damage import LINES, TRANSCRIPT_DAMAGE, make_old
from tests.helpers.webui_damage import (
    SID,
    TEN,
    WEBUI_DAMAGE,
    add_row_without_file,
    leave_first_turn_pending,
    leave_only_the_backup,
    leave_turn_pending,
    save_fewer_messages,
    tear_file,
    web,
)
from tests.paths import SHARED

__all__ = ["web"]

REPAIRABLE = [(cls, act) for cls, acts in WEBUI_DAMAGE.items() for act in acts if CLASSES[cls].repair]
TRANSCRIPTS = os.environ.get("DREAMKEEP_TRANSCRIPTS") or str(SHARED / "data" / "transcripts")


def audit(root: str, web: Web) -> list[str]:
    with Keep.open(root) as keep:
        return [one["class"] for one in keep.audit(home=web.home)["faults"]]


def repair(root: str, web: Web, **how: Any) -> dict[str, Any]:
    with Keep.open(root) as keep:
        return keep.repair(home=web.home, **(how or {"apply": True}))


def folder(web: Web) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(web.folder.rglob("*")) if path.is_file()}


def read_again(root: str, web: Web, sid: str) -> list[str]:
    """What our own reader of the WebUI's files makes of it."""
    with Keep.open(root) as keep:
        assert not [one.problem for one in keep.ingest(home=web.home, agents=["hermes-webui"]) if one.problem]
        return [one["text"] for one in keep.show(f"hermes-webui:{sid}")["messages"] if one["text"]]


def contents(found: list[dict[str, Any]]) -> list[Any]:
    return [(one["role"], one["content"]) for one in found]


@pytest.mark.parametrize(("cls", "act"), REPAIRABLE, ids=[f"{cls}-{act.__name__}" for cls, act in REPAIRABLE])
def test_each_fault_is_planned_repaired_and_undone_to_the_byte(web: Web, root: str, cls: str, act: Callable[[Web], None]) -> None:
    """B4: each repairable class has a repair, and afterwards the audit is clean."""
    act(web)
    web.close()
    before = folder(web)
    plan = repair(root, web, apply=False)
    assert [CLASSES[cls].repair] == [step["action"] for step in plan["plan"]]
    assert folder(web) == before, "a plan writes nothing"
    done = repair(root, web)
    assert (len(done["applied"]), done["skipped"], done["audit"]["faults"]) == (1, [], [])
    after = folder(web)
    assert set(before) <= set(after), "never deletes"
    again = repair(root, web)
    assert (again["plan"], again["undo_id"]) == ([], None)
    assert folder(web) == after, "twice is once"
    undone = repair(root, web, undo=done["undo_id"])
    assert undone["skipped"] == []
    assert folder(web) == before


@pytest.mark.parametrize("act", [leave_only_the_backup, tear_file, save_fewer_messages], ids=lambda act: act.__name__)
def test_a_repaired_session_loads_with_all_its_messages(web: Web, root: str, act: Callable[[Web], None]) -> None:
    """K1 B3 W3 K8"""
    act(web)
    repair(root, web)
    assert contents(web.messages(SID)) == contents(TEN)
    assert read_again(root, web, SID)[-1] == "answer 3 about bread"
    assert web.listed()[SID]["message_count"] == len(TEN)


def test_an_orphaned_backup_comes_back_byte_for_byte(web: Web, root: str) -> None:
    """K1"""
    leave_only_the_backup(web)
    repair(root, web)
    assert web.file(SID).read_bytes() == web.backup(SID).read_bytes()


def test_messages_newer_than_the_backup_stay(web: Web, root: str) -> None:
    """K4: recovery unions; nothing newer is lost."""
    save_fewer_messages(web)
    new = [said("user", "and now?", T0 + 9000), said("assistant", "now this", T0 + 9001)]
    web.save(SID, [*TEN[:3], *new])
    repair(root, web)
    assert contents(web.messages(SID)) == contents([*TEN, *new])
    assert web.messages(SID)[2] == TEN[2], "tool ids and reasoning, too"


def test_an_orphan_gets_what_the_database_has_that_is_newer_and_not_what_was_taken_back(web: Web, root: str) -> None:
    """K3 K4: the backup is from before an undo, and the session went on after it."""
    web.file(SID).rename(web.backup(SID))
    assert web.hermes
    web.hermes.db.execute("UPDATE messages SET active=0 WHERE session_id=? AND timestamp >= ?", (SID, TEN[-2]["timestamp"]))
    for role, words, at in (("user", "another way", T0 + 9000.0), ("assistant", "so be it", T0 + 9001.0)):
        web.hermes._insert(SID, {"role": role, "content": words, "timestamp": at}, at)
    repair(root, web)
    assert contents(web.messages(SID)) == [*contents(TEN[:-2]), ("user", "another way"), ("assistant", "so be it")]


@pytest.mark.parametrize("after_s", [0.2, 1.5, 2.0, 2.1, 60.0])
def test_an_orphan_gets_the_answer_that_only_the_database_has_however_soon_it_came(web: Web, root: str, after_s: float) -> None:
    """K4: the backup ends with the prompt, and a model may answer at once."""
    asked = TEN[-2]["timestamp"]
    web.file(SID).unlink()
    web.backup(SID).write_text(document(SID, TEN[:-1], updated_at=asked))
    assert web.hermes
    answer = (asked + after_s, SID, TEN[-1]["content"])
    web.hermes.db.execute("UPDATE messages SET timestamp=? WHERE session_id=? AND content=?", answer)
    web.close()
    repair(root, web)
    assert contents(web.messages(SID)) == contents(TEN)


def test_around_the_end_of_a_copy_the_same_message_in_other_words_or_at_another_time_is_no_new_one() -> None:
    base = {
        "messages": [said("user", "go on", 100.0), said("assistant", "done", 101.0), said("user", "go on", 110.0)],
        "updated_at": 110.0,
    }
    same = [said("user", "go on", 100.4), said("assistant", "done", 101.3), said("user", "go on", 111.2)]
    assert webui.later_messages(base, {"messages": same}) == []
    prefixed = [*same[:2], said("user", "[Workspace: /w] go on", 110.9)]
    assert webui.later_messages(base, {"messages": prefixed}) == []
    twice = [*same, said("user", "go on", 111.9), said("assistant", "so it is", 111.95)]
    assert webui.later_messages(base, {"messages": twice}) == twice[3:]


def _take_back(web: Web, since: float, sid: str = SID) -> None:
    """As an undo does it in the database."""
    assert web.hermes
    web.hermes.db.execute("UPDATE messages SET active=0 WHERE session_id=? AND timestamp>=?", (sid, since))


@pytest.mark.parametrize(("kept_by", "turns"), [("a backup", 1), ("our journal", 1), ("both", 1), ("a backup", 4), ("both", 4)])
def test_undone_messages_stay_undone_however_often_the_session_is_repaired(web: Web, root: str, kept_by: str, turns: int) -> None:
    """K3 T4: a second repair changes nothing; and without the database the file itself still shows the intent."""
    if kept_by != "a backup":
        read_again(root, web, SID)
    _take_back(web, T0 + (4 - turns) * 60)
    web.file(SID).rename(web.backup(SID) if kept_by != "our journal" else web.home / "away")
    left = TEN[:-2] if turns == 1 else []
    web.close()
    done = repair(root, web)
    assert (len(done["applied"]), done["audit"]["faults"]) == (1, [])
    made = json.loads(web.file(SID).read_bytes())
    assert contents(made["messages"]) == contents(made["context_messages"]) == contents(left)
    assert made["message_count"] == len(left)
    assert made["truncation_watermark"] == made["truncation_boundary"] == (left[-1]["timestamp"] if left else 0.0)
    assert UUID(hex=made["intentional_shrink_generation"]).version == 4, "the WebUI believes no other"
    after = folder(web)
    assert repair(root, web)["plan"] == [] and folder(web) == after
    web.database.unlink()
    assert "webui_richer_backup" not in (found := audit(root, web)) and "source_shrank" not in found


def test_of_a_message_sent_twice_only_the_one_that_was_not_undone_comes_back(web: Web, root: str) -> None:
    """K3: "continue" was kept once and undone once; in a retry, it was undone and sent again."""
    on = [said("user", "continue", T0 + 300), said("assistant", "more", T0 + 301)]
    again = [said("user", "continue", T0 + 400), said("assistant", "yet more", T0 + 401)]
    for sid in ("kept", "retried"):
        web.save(sid, [*TEN, *on] if sid == "retried" else [*TEN, *on, *again])
        _take_back(web, T0 + 300 if sid == "retried" else T0 + 400, sid)
        web.file(sid).rename(web.backup(sid))
    assert web.hermes
    for one in again:
        web.hermes._insert("retried", one, one["timestamp"])
    assert repair(root, web)["audit"]["faults"] == []
    assert contents(web.messages("kept")) == contents([*TEN, *on])
    assert contents(web.messages("retried")) == contents([*TEN, *again])
    assert repair(root, web)["plan"] == []


def test_contents_that_were_blanked_come_back_in_their_places(web: Web, root: str) -> None:
    """W4"""
    web.backup(SID).write_bytes(web.file(SID).read_bytes())
    blank = [{**one, "content": ""} if n % 2 == 0 else one for n, one in enumerate(TEN)]
    web.save(SID, [*blank, said("user", "new", T0 + 9000)])
    repair(root, web)
    assert contents(web.messages(SID)) == [*contents(TEN), ("user", "new")]


def test_only_messages_lost_after_the_intended_change_come_back(web: Web, root: str) -> None:
    """K3: undo, then a loss."""
    marks: dict[str, Any] = {"intentional_shrink_generation": "f" * 32, "truncation_watermark": TEN[-3]["timestamp"]}
    web.backup(SID).write_text(document(SID, TEN))
    web.file(SID).write_text(document(SID, TEN[:2], **marks))
    repair(root, web)
    assert contents(web.messages(SID)) == contents(TEN[:-2])
    assert audit(root, web) == []


def test_a_corrupt_file_without_a_backup_is_made_of_our_own_copy_and_its_bytes_are_kept(web: Web, root: str) -> None:
    """W5 B3: every source is a candidate; unreadable bytes are set aside before any write."""
    web.close()
    web.database.unlink()
    read_again(root, web, SID)
    whole = web.file(SID).read_bytes()
    web.file(SID).write_bytes(whole[: len(whole) // 2])
    assert audit(root, web) == ["webui_corrupt"]
    read_again(root, web, SID)  # the torn version is captured, too
    torn = web.file(SID).read_bytes()
    done = repair(root, web)
    assert web.file(SID).read_bytes() == whole
    kept = Path(root, "aside", f"repair-{done['undo_id']}")
    assert torn in [path.read_bytes() for path in kept.iterdir()]


def test_the_last_good_copy_with_its_intent_wins_over_an_older_backup(web: Web, root: str) -> None:
    """K3: the user cleared; then the file was torn. The backup is from before that."""
    marks: dict[str, Any] = {"clear_generation": "c" * 32, "truncation_watermark": 0.0, "updated_at": T0 + 9000}
    web.save(SID, [], **marks)
    read_again(root, web, SID)
    whole = web.file(SID).read_bytes()
    web.file(SID).write_bytes(whole[:50])
    repair(root, web)
    assert web.file(SID).read_bytes() == whole


# -- from the database


OLD_SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, title TEXT, model TEXT, started_at REAL, workspace TEXT,
    worktree_path TEXT, worktree_branch TEXT, worktree_repo_root TEXT, worktree_created_at REAL);
CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, timestamp REAL);
"""
TREE = {
    "worktree_path": "/home/dev/trees/oven",
    "worktree_branch": "oven",
    "worktree_repo_root": "/home/dev/bakery",
    "worktree_created_at": 1_778_573_000.5,
}


def _insert(db: apsw.Connection, table: str, **columns: Any) -> None:
    db.execute(f"INSERT INTO {table}({','.join(columns)}) VALUES ({','.join('?' * len(columns))})", tuple(columns.values()))


def test_a_session_file_is_made_of_the_real_schema_with_all_that_its_row_has(web: Web, root: str) -> None:
    """K5 K8: active rows only; tool ids, reasoning, cwd and git kept; the count is that of the messages."""
    h = web.hermes
    assert h
    sid = h.session("made", source="webui", cwd="/home/dev/shop", git_branch="main", git_repo_root="/home/dev", title="Ovens")
    h.ask(sid, "first, summarised away")
    h.answer(sid, "also away")
    h.ask(sid, "taken back")
    h.answer(sid, "this, too")
    h.rewind(sid, 2)
    h.compact(sid, "It began with ovens.", head=0, tail=0)
    h.ask(sid, "How hot is it?")
    h.call(sid, "call_7f1c0d2e9a31", "thermometer", {"where": "oven"}, '{"output": "230"}', reasoning="I measure.")
    h.answer(sid, "230 degrees.", reasoning_content="It says 230.")
    h.say(sid, "user", '\x00json:[{"type": "text", "text": "And this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]')
    h.update(sid, message_count=99)
    assert audit(root, web) == ["webui_no_sidecar"]
    repair(root, web)
    made = json.loads(web.file(sid).read_bytes())
    assert [one["role"] for one in made["messages"]] == ["user", "user", "assistant", "tool", "assistant", "user"]
    summary, prompt, calling, result, answer, picture = made["messages"]
    assert summary["content"].startswith("[CONTEXT COMPACTION")
    assert prompt["content"] == "How hot is it?"
    assert calling["tool_calls"][0]["id"] == "call_7f1c0d2e9a31" == result["tool_call_id"]
    assert (calling["reasoning"], result["name"], answer["reasoning_content"]) == ("I measure.", "thermometer", "It says 230.")
    assert picture["content"][1]["type"] == "image_url"
    assert (made["message_count"], made["title"], made["workspace"]) == (6, "Ovens", "/home/dev/shop")
    assert (made["cwd"], made["git_branch"], made["git_repo_root"]) == ("/home/dev/shop", "main", "/home/dev")
    assert web.listed()[sid]["message_count"] == 6
    assert audit(root, web) == []
    texts = read_again(root, web, sid)
    assert "230 degrees." in texts and "taken back" not in texts and "also away" not in texts


def test_a_session_file_is_made_of_an_older_schema_with_its_worktree(tmp_path: Path, root: str) -> None:
    """K5 K6 K8: each column when it is there, tolerated when not; an empty row with a worktree is a session, and listed."""
    web = Web(tmp_path / "home", database=False)
    web.save("fine", talk(1), row=False)
    db = apsw.Connection(str(web.database))
    db.execute(OLD_SCHEMA)
    _insert(db, "sessions", id="fine", source="webui")
    _insert(db, "sessions", id="tree", source="webui", started_at=T0, **TREE)
    _insert(db, "sessions", id="talk", source="webui", started_at=T0, workspace="/home/dev/bakery", model="m", **TREE)
    _insert(db, "sessions", id="ghost", source="webui", started_at=T0)
    for n, role in enumerate(("user", "assistant")):
        _insert(db, "messages", session_id="talk", role=role, content=f"words {n}", timestamp=T0 + n)
    db.close()
    assert audit(root, web) == ["webui_empty_row", "webui_no_sidecar", "webui_no_sidecar"]
    done = repair(root, web)
    assert [one["class"] for one in done["audit"]["faults"]] == ["webui_empty_row"], "reported, not materialised"
    assert not web.file("ghost").exists()
    for sid, many in (("tree", 0), ("talk", 2)):
        made = json.loads(web.file(sid).read_bytes())
        assert {name: made[name] for name in TREE} == TREE
        assert made["message_count"] == len(made["messages"]) == many
        assert web.listed()[sid]["worktree_path"] == TREE["worktree_path"]
    assert json.loads(web.file("talk").read_bytes())["workspace"] == "/home/dev/bakery"
    assert read_again(root, web, "talk") == ["words 0", "words 1"]


@pytest.mark.skipif(not Path(TRANSCRIPTS, "hermes/.hermes/state.db").exists(), reason="no real state.db at hand")
def test_a_real_database_gives_a_session_file_that_loads(tmp_path: Path, root: str) -> None:
    """K5: tested against the producer's real schema and data."""
    web = Web(tmp_path / "home", database=False)
    web.database.write_bytes(Path(TRANSCRIPTS, "hermes/.hermes/state.db").read_bytes())
    db = apsw.Connection(str(web.database))
    db.execute("PRAGMA journal_mode=DELETE")
    [(sid, live)] = db.execute("SELECT session_id, sum(active) FROM messages GROUP BY session_id")
    db.execute("UPDATE sessions SET source='webui'")
    db.close()
    assert audit(root, web) == ["webui_no_sidecar"]
    assert repair(root, web)["audit"]["clean"]
    made = json.loads(web.file(sid).read_bytes())
    assert made["message_count"] == len(made["messages"]) == live > 0
    assert all(one["tool_call_id"] for one in made["messages"] if one["role"] == "tool")
    assert read_again(root, web, sid)


def test_text_that_is_no_utf8_and_json_that_is_none_are_kept_as_far_as_they_go() -> None:
    row = {"id": "a", "title": {"$text": "/w=="}, "started_at": "soon", "archived": 1, "input_tokens": None}
    made = sidecar(row, [])
    assert (made["title"], made["created_at"], made["archived"], made["input_tokens"]) == ("\ufffd", 0.0, True, 0)


def test_a_missing_row_gives_no_session(web: Web) -> None:
    assert read_database_session(RealHost(), str(web.database), "nobody") is None


# -- another process at work


class _Late(Ledger):
    """Just before a file is published or replaced, the WebUI does something."""

    act: Callable[[], None]

    def note(self, what: dict[str, Any]) -> int:
        number = super().note(what)
        if "file" in what:
            act, self.act = self.act, lambda: None
            act()
        return number


def mending(root: str, web: Web, act: Callable[[], None]) -> RepairContext:
    host = RealHost()
    ledger = _Late(host, root, "0198a1b2-0000-7000-8000-000000000001")
    ledger.act = act
    unused: Any = None
    return RepairContext(host, root, str(web.home), {}, (), unused, unused, ledger, unused, unused, unused)


@pytest.mark.parametrize(
    "act", [leave_only_the_backup, tear_file, save_fewer_messages, leave_turn_pending], ids=lambda act: act.__name__
)
def test_what_the_webui_writes_during_a_repair_is_never_overwritten(web: Web, root: str, act: Callable[[Web], None]) -> None:
    """W11: publishing creates or fails; the loser reports `appeared`."""
    act(web)
    web.close()
    [fault] = audit_webui(RealHost(), root, str(web.home), {})
    newer = document(SID, talk(9)).encode()
    done = mend_webui.ACTIONS[CLASSES[fault.cls].repair](mending(root, web, lambda: _write(web.file(SID), newer)), fault)
    assert not done.mended
    assert ("appeared" if act is leave_only_the_backup else "changed") in done.why
    assert web.file(SID).read_bytes() == newer
    assert not [path for path in web.folder.iterdir() if path.name.endswith(".tmp")]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.mark.parametrize(
    "act", [leave_only_the_backup, tear_file, add_row_without_file, leave_first_turn_pending], ids=lambda act: act.__name__
)
def test_what_was_deleted_since_the_audit_is_not_brought_back(web: Web, root: str, act: Callable[[Web], None]) -> None:
    """K2: honoured by every path."""
    act(web)
    web.close()
    [fault] = audit_webui(RealHost(), root, str(web.home), {})
    (web.folder / "_deleted_webui_sessions.json").write_text(json.dumps({"version": 1, "ids": [fault.about["sid"]]}))
    before = folder(web)
    done = mend_webui.ACTIONS[CLASSES[fault.cls].repair](mending(root, web, lambda: None), fault)
    assert (done.mended, folder(web)) == (False, before)
    assert "deleted" in done.why


def test_a_deleted_session_of_which_a_torn_file_lies_there_is_not_rebuilt_of_any_copy(web: Web, root: str) -> None:
    """K2: neither of our journal nor of a backup; and it is not listed again."""
    read_again(root, web, SID)
    whole = web.file(SID).read_bytes()
    web.backup(SID).write_bytes(whole)
    web.delete(SID)
    web.file(SID).write_bytes(whole[:200])
    web.close()
    before = folder(web)
    done = repair(root, web)
    assert (done["plan"], done["audit"]["faults"], folder(web)) == ([], [], before)
    # Made again by the user, it is a session as any other.
    web.file(SID).write_bytes(whole)
    assert audit(root, web) == ["webui_index_missing"]


ODD_IDS = ["../../../evil", "/tmp/evil", "..", "a/b", "_index", "a.b", "with\nfeed", "x" * 300]


@pytest.mark.parametrize("sid", ODD_IDS, ids=lambda sid: repr(sid)[:12])
def test_an_id_that_is_not_a_plain_file_name_is_reported_and_not_repaired(web: Web, root: str, tmp_path: Path, sid: str) -> None:
    """A database can't be trusted: a session id from it must not lead out of the WebUI's folder."""
    web.row(sid, talk(2, "salt"))
    web.close()
    before = tree(tmp_path / "home")
    plan = repair(root, web, apply=False)
    [found] = plan["audit"]["faults"]
    assert (found["class"], found["repairable"], plan["plan"]) == ("webui_no_sidecar", False, [])
    assert "not a valid file name" in found["next"]
    done = repair(root, web)
    assert (done["applied"], done["undo_id"]) == ([], None)
    assert tree(tmp_path / "home") == before
    assert not (tmp_path / "evil.json").exists()
    # Also if the repair is told that it may.
    [fault] = audit_webui(RealHost(), root, str(web.home), {})
    assert not mend_webui.rebuild_sidecar(mending(root, web, lambda: None), fault).mended
    assert tree(tmp_path / "home") == before


def test_a_prompt_of_a_session_that_can_have_no_file_is_reported_and_left_alone(web: Web, root: str) -> None:
    web.turn("a.b", "t1", "submitted", content="never answered")
    web.close()
    before = tree(web.home)
    for _ in range(2):
        done = repair(root, web)
        assert (done["applied"], [one["class"] for one in done["audit"]["faults"]]) == ([], ["webui_turn_pending"])
    assert tree(web.home) == before


def _folder_there(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("somebody's")


def _link_there(path: Path) -> None:
    path.symlink_to("/not-mounted/session.json")


@pytest.mark.parametrize("there", [_folder_there, _link_there], ids=["a folder", "a link to nowhere"])
@pytest.mark.parametrize(
    ("act", "sid"), [(add_row_without_file, "only-a-row"), (leave_only_the_backup, SID), (leave_first_turn_pending, "brand-new")]
)
def test_an_obstacle_in_place_of_a_session_file_is_reported_as_not_repairable(
    web: Web, root: str, act: Callable[[Web], None], sid: str, there: Callable[[Path], None]
) -> None:
    act(web)
    web.close()
    there(web.file(sid))
    before = tree(web.home)
    plan = repair(root, web, apply=False)
    [found] = plan["audit"]["faults"]
    assert (found["repairable"], plan["plan"]) == (False, [])
    assert f"{sid}.json` is a {'folder' if there is _folder_there else 'link'}" in found["next"]
    done = repair(root, web)
    assert (done["applied"], done["undo_id"]) == ([], None)
    assert tree(web.home) == before


@pytest.mark.parametrize(
    "act", [leave_only_the_backup, tear_file, save_fewer_messages, leave_turn_pending], ids=lambda act: act.__name__
)
def test_a_repair_of_a_fault_that_is_gone_does_nothing(web: Web, root: str, act: Callable[[Web], None]) -> None:
    """T4: idempotent."""
    act(web)
    web.close()
    [fault] = audit_webui(RealHost(), root, str(web.home), {})
    whole = document(SID, [*TEN, said("user", "never answered", T0 + 3600)]).encode()
    web.file(SID).write_bytes(whole)
    done = mend_webui.ACTIONS[CLASSES[fault.cls].repair](mending(root, web, lambda: None), fault)
    assert done.mended
    assert web.file(SID).read_bytes() == whole


def _fragile(live: str | None, backup: str | None) -> FragileHost:
    host = FragileHost()
    make_folders(host, _PLACE)
    make_folders(host, "/keep")
    for name, text in ((f"{SID}.json", live), (f"{SID}.json.bak", backup), ("_index.json", "[]")):
        if text is not None:
            replace_file(host, f"{_PLACE}/{name}", text.encode())
    return host


_PLACE = "/home/.hermes/webui/sessions"
_WHOLE = document(SID, TEN)
_CASES = {
    "orphan": (None, _WHOLE),
    "corrupt": (_WHOLE[:80], _WHOLE),
    "richer": (document(SID, TEN[:2]), _WHOLE),
}


@pytest.mark.parametrize("case", _CASES)
def test_a_power_cut_at_every_step_of_a_repair_leaves_the_old_file_or_the_new_one_and_the_next_run_ends_it(case: str) -> None:
    """W5 W12 W16: never mixed, and what was there is kept before it is replaced."""
    live, backup = _CASES[case]
    path = f"{_PLACE}/{SID}.json"
    for at, host in cut_at_every_step(lambda _: _fragile(live, backup), _mend_all):
        host = host.reboot()
        now = read_file(host, path).decode() if host.stat(path) else None
        assert now == live or contents(json.loads(now or "")["messages"]) == contents(TEN)
        assert read_file(host, f"{_PLACE}/{SID}.json.bak").decode() == backup
        _mend_all(host, "0198a1b2-0000-7000-8000-000000000002")
        assert list(audit_webui(host, "/keep", "/home", {})) == [], at
        assert contents(json.loads(read_file(host, path))["messages"]) == contents(TEN)
    assert at > 10


def _mend_all(host: FragileHost, undo_id: str = "0198a1b2-0000-7000-8000-000000000001") -> None:
    unused: Any = None
    for fault in audit_webui(host, "/keep", "/home", {}):
        ledger = Ledger(host, "/keep", undo_id + fault.cls)
        given = RepairContext(host, "/keep", "/home", {}, (), unused, unused, ledger, unused, unused, unused)
        mend_webui.ACTIONS[CLASSES[fault.cls].repair](given, fault)
        ledger.close()


# -- turns


def test_a_prompt_that_never_reached_its_file_comes_back_once_and_marked(web: Web, root: str) -> None:
    """T1 T3 T4: two turns with the same words are two; recovered twice is once."""
    web.turn(SID, "t1", "submitted", content="continue", at=T0 + 100)
    web.turn(SID, "t2", "submitted", "worker_started", content="continue", at=T0 + 4000)
    assert audit(root, web) == ["webui_turn_pending", "webui_turn_pending"]
    assert repair(root, web)["audit"]["clean"]
    found = [one for one in web.messages(SID) if one["content"] == "continue"]
    assert [(one["timestamp"], one["_recovered"]) for one in found] == [(T0 + 100, True), (T0 + 4000, True)]
    times = [one["timestamp"] for one in web.messages(SID) if one["role"] == "user"]
    assert times == sorted(times)
    assert json.loads(web.file(SID).read_bytes())["message_count"] == len(TEN) + 2
    # The turn is finished after all, and the WebUI saves what it has.
    web.turn(SID, "t2", "completed")
    assert audit(root, web) == []


def test_a_session_that_is_only_a_prompt_gets_a_file(web: Web, root: str) -> None:
    """T1: crash before the first save."""
    web.turn("brand-new", "t1", "submitted", content="the very first prompt")
    assert repair(root, web)["audit"]["faults"] == []
    assert read_again(root, web, "brand-new") == ["the very first prompt"]
    assert web.listed()["brand-new"]["message_count"] == 1


# -- everything at once


def test_a_prompt_never_takes_the_place_of_a_session_of_which_more_is_kept(web: Web, root: str) -> None:
    """W11: a file with the prompt alone would keep `restore` from giving the whole session back."""
    web.save("kept", talk(5, "salt"), row=False)
    read_again(root, web, "kept")
    web.turn("kept", "t1", "submitted", content="one more")
    data = web.file("kept").read_bytes()
    web.file("kept").unlink()
    done = repair(root, web)
    assert not web.file("kept").exists()
    assert [step["action"] for step in done["applied"]] == ["rebuild_webui_index"]
    left = {one["class"]: one["repairable"] for one in done["audit"]["faults"]}
    assert left == {"source_vanished": False, "webui_turn_pending": False}
    with Keep.open(root) as keep:
        keep.restore("hermes-webui:kept", "hermes-webui", home=web.home)
    assert web.file("kept").read_bytes() == data
    repair(root, web)
    assert [one["content"] for one in web.messages("kept")][-1] == "one more"
    assert len(web.messages("kept")) == len(talk(5, "salt")) + 1


def test_all_damage_at_once_is_repaired_and_good_sessions_stay_unchanged(tmp_path: Path, root: str) -> None:
    """B2: a fault that can't be repaired stops nothing else."""
    web = Web(tmp_path / "home")
    for n in range(30):
        web.save(f"good-{n}", talk(2, f"loaf {n}"))
    for sid in "abcdef":
        web.save(sid, talk(4, sid))
    web.file("a").write_bytes(b"\xff\xfe")
    web.file("b").rename(web.backup("b"))
    web.save("c", talk(4, "c")[:1])
    web.turn("d", "t1", "submitted", content="never answered")
    web.file("e").unlink()
    web.enlist("gone", message_count=3)
    web.save("new", talk(1, "salt"), listed=False)
    web.row("ghost", [])
    web.save("lone", talk(1, "lone"), row=False)
    web.file("lone").write_text("[")
    web.close()
    good = {path: data for path, data in folder(web).items() if "good-" in path}
    done = repair(root, web)
    assert sorted(one["class"] for one in done["audit"]["faults"]) == ["store_unreadable", "webui_empty_row"]
    assert len(done["applied"]) == 7
    assert {path: data for path, data in folder(web).items() if "good-" in path} == good
    assert set(web.listed()) == {path.stem for path in web.folder.glob("[!_]*.json")} | {"lone"}
    for sid in "abcde":
        assert len(web.messages(sid)) == len(talk(4, sid)) + (sid == "d")


def test_blanked_transcripts_are_filled_in_again_and_come_back_as_they_were(tmp_path: Path, root: str) -> None:
    """T11: a NUL run after a power cut, before and after an ingest saw it; what the agent wrote behind it stays."""
    for n, act in enumerate(TRANSCRIPT_DAMAGE["source_blanked"]):
        for seen in (False, True):
            keep_at = f"{root}-{n}-{seen}"
            home, file = home_with(tmp_path / f"{n}{seen}", LINES)
            with Keep.open(keep_at) as keep:
                list(keep.ingest(home=home))
                act(file)
                make_old(file)
                blanked = file.read_bytes()
                if seen:
                    list(keep.ingest(home=home))
                done = keep.repair(apply=True, home=home)
                assert (len(done["applied"]), done["audit"]["faults"]) == (1, [])
                assert file.read_bytes().startswith(LINES) and b"\0" not in file.read_bytes()
                assert keep.repair(apply=True, home=home)["plan"] == []
                list(keep.ingest(home=home))
                assert keep.audit(home=home)["faults"] == []
                keep.repair(undo=done["undo_id"], home=home)
                assert file.read_bytes() == blanked


def test_a_transcript_that_was_edited_is_accepted_until_it_changes_again(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, LINES)
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
        file.write_bytes(LINES.replace(b"question 3", b"QUESTION 3"))
        [fault] = keep.audit(home=home)["faults"]
        before = tree(home)
        assert keep.repair(apply=True, home=home)["applied"] == []
        assert tree(home) == before, "what is not safe is not touched"
        assert keep.repair(accept=[fault["id"]], home=home)["audit"]["faults"] == []
        list(keep.ingest(home=home))
        assert keep.audit(home=home)["faults"] == []
        file.write_bytes(LINES.replace(b"question", b"QUESTION"))
        assert [one["class"] for one in keep.audit(home=home)["faults"]] == ["source_changed"]


# -- pure


def test_the_same_words_sent_twice_are_two_turns_whichever_of_them_is_there() -> None:
    """T3: identity is the turn id; a message stands for one turn."""
    events = [
        {"event": "submitted", "turn_id": name, "created_at": at, "content": "continue"} for name, at in (("a", 10), ("b", 50))
    ]
    both = webui.fold_turns(json.dumps(one).encode() for one in events)
    for times, expected in (((), ["a", "b"]), ((10.5,), ["b"]), ((50.5,), ["a"]), ((10.5, 50.5), []), ((50.5, 10.5), [])):
        messages = [said("user", "continue", at) for at in times]
        assert [one.id for one in webui.pending_turns(both, {"messages": messages})] == expected
    late = webui.fold_turns(
        [
            json.dumps({"event": "completed", "turn_id": "b", "created_at": 1}).encode(),
            *(json.dumps(one).encode() for one in events),
        ]
    )
    assert [one.id for one in webui.pending_turns(late, {"messages": []})] == ["a"]


def test_unions_keep_order_and_lose_nothing() -> None:
    one, two, three, new = (said("user", words, T0 + n) for n, words in enumerate(("one", "two", "three", "new")))
    assert webui.add_messages([one, new], [two, three], [one, two, three]) == [one, two, three, new]
    assert webui.add_messages([new], [one, two], [one, two]) == [one, two, new]
    assert webui.add_messages([three], [one, two], [one, two, three]) == [one, two, three]
    again = [one, two, dict(one)]
    assert webui.missing_messages([one, two], again) == [one], "said twice is two"
    assert webui.missing_messages(again, [one, two]) == []


def test_a_lone_surrogate_can_be_written_again() -> None:
    """W7"""
    found = webui.parse_document(b'{"session_id": "a", "messages": [{"role": "user", "content": "\\ud83d"}]}')
    assert found is not None
    assert webui.parse_document(webui.encode(found)) == found
