"""The agent: runs replicas on its machine and brings their logs and files to the server.

Standard library only; packs into one file (`pack.py`). Start it with
`python -m paddlecloud.runtime --config agent.json`.
"""
