"""Files of jobs: snapshots and blobs that come in, outputs that agents ship, what is kept.

Listing and reading a job's files, direct download locations, storage accounting, deletion of what
is not referenced any more, and verification of the store. Sending in parts is `services/transfer`.
"""
