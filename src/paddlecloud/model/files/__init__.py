"""Rules about files: snapshots, paths that are allowed, layout of outputs, bucket URLs."""
