"""Decides which waiting job starts where next: values in (`view`), decisions out (`planner`).

Pure: no database, no network, no clock. Reading the input and carrying out the decisions is
`server/services/placement`; the loop that calls both is `server/loops/schedule`.
"""
