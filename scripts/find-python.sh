#!/bin/sh
# Prints the Python to build an environment with: $PYTHON if set, else the first usable one on PATH.
# "Usable" is tried, not guessed from the name: version managers leave names that do not run.
set -u

usable='import sys, venv, ensurepip, sqlite3, ssl; sys.exit(sys.version_info < (3, 11))'

for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    path=$(command -v "$name" 2>/dev/null) || continue
    if "$path" -c "$usable" >/dev/null 2>&1; then
        printf '%s\n' "$path"
        exit 0
    fi
    version=$("$path" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
    [ -z "$version" ] || seen="${seen:+$seen, }$name is $version"
done

echo "paddlecloud needs Python 3.11 or newer with its venv module (found: ${seen:-none});" \
    "install it (Debian, Ubuntu: apt install python3-venv; macOS: brew install python@3.13)" \
    "or name one: PYTHON=/path/to/python3" >&2
exit 1
