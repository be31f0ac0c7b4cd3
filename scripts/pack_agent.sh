#!/bin/sh
# Packs the agent into one file (default: dist/paddlecloud-agent.pyz) that any Python 3.11 or newer
# runs on a machine where nothing of ours is installed.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
target=${1:-$top/dist/paddlecloud-agent.pyz}
python=$(sh "$top/scripts/find-python.sh")
mkdir -p "$(dirname "$target")"
"$python" "$top/scripts/pack_agent.py" "$target"
