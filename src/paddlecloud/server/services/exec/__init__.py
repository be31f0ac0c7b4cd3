"""Commands that a user runs next to a replica (`exec`): their life and their output.

The agent starts them (`paddlecloud.agent.exec`); HTTP is in `routes/exec.py`.
"""
