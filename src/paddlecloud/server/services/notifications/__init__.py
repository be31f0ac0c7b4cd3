"""Mails and webhooks about jobs: who wants which, and how they are sent.

They are written to the outbox in the transaction that caused them; `loops/outbox.py` sends them.
"""
