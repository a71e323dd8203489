#!/bin/sh
# Runs the benches in an environment of their own: all of them, or the one named first. Options go on to them (--quick, --dir).
#   bench/run.sh            bench/run.sh append --quick            bench/run.sh --quick
set -eu
cd "$(dirname "$0")/.."
venv=.bench-venv

case "${1:-}" in
append | readback | reindex | startup | ingest | watch | hook | tap | audit | dream | mcp | search)
    benches=$1
    shift
    ;;
-* | "") benches="append readback reindex startup ingest watch hook tap audit dream mcp search" ;;
*)
    echo "bench: '$1' is none of append, readback, reindex, startup, ingest, watch, hook, tap, audit, dream, mcp, search" >&2
    exit 2
    ;;
esac

sh tools/venv.sh "${PYTHON:-python3}" "$venv"
if ! [ "$venv/ready" -nt pyproject.toml ] || ! [ "$venv/ready" -nt bench/run.sh ]; then
    echo "bench: installing into $venv" >&2
    # Twice quiet: only errors. What the others need comes along; without them their lines are left out.
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check -e '.[embed]'
    if "$venv/bin/python" -m pip install -qq --disable-pip-version-check openai-agents langgraph-checkpoint-sqlite; then
        touch "$venv/ready"
    else
        echo "bench: the other stores could not be installed; they are left out, and tried again next time" >&2
    fi
fi

for bench in $benches; do
    printf '\n## %s\n\n' "$bench"
    "$venv/bin/python" -m "bench.$bench" "$@"
done
