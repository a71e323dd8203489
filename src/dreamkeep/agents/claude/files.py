"""The files in `<session>/tool-results/`: outputs that are too long for the transcript, which holds a preview.

    <tool's id>.txt      a tool's output; written once
    <tool's id>.json     the same of a tool that answered in blocks: a JSON list, indented, one `"text"` a line
    <other id>.txt       of Bash, and of MCP tools (`mcp-…`): only the transcript says whose
    hook-*               what a hook printed
    *.pdf, *.png, …      what a tool fetched: kept raw only

The preview names the file (2.1.197):

    <persisted-output>                                               of Bash, `toolUseResult.persistedOutputPath` does, too
    Output too large (4.8MB). Full output saved to: …/tool-results/toolu_01.txt
    Error: result (70,000 characters) exceeds maximum allowed tokens. Output has been saved to …/tool-results/mcp-x-1.txt.

The beginning of the file takes the place of the preview; the rest follows as messages of its own. Outputs of subagents lie with
the session that started them: there they are messages that answer no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from dreamkeep.agents import facts as f
from dreamkeep.agents.facts import Fact, Record
from dreamkeep.agents.shared.values import text

_NAMED = re.compile(
    r"\s*(?:<persisted-output>\s*|Error: result )[^\n]{0,300}? saved to:? [^\n]*?[/\\]tool-results[/\\]([^/\\\n]+?)\.?\s*(?:\n|$)"
)
_PATH = re.compile(r"[/\\]tool-results[/\\]([^/\\\n]+)$")
#: So much of a preview is searched for the file's name.
_PREVIEW = 6000
_TEXT_LINE = re.compile(r'\s*"text": (".*"),?\s*')
_TOOL_ID = ("toolu_", "call_")
#: No message is longer. (A frame of lines is half as long, so only a very long line is ever cut.)
LONGEST = 1 << 19


def previewed_file(words: str, path: object = None) -> str:
    """The file that holds all of what these words only preview; "" when they are all."""
    found = _PATH.search(text(path)[-_PREVIEW:]) or _NAMED.match(words[:_PREVIEW])
    return found[1] if found else ""


def read_stretch(record: Record) -> Iterator[Fact]:
    """The messages in one stretch of such a file."""
    file, _, stretch = record.name.partition("/")
    stem, _, ending = file.rpartition(".")
    if ending not in ("txt", "json") or "\0" in record.text:
        if not stretch:
            yield f.UnknownRecord(f"tool-results/{ending}"[:80])
        return
    words = record.text if ending == "txt" else "\n".join(map(_block_text, record.text.split("\n")))
    for n, part in enumerate(_cut(words)):
        first = not stretch and not n
        key = f.WHOLE + file if first else f"{f.WHOLE}{file}/{stretch}#{n}"
        if not part.strip():
            continue
        if file.startswith("hook-"):
            yield f.MessageSaid(f.SYSTEM, part, key, mark=f.INJECTED if f.PACK in part else f.HOOK, file=file)
        else:
            tool = {"file": file, **({"id": stem} if first and stem.startswith(_TOOL_ID) else {})}
            yield f.MessageSaid(f.TOOL, part, key, tool=tool, file=file)


def _block_text(line: str) -> str:
    """A line of a JSON file; of a block's text the text itself, not as JSON writes it."""
    found = _TEXT_LINE.fullmatch(line)
    try:
        return text(json.loads(found[1])) if found else line
    except ValueError:
        return line


def _cut(words: str) -> Iterator[str]:
    """Parts of at most `LONGEST`, cut at a line's end if there is one in the second half."""
    at = 0
    while at < len(words):
        end = at + LONGEST
        if end < len(words):
            cut = words.rfind("\n", at + LONGEST // 2, end)
            end = cut + 1 if cut >= 0 else end
        yield words[at:end]
        at = end
