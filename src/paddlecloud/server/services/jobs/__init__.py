"""Jobs: submitting, killing, deleting, settling their state, and how they are shown.

A state changes only through `model/jobs/states.py`. Choosing where a job runs is
`services/placement`; orders to agents and their reports are `services/agents`.
"""
