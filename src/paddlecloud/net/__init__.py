"""The HTTP layer of client, agent, stores, server and backends.

`connection_pool` keeps connections to servers, `http1` is one connection, `_sockets` the socket
below it, `proxy` decides which requests go through a proxy, `retry` what is repeated and when;
`endpoint` signs requests to a PaddleCloud server.
 Own code, because the standard library's takes longer to
import than most commands take to run. Routes and responses are the business of the callers.
"""
