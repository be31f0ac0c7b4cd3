#!/bin/sh
# Started by the platform in a private copy of this directory.
set -e
echo "rank $PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM, job $JOB_ID"
# exec: the platform's SIGTERM then reaches python itself, and its exit code is the job's.
exec python3 -u train.py "$@"
