"""The one HTTP layer of client, agent, stores and backends: sockets, TLS, HTTP/1.1, retries.

Own code, because the standard library's takes longer to import than most commands take to run.
Nothing here knows PaddleCloud's routes or signatures.
"""
