"""Uploads in several parts: from clients (blobs) and from agents (outputs), resumable.

Through the server or by presigned URLs of the store. Uploads into a user's own bucket are in
`services/user_buckets`.
"""
