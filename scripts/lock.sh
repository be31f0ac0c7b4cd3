#!/bin/sh
# Writes the lock files, for every supported system and Python at once.
#
#   requirements.lock           what a server needs (scripts/install.sh)
#   requirements-postgres.lock  the same plus what it needs for PostgreSQL (deploy/Dockerfile)
#   requirements-dev.lock       the same plus what people who work on the code need (make install)
#
# They hold versions and hashes, never an address: everybody fetches from the registry of their own
# pip configuration. `scripts/lock.sh --upgrade` takes newer versions; without it, pins are kept.
set -eu
cd "$(dirname "$0")/.."

uv=$(command -v uv || true)
[ -n "$uv" ] || uv=.venv/bin/uv
[ -x "$uv" ] || { echo "lock.sh: uv is missing; install it with: .venv/bin/python -m pip install uv" >&2; exit 1; }

compile() {
    output=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
        --output-file "$output" "$@" pyproject.toml
}

compile requirements.lock --extra server "$@"
compile requirements-postgres.lock --extra server --extra postgres \
    --constraint requirements.lock "$@"
compile requirements-dev.lock --extra server --extra postgres --group dev \
    --constraint requirements-postgres.lock "$@"

if grep -nE '://|^-|@ |file:' requirements*.lock; then
    echo "lock.sh: an address or a path is in a lock file (above)" >&2
    exit 1
fi
