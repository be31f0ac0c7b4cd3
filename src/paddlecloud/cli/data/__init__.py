"""The `data` commands over RecordIO files: ls, head, stat, verify, repair, convert, split.

Thin wrappers around `paddlecloud.data`, which needs no server and no configuration.
"""
