"""The audit of Hermes WebUI's folder: each damage is reported as its own class, and intended changes are not reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.agents.hermes_webui.recovery.audit import audit_webui
from dreamkeep.host import RealHost
from dreamkeep.recovery.audit.sources import audit_sources
from dreamkeep.recovery.faults import CLASSES, Fault
from tests.agents import hermes_webui as sample
from tests.agents.webui_home import T0, Web, talk
from tests.helpers.file_trees import tree
from tests.helpers.hosts import CountingHost
from tests.helpers.webui_damage import (
    SID,
    TEN,
    WEBUI_DAMAGE,
    add_empty_row,
    add_row_without_file,
    break_a_session_without_copy,
    break_backup,
    break_database,
    cut_without_backup,
    empty_without_backup,
    leave_first_turn_pending,
    leave_only_the_backup,
    leave_turn_pending,
    list_a_session_without_file,
    rewrite_without_backup,
    save_blank_messages,
    save_fewer_messages,
    save_unlisted,
    save_without_row,
    tear_deleted_list,
    tear_file,
    tear_inside_a_letter,
    web,
)

__all__ = ["web"]


def audit(root: str, web: Web, host: Any = None) -> list[Fault]:
    """Both audits of agents' stores, so that nothing is reported twice."""
    host = host or RealHost()
    home = str(web.home)
    return [*audit_webui(host, root, home, {}), *audit_sources(host, root, home, {}, False)]


def ingest(root: str, web: Web) -> None:
    with Keep.open(root) as keep:
        list(keep.ingest(home=web.home))


EACH = [(cls, act) for cls, acts in WEBUI_DAMAGE.items() for act in acts]


@pytest.mark.parametrize("live", [True, False], ids=["while Hermes runs", "at rest"])
@pytest.mark.parametrize(("cls", "act"), EACH, ids=[f"{cls}-{act.__name__}" for cls, act in EACH])
def test_each_damage_to_the_webui_is_reported_as_its_own_class_and_nothing_is_changed(
    web: Web, root: str, cls: str, act: Callable[[Web], None], live: bool
) -> None:
    """W4 B1 B3 K1 K6 T8 B8 B9: found, named, and the folder is as it was: bytes, times, no -wal, no -shm."""
    assert audit(root, web) == []
    act(web)
    if not live:
        web.close()
    before = tree(web.home)
    found = audit(root, web)
    if act is break_a_session_without_copy:
        found = [one for one in found if one.cls != "webui_no_row"]
    assert [one.cls for one in found] == [cls]
    assert found[0].next and found[0].where
    assert found[0].repairable == bool(CLASSES[cls].repair)
    if live and act is not break_database:
        # A reader marks itself in -shm's memory; neither bytes that matter nor names change.
        before = {name: seen for name, seen in before.items() if not name.endswith("-shm")}
        assert {name: seen for name, seen in tree(web.home).items() if not name.endswith("-shm")} == before
    else:
        assert tree(web.home) == before


@pytest.mark.parametrize("seen", [False, True])
def test_a_blanked_session_without_a_backup_is_found_by_the_captured_copy(web: Web, root: str, seen: bool) -> None:
    """W4: fifty contents blanked, the count is right."""
    ingest(root, web)
    assert audit(root, web) == []
    web.save(SID, [{**one, "content": ""} for one in TEN])
    if seen:
        ingest(root, web)
    [found] = audit(root, web)
    assert (found.cls, found.session) == ("source_shrank", f"hermes-webui:{SID}")


@pytest.mark.parametrize("seen", [False, True])
def test_a_captured_session_that_is_nowhere_any_more_has_vanished_unless_it_was_deleted(web: Web, root: str, seen: bool) -> None:
    """K2: deleted sessions stay deleted."""
    web.close()
    web.database.unlink()
    ingest(root, web)
    web.file(SID).unlink()
    if seen:
        ingest(root, web)
    found = audit(root, web)
    assert [one.cls for one in found] == ["source_vanished", "webui_index_dangling"]
    (web.folder / "_deleted_webui_sessions.json").write_text(json.dumps({"version": 1, "ids": [SID]}))
    assert [one.cls for one in audit(root, web)] == ["webui_index_dangling"]


