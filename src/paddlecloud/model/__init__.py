"""Pure values and rules: no I/O, no clock.

`errors` is the error tree, `units` parses sizes and durations. Folders: `jobs` (what a job is),
`policy` (who may run what), `diagnosis` (why a job ended or waits), `files`, `logs` and `protocol`.
Storing and running jobs is the business of `db` and `server`.
"""
