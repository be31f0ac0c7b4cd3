"""The lifecycle of a replica on this machine: start, inspect, stop, clean up.

Entry points: `lifecycle.Lifecycle` applies orders and records, `start.Starters` starts replicas,
`cleanup.Cleanup` deletes them. Everything about a replica is in its directory as JSON records
(`records`), so a restarted agent continues where the last one ended. The processes themselves are
the business of `agent/supervisor`, their sandbox that of `agent/sandbox`.
"""
