"""Starts the client from the directory of `paddlecloud_stable.tar.gz`, where it is lib/run.py.

It is started by any Python, so it must also be readable for one that is too old for the client.
"""

from __future__ import annotations

import os
import sys

NEEDED = (3, 11)

if __name__ == "__main__":
    if sys.version_info < NEEDED:
        sys.exit(
            "paddlecloud needs Python %d.%d or newer, and %s is %d.%d; set PADDLECLOUD_PYTHON to "  # noqa: UP031 - see above
            "the path of a newer one" % (*NEEDED, sys.executable, *sys.version_info[:2])
        )
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 8 ms
    os.environ.setdefault("PADDLECLOUD_INSTALLED", os.path.dirname(here))  # noqa: PTH120 - as above
    sys.argv[0] = "paddlecloud"

    from paddlecloud.cli.main import main

    sys.exit(main())