def _without_its_folder(web: Web) -> None:
    shutil.rmtree(web.folder)


def _without_its_home(web: Web) -> None:
    shutil.rmtree(web.folder.parent)


def _file_in_its_place(web: Web) -> None:
    shutil.rmtree(web.folder)
    web.folder.write_text("moved to the other disk")


def _link_to_nowhere(web: Web) -> None:
    shutil.rmtree(web.folder)
    web.folder.symlink_to(web.home / "not-mounted")


@pytest.mark.parametrize("rows", [True, False], ids=["with rows", "without"])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("act", [_without_its_folder, _without_its_home, _file_in_its_place, _link_to_nowhere])
def test_when_the_whole_folder_is_gone_each_session_that_was_captured_from_it_is_reported(
    web: Web, root: str, act: Callable[[Web], None], seen: bool, rows: bool
) -> None:
    """Nothing shows which of them had been deleted in the WebUI, so no automatic repair is promised."""
    web.close()
    if not rows:
        web.database.unlink()
    ingest(root, web)
    act(web)
    if seen:
        ingest(root, web)
    found = audit(root, web)
    cls = "webui_no_sidecar" if rows else "source_vanished"
    assert [(one.cls, one.session) for one in found] == [(cls, f"hermes-webui:{sid}") for sid in (SID, "fine")]
    assert not any(one.repairable for one in found)
    assert all(("create that folder again" if rows else "dreamkeep restore") in one.next for one in found)


def test_a_folder_that_was_never_captured_and_is_not_there_is_not_a_fault(web: Web, root: str) -> None:
    """Rows of a WebUI that was once used here, and is not any more."""
    shutil.rmtree(web.folder.parent)
    assert audit(root, web) == []


def test_sessions_that_lie_in_another_folder_of_the_webui_now_are_not_missed_in_the_old_one(web: Web, root: str) -> None:
    web.close()
    ingest(root, web)
    shutil.move(web.folder.parent, web.home / "moved")
    assert list(audit_webui(RealHost(), root, str(web.home), {"HERMES_WEBUI_STATE_DIR": str(web.home / "moved")})) == []


def _cleared(web: Web) -> None:
    marks: dict[str, Any] = {"clear_generation": "c" * 32, "truncation_watermark": 0.0, "truncation_boundary": 0.0}
    web.save(SID, [], **marks)


def _cleared_and_gone_on(web: Web) -> None:
    _cleared(web)
    web.save(SID, talk(1, "salt"), clear_generation="c" * 32, truncation_watermark=0.0)


def _undone(web: Web) -> None:
    kept = TEN[:-2]
    web.save(SID, kept, intentional_shrink_generation="f" * 32, truncation_watermark=kept[-1]["timestamp"])


def _undone_elsewhere(web: Web) -> None:
    """The agent marks only the rows; the file that is saved afterwards shows no sign of it."""
    assert web.hermes
    web.hermes.db.execute("UPDATE messages SET active=0 WHERE session_id=? AND timestamp>=?", (SID, TEN[-2]["timestamp"]))
    web.save(SID, TEN[:-2])


def _undone_and_gone_on(web: Web) -> None:
    kept = TEN[:-2]
    more = [sample.said("user", "something else", T0 + 9000), sample.said("assistant", "yes", T0 + 9001)]
    web.save(SID, kept, intentional_shrink_generation="f" * 32, truncation_watermark=kept[-1]["timestamp"])
    web.save(SID, [*kept, *more], intentional_shrink_generation="f" * 32, truncation_watermark=kept[-1]["timestamp"])


def _compressed(web: Web) -> None:
    anchor = {"role": "assistant", "ts": TEN[-1]["timestamp"], "text": "…", "attachments": 0}
    about: dict[str, Any] = {
        "compression_anchor_message_key": anchor,
        "compression_anchor_summary": "Compressed: 10 → 2 messages",
    }
    web.save(SID, TEN[-2:], **about, compression_anchor_mode="manual")


