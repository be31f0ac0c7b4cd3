#!/bin/sh
# Trains a line with nothing but Python: the smallest job that looks like a real one.
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=hello_train --job_type=cpu --files=job \
    --start_cmd="sh run.sh" "$@"
