"""The store that keeps blobs in a bucket: S3, BOS and what speaks the same protocol.

`store` is the face; `client` signs and sends requests (SigV4). Own code, because no library can
presign the parts of a multipart upload.
"""
