#!/bin/sh
# Linear regression in plain Python: a minimal job.
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=hello_train --job_type=cpu --files=job \
    --start_cmd="sh run.sh" "$@"
