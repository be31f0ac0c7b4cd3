"""Connections and transactions: SQLite with one writer, PostgreSQL with several servers.

`base` has the two protocols that everything else uses; `migrate` brings a database up to date;
`notify` wakes other servers. SQL of tables is in `db/tables`.
"""
