#!/bin/sh
# One process of the job: TRAINING_ROLE is TRAINER or PSERVER.
set -e
: "${LOCAL_MOUNT_PATH:=$PWD}"
: "${OUTPUT_PATH:=$PWD/output}"
export LOCAL_MOUNT_PATH OUTPUT_PATH
exec "${PYTHON:-python3}" -u "$LOCAL_MOUNT_PATH/train.py" "$@"
