"""Jobs whose files live in a bucket of their user (`public_bos=0`).

Opening the bucket with the user's keys, uploads into it, copying logs into it, and cleaning up
what interrupted uploads left. The platform's own store is `services/files`.
"""
