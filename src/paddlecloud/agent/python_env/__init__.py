"""Python environments for `--requirements`, installed once per content and cached.

Entry point: `cache.Environments`. `_install` runs one installation under the limits of a replica,
with uv (`_uv`) or pip. Which packages a job asks for, and how long an install may take, is in its
order.
"""
