#!/usr/bin/env bash
# Runs the tests of what has to start on a user's own Python (model, client, command line) on every
# Python that pyproject.toml claims and this machine has, except the one of .venv. Each gets a
# throw-away environment with the locked tools; the project itself is taken from src.
set -euo pipefail
cd "$(dirname "$0")/.."

suites=(tests/unit/model tests/unit/client tests/unit/cli)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

main() {
    local own version python found=0
    own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for version in $(sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml); do
        [ "$version" != "$own" ] || continue
        python=$(find_python "$version") || continue
        found=1
        run_with "$python" "$version"
    done
    [ $found = 1 ] || echo "skipped: no other Python than $own is on this machine"
}

# "Usable" is tried, not guessed from the name: version managers leave names that do not run.
find_python() {
    local path usable
    usable="import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$1')"
    for path in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if [ -x "$path" ] && "$path" -c "$usable" 2>/dev/null; then
            echo "$path"
            return
        fi
    done
    return 1
}

run_with() {
    local env=$scratch/$2
    echo "-- Python $2"
    "$1" -m venv "$env"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r requirements-dev.lock
    PYTHONPATH=$PWD/src PYTHONDONTWRITEBYTECODE=1 "$env/bin/python" -m pytest "${suites[@]}" --quiet \
        -p no:cacheprovider --numprocesses=2 --dist=loadfile -m "not slow and not chaos and not bench"
    rm -rf "$env"
}

main
