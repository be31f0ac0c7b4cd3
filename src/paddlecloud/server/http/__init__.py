"""The HTTP side of the server: application, routing, authentication, limits, TLS.

`app` builds the ASGI application from the route table; `routing` has the types that routes use;
`request_body` reads and limits bodies; `auth`, `permissions` and `origin_check` decide who may
call. Routes are in `server/routes`, JSON schemas in `server/schemas`; no business rule is here.
"""
