"""Rules about files: `snapshot`, `path_rules`, `layout` of outputs, `bos_url`, `etag`.

Reading and writing files is the business of `stores`, `client` and `agent`.
"""
