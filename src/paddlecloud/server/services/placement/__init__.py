"""Places jobs on pools: builds the scheduler's view, applies its decisions, starts and releases.

The decision itself is made by `paddlecloud.scheduler`, which does no I/O. Also here: allocation of
ports and GPUs to replicas, elastic resizing, and which pools keep users apart.
"""