def _deleted(web: Web) -> None:
    web.backup(SID).write_bytes(web.file(SID).read_bytes())
    web.delete(SID)


def _deleted_and_torn(web: Web) -> None:
    """A late save of it that did not finish."""
    whole = web.file(SID).read_bytes()
    _deleted(web)
    web.file(SID).write_bytes(whole[:200])


def _partial_went_on(web: Web) -> None:
    half = [*TEN[:-1], sample.said("assistant", "answer 3 ab", TEN[-1]["timestamp"], _partial=True)]
    web.save("p", [*half, sample.said("assistant", "answer 3 ab", TEN[-1]["timestamp"], _partial=True)])
    web.save("p", TEN)


def _finished(web: Web) -> None:
    """T2 T7 T8: in any order, by any process: what was ended once is over."""
    web.turn(SID, "t1", "completed", at=T0 + 10, pid=2)
    web.turn(SID, "t1", "submitted", "worker_started", content="gone with the compression", at=T0 + 100)
    web.turn(SID, "t2", "submitted", content=TEN[0]["content"], at=T0)


def _waited_for(web: Web) -> None:
    """T1: the prompt stays pending until it is among the messages."""
    web.save("w", TEN, pending_user_message="not yet", pending_started_at=T0 + 5000, active_stream_id="t9")
    web.turn("w", "t9", "submitted", content="not yet", at=T0 + 5000)


def _just_sent(web: Web) -> None:
    """T2: a fast turn is not interrupted."""
    web.turn(SID, "t1", "submitted", content="a moment ago", at=RealHost().now() / 1e9 - 5)


def _unsaved(web: Web) -> None:
    web.enlist("in-memory-only", message_count=0)


def _no_index(web: Web) -> None:
    (web.folder / "_index.json").unlink()


def _other_files(web: Web) -> None:
    """B1 B2: files named `_*` and left-overs are no sessions."""
    (web.folder / "_notes.json").write_text("[]")
    (web.folder / "_notes.json.bak").write_text("[]")
    (web.folder / f"{SID}.json.tmp.4711.139").write_text("half a docu")
    (web.folder / "stray name.json").write_text("[")
    (web.folder / "_drafts").mkdir()
    (web.folder / "_drafts" / "x.json").write_text("[]")


def _pruned(web: Web) -> None:
    web.save("empty", [], listed=False)
    (web.folder / "_pruned_webui_orphans.json").write_text(json.dumps({"version": 1, "ids": ["empty"]}))


def _others(web: Web) -> None:
    """Rows of other surfaces and of subagents have no session files."""
    web.row("from-the-terminal", TEN, source="cli")
    web.row("helper", TEN, model_config=json.dumps({"_delegate_from": SID}))


def _worktree(web: Web) -> None:
    """A session that was made for a worktree and has no message yet."""
    web.save("tree", [], worktree_path="/home/dev/tree", row=False)


def _bare(act: Callable[[Web], None]) -> Callable[[Web], None]:
    """The same, and the one slot for a backup holds nothing any more."""

    def done(web: Web) -> None:
        act(web)
        web.backup(SID).unlink(missing_ok=True)

    done.__name__ = f"{act.__name__}_without_backup"
    return done


def _gone_on_elsewhere(web: Web) -> None:
    """In a terminal: the WebUI's file has not heard of it."""
    assert web.hermes
    for n, role in enumerate(("user", "assistant")):
        web.hermes._insert(SID, {"role": role, "content": f"elsewhere {n}", "timestamp": T0 + 9000 + n}, T0)


def _in_a_turn(web: Web) -> None:
    """Rows come as the turn goes on, the file is saved now and then."""
    _gone_on_elsewhere(web)
    rewrite_without_backup(
        web, TEN, pending_user_message="elsewhere 0", pending_started_at=T0 + 8999, active_stream_id="s", updated_at=T0 + 9999
    )


