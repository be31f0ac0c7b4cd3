"""For admins: health checks of the installation, overview of pools and jobs; `backup` and
`restore`, which run beside the server.

Users, keys and plans are `services/accounts`; garbage collection is `services/files`.
"""
