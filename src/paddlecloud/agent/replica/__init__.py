"""The life of one replica on this machine: start, observe, stop, clean up.

Everything about a replica is in its directory as JSON records, so a restarted agent continues
where the last one ended. The processes themselves are the business of `agent/supervisor`.
"""
