"""Samples CPU, memory and GPU use of running replicas for `top` and the usage reports."""
