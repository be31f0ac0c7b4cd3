"""What a job is: `job` has the values, `states` the table of states, `params` that of parameters.

`spec_codec` converts a submit request to a `JobSpec`; `environment`, `gang`, `elastic`,
`retry_policy` and `data_tasks` are rules about running it. Why it ended is in `model/diagnosis`.
"""
