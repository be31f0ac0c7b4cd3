"""The processes around a user's command: the zygote, one supervisor per replica, the child.

A supervisor outlives the agent: it captures the log, enforces the wall time, and ends the whole
process tree. It imports as little as it can, because one runs beside every replica.
"""
