#!/bin/sh
# The fleet job of PaddlePaddle's documentation on two nodes; needs `pip install paddlepaddle`.
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=fleet --job_type=cpu --instance_count=2 \
    --distribute_job_type=NCCL2 --files=job --start_cmd="sh run.sh" "$@"
