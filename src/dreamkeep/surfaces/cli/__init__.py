"""The command line. Starting it is cheap: a verb's modules load when that verb runs."""

from __future__ import annotations

import os
import sys

from dreamkeep.errors import BadUsage, DreamkeepError, cannot_read


def main(argv: list[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the answer is no, 2 bad usage or config, 3 failed, 4 busy."""
    from dreamkeep.surfaces.cli.parser import named, parser

    words = sys.argv[1:] if argv is None else argv
    try:
        arguments = parser(named(words)).parse_args(words)
    except BadUsage as problem:
        # 2 would tell an agent to stop what it was doing
        return 0 if "hook" in words[:3] and not {"-h", "--help"} & set(words) else _tell(problem, "--json" in words)
    if arguments.verb is None:
        if arguments.json:
            return _tell(BadUsage("no verb given", where="dreamkeep", next="`dreamkeep --help` lists them."), True)
        parser().print_help()
        return 2
    try:
        if arguments.verb == "mcp":  # a client waits for its greeting: nothing is loaded that it does not need
            from dreamkeep.surfaces import mcp

            return mcp.run(arguments)
        if arguments.verb == "tour":  # in a keep of its own: what is wrong with the user's is no reason not to look
            from dreamkeep.surfaces.cli import tour

            return tour.run(arguments)
        from dreamkeep.surfaces.cli import commands

        code = commands.run(arguments)
        sys.stdout.flush()
        return code
    except DreamkeepError as problem:
        return _tell(problem, arguments.json)
    except BrokenPipeError:
        # The reader (`head`) has what it wanted. Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:
        # Writing says its own errors; what is left could not be looked at.
        return _tell(cannot_read(problem, f"`{arguments.verb}`"), arguments.json)
    except KeyboardInterrupt:
        print("dreamkeep: interrupted; everything acknowledged so far is safe.", file=sys.stderr)
        return 3


def _tell(problem: DreamkeepError, as_json: bool) -> int:
    """What, where and what next on stderr; with --json as the one document on stdout, too."""
    from dreamkeep.surfaces.cli import text

    text.complain(str(problem))
    if as_json:
        from dreamkeep.verbs.standalone import mask_secrets

        told = {"what": problem.what, "where": problem.where, "next": problem.next}
        print(text.json_text({"error": {name: mask_secrets(words) for name, words in told.items()}}))
    return problem.exit_code