def _rows_twice(web: Web) -> None:
    assert web.hermes
    for one in TEN[:4]:
        web.hermes._insert(SID, {"role": one["role"], "content": one["content"], "timestamp": T0 + 100}, T0)


def _in_other_words(web: Web) -> None:
    """What the model was given has more around it than what the user typed; and the clocks are not those of the file."""
    assert web.hermes
    change = (
        "UPDATE messages SET content='[Workspace: /w] ' || content, timestamp=timestamp-20 WHERE session_id=? AND role='user'"
    )
    web.hermes.db.execute(change, (SID,))
    _gone_on_elsewhere(web)


def _compacted_rows(web: Web) -> None:
    """In place: a summary and what is kept in the place of the rows before; the file has all that was said."""
    assert web.hermes
    web.hermes.db.execute("UPDATE messages SET active=0, compacted=1 WHERE session_id=?", (SID,))
    for n in range(12):
        web.hermes._insert(SID, {"role": "user", "content": f"[Your task list was preserved] {n}", "timestamp": T0 + 150}, T0)


MEANT = [
    *map(_bare, (_cleared, _cleared_and_gone_on, _undone, _undone_elsewhere, _undone_and_gone_on, _compressed)),
    *(_gone_on_elsewhere, _in_a_turn, _rows_twice, _in_other_words, _compacted_rows),
    *(
        _cleared,
        _cleared_and_gone_on,
        _undone,
        _undone_elsewhere,
        _undone_and_gone_on,
        _compressed,
        _deleted,
        _deleted_and_torn,
        _partial_went_on,
        _finished,
        _waited_for,
    ),
    *(_just_sent, _unsaved, _no_index, _other_files, _pruned, _others, _worktree),
]


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("act", MEANT, ids=[act.__name__ for act in MEANT])
def test_intended_changes_and_running_turns_are_not_faults(
    web: Web, root: str, act: Callable[[Web], None], captured: bool
) -> None:
    """K2 K3 T1 T2: clear, compress, undo, truncate and delete are intents; a turn that may still be going on is no loss."""
    if captured:
        ingest(root, web)
    act(web)
    assert audit(root, web) == []
    ingest(root, web)
    assert audit(root, web) == []


@pytest.mark.parametrize("lost", [empty_without_backup, cut_without_backup])
def test_messages_that_only_rows_hold_are_reported_after_a_capture_and_the_advice_works(
    web: Web, root: str, lost: Callable[[Web], None]
) -> None:
    lost(web)
    web.enlist(SID, message_count=len(web.messages(SID)))
    [found] = audit(root, web)
    ingest(root, web)
    assert audit(root, web) == [found]
    assert f"`dreamkeep restore hermes:{SID} --to hermes-webui`" in found.next and found.id in found.next
    left = web.file(SID).read_bytes()
    with Keep.open(root) as keep:
        made = keep.restore(f"hermes:{SID}", "hermes-webui", home=web.home)["native_id"]
    said = [one["content"] for one in TEN if one["role"] in ("user", "assistant") and one["content"]]
    assert [one["content"] for one in web.messages(made) if one["content"] in said] == said
    assert web.file(SID).read_bytes() == left


def test_rows_behind_a_watermark_are_not_missed_though_no_other_mark_is_there(web: Web, root: str) -> None:
    """K3: an undo by a WebUI that had only that mark."""
    rewrite_without_backup(web, TEN[:-2], truncation_watermark=TEN[-3]["timestamp"])
    assert audit(root, web) == []


def test_a_session_that_was_deleted_is_not_missed_for_its_rows(web: Web, root: str) -> None:
    """K2: a late save of it."""
    web.delete(SID)
    web.save(SID, [], listed=False)
    assert [one.cls for one in audit(root, web) if one.cls != "webui_index_missing"] == []


