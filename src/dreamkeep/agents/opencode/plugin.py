"""OpenCode's plugin: a file of our own that hands events to the hook and never throws. It waits for the hook only where that has
something to say: once in a session, and once after a compaction, for the pack that goes into the system's words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

SIGN = "// dreamkeep: written by `dreamkeep init`, taken away by `dreamkeep init --uninstall`."

EVENTS = (
    "session.created",
    "session.idle",
    "session.compacted",
    "session.deleted",
    "chat.message",
    "tool.execute.after",
    "experimental.session.compacting",
    "experimental.chat.system.transform",
)

#: OpenCode calls every exported function, so there is exactly one. `detached`: the hook outlives an OpenCode that ends just then.
_TEXT = """%(sign)s
import { spawn } from "node:child_process"

const BEFORE = %(before)s
const AFTER = %(after)s
const EVENTS = new Set(%(events)s)

const SYSTEM = "experimental.chat.system.transform"
// It asks a model for the session's title, too: that one needs no memory.
const TITLES = /^You are a title generator/
const packs = new Map()
const squeezed = new Set()

const pack = (session, cwd) =>
  new Promise((done) => {
    try {
      let said = ""
      const child = spawn(BEFORE[0], [...BEFORE.slice(1), SYSTEM, ...AFTER], { stdio: ["pipe", "pipe", "ignore"] })
      const late = setTimeout(() => done(""), 1000)
      const end = () => {
        clearTimeout(late)
        try {
          done(String(JSON.parse(said).context ?? ""))
        } catch {
          done("")
        }
      }
      child.on("error", end)
      child.on("close", end)
      child.stdin.on("error", () => {})
      child.stdout.setEncoding("utf8").on("data", (piece) => (said += piece))
      const source = squeezed.delete(session) ? "compact" : "startup"
      child.stdin.end(JSON.stringify({ hook_event_name: SYSTEM, session_id: session, cwd, source }))
    } catch {
      done("")
    }
  })

const tell = (name, session, cwd, more) => {
  try {
    const payload = JSON.stringify({ hook_event_name: name, session_id: session, cwd, ...more })
    const child = spawn(BEFORE[0], [...BEFORE.slice(1), name, ...AFTER], { stdio: ["pipe", "ignore", "ignore"], detached: true })
    child.on("error", () => {})
    child.stdin.on("error", () => {})
    child.stdin.end(payload)
    child.unref()
  } catch {}
}

export const Dreamkeep = async (context) => {
  const cwd = context?.directory
  return {
    event: async (call) => {
      const event = call?.event
      const session = event?.properties?.sessionID ?? event?.properties?.info?.id
      if (event?.type === "session.compacted") squeezed.add(session)
      if (event?.type === "session.compacted" || event?.type === "session.deleted") packs.delete(session)
      if (EVENTS.has(event?.type))
        tell(event.type, session, cwd, { info: event.properties?.info, event })
    },
    "chat.message": async (input, output) =>
      tell("chat.message", input?.sessionID, cwd, { input, message: output?.message, parts: output?.parts }),
    "tool.execute.after": async (input, output) => tell("tool.execute.after", input?.sessionID, cwd, { input, output }),
    "experimental.session.compacting": async (input) =>
      tell("experimental.session.compacting", input?.sessionID, cwd, { input }),
    [SYSTEM]: async (input, output) => {
      const session = input?.sessionID
      if (!session || !Array.isArray(output?.system) || TITLES.test(output.system[0])) return
      if (!packs.has(session)) packs.set(session, pack(session, cwd))
      const text = await packs.get(session)
      if (text) output.system.push(text)
    },
  }
}
"""


def text(before: Sequence[str], after: Sequence[str]) -> str:
    """`before`, `after`: the words of a hook's command, with the event's name left out between them."""
    bus = [event for event in EVENTS if event.startswith("session.")]
    return _TEXT % {"sign": SIGN, "before": _js(before), "after": _js(after), "events": _js(bus)}


def commands(text: str) -> dict[str, list[str]]:
    """Which command the plugin starts for which event; nothing when somebody has changed how it says so."""
    lines = {name: re.search(rf"^const {name} = (.*)$", text, re.M) for name in ("BEFORE", "AFTER")}
    try:
        before, after = (json.loads(found.group(1)) if found else None for found in lines.values())
    except ValueError:
        return {}
    if not isinstance(before, list) or not isinstance(after, list):
        return {}
    return {event: [*map(str, before), event, *map(str, after)] for event in EVENTS}


def _js(words: Sequence[str]) -> str:
    # JSON is JavaScript; escaped to ASCII, because two signs that JSON allows end a line for older engines.
    return json.dumps(words)
