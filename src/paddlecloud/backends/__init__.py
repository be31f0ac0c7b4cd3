"""Places that run jobs. A backend starts and stops agents; the agents do the rest.

`base` is the interface and finds a backend by its kind; each other module is one kind. Orders, logs
and results are not their business: they travel between agent and server.
"""
