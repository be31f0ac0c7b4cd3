"""The store that keeps blobs as files in a directory of this machine.

`store` is the face; `safe_open` opens paths without following links out of it. An object store
with the same face is `stores/s3`.
"""
