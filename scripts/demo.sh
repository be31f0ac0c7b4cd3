#!/bin/sh
# The main way, once: submit an example to the embedded server, watch it, fetch its results.
# Everything it makes lies in demo-results/ and in $PADDLECLOUD_HOME (default ~/.paddlecloud).
# Fails if the job does.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/bin:$PATH"
rm -rf demo-results
notes=$(mktemp -d)
trap 'rm -rf "$notes"' EXIT

echo "== submit examples/hello_train and follow it" >&2
# A pipe has the exit code of its last part, so the first one leaves a file when it fails.
{
    paddlecloud submit_job --job_name=hello_train --job_type=cpu --files=examples/hello_train/job \
        --start_cmd="sh run.sh" --watch_mode=1 || touch "$notes/failed"
} | tee "$notes/submit.txt"
[ ! -e "$notes/failed" ] || exit 1
job=$(sed -n 's/^job_id: //p' "$notes/submit.txt")

echo "== query_job" >&2
paddlecloud query_job --job_id="$job"

echo "== get_files" >&2
paddlecloud get_files --job_id="$job" --download=1 --download_dir=demo-results
echo "the results are in demo-results/$job; the server goes on: paddlecloud server stop ends it" >&2
