#!/bin/sh
# One node. No --master, --nnodes or --rank: the launcher takes them from PADDLE_TRAINER_ENDPOINTS,
# PADDLE_TRAINER_ID and POD_IP. It copies the log of the first process of its node to stdout;
# all logs go to LOCAL_LOG_PATH. NPROC processes per node: submit with --env NPROC=2.
set -e
: "${LOCAL_MOUNT_PATH:=$PWD}"
: "${OUTPUT_PATH:=$PWD/output}"
: "${LOCAL_LOG_PATH:=$OUTPUT_PATH/log}"
export LOCAL_MOUNT_PATH OUTPUT_PATH LOCAL_LOG_PATH
export EXPECT_TRAINERS=$((${PADDLE_TRAINERS_NUM:-1} * ${NPROC:-1}))
exec "${PYTHON:-python3}" -u -m paddle.distributed.launch --nproc_per_node "${NPROC:-1}" \
    --log_dir "$LOCAL_LOG_PATH" "$LOCAL_MOUNT_PATH/train.py" "$@"
