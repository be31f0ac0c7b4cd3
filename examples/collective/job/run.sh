#!/bin/sh
# One trainer; the platform starts it once for each, with the variables that tell them apart.
set -e
: "${LOCAL_MOUNT_PATH:=$PWD}"
: "${OUTPUT_PATH:=$PWD/output}"
export LOCAL_MOUNT_PATH OUTPUT_PATH
# exec: the platform's SIGTERM then reaches python itself, and its exit code is the job's.
exec "${PYTHON:-python3}" -u "$LOCAL_MOUNT_PATH/train.py" "$@"
