"""Views for admins: health checks of the installation, overview of pools and jobs.

Users, keys and plans are `services/accounts`; garbage collection is `services/files`.
"""
