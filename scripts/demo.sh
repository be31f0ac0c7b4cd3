#!/bin/sh
# The main commands, once: submit an example to the embedded server, watch it, fetch its results.
# The job and its files stay in $PADDLECLOUD_HOME (default ~/.paddlecloud), the results in
# demo-results/. A server that was not running before is stopped again. Fails if the job does.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/bin:$PATH"
rm -rf demo-results
notes=$(mktemp -d)
started=yes
! paddlecloud server status >/dev/null 2>&1 || started=no
trap 'end' EXIT

end() {
    rm -rf "$notes"
    [ "$started" = no ] || paddlecloud server stop >&2
}

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
echo "== the results are in demo-results/$job" >&2
[ "$started" = yes ] || echo "the server was running before; this stops it: bin/paddlecloud server stop" >&2
