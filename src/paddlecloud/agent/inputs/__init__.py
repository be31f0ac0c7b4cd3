"""Fetches what a replica needs before it starts: snapshots and blobs, cached by content.

From the server or by presigned URLs, resumable; unpacked snapshots are shared read-only trees.
"""
