"""Speed and memory, measured against a bare interpreter in the same run. `make bench`."""
