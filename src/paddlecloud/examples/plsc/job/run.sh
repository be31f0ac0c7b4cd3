#!/bin/sh
# Started by the platform in the job's directory, once for each trainer.
# The settings of train.py can be given after "sh run.sh": sh run.sh --passes 5 --shard 0
set -e
: "${LOCAL_MOUNT_PATH:=$PWD}"
: "${OUTPUT_PATH:=$PWD/output}"
export LOCAL_MOUNT_PATH OUTPUT_PATH
PY=${PYTHON:-python3}

if ! "$PY" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("paddle") is None)'; then
    echo "PaddlePaddle is not installed in the Python of this job ($(command -v "$PY" || echo "no $PY"))." >&2
    echo "Install it and submit again from the same shell: $PY -m pip install paddlepaddle" >&2
    exec "$PY" -c 'import paddle'
fi

# exec: the platform's SIGTERM then reaches python itself, and its exit code is the job's.
exec "$PY" -u "$LOCAL_MOUNT_PATH/train.py" "$@"
