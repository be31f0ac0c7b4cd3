"""Users, keys, quota plans, and what exists after the first start of a server.

`gen_token` hands out keys by mail; `quota` answers what a user may still use. Permissions of a
request are decided in `server/http/permissions.py`.
"""
