"""Commands about one's own account: token, quota, notifications.

One module per command group; `cli/registry.py` loads it when the command is typed.
Commands for administrators are in `cli/admin`.
"""