def test_a_loss_after_an_intended_change_is_a_fault(web: Web, root: str) -> None:
    """K3: an undo, then a save that lost most of it: the backup has the same mark."""
    _undone(web)
    marks: dict[str, Any] = {"intentional_shrink_generation": "f" * 32, "truncation_watermark": TEN[-3]["timestamp"]}
    web.save(SID, TEN[:2], **marks)
    [found] = audit(root, web)
    assert found.cls == "webui_richer_backup"
    # Also with the backup from before the undo: what the user kept is gone.
    web.backup(SID).write_text(sample.document(SID, TEN))
    [found] = audit(root, web)
    assert "6 messages" in found.what, "ten less the two that are there and the two that were taken back"


def test_with_unreadable_tombstones_nothing_that_is_gone_or_torn_is_called_repairable(web: Web, root: str) -> None:
    """B7: not known is not empty."""
    leave_only_the_backup(web)
    web.file("fine").write_bytes(web.file("fine").read_bytes()[:200])
    add_row_without_file(web)
    leave_first_turn_pending(web)
    assert {one.cls for one in audit(root, web) if one.repairable} == {
        "webui_corrupt",
        "webui_orphan_backup",
        "webui_no_sidecar",
        "webui_turn_pending",
    }
    tear_deleted_list(web)
    assert [one.cls for one in audit(root, web) if one.repairable] == []


def test_a_backup_whose_row_is_gone_may_be_of_a_deleted_session(web: Web, root: str) -> None:
    """K2: tombstones of older versions were capped."""
    web.backup("old").write_text(sample.document("old", TEN))
    [found] = audit(root, web)
    assert (found.cls, found.repairable) == ("webui_orphan_backup", False)


def test_a_pending_prompt_of_a_cleared_session_is_reported_and_left_alone(web: Web, root: str) -> None:
    """K3: nothing shows whether it was cleared, too."""
    web.save(SID, [], clear_generation="c" * 32, truncation_watermark=0.0, updated_at=T0 + 9000)
    leave_turn_pending(web)
    [found] = audit(root, web)
    assert (found.cls, found.repairable) == ("webui_turn_pending", False)


def test_a_pending_prompt_that_its_row_marks_as_undone_is_reported_and_left_alone(web: Web, root: str) -> None:
    """K3: also without a file that records the undo."""
    web.row("rewound", [sample.said("user", "never answered", T0 + 3600)])
    web.turn("rewound", "t1", "submitted", content="never answered")
    assert [(one.cls, one.repairable) for one in audit(root, web)] == [("webui_no_sidecar", True), ("webui_turn_pending", True)]
    assert web.hermes
    web.hermes.db.execute("UPDATE messages SET active=0 WHERE session_id='rewound'")
    assert [(one.cls, one.repairable) for one in audit(root, web)] == [("webui_empty_row", False), ("webui_turn_pending", False)]


def test_every_kind_of_damage_is_found_among_a_hundred_good_sessions(tmp_path: Path, root: str) -> None:
    """B1 B2: all damage is reported, and none hides another."""
    web = Web(tmp_path / "home")
    for n in range(100):
        web.save(f"good-{n}", talk(2, f"loaf {n}"))
    web.save(SID, TEN)
    for sid, act in (
        ("a", tear_file),
        ("b", leave_only_the_backup),
        ("c", save_fewer_messages),
        ("d", tear_inside_a_letter),
        ("e", save_blank_messages),
        ("f", leave_turn_pending),
    ):
        web.save(sid, talk(4, sid))
        named = _Renamed(web, sid)
        act(named)  # type: ignore[arg-type]
    for act in (
        break_a_session_without_copy,
        break_backup,
        save_unlisted,
        list_a_session_without_file,
        add_row_without_file,
        add_empty_row,
        save_without_row,
    ):
        act(web)
    found = sorted((one.cls, one.session.partition(":")[2]) for one in audit(root, web))
    assert found == [
        ("store_unreadable", SID),
        ("store_unreadable", "lone"),
        ("webui_corrupt", "a"),
        ("webui_corrupt", "d"),
        ("webui_empty_row", "ghost"),
        ("webui_index_dangling", ""),
        ("webui_index_missing", "new"),
        ("webui_no_row", "rowless"),
        ("webui_no_sidecar", "only-a-row"),
        ("webui_orphan_backup", "b"),
        ("webui_richer_backup", "c"),
        ("webui_richer_backup", "e"),
        ("webui_turn_pending", "f"),
    ]
    web.close()


