"""A table of memory whose rows are fetched when they are asked for: a verb that needs one note does not load ten thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

#: (table, id) → that row, None when there is none; (table) → all of its rows with their ids.
FetchOne = Callable[[str, str], "Mapping[str, Any] | None"]
FetchAll = Callable[[str], Iterable["tuple[str, Mapping[str, Any]]"]]
Loader = Callable[[Mapping[str, Any]], Any]


class OnDemand(dict[str, Any]):
    """One table. Iterating over it loads all of it."""

    def __init__(self, table: str, fetch_one: FetchOne, fetch_all: FetchAll, load: Loader) -> None:
        super().__init__()
        self._name, self._fetch_row, self._fetch_rows, self._load = table, fetch_one, fetch_all, load
        self._asked: set[str] = set()
        self._whole = False

    def _fetch(self, key: str) -> None:
        if self._whole or key in self._asked:
            return
        self._asked.add(key)
        body = self._fetch_row(self._name, key)
        if body is not None:
            super().__setitem__(key, self._load(body))

    def _fetch_all(self) -> None:
        if not self._whole:
            self._whole = True
            for key, body in self._fetch_rows(self._name):
                if key not in self._asked:
                    super().__setitem__(key, self._load(body))

    def __contains__(self, key: object) -> bool:
        self._fetch(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._fetch(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._fetch(key)
        return super().get(key, default)

    def __setitem__(self, key: str, value: Any) -> None:
        self._asked.add(key)
        super().__setitem__(key, value)

    def pop(self, key: str, *default: Any) -> Any:
        self._fetch(key)
        return super().pop(key, *default)

    def keys(self) -> Any:
        self._fetch_all()
        return super().keys()

    def values(self) -> Any:
        self._fetch_all()
        return super().values()

    def items(self) -> Any:
        self._fetch_all()
        return super().items()

    def __iter__(self) -> Iterator[str]:
        self._fetch_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._fetch_all()
        return super().__len__()
