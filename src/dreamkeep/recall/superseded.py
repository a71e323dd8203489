"""What was superseded goes below what replaced it, and says so (D38). The notes decide; the messages behind them follow.

    a superseded note is found, or a message that only superseded notes rest on
      └─► the note that holds now is found too, if the filters let it, and is worth as much; so is the message behind it
          └─► the old one comes after them, with `superseded_by`

As of an earlier time, a note is superseded only by what was said until then.
"""

from __future__ import annotations

from collections.abc import Collection

from dreamkeep.index.searching import Remembered, Within
from dreamkeep.index.store import Store
from dreamkeep.recall import hits
from dreamkeep.recall.hits import MESSAGE, NOTE, Hit, HitKey, is_within

_LONGEST_CHAIN = 50
#: The old one's score: this part of its own, and of the lowest that replaces it.
_OLD, _BELOW = 0.6, 0.95
SUPERSEDED = "superseded"


def put_superseded_below(store: Store, found: dict[HitKey, Hit], within: Within, kinds: Collection[str], most: int) -> None:
    """Among the best `most`; adds what replaced them."""
    notes = _Notes(store, within.until)
    best = sorted(found.values(), key=lambda hit: (-hit.score, hit.key))[:most]
    grounds = store.grounds({hit.place for hit in best if hit.kind != NOTE and hit.session})
    for hit in best:
        ids = [hit.id] if hit.kind == NOTE else grounds.get(hit.place, [])
        current = {id: notes.current(id) for id in ids}
        if not current or any(note is not None and note.id == id for id, note in current.items()):
            continue  # nothing that was superseded rests on it, or also something that holds
        after = next((note for note in current.values() if note is not None), None)
        if after is not None:  # else what replaced it was retracted itself: nothing holds instead
            _put_below(store, found, found[hit.key], after, within, kinds)


class _Notes:
    """Notes by their ids, read when they are needed; as of a time."""

    def __init__(self, store: Store, until: str | None) -> None:
        self._store = store
        self._until = until
        self._read: dict[str, Remembered | None] = {}

    def get(self, id: str) -> Remembered | None:
        if id not in self._read:
            rows = self._store.remembered_ids([id])
            self._read[id] = rows[0] if rows else None
        return self._read[id]

    def current(self, id: str) -> Remembered | None:
        """The note that holds in its place: itself, if it was not superseded until then; None if there is none any more."""
        note = self.get(id)
        for _ in range(_LONGEST_CHAIN):
            if note is None or note.state != SUPERSEDED:
                return note
            after = self.get(note.by) if note.by else None
            if after is not None and self._until is not None and (after.first_at or "") > self._until:
                return note
            note = after
        return note


def _put_below(
    store: Store, found: dict[HitKey, Hit], old: Hit, after: Remembered, within: Within, kinds: Collection[str]
) -> None:
    newer: list[HitKey] = []
    if NOTE in kinds and is_within(store, after, within):
        hit = hits.of_remembered(after, 0.0)
        found.setdefault(hit.key, hit)
        newer.append(hit.key)
    if MESSAGE in kinds and (key := _find_message(store, found, after, within)):
        newer.append(key)
    least = old.score
    for key in newer:
        found[key] = found[key]._replace(score=max(found[key].score, old.score))
        least = min(least, found[key].score)
    found[old.key] = found[old.key]._replace(score=min(old.score * _OLD, least * _BELOW), superseded_by=after.id)


def _find_message(store: Store, found: dict[HitKey, Hit], after: Remembered, within: Within) -> HitKey | None:
    """The message that the note rests on, if it can be found; it is then among `found`."""
    numbers = hits.parse_place(after.place)
    if not after.session or numbers is None:
        return None
    place = (after.session, *numbers)
    no = store.numbers([place]).get(place)
    if no is None or no not in store.inside([no], within):
        return None
    key = hits.message_key(*place)
    if key not in found:
        found.update((key, hits.of_message(head, 0.0)) for head in store.heads([no]))
    return key if key in found else None
