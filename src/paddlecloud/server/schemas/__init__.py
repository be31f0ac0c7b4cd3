"""JSON schemas of requests and responses, one module per noun, as msgspec structs.

Requests forbid unknown keys. The OpenAPI document is generated from these. They only describe
data: validation across fields is the business of `model` and `server/services`.
"""
