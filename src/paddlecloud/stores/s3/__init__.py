"""The S3 store: a bucket of AWS, BOS, MinIO, SeaweedFS or another S3-compatible server.

`store` implements the protocol, `sigv4` signs; `_client` sends requests with retries. Own code,
because no library has a parts API and can presign the parts of a multipart upload.
"""
