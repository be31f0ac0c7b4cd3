#!/bin/sh
# The client of PaddleCloud. It needs Python 3.11 or newer: python3, or what PADDLECLOUD_PYTHON names.
python=python3
self=$0
[ ! -L "$self" ] || self=$(readlink -f "$self")
case $self in */*) ;; *) self=./$self ;; esac
exec "${PADDLECLOUD_PYTHON:-$python}" -s "${self%/*}/lib/run.py" "$@"
