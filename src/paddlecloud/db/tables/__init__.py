"""SQL, one module per table or group of tables: functions that take a transaction.

Rows come in and go out as values of `model`. A write names the version that it is based on and
fails if the row has changed. Connections are in `db/engine`.
"""
