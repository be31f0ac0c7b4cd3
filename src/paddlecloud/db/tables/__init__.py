"""SQL, one module per table or subject: plain functions that take a `Tx`.

Rows are converted to values of `model`. `jobs`, `attempts` and `orders` are about jobs; `usage` is
running time and storage. An update of a job names the version that it is based on. Connections are
in `db/engine`.
"""
