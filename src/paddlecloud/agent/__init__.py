"""The agent: runs replicas on its machine and sends their logs and files to the server.

Entry point: `python -m paddlecloud.agent --config agent.json`; `agent.py` wires the parts and shows
the path of one replica. Standard library only; packs into one file (`scripts/pack_agent.sh`). What
runs where is decided by the server; the agent applies orders and reports facts.
"""
