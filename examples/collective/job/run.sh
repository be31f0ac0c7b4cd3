#!/bin/sh
# Runs once per trainer; environment variables give each its rank.
set -e
: "${LOCAL_MOUNT_PATH:=$PWD}"
: "${OUTPUT_PATH:=$PWD/output}"
export LOCAL_MOUNT_PATH OUTPUT_PATH
# exec: the platform's SIGTERM then reaches python itself, and its exit code is the job's.
exec "${PYTHON:-python3}" -u "$LOCAL_MOUNT_PATH/train.py" "$@"
