"""What the server does, one folder per subject: jobs, placement, agents, files, logs and others.

Routes and loops call services; services call the database, stores and backends through `Deps`.
Paths, permissions and JSON schemas of the HTTP interface are in `server/routes` and
`server/schemas`.
"""
