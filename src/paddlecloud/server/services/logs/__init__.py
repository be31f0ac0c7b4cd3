"""Reads logs of jobs: ranges, following, merging by time, searching.

Entry points: `follow.stream` for a request, `read.grew` for new bytes. Log bytes are stored by
`stores/logs`; agents deliver them through `services/agents`.
"""
