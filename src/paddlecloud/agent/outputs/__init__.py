"""Ships outputs of a replica to the server while it runs and at its end.

Entry point: `shipper.Shipper`. `scan` finds what changed, `send` and `multipart` send it; what
cannot be sent is kept for days in `unsent`. Logs are sent by `agent/server_link`.
"""
