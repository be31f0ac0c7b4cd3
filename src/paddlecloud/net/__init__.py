"""The HTTP layer of client, agent, stores, server and backends.

`connection_pool` keeps connections to servers, `http1` is one connection, `_sockets` the socket
below it, `tls` its encryption; `proxy` decides which requests go through a proxy, `retry` what is
repeated; `endpoint` signs requests; `websocket` and `tunnel_end` are an end of a tunnel. Own code,
because the standard library's takes longer to import than most commands take to run.
"""
