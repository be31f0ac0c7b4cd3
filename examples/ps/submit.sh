#!/bin/sh
# Two CPU instances, one parameter server and one trainer each; needs a PaddlePaddle that has a
# parameter server: Python 3.10 with pip install "paddlepaddle==2.6.2" "numpy<2" "protobuf==3.20.2".
cd "$(dirname "$0")" || exit 1
exec paddlecloud submit_job --job_name=ps --job_type=cpu --instance_count=2 \
    --files=job --start_cmd="sh run.sh" "$@"
