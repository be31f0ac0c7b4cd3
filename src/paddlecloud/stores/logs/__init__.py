"""Logs of jobs: `log_store` appends bytes at offsets and reads them by offset, tail or time.

Logs are plain files of the directory store. Merging and searching logs is in `model/logs` and the
server.
"""
