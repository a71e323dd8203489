"""Texts as vectors, by a model that is installed as a package: nothing is ever downloaded. Without one, search is by words.

An embedder has a name, `embed` and `ask`; when the name changes, the stored vectors are dropped. The one built in is wordllama's
table of 32,000 word pieces. A text is the mean of its pieces, where stop words count little. A query is the sum of its words,
each weighted by how rare it is in the keep. These weights matter more than the model.

Its files are read from the installed package, and the package itself is never imported: it brings an HTTP client along, sets up
logging for the whole program, and takes three times as long.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from dreamkeep.index.words import STOP

#: numpy's arrays. numpy may not be installed, and type checks must not need it.
Array = Any

_WEIGHTS = ("weights", "l2_supercat_256.safetensors")
_TOKENS = ("tokenizers", "l2_supercat_tokenizer_config.json")
#: A mean of more than this says nothing.
_LONGEST = 1_500
_OF_STOP, _OF_SIGNS = 0.05, 0.02


class Embedder(Protocol):
    name: str

    def embed(self, texts: Sequence[str]) -> Array:
        """One row of length 1 for each text; of length 0 for a text without words."""

    def ask(self, words: Sequence[tuple[str, float]]) -> Array:
        """A query's words with their weights, as one such row."""


class Wordllama:
    name = "wordllama-l2-supercat-256/1"

    def __init__(self, folder: str) -> None:
        import numpy as np
        from safetensors import safe_open
        from tokenizers import Tokenizer

        with safe_open(os.path.join(folder, *_WEIGHTS), framework="np") as file:
            self._pieces = file.get_tensor("embedding.weight")
        self._tokens = Tokenizer.from_file(os.path.join(folder, *_TOKENS))
        self._tokens.no_truncation()
        self._tokens.no_padding()
        self._worth: Array = np.ones(len(self._pieces), dtype=np.float32)
        for number in range(len(self._pieces)):
            word = (self._tokens.id_to_token(number) or "").replace("▁", "")
            if not re.search(r"[^\W_]", word):
                self._worth[number] = _OF_SIGNS
            elif word.lower() in STOP:
                self._worth[number] = _OF_STOP

    def embed(self, texts: Sequence[str]) -> Array:
        import numpy as np

        made = np.zeros((len(texts), self._pieces.shape[1]), dtype=np.float32)
        for row, ids in enumerate(self._ids([text[:_LONGEST] for text in texts])):
            if ids:
                made[row] = self._worth[ids] @ self._pieces[ids].astype(np.float32)
        return _unit(made)

    def ask(self, words: Sequence[tuple[str, float]]) -> Array:
        import numpy as np

        made = np.zeros((1, self._pieces.shape[1]), dtype=np.float32)
        for ids, (_, weight) in zip(self._ids([word for word, _ in words]), words, strict=True):
            if ids:
                made[0] += weight / len(ids) ** 0.5 * self._pieces[ids].astype(np.float32).sum(axis=0)
        return _unit(made)[0]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        return [found.ids for found in self._tokens.encode_batch(clean, add_special_tokens=False)]


def _unit(rows: Array) -> Array:
    import numpy as np

    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


@lru_cache(maxsize=1)
def installed() -> Embedder | None:
    """The one that is installed; None without. Loads it: a quarter of a second."""
    from importlib.util import find_spec

    if not all(find_spec(name) for name in ("numpy", "safetensors", "tokenizers", "wordllama")):
        return None
    spec = find_spec("wordllama")
    folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
    if not all(os.path.exists(os.path.join(folder, *names)) for names in (_WEIGHTS, _TOKENS)):
        return None  # a version that keeps its files elsewhere: no reason to fail, or to fetch them
    return Wordllama(folder)
