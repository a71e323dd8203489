"""Vectors in the index: filled in batches; the nearest are found by their codes first, then compared exactly.

code     one bit for each dimension: is it positive? All codes are in memory, and compared by counting bits
vector   one byte for each dimension: compared exactly, for the few that are near by their codes
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from dreamkeep.index.searching import SESSION_BITS, Searchable
from dreamkeep.index.store import Store
from dreamkeep.recall.embed import Array, Embedder

_BATCH = 256
#: So many times as many as wanted are compared exactly.
_MORE = 3


def fill(store: Store, embedder: Embedder, most: int, progress: Callable[[int, int], None] | None = None) -> int:
    """Embeds texts without a vector, newest first, at most `most`; returns how many. Others may write in between."""
    import numpy as np

    done, total = 0, min(most, store.unembedded_count())
    while done < total:
        with store.writing():
            # Rows that come in order fill SQLite's pages; in reverse order half of each page stays empty.
            waiting = sorted(store.unembedded(min(_BATCH, total - done)))
            if not waiting:
                break
            made = embedder.embed([text for _, text in waiting])
            codes = np.packbits(made > 0, axis=1)
            store.put_vectors(
                embedder.name,
                ((no, codes[n].tobytes(), _bytes(made[n]).tobytes()) for n, (no, _) in enumerate(waiting)),
            )
        done += len(waiting)
        if progress:
            progress(done, total)
    return done


def _bytes(row: Array) -> Array:
    import numpy as np

    most = float(np.abs(row).max())
    return np.round(row * (127.0 / most if most else 0.0)).astype(np.int8)


class Near(NamedTuple):
    no: int
    cosine: float


class Nearest:
    """All codes, in memory, as long as the store has the same ones. Several threads may ask."""

    def __init__(self) -> None:
        #: The store's embedder, the messages' numbers, their codes: replaced together, so that nobody sees one without the
        #: others.
        self._loaded: tuple[tuple[str, int], Array, Array] | None = None

    def near(
        self,
        store: Searchable,
        asked: Array,
        *,
        least: float,
        limit: int,
        sessions: Collection[int] | None,
        inside: Callable[[Sequence[int]], Collection[int]] | None,
    ) -> list[Near]:
        """Messages by what they mean: of those `inside`, best first, cosine at least `least`. `sessions`: only of these."""
        import numpy as np

        all_nos, codes = self._load(store)
        if not len(all_nos):
            return []
        code: Array = np.packbits(asked > 0).view(np.uint64)
        far = np.bitwise_count(codes ^ code).sum(axis=1, dtype=np.uint16)
        usable = all_nos > 0
        if sessions is not None:
            usable &= np.isin(all_nos >> SESSION_BITS, np.fromiter(sessions, dtype=np.int64))
        places = np.flatnonzero(usable)
        wanted = limit * _MORE
        if inside is None and len(places) > wanted:
            places = places[np.argpartition(far[places], wanted)[:wanted]]
        nos = all_nos[places[np.argsort(far[places], kind="stable")]].tolist()
        if inside is not None:
            nos = _first_inside(nos, inside, wanted)
        found = [Near(no, value) for no, value in cosines(store.vectors(nos), asked).items() if value >= least]
        return sorted(found, key=lambda one: (-one.cosine, one.no))[:limit]

    def _load(self, store: Searchable) -> tuple[Array, Array]:
        import numpy as np

        embedder, loaded = store.embedder(), self._loaded
        if loaded is not None and loaded[0] == embedder:
            return loaded[1:]
        rows = store.codes()
        nos = np.fromiter((no for no, _ in rows), dtype=np.int64, count=len(rows))
        packed = np.frombuffer(b"".join(code for _, code in rows), dtype=np.uint8)
        codes = packed.reshape(len(rows), -1).view(np.uint64) if rows else packed
        self._loaded = (embedder, nos, codes)
        return nos, codes


def _first_inside(nos: Sequence[int], inside: Callable[[Sequence[int]], Collection[int]], wanted: int) -> list[int]:
    """The filter comes before the cut, so those inside are found however many are outside."""
    found: list[int] = []
    for start in range(0, len(nos), wanted):
        some = nos[start : start + wanted]
        kept = inside(some)
        found += [no for no in some if no in kept]
        if len(found) >= wanted:
            break
    return found


def cosines(vectors: Mapping[int, bytes], asked: Array) -> dict[int, float]:
    import numpy as np

    if not vectors:
        return {}
    rows = _rows(vectors)
    norms = np.maximum(np.linalg.norm(rows, axis=1), 1e-9)
    return dict(zip(vectors, (rows @ asked / norms).tolist(), strict=True))


def with_neighbours(
    vectors: Mapping[int, bytes], groups: Mapping[int, Sequence[int]], asked: Array
) -> dict[int, tuple[float, float]]:
    """For each group: the cosine of the sum of its members, and that of the message it is named by. Messages without a vector are
    left out."""
    import numpy as np

    if not vectors:
        return {}
    rows = _rows(vectors)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    at = {no: n for n, no in enumerate(vectors)}
    known = {no: [at[one] for one in members if one in at] for no, members in groups.items() if no in at}
    if not known:
        return {}
    starts = np.cumsum([0, *(len(members) for members in known.values())])[:-1]
    summed = np.add.reduceat(rows[[n for members in known.values() for n in members]], starts, axis=0)
    near = summed @ asked / np.maximum(np.linalg.norm(summed, axis=1), 1e-9)
    own = rows[[at[no] for no in known]] @ asked
    return dict(zip(known, zip(near.tolist(), own.tolist(), strict=True), strict=True))


def _rows(vectors: Mapping[int, bytes]) -> Array:
    import numpy as np

    return np.frombuffer(b"".join(vectors.values()), dtype=np.int8).reshape(len(vectors), -1).astype(np.float32)
