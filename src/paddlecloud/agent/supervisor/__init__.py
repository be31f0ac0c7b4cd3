"""The processes around a user's command: the zygote, one supervisor per replica, the child.

Entry points: `zygote.Spawner` for the agent, `supervisor.run` for a forked supervisor. A supervisor
outlives the agent: it captures the log, enforces the wall time, and ends the whole process tree. It
imports as little as it can, because one runs beside every replica. What a replica may use and see
is set up by `agent/sandbox`; its records on disk are those of `agent/replica/records`.
"""
