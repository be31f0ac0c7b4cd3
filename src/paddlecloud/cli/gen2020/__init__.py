"""The job commands with the names of 2020, one module each: submit_job, query_job, get_files …

`cli/registry.py` loads a module when its command is typed; each has `COMMANDS` and a function that
calls the client and prints. Rules about jobs are in `model`, requests in `client`.
"""
