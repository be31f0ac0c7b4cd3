"""Commands for administrators, one module per noun: user, token, job, pool, audit, gc,
backup, verify.

`cli/registry.py` loads a module when its command is typed. The server checks the caller's role.
"""
