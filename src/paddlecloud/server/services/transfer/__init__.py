"""Multipart uploads of clients and agents, resumable by any server: one record, one life cycle.

`uploads.Upload` is what all kinds share; `blobs` (submitted files), `output_uploads` (files of
replicas) and `services/user_buckets/uploads` are the kinds. `open_uploads` keeps the records.
Presigned URLs of a job's inputs are in `agent_inputs`, pack streams of small files in
`services/files/snapshots`.
"""
