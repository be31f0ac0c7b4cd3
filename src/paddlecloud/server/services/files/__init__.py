"""Files of jobs: submitted snapshots and blobs, outputs, listing, reading, garbage collection.

Entry points: `snapshots`, `outputs`, `job_files`, `download_urls`, `storage_usage`, `retention` and
`verify` (offline check). Uploads in parts are `services/transfer`, buckets of users
`services/user_buckets`.
"""
