"""Routes of the HTTP interface, one module per noun.

A module declares path, permission and schemas of its routes in `ROUTES` and calls services;
`server/route_table.py` joins them. Authentication, decoding and errors are in `server/http`.
"""
