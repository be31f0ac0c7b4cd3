"""Files of jobs: submitted snapshots and blobs, outputs, listing, reading.

Entry points: `snapshots`, `outputs`, `job_files`, `download_urls`, `storage_usage` and `verify`
(offline check). Uploads in parts are `services/transfer`, buckets of users `services/user_buckets`;
deleting what is unused is `services/admin/garbage_collection`.
"""
