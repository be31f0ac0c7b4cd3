"""Routes of the HTTP interface, one module per noun.

A decorator declares path, permission and schemas of each function, which calls a service;
`server/route_table.py` joins them. Authentication, decoding and errors are in `server/http`.
"""
