"""The configuration of a client: flags, environment variables and client.conf.

`resolve` answers which value holds and where it came from; `ini_file` reads and writes client.conf;
`template` is the text of a new one.
Nothing else in the client reads the environment.
"""
