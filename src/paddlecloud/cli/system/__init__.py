"""Commands about the platform itself: server, doctor, config, completion, version.

`cli/registry.py` loads a module when its command is typed. The embedded server itself is handled by
`client/local_server.py`.
"""
