"""Rules about who may run what where: `admission`, `pool`, `quota`, `priority`.

Which waiting job starts next is decided in `scheduler`.
"""
