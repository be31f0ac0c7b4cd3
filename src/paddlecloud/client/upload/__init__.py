"""Sends the blobs that a server does not have yet, before a job is submitted.

Entry point: `blobs.upload`. Small files go in one pack stream, large ones in parts: through the
server, by presigned URLs to its store, or into the user's own bucket. What to send is decided by
`client/scan`; downloads are in `client/download`.
"""
