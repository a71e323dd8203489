"""What can go wrong in Hermes WebUI's folder, each done for real, with the class of the fault that an audit must report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import hermes_webui as sample
from tests.agents.webui_home import Web, talk

SID = "20260512_081500_a1b2c3"
TEN = talk(4)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    found = Web(tmp_path / "home")
    found.save(SID, TEN)
    found.save("fine", talk(2, "rolls"))
    yield found
    found.close()


def tear_file(web: Web) -> None:
    web.file(SID).write_bytes(web.file(SID).read_bytes()[:-100])


def tear_inside_a_letter(web: Web) -> None:
    web.file(SID).write_bytes(web.file(SID).read_bytes()[:-3] + b"\xe2\x82")


def replace_with_a_list(web: Web) -> None:
    web.file(SID).write_text("[1, 2]")


def break_a_session_without_copy(web: Web) -> None:
    web.save("lone", talk(1, "salt"), row=False)
    web.file("lone").write_text("[]")


def leave_only_the_backup(web: Web) -> None:
    web.file(SID).rename(web.backup(SID))


def save_fewer_messages(web: Web) -> None:
    web.save(SID, TEN[:3])


def save_no_messages(web: Web) -> None:
    web.save(SID, [])


def save_blank_messages(web: Web) -> None:
    """W4: the count is right."""
    web.backup(SID).write_bytes(web.file(SID).read_bytes())
    web.save(SID, [{**one, "content": ""} for one in TEN])


def rewrite_without_backup(web: Web, messages: list[dict[str, Any]], **more: Any) -> None:
    """Not as the WebUI saves it: without a backup."""
    web.file(SID).write_text(sample.document(SID, messages, **more), encoding="utf-8")


def empty_without_backup(web: Web) -> None:
    rewrite_without_backup(web, [])


def cut_without_backup(web: Web) -> None:
    rewrite_without_backup(web, TEN[:3])


def drop_last_without_backup(web: Web) -> None:
    rewrite_without_backup(web, TEN[:-1])


def blank_without_backup(web: Web) -> None:
    """W4: the count is right."""
    rewrite_without_backup(web, [{**one, "content": ""} for one in TEN])


def drop_what_the_user_kept(web: Web) -> None:
    """K3: an undo that kept more than what is there."""
    rewrite_without_backup(web, TEN[:2], intentional_shrink_generation="f" * 32, truncation_watermark=TEN[-3]["timestamp"])


def save_unlisted(web: Web) -> None:
    web.save("new", talk(1, "salt"), listed=False)


def empty_list(web: Web) -> None:
    (web.folder / "_index.json").write_text('{"sessions": []}')


def tear_list(web: Web) -> None:
    (web.folder / "_index.json").write_text('[{"session_id": "x')


def list_a_session_without_file(web: Web) -> None:
    web.enlist("gone", message_count=3)


def list_an_entry_without_id(web: Web) -> None:
    path = web.folder / "_index.json"
    path.write_text(json.dumps([*json.loads(path.read_bytes()), 7]))


def add_row_without_file(web: Web) -> None:
    web.row("only-a-row", talk(2, "salt"))


def list_row_without_file(web: Web) -> None:
    add_row_without_file(web)
    web.enlist("only-a-row", message_count=4)


def add_empty_row(web: Web) -> None:
    web.row("ghost", [])


def add_row_with_everything_undone(web: Web) -> None:
    web.row("ghost", talk(1))
    assert web.hermes
    web.hermes.db.execute("UPDATE messages SET active=0 WHERE session_id='ghost'")


def save_without_row(web: Web) -> None:
    web.save("rowless", talk(1, "salt"), row=False)


def leave_turn_pending(web: Web) -> None:
    web.turn(SID, "t1", "submitted", "worker_started", content="never answered")


def leave_first_turn_pending(web: Web) -> None:
    web.turn("brand-new", "t1", "submitted", content="the very first prompt")


def leave_repeated_turn_pending(web: Web) -> None:
    """T3: the same words as a message that is there, sent once more."""
    web.turn(SID, "t1", "submitted", content=TEN[0]["content"])


def tear_deleted_list(web: Web) -> None:
    (web.folder / "_deleted_webui_sessions.json").write_text('{"version": 1, "ids": ["gone"')


def break_backup(web: Web) -> None:
    web.backup(SID).write_text('{"messages": 7}')


def break_database(web: Web) -> None:
    web.close()
    web.database.write_bytes(b"this is no database " * 50)


WEBUI_DAMAGE: dict[str, list[Callable[[Web], None]]] = {
    "webui_corrupt": [tear_file, tear_inside_a_letter, replace_with_a_list],
    "store_unreadable": [break_a_session_without_copy, tear_deleted_list, break_backup, break_database],
    "webui_orphan_backup": [leave_only_the_backup],
    "webui_richer_backup": [save_fewer_messages, save_no_messages, save_blank_messages],
    "webui_richer_rows": [
        empty_without_backup,
        cut_without_backup,
        drop_last_without_backup,
        blank_without_backup,
        drop_what_the_user_kept,
    ],
    "webui_index_missing": [save_unlisted, empty_list, tear_list],
    "webui_index_dangling": [list_a_session_without_file, list_an_entry_without_id],
    "webui_no_sidecar": [add_row_without_file, list_row_without_file],
    "webui_empty_row": [add_empty_row, add_row_with_everything_undone],
    "webui_no_row": [save_without_row],
    "webui_turn_pending": [leave_turn_pending, leave_first_turn_pending, leave_repeated_turn_pending],
}
