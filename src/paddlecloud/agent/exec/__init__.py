"""Runs commands of users next to a replica (`paddlecloud exec`).

Entry points: `commands.Commands`, a part of the agent, and `runner.run`, the process that the
zygote forks for each command. A command sees what the replica sees and has its limits; its output
is spooled on disk until the server has it. Whether a user may run one is decided by the server.
"""
