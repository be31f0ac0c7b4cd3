"""Sends the output files of replicas to the server, while they run and at their end.

Entry point: `shipper.Shippers`. `scan` finds the files and `sent_files` knows what the server has;
what cannot be sent is kept for some days (`unsent`). Logs are sent by `agent/server_link`.
"""
