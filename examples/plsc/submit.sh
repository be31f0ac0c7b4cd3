#!/bin/sh
# Large-scale classification with a margin softmax; `paddlecloud plsc` submits the same job.
# Two trainers, each with half of the classes: sh submit.sh --instance_count=2 --distribute_job_type=NCCL2
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=plsc --files=job --start_cmd="sh run.sh" "$@"
