"""Talks to a server: finds it, signs, sends, and hands back values. Standard library only.

`paddlecloud.Client` (sdk.py) is the public face; the command line is its first user.
"""
