"""What a model makes of real sessions, to be judged by a reader.

    DREAMKEEP_ANSWERS=FOLDER python bench/memory.py HOME [PART …]

HOME: a folder with agents' own folders in it (.claude, .codex, …). PART: only sessions whose working folder has such a word.
The first run writes requests into FOLDER/exchange/requests. Answer each with a model that sees nothing but that request, write
the answer under the same name into FOLDER/exchange/answers, and run it again until no request is left. FOLDER/notes.md then
lists every note with its quotes and without its shelf, for the reader who judges; FOLDER/shelves.json says which shelf it is on.
FOLDER must not lie in this repository: real people's words stay out of it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dreamkeep import Keep

REPOSITORY = Path(__file__).resolve().parent.parent


def main(words: list[str]) -> int:
    named = os.environ.pop("DREAMKEEP_ANSWERS", "")  # a keep takes no setting of that name
    folder = Path(named).resolve()
    if not named or folder.is_relative_to(REPOSITORY) or not words:
        print("Set DREAMKEEP_ANSWERS to a folder outside of the repository, and name a folder with agents' folders in it.")
        return 2
    exchange = str(folder / "exchange")
    with Keep.open(folder / "keep") as keep:
        if not keep.sessions():
            capture(keep, words[0], words[1:])
            made = keep.dream_export(exchange)
        else:
            made = keep.dream_import(exchange)
        print(f"{len(keep.sessions())} sessions; {made['requests']} requests wait in {exchange}/requests")
        if not made["requests"]:
            write_notes(keep, folder)
    return 0


def capture(keep: Keep, home: str, parts: list[str]) -> None:
    list(keep.ingest(home=home))
    for session in keep.sessions():
        if not parts or any(part in session.cwd for part in parts):
            keep.end(session.id)  # only what has ended is dreamed


def write_notes(keep: Keep, folder: Path) -> None:
    notes = sorted((one for state in ("active", "suggested") for one in keep.notes(state=state)), key=lambda one: str(one["id"]))
    lines = [f"## {one['id']} ({one['kind']})\n\n{one['text']}\n\n{quotes(one['evidence'])}" for one in notes]
    (folder / "notes.md").write_text("\n\n".join(lines))
    (folder / "shelves.json").write_text(json.dumps({one["id"]: one["state"] for one in notes}, indent=1))
    print(f"{len(notes)} notes in {folder / 'notes.md'}; their shelves in {folder / 'shelves.json'}")


def quotes(evidence: list[dict[str, str]]) -> str:
    return "\n".join(f"- {one['session']} {one['seq']} ({one['author']}, {one['origin']}): “{one['quote']}”" for one in evidence)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
