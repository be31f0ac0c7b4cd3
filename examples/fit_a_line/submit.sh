#!/bin/sh
# Linear regression with PaddlePaddle on one CPU; needs `pip install paddlepaddle` in your Python.
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=fit_a_line --job_type=cpu --files=job \
    --start_cmd="sh run.sh" "$@"