class _Renamed:
    """The same home, with another session in the place of `SID`."""

    def __init__(self, web: Web, sid: str) -> None:
        self._web, self._sid = web, sid

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._web, name)
        if not callable(found):
            return found
        own = talk(4, self._sid)

        def call(first: Any, *rest: Any, **more: Any) -> Any:
            given = [self._own(one, own) for one in rest]
            return found(self._sid if first == SID else first, *given, **more)

        return call

    @staticmethod
    def _own(given: Any, own: list[dict[str, Any]]) -> Any:
        if not isinstance(given, list) or not given:
            return given
        return [{**mine, "content": one["content"] and mine["content"]} for one, mine in zip(given, own, strict=False)]


def test_an_unchanged_captured_session_is_not_opened_again(web: Web, root: str) -> None:
    """B5: work is proportional to change."""
    web.close()
    ingest(root, web)
    host = CountingHost()
    assert audit(root, web, host) == []
    assert [path for path in host.opened if path.endswith(f"{SID}.json")] == []
    web.save(SID, talk(5))
    host = CountingHost()
    assert audit(root, web, host) == []
    assert [path for path in host.opened if path.endswith(f"{SID}.json")] != []
    assert [path for path in host.opened if path.endswith("fine.json")] == []


def test_a_home_without_the_webui_has_nothing_to_audit(tmp_path: Path, root: str) -> None:
    assert list(audit_webui(RealHost(), root, str(tmp_path), {})) == []


def test_the_folder_is_found_where_the_environment_says(tmp_path: Path, root: str) -> None:
    web = Web(tmp_path / "home", database=False)
    web.save(SID, TEN)
    tear_inside_a_letter(web)
    _orphan_of = web.folder / "other.json.bak"
    _orphan_of.write_text(sample.document("other", TEN))
    environment = {"HERMES_WEBUI_STATE_DIR": str(web.folder.parent)}
    found = list(audit_webui(RealHost(), root, str(tmp_path / "nowhere"), environment))
    assert sorted(one.cls for one in found) == ["store_unreadable", "webui_orphan_backup"]


def test_rows_that_the_webui_took_away_with_a_deleted_session_are_not_missed(web: Web, root: str) -> None:
    """K2: what is listed as deleted there is meant, also in the database."""
    ingest(root, web)
    web.delete(SID)
    assert web.hermes is not None
    web.hermes.db.execute("DELETE FROM messages WHERE session_id = ?", (SID,))
    web.hermes.db.execute("DELETE FROM sessions WHERE id = ?", (SID,))
    with Keep.open(root) as keep:
        assert keep.audit(home=web.home)["faults"] == []
        (web.folder / "_deleted_webui_sessions.json").unlink()
        assert "source_vanished" in {one["class"] for one in keep.audit(home=web.home)["faults"]}


def test_a_list_of_deleted_sessions_that_cannot_be_read_hides_no_loss_in_the_database(web: Web, root: str) -> None:
    """B7: one bad thing hides nothing else."""
    ingest(root, web)
    assert web.hermes is not None
    web.hermes.db.execute("DELETE FROM messages WHERE session_id = ?", (SID,))
    web.hermes.db.execute("DELETE FROM sessions WHERE id = ?", (SID,))

    class Refusing(RealHost):
        def open_read(self, path: str) -> int:
            if path.endswith("_deleted_webui_sessions.json"):
                raise PermissionError(13, "no", path)
            return super().open_read(path)

    (web.folder / "_deleted_webui_sessions.json").write_text("[]")
    with Keep.open(root, host=Refusing()) as keep:
        found = {one["class"]: one for one in keep.audit(home=web.home)["faults"]}
    assert "source_vanished" in found and "state.db" not in str(found.get("store_unreadable", {}).get("where"))
