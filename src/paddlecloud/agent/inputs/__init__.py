"""Fetches the submitted files of a replica before it starts, and caches them on this machine.

Entry points: `cache.InputCache` has snapshot lists and blobs, `snapshot_tree.SnapshotTrees` the
shared read-only trees of large snapshots. Blobs come from the server or by presigned URLs, and
broken downloads are resumed. The replica's own directories are created by `agent/sandbox`.
"""
