"""The agent: runs replicas on its machine and sends their logs and files to the server.

Entry point: `python -m paddlecloud.agent --config agent.json`; `_agent.py` wires the parts and
shows the path of one replica. It uses the standard library only and packs into one file
(`scripts/pack_agent.sh`). The server decides what runs where; the agent applies orders.
"""
