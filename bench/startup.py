"""What starting costs, against `python -c pass`.

Fair, because both are whole processes of the same interpreter in the same environment, started the same way, in turn; the keep is
small and its index up to date, so that what is measured is starting, not indexing. Compiled modules are kept, as they are after a
normal installation, in a folder of the bench's own (`PYTHONDONTWRITEBYTECODE` would make every start compile everything anew).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from bench.side_by_side import Act, Goal, Table, arguments, milliseconds, say, take_turns, workplace

from dreamkeep import Keep

_GOAL = Goal(5)
_NO_PACKAGE = Goal(0, "=")
_LIST_NEW_PACKAGES = """
import sys
before = set(sys.modules)
import dreamkeep
new = {name.partition(".")[0] for name in set(sys.modules) - before}
import json
print(json.dumps(sorted(new - set(sys.stdlib_module_names) - {"dreamkeep"})))
"""


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    with workplace(given.dir) as place:
        keep = _small_keep(f"{place}/keep")
        commands = _commands(keep)
        say("startup: starting processes")
        environment = _keeping_compiled_modules(f"{place}/compiled")
        sides = {name: _starting(command, environment) for name, command in commands.items()}
        times = take_turns(sides, 8 if given.quick else 60)
        table = Table("Starting, against `python -c pass`")
        for name in list(commands)[1:]:
            goal = _GOAL if name == "dreamkeep status" else None
            table.compare(name, times[name], times["python -c pass"], goal, show=milliseconds)
        packages = _packages_loaded()
        loaded = ", ".join(packages) or "none"
        table.fact("third-party packages that `import dreamkeep` loads", loaded, _NO_PACKAGE, len(packages))
        table.print()


def _small_keep(root: str) -> str:
    with Keep.open(root) as keep:
        for n in range(3):
            session = keep.session(f"s{n}")
            for turn in range(5):
                session.record(f"question {turn}", ("assistant", f"answer {turn}"))
        keep.reindex()
        keep.status()
    return root


def _commands(keep: str) -> dict[str, list[str]]:
    """The first one is what the others are compared with."""
    python = sys.executable
    script = os.path.join(os.path.dirname(python), "dreamkeep")
    return {
        "python -c pass": [python, "-c", "pass"],
        "dreamkeep status": [script, "--keep", keep, "status"],
        "python -m dreamkeep status": [python, "-m", "dreamkeep", "--keep", keep, "status"],
        "dreamkeep --help": [script, "--help"],
        "python -c 'import dreamkeep'": [python, "-c", "import dreamkeep"],
    }


def _keeping_compiled_modules(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def _starting(command: list[str], environment: dict[str, str]) -> Act:
    def start() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, close_fds=False, env=environment)

    return start


def _packages_loaded() -> list[str]:
    command = [sys.executable, "-c", _LIST_NEW_PACKAGES]
    found: list[str] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


if __name__ == "__main__":
    main()
