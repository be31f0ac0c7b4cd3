"""The transfer engine: how client and agent send and fetch large files.

Entry points: `parts.PartSender` sends one file in parts to a `parts.Target`; `resume.resume` is the
loop above it. `presigned` speaks to buckets by presigned URLs, `workers` and `slots` bound threads
and memory. What is sent where, and what a server stores, is decided by client, agent and server.
"""
