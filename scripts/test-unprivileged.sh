#!/usr/bin/env bash
# Runs the fast tests as they meet a machine of another kind, all at once: not as root, with LANG=C,
# in a time zone with an odd offset, from a clone in a directory with a space in its name, with an
# empty HOME. Root runs them as `nobody`, who has to reach a Python of the system with venv.
# Arguments are variables for `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d "${TMPDIR:-/tmp}/paddle cloud.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
clone="$scratch/the clone"
mkdir "$scratch/home"
git clone --quiet --no-hardlinks . "$clone"

as_user=()
if [ "$(id -u)" = 0 ]; then
    chown -R nobody: "$scratch"
    as_user=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)
fi

cd "$clone"
as_user+=(env HOME="$scratch/home" XDG_CACHE_HOME="$scratch/home/.cache" LANG=C)
"${as_user[@]}" make install
"${as_user[@]}" scripts/install-test-tools.sh
"${as_user[@]}" make test CLEAN="scripts/clean-env.sh env TZ=Pacific/Chatham" "$@"
