#!/bin/sh
# Two trainers of one model on CPUs; needs `pip install paddlepaddle`.
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=collective --job_type=cpu --instance_count=2 \
    --distribute_job_type=NCCL2 --files=job --start_cmd="sh run.sh" "$@"
