"""Readers that get their data tasks from the server, so that elastic jobs read all data once."""
