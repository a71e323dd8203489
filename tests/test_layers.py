"""The picture of docs/ARCHITECTURE.md, executed: import only downward, third parties only where they are used."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "dreamkeep"

#: `Keep`, in parts by their reasons to change, and what its answers look like.
APP = {"app", "views"} | {
    f"app_{part}"
    for part in (
        *("access", "asked", "capture", "dream", "exchange", "model", "notes", "pack", "part", "project", "recall"),
        *("recovery", "review", "tour"),
    )
}
#: From the top; those on one line are brothers and never import each other.
LAYERS = [
    {"surfaces", "__main__", "integrations"},
    APP,
    {"dream", "recall", "recovery"},
    {"capture", "index", "sample"},
    {"journal", "session", "memory"},
    {"config", "host", "aio", "held", "net", "child"},
    {"event", "errors"},
]
#: `views` is part of `app`, `aio` of `host`, `errors` is there for everybody.
TOGETHER = [
    APP,
    {"host", "aio"},
    {"host", "held"},
    {"event", "errors"},
    {"surfaces", "__main__"},
]
THIRD_PARTY = {
    "orjson": {
        *("event.py", "journal/frame.py", "journal/reader.py", "journal/witness.py", "index/sqlite_rows.py", "session/raw.py"),
        *("capture/drain.py", "capture/ingest_rows.py", "capture/rejoin.py", "capture/seen.py"),
    },
    "apsw": {"index/sqlite.py", "index/sqlite_errors.py", "capture/rows.py", "recovery/statedb.py"},
    "zstandard": {"journal/parts.py", "capture/content.py", "recovery/snapshot_file.py"},
    "zlib_ng": {"index/looks.py"},
    "watchfiles": {"capture/watch.py"},
    "shtab": {"surfaces/cli/verbs.py"},
    "numpy": {"recall/embed.py", "recall/vectors.py"},
    "agents": {"integrations/openai_agents.py"},
    **{name: {"recall/embed.py"} for name in ("safetensors", "tokenizers")},
}
#: What only the door to the disk may use.
OS_MODULES = {"fcntl", "time", "subprocess", "shutil", "tempfile", "pathlib", "io", "mmap", "ctypes"}
OS_EXCEPTIONS = {
    "journal/parts.py": {"io"},  # wraps a stream that the host opened
    "recovery/snapshot_file.py": {"io"},  # bytes that were read already, as a stream for tarfile
    "event.py": {"time"},  # formats a given moment, asks no clock
    "journal/together.py": {"time"},  # how long a crowd lasts: no decision that anybody could see depends on it
    "surfaces/cli/show.py": {"time"},  # how often to look while following
    "capture/hook.py": {"fcntl", "time"},  # stands by itself: loads nothing of ours
    "capture/tap.py": {"fcntl", "subprocess", "time"},  # pipes and the agent's process are its work; disk goes through the host
    "capture/tap_signals.py": {"subprocess", "time"},  # a part of tap.py
    "capture/tap_guard.py": {"time"},  # a process of its own; loads nothing of ours
    "surfaces/cli/text.py": {"time"},  # a progress line's own pace
    "surfaces/mcp/streamable.py": {"time"},  # how slow a client may be
}


def imports(file: Path) -> list[tuple[str, bool]]:
    """(module, whether it loads when the file does)."""
    tree = ast.parse(file.read_text())
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) not in lazy) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "dreamkeep" else [node.module]
            found += [(name, id(node) not in lazy) for name in names]
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def level(part: str) -> int:
    return next(n for n, layer in enumerate(LAYERS) if part in layer)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_go_downward_only(file: Path) -> None:
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for module, _ in imports(file):
        if not module.startswith("dreamkeep"):
            continue
        other = part_of(module)
        if other in ("", own, "__version__", "Keep") or any({own, other} <= pair for pair in TOGETHER):
            continue
        assert level(other) > level(own), f"{file.name} imports {module}"


@pytest.mark.parametrize("file", [f for f in FILES if "surfaces" in f.parts], ids=lambda f: f.name)
def test_surfaces_see_only_app_event_and_errors(file: Path) -> None:
    for module, _ in imports(file):
        if module.startswith("dreamkeep") and part_of(module) not in ("", "__version__"):
            assert part_of(module) in {"app", "app_tour", "event", "errors", "surfaces"}, module


@pytest.mark.parametrize("file", [f for f in FILES if "integrations" in f.parts], ids=lambda f: f.name)
def test_integrations_see_app_and_what_it_hands_out(file: Path) -> None:
    """`capture.items` is what `Keep.items` gives; `held` says what a forked child must not inherit."""
    for module, _ in imports(file):
        if module.startswith("dreamkeep"):
            assert module in {"dreamkeep.app", "dreamkeep.capture.items", "dreamkeep.errors", "dreamkeep.held"}, module


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_third_parties_are_used_where_the_picture_says_and_loaded_late(file: Path) -> None:
    name = str(file.relative_to(PACKAGE))
    for module, at_once in imports(file):
        top = module.partition(".")[0]
        if top == "dreamkeep" or top in sys.stdlib_module_names:
            continue
        assert name in THIRD_PARTY.get(top, set()), f"{name} imports {top}"
        assert not at_once or name in ("index/sqlite.py", "index/sqlite_errors.py"), f"{name} loads {top} before it is needed"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_disk_clock_and_processes_only_through_the_host(file: Path) -> None:
    name = str(file.relative_to(PACKAGE))
    if name in ("host.py", "aio.py", "held.py", "net.py", "child.py"):
        return
    used = {module.partition(".")[0] for module, _ in imports(file)} & OS_MODULES
    assert used <= OS_EXCEPTIONS.get(name, set()), used
    source = ast.parse(file.read_text())
    calls = {n.func.id for n in ast.walk(source) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert "open" not in calls
    touched = {
        f"os.{n.attr}"
        for n in ast.walk(source)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "os"
    }
    harmless = {
        "os.path",
        "os.fspath",
        "os.PathLike",
        "os.environ",
        "os.pathsep",
        "os.uname",
        "os.devnull",
        "os.get_terminal_size",
    }
    if name in ("capture/tap.py", "capture/tap_signals.py", "capture/tap_guard.py", "surfaces/mcp/stdio.py"):
        return  # pipes and signals are their work
    cli = {"os.dup2", "os.open", "os.O_WRONLY"} if name == "surfaces/cli/__init__.py" else set()
    assert touched <= harmless | cli, touched


def test_the_index_and_the_capture_do_not_know_each_other() -> None:
    """Capture never depends on the index: it is not even loaded to record a turn."""
    import subprocess

    program = (
        "import sys, tempfile; from dreamkeep import Keep\n"
        "k = Keep.open(tempfile.mkdtemp() + '/k'); s = k.session('a'); t = s.submit('x'); t.settle(); s.end(); k.close()\n"
        "sys.exit('apsw' in sys.modules or any(m.startswith('dreamkeep.index') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
