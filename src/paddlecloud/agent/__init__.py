"""The agent: runs replicas on its machine and brings their logs and files to the server.

Standard library only; packs into one file (`scripts/pack_agent.sh`). Start it with
`python -m paddlecloud.agent --config agent.json`.
"""
