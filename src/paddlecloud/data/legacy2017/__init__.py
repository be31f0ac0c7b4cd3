"""Functions of the 2017 generation: `convert`, `split`, `cluster_files_reader`, data sets."""
