"""Documents that agents rewrite whole: they are cut into pieces, stored as deltas, and read piece by piece."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.agents.shared.pieces import DocumentPiece, Element, piece
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.document import BLOCK, MOST_PIECES, CopiedPieces, Insert, Op, delta, mark, packed, split

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(['"', "[{", "]},", "\\", '\\"', "\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
_NAMES = st.sampled_from(["messages", "context_messages", "tool_calls", "title", "anchor", 'a"b', "x[y"])
_DOCUMENTS = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"),
    st.dictionaries(_NAMES, st.lists(_VALUES, max_size=5) | _VALUES, max_size=6),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
_ANYTHING = st.binary(max_size=300) | st.text(alphabet='{}[]",:\\ \nax', max_size=80).map(str.encode)


def _session(count: int, **more: Any) -> bytes:
    messages = [{"role": "user", "content": f'number {n} says "hello" \\ [', "timestamp": n} for n in range(count)]
    members = {"session_id": "a", "updated_at": count, "messages": messages, "tool_calls": [], "context_messages": messages}
    return json.dumps(members | more, indent=2).encode()


@settings(max_examples=150)
@given(_DOCUMENTS | _ANYTHING)
def test_the_pieces_of_any_document_join_to_the_document(data: bytes) -> None:
    assert b"".join(split(data)) == data


def applied(before: list[bytes], ops: list[Op]) -> list[bytes]:
    """In the form of a journal's frame, and read back from it."""
    short, own = packed(ops)
    return list(source_bytes._applied({"ops": short}, own, before))


@settings(max_examples=150)
@given(_DOCUMENTS | _ANYTHING, _DOCUMENTS | _ANYTHING)
def test_a_delta_applied_to_the_old_pieces_gives_the_new_ones(old: bytes, new: bytes) -> None:
    before, after = split(old), split(new)
    assert applied(before, delta([mark(one) for one in before], after)) == after


@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"]", b"["])), st.lists(st.sampled_from([b"a", b"b", b"c", b"]", b"["])))
def test_a_delta_of_any_pieces_gives_the_new_pieces(before: list[bytes], after: list[bytes]) -> None:
    assert applied(before, delta([mark(one) for one in before], after)) == after


@settings(max_examples=120)
@given(_DOCUMENTS)
def test_every_element_of_the_arrays_is_read_from_its_own_piece(data: bytes) -> None:
    whole = json.loads(data)
    members: dict[str, Any] = {}
    arrays: dict[str, list[object]] = {}
    opened = ""
    for one in split(data):
        found = piece(one.decode("utf-8", "surrogatepass"), bool(opened))
        assert found is not None
        if isinstance(found, DocumentPiece):
            opened = found.opens
            members |= found.members
        else:
            assert isinstance(found, Element)
            arrays.setdefault(opened, []).append(found.value)
    for name in ("messages", "context_messages", "tool_calls"):
        if isinstance(whole.get(name), list):
            assert arrays.get(name, []) == whole.pop(name)
    assert {name: members[name] for name in whole if not isinstance(whole[name], (dict, list))} == {
        name: value for name, value in whole.items() if not isinstance(value, (dict, list))
    }


def test_a_new_message_adds_only_itself_and_the_frames() -> None:
    """W14: a version that repeats a thousand messages adds one."""
    before, after = split(_session(1000)), split(_session(1001))
    ops = delta([mark(one) for one in before], after)
    inserted = [op.piece for op in ops if isinstance(op, Insert)]
    assert sum(map(len, inserted)) < 1000
    assert sum(b"number 1000" in one for one in inserted) == 2  # among the messages, and in the model's copy of them
    assert sum(op.count for op in ops if isinstance(op, CopiedPieces)) == 2000


def test_frames_are_repeated_so_that_the_array_of_an_element_is_known() -> None:
    before, after = split(_session(5)), split(_session(6))
    opened, seen = "", []
    for op in delta([mark(one) for one in before], after):
        if isinstance(op, Insert):
            found = piece(op.piece.decode(), bool(opened))
            if isinstance(found, DocumentPiece):
                opened = found.opens
            else:
                seen.append(opened)
    assert seen == ["messages", "context_messages"]


def test_a_delta_is_packed_in_the_form_of_the_journal() -> None:
    ops: list[Op] = [Insert(b"a"), Insert(b"b"), CopiedPieces(3, 2), CopiedPieces(0, 1), Insert(b"c")]
    assert packed(ops) == ([2, [3, 2], [0, 1], 1], [b"a", b"b", b"c"])


def test_an_unchanged_document_is_a_single_copy() -> None:
    pieces = split(_session(3))
    assert delta([mark(one) for one in pieces], pieces) == [CopiedPieces(0, len(pieces))]


def test_a_big_member_that_is_not_a_list_of_messages_is_cut_too() -> None:
    """Other members of the document may be larger than all messages."""
    scenes = {f"scene {n}": {"rows": ["x" * 50]} for n in range(200)}
    before = split(_session(3, scenes=scenes))
    after = split(_session(3, scenes=scenes | {"scene 7": {"rows": ["y"]}}))
    inserted = [op.piece for op in delta([mark(one) for one in before], after) if isinstance(op, Insert)]
    assert sum(map(len, inserted)) < 1000


def test_whole_elements_before_a_tear_are_cut_as_usual() -> None:
    """B2, W6: a torn document is kept, and its first messages can be read."""
    data = _session(50)
    torn = data[: data.index(b"number 30 ") + 5]
    pieces = split(torn)
    assert b"".join(pieces) == torn
    found = [piece(one.decode(), True) for one in pieces[1:]]
    assert sum(isinstance(one, Element) for one in found) == 30


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 2_000_000,
        b'{"messages":' * 200_000,
        b'{"messages":[' + b"," * (MOST_PIECES + 10) + b"]}",
        b'"' * 2_000_000,
        b'{"a":"' + b"\\" * 2_000_001,
        b"\0" * 2_000_000,
        b'{"messages":[' + b'{"a":[' * 300_000,
        ("ü" * 1_000_000).encode(),
        b'{"messages": [{"content": "' + b"a\\n" * 700_000 + b'"}]}',
    ],
    ids=["nested", "names", "commas", "quotes", "escapes", "nuls", "deep", "text", "long"],
)
def test_hostile_documents_are_cut_in_linear_time(data: bytes) -> None:
    started = time.process_time()
    pieces = split(data)
    assert time.process_time() - started < 5
    assert b"".join(pieces) == data
    assert len(pieces) <= MOST_PIECES + len(data) // BLOCK + 2


def test_no_character_is_cut_between_two_blocks() -> None:
    data = ("ab" + "üé漢🙂" * 100_000).encode()
    pieces = split(data)
    assert max(map(len, pieces)) <= BLOCK
    assert "".join(one.decode() for one in pieces) == data.decode()
    assert b"".join(split(b"\x80" * (2 * BLOCK))) == b"\x80" * (2 * BLOCK)
