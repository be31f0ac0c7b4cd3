"""The command line: flags in, one call to the client, lines out.

Nothing below this package knows which words a person typed. A command is a value in one table of
options, from which parsing, `--help`, the completion scripts and the reference are all made.
"""
