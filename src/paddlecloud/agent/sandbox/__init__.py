"""What a replica can see and use: directories, control groups, user ids, mounts, its root.

Each module wraps one mechanism of the kernel and finds out whether this machine has it. Which of
them a replica gets is decided in `agent/replica/start.py`.
"""
