"""The agent's connection to the server: long poll for orders, reports, failover.

`channel` makes signed requests and finds a server that answers; everything is idempotent, because
a request whose response was lost is sent again. What an order does is `agent/replica`.
"""
