#!/bin/sh
# One node of the job. What used to be --cluster_node_ips, --node_ip and --started_port is in the
# environment now; on a machine with cards the launcher starts one process for each of them.
set -e
: "${LOCAL_MOUNT_PATH:=$PWD}"
: "${OUTPUT_PATH:=$PWD/output}"
: "${LOCAL_LOG_PATH:=$OUTPUT_PATH/log}"
export LOCAL_MOUNT_PATH OUTPUT_PATH LOCAL_LOG_PATH
export EXPECT_NODES="${PADDLE_TRAINERS_NUM:-1}"
exec "${PYTHON:-python3}" -u -m paddle.distributed.launch --log_dir "$LOCAL_LOG_PATH" \
    "$LOCAL_MOUNT_PATH/train_with_fleet.py" "$@"
