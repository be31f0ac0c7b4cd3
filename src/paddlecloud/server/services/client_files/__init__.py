"""The client that this server gives out to its users: a wheel, an archive, an install script.

`packages` builds them from the files of the running server, so both have the same version. The
other files here are parts of what is given out: install.sh is scripts/install.sh too.
"""
