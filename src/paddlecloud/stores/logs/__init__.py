"""Append-only logs of replicas, in files, with an index of their times."""
