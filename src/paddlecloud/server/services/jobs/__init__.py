"""Jobs: submit, query, kill, delete, detect hangs, settle their state, and their JSON views.

A state changes only through `model/jobs/states.py`. Choosing where a job runs is
`services/placement`; orders to agents and their reports are `services/agents`.
"""
