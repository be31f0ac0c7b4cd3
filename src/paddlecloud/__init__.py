"""PaddleCloud: one command takes a directory of training code to a finished run.

The public face is `Client`, `Job` and `errors`. They are looked up on first use, because the
command line and the agent import this package too and must not pay for the SDK.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud import errors
    from paddlecloud.client.sdk import Client, Job

__all__ = ["Client", "Job", "__version__", "errors"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in ("Client", "Job", "errors"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only scripts that use the SDK pay for it

    if name == "errors":
        return import_module("paddlecloud.errors")
    return getattr(import_module("paddlecloud.client.sdk"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
