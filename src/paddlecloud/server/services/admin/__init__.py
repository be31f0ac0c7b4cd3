"""For admins: health checks of the installation, overview of pools and jobs,
garbage collection; `backup` and `restore`, which run beside the server.

Users, keys and plans are `services/accounts`.
"""
