"""The SDK: finds a server or starts the embedded one, sends signed requests, returns values.

Entry points: `sdk.Client` (public as `paddlecloud.Client`), `submit.submit`, `rerun.rerun`,
`exec`, and `local_server` for the embedded server. Standard library only. Printing, exit codes and
languages are the business of `cli`.
"""
