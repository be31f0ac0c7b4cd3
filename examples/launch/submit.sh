#!/bin/sh
# Two nodes, each with Paddle's launcher, which reads its configuration from the environment.
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=launch --job_type=cpu --instance_count=2 \
    --distribute_job_type=NCCL2 --files=job --start_cmd="sh run.sh" "$@"
