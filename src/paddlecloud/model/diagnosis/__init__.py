"""Why a job ended or waits, as codes and values: exit status, first failure, advice.

Sentences for these codes are in `paddlecloud.messages`.
"""
