"""Reads logs of jobs: ranges, following, merging by time, searching.

Log bytes are stored by `stores/logs`; agents deliver them through `services/agents`.
"""
