#!/bin/sh
# Makes the virtual environment, or says what is missing and how to get it.
python=$1
venv=$2
if ! command -v "$python" >/dev/null 2>&1; then
    echo "make: '$python' was not found. Install Python 3.11 or later, or name it: make PYTHON=/path/to/python3 ..." >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "make: dreamkeep needs Python 3.11 or later, '$python' is $("$python" -V 2>&1). Name another: make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "make: this Python lacks 'venv'. On Debian or Ubuntu install it with: apt-get install python$version-venv" >&2
    echo "      (on other systems: the package that holds Python's venv and ensurepip modules), then run make again." >&2
    exit 1
fi
[ -x "$venv/bin/python" ] || exec "$python" -m venv "$venv"
