"""Everything that can be done here, knowing nothing of HTTP."""
