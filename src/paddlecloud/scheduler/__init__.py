"""Decides which waiting job starts where next: values in (`view`), decisions out (`planner`),
in the order of priority, fair share (`_fair_queue`) and age. `quota_reason` explains a wait.

Pure: no database, no network, no clock. Reading the input and carrying out the decisions is
`server/services/placement`; the loop that calls both is `server/loops/schedule`.
"""
