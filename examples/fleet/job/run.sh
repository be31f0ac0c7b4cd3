#!/bin/sh
# One node of the job. The former --cluster_node_ips, --node_ip and --started_port are environment
# variables; on a machine with GPUs the launcher starts one process per GPU.
set -e
: "${LOCAL_MOUNT_PATH:=$PWD}"
: "${OUTPUT_PATH:=$PWD/output}"
: "${LOCAL_LOG_PATH:=$OUTPUT_PATH/log}"
export LOCAL_MOUNT_PATH OUTPUT_PATH LOCAL_LOG_PATH
export EXPECT_NODES="${PADDLE_TRAINERS_NUM:-1}"
exec "${PYTHON:-python3}" -u -m paddle.distributed.launch --log_dir "$LOCAL_LOG_PATH" \
    "$LOCAL_MOUNT_PATH/train_with_fleet.py" "$@"
