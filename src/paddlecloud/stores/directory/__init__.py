"""The directory store: one file per path on this machine or a shared file system.

`store` implements the protocol; `safe_open` opens paths without following links; `filelock` is a
lock between servers that share a directory. The object store is `stores/s3`.
"""
