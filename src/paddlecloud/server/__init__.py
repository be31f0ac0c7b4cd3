"""The platform process: HTTP in, services, loops. Start it with `python -m paddlecloud.server`."""
