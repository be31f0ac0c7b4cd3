"""Users, their tokens, quota plans, the audit log, and the accounts of an embedded server.

`gen_token` sends tokens by mail; `quota` computes what a user may still use. Permissions of a
request are decided in `server/http/permissions.py`.
"""
