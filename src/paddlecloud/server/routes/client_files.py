"""The client that this server gives out: install script, archive and wheel, with checksums."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from paddlecloud.model.errors import NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_long_thread
from paddlecloud.server.http.routing import BYTES, Access, Call, Router
from paddlecloud.server.services.client_files import packages

_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+")
router = Router()


@router.get(
    "/install.sh",
    "Script that installs the client of this server: curl URL/install.sh | sh",
    access=Access.OPEN,
    media="text/x-shellscript",
)
async def install_script(deps: Deps, call: Call, request: Request) -> Response:
    return await _file(deps, call, request, packages.SCRIPT, "text/x-shellscript")


@router.get(
    "/paddlecloud_stable.tar.gz",
    "The client, ready to run, with the address of this server",
    access=Access.OPEN,
    media="application/gzip",
)
async def archive(deps: Deps, call: Call, request: Request) -> Response:
    return await _file(deps, call, request, packages.ARCHIVE, "application/gzip")


@router.get(
    "/paddlecloud-{version}-py3-none-any.whl",
    "The client as a wheel; only the version of this server",
    access=Access.OPEN,
    media=BYTES,
)
async def wheel(deps: Deps, call: Call, request: Request) -> Response:
    name = f"paddlecloud-{call.path['version']}-py3-none-any.whl"
    return await _file(deps, call, request, name, BYTES)


@router.get(
    "/{name}.sha256",
    "Checksum of one of these files, as sha256sum prints it",
    access=Access.OPEN,
    media="text/plain",
)
async def checksum(deps: Deps, call: Call, request: Request) -> Response:
    return await _file(deps, call, request, f"{call.path['name']}.sha256", "text/plain")


async def _file(deps: Deps, call: Call, request: Request, name: str, media: str) -> Response:
    # A script with this text runs on the machine of the caller, whose Host header was checked for
    # its name only.
    host = call.headers.get("host", "")
    url = deps.settings.http.public_url.rstrip("/") or f"{request.url.scheme}://{host}"
    is_valid = deps.settings.http.public_url or _HOST.fullmatch(host)
    data = await in_long_thread(packages.content, name, url) if is_valid else None
    if data is None:
        raise NotFound("route_unknown", method="GET", path=request.scope["path"][:200])
    return Response(data, media_type=media)
