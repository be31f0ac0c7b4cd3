"""Reads a directory that is to be submitted and lists its files with their digests.

Entry point: `walk.scan`. It applies .gitignore rules, resolves symbolic links, re-uses digests of
unchanged files, and collects notices (ignored files, secrets). Sends nothing: that is
`client/upload`.
"""
