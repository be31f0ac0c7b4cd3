"""Starts the client from the directory of `paddlecloud_stable.tar.gz`, where it is lib/run.py.

Any Python may start it, so it is written for those too that are too old for the client.
"""

# ruff: noqa: I002, UP032

import os
import sys

NEEDED = (3, 11)

if __name__ == "__main__":
    if sys.version_info < NEEDED:
        sys.exit(
            "paddlecloud needs Python 3.11 or newer, and {} is {}.{}; set PADDLECLOUD_PYTHON to "
            "the path of a newer one".format(
                sys.executable, sys.version_info[0], sys.version_info[1]
            )
        )
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 8 ms
    os.environ.setdefault("PADDLECLOUD_INSTALLED", os.path.dirname(here))  # noqa: PTH120 - as above
    sys.argv[0] = "paddlecloud"

    from paddlecloud.cli.main import main

    sys.exit(main())
