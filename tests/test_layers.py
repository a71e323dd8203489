"""The picture of docs/ARCHITECTURE.md, executed: import only downward, third parties only where they are used."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from dreamkeep.agents.registry import BUILT_IN

PACKAGE = Path(__file__).parent.parent / "src" / "dreamkeep"

#: `Keep`, what its verbs are given, and the verbs.
KEEP = {"keep", "context", "verbs"}
#: What surfaces may see of them.
FOR_SURFACES = {"dreamkeep.keep", "dreamkeep.verbs.standalone", "dreamkeep.verbs.tour"}
#: From the top; those on one line are brothers and never import each other.
LAYERS = [
    {"surfaces", "__main__", "integrations"},
    KEEP,
    {"agents.recovery"},
    {"dream", "recall", "recovery"},
    {"agents.setup"},
    {"capture", "index", "sample"},
    {"journal", "session", "memory"},
    {"secrets"},
    {"agents"},
    {"config", "host"},
    {"event", "errors"},
]
#: Modules of an agent's folder that lie above the others: they are built of what capture and recovery offer, and these load them
#: by the agent's name.
HIGHER = ("setup", "recovery")
#: `errors` is there for everybody.
TOGETHER = [
    KEEP,
    {"event", "errors"},
    {"surfaces", "__main__"},
]
THIRD_PARTY = {
    "orjson": {
        *(
            "event.py",
            "journal/frame.py",
            "journal/reader.py",
            "journal/scan.py",
            "journal/witness.py",
            "index/sqlite_rows.py",
            "session/raw.py",
        ),
        *(
            "capture/hooks/drain.py",
            "capture/ingest_rows.py",
            "capture/sources/source_bytes.py",
            "capture/sources/source_cache.py",
        ),
    },
    "apsw": {"index/sqlite.py", "index/sqlite_errors.py", "agents/shared/database.py", "agents/hermes/recovery.py"},
    "zstandard": {"journal/parts.py", "capture/sources/content.py", "recovery/snapshot/file.py"},
    "watchfiles": {"capture/watch.py"},
    "shtab": {"surfaces/cli/commands.py"},
    "numpy": {"recall/embed.py", "recall/vectors.py"},
    "agents": {"integrations/openai_agents.py"},
    **{name: {"recall/embed.py"} for name in ("safetensors", "tokenizers")},
}
#: What only the door to the disk may use.
OS_MODULES = {"fcntl", "time", "subprocess", "shutil", "tempfile", "pathlib", "io", "mmap", "ctypes"}
OS_EXCEPTIONS = {
    "journal/parts.py": {"io"},  # wraps a stream that the host opened
    "recovery/snapshot/file.py": {"io"},  # bytes that were read already, as a stream for tarfile
    "event.py": {"time"},  # formats a given moment, asks no clock
    "surfaces/cli/sessions.py": {"time"},  # how often to look while following
    "capture/hook.py": {"fcntl", "time"},  # stands by itself: loads nothing of ours
    # Pipes and the agent's process are its work; disk goes through the host.
    "capture/tap/tap.py": {"fcntl", "subprocess", "time"},
    "capture/tap/signals.py": {"subprocess", "time"},  # a part of tap.py
    "capture/tap/guard.py": {"time"},  # a process of its own; loads nothing of ours
    "surfaces/cli/text.py": {"time"},  # a progress line's own pace
    "surfaces/mcp/streamable.py": {"time"},  # how slow a client may be
}


@cache
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
    words = module.split(".")
    if words[1:2] == ["agents"] and words[3:4] and words[3] in HIGHER:
        return f"agents.{words[3]}"
    return words[1] if "." in module else ""


def level(part: str) -> int:
    return next(n for n, layer in enumerate(LAYERS) if part in layer)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_go_downward_only(file: Path) -> None:
    own = part_of(".".join(("dreamkeep", *file.relative_to(PACKAGE).with_suffix("").parts)))
    if own == "__init__":
        return
    for module, _ in imports(file):
        if not module.startswith("dreamkeep"):
            continue
        other = part_of(module)
        if other in ("", own, "__version__", "Keep") or any({own, other} <= pair for pair in TOGETHER):
            continue
        assert level(other) > level(own), f"{file.name} imports {module}"


@pytest.mark.parametrize("file", [f for f in FILES if "surfaces" in f.relative_to(PACKAGE).parts], ids=lambda f: f.name)
def test_surfaces_see_only_keep_event_and_errors(file: Path) -> None:
    for module, _ in imports(file):
        if module.startswith("dreamkeep") and part_of(module) not in ("", "__version__"):
            assert module in FOR_SURFACES or part_of(module) in {"event", "errors", "surfaces"}, module


@pytest.mark.parametrize("file", [f for f in FILES if "integrations" in f.relative_to(PACKAGE).parts], ids=lambda f: f.name)
def test_integrations_see_keep_and_what_it_hands_out(file: Path) -> None:
    """`capture.items` is what `Keep.items` gives; `held` says what a forked child must not inherit."""
    for module, _ in imports(file):
        if module.startswith("dreamkeep"):
            assert module in {"dreamkeep.keep", "dreamkeep.capture.items", "dreamkeep.errors", "dreamkeep.host.liveness"}, module


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
    if name.startswith("host/"):
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
    if name in ("capture/tap/tap.py", "capture/tap/signals.py", "capture/tap/guard.py", "surfaces/mcp/stdio.py"):
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


_NAMES = re.compile(rf"""['"]({"|".join(map(re.escape, BUILT_IN))})['"]""")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_agents_are_named_only_in_their_own_folders_and_in_the_sample(file: Path) -> None:
    """What concerns one agent is a fact or a function of its folder, so that a new agent touches one folder."""
    if file.relative_to(PACKAGE).parts[0] not in ("agents", "sample"):
        assert not _NAMES.search(file.read_text()), "say it in the agent's folder: a field of `Agent`, or a function"


