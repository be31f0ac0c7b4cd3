"""Samples CPU, memory and GPU use of running replicas, for `top` and for hang detection.

Entry point: `sampler.Sampler`, a part of the agent. It only measures: limits are enforced by
`agent/sandbox/cgroups`, and the server decides whether a job hangs.
"""
