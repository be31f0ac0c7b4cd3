"""Pure functions over log bytes: `frames` of a stream, `merge` by time, `tail`, `time_index`
(`index_format`).

Log files are in `stores/logs`; following and searching them is in `server/services/logs`.
"""
