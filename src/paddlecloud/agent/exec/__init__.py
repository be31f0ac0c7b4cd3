"""Runs commands next to a replica (`exec`): in its view, with its limits, output spooled."""
