"""Readers that lease data tasks from the server, so that an elastic job reads all data once.

`reader.task_reader` is the entry point; `_http` sends the requests. The server side is
`server/services/data_tasks`.
"""
