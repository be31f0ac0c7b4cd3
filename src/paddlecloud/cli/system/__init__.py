"""The commands that look after the platform itself, one file each."""
