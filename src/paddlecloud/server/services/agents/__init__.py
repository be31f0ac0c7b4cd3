"""The server's side of the agent protocol: orders that agents poll, reports that they send.

Every order and report carries a fence, so that a message of an earlier attempt changes nothing.
HTTP is in `routes/agent.py`; what an agent does with an order is in `paddlecloud.agent`.
"""