def module_of(file: Path) -> str:
    parts = ("dreamkeep", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def needed_by(file: Path) -> set[str]:
    """Our modules that a file imports, whenever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & MODULES.keys()
            if whole - MODULES.keys():
                found.add(node.module)
    return (found & MODULES.keys()) - {module_of(file)}


def test_no_modules_import_each_other_in_a_ring() -> None:
    """Also not inside of functions."""
    needs = {module: needed_by(file) for module, file in MODULES.items()}

    def reaches(module: str) -> set[str]:
        found: set[str] = set()
        todo = [*needs[module]]
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += needs[one]
        return found

    assert {module for module in needs if module in reaches(module)} == set()


def test_a_verb_takes_the_same_as_the_method_of_keep_that_calls_it() -> None:
    """`Keep` only forwards, so its parameters and those of the function must not drift apart."""
    import inspect

    from dreamkeep import Keep, verbs

    def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
        """All but the first one, which is `self` or the context."""
        found = [*inspect.signature(function).parameters.values()][1:]
        return [(one.name, one.kind, callable(one.default) or one.default) for one in found]

    methods = [node for node in ast.walk(ast.parse((PACKAGE / "keep.py").read_text())) if isinstance(node, ast.FunctionDef)]
    calls = {node.name: re.search(r"verbs\.(\w+)\.(\w+)\(\s*self\.context", ast.unparse(node)) for node in methods}
    verbs_of = {name: getattr(getattr(verbs, call[1]), call[2]) for name, call in calls.items() if call and name != "__init__"}
    assert len(verbs_of) > 60
    assert {name: parameters(verb) for name, verb in verbs_of.items()} == {
        name: parameters(getattr(Keep, name)) for name in verbs_of
    }


def test_nobody_reaches_into_a_keep_or_its_context() -> None:
    """What others may use of them has a public name."""
    tests = Path(__file__).parent
    for file in (*FILES, *tests.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            whose = ast.unparse(node.value).rpartition(".")[2]
            private = whose in {"keep", "context", "_keep", "_context"}
            assert not private, f"{file.name}:{node.lineno} uses {ast.unparse(node)}"
