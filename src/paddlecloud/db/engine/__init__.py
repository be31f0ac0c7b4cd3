"""Connections and transactions: SQLite for one server, PostgreSQL for several.

`base` has the protocols `Database` and `Tx`; `columns` converts values; `notify` wakes other
servers; `sqlite` and `postgres` are the engines. SQL of tables is in `db/tables`.
"""
