"""JSON schemas of presigned URLs and multipart uploads."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from paddlecloud.model.files.etag import MOST_PARTS
from paddlecloud.server.schemas.agent import ListingQuery, ReplicaQuery
from paddlecloud.server.schemas.base import MAX_KEY, Answer, Epoch, Natural, Request

ContentRow = tuple[str, int, str, str]
"""Digest, size, presigned URL to GET it from ("": none), tag ("": the digest is its sha256)."""

PrivateRow = tuple[str, Natural, str]
"""Path, size and tag of a file in a user's own bucket."""

Upload = Annotated[str, Meta(max_length=1024)]

Path = Annotated[str, Meta(max_length=4096)]


class ContentsRequest(Request, frozen=True, kw_only=True):
    sha256: str
    """The blob that is wanted next."""


class ContentsAnswer(Answer, frozen=True, kw_only=True):
    contents: list[ContentRow]
    """That one and those behind it in the list of the job's files."""


class ContentQuery(ReplicaQuery, frozen=True, kw_only=True):
    offset: Natural = 0
    """The bytes before it are not sent."""


class OutputPartsRequest(Request, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, le=2**53)]
    mtime: Epoch | None = None
    allocated: Natural | None = None
    """How many bytes the file takes on the agent's disk, where it has holes."""


class OutputParts(Answer, frozen=True, kw_only=True):
    upload: str
    """Empty: this file has to be sent through the server."""
    part_size: int
    addresses: list[str]
    """Presigned URLs to PUT each part to; none where all of them go through the server."""
    parts: list[tuple[int, str]]
    """Number and tag of each part that is there already, of an upload that was interrupted. Without
    a tag: the server verifies the digest of the whole at the end."""
    tag: str = ""
    """Of the file, if an earlier completion gave it its name; then there are no addresses."""
    sha256: str = ""
    """The same for a store that has no tags."""
    through: bool = False
    """The server takes the parts itself, where there are no addresses or they cannot be reached."""


class OutputPartQuery(ListingQuery, frozen=True, kw_only=True):
    upload: Upload
    number: Annotated[int, Meta(ge=1, le=MOST_PARTS)]


class JoinRequest(Request, frozen=True, kw_only=True):
    upload: Upload
    size: Natural
    sha256: Annotated[str, Meta(max_length=64)] = ""
    """Of the file; needed where its parts came through the server and there are no tags."""


class JoinAnswer(Answer, frozen=True, kw_only=True):
    size: int
    stored: bool = True
    """False: the digest is still being verified, call again."""


class PrivateFilesAnswer(Answer, frozen=True, kw_only=True):
    files: list[PrivateRow]


class WithKeys(Request, frozen=True, kw_only=True):
    """A directory in a bucket, and the keys for it."""

    bos_url: Annotated[str, Meta(max_length=1024)]
    bos_access_key: Annotated[str, Meta(max_length=MAX_KEY)]
    bos_secret_key: Annotated[str, Meta(max_length=MAX_KEY)]
    bos_session_token: Annotated[str, Meta(max_length=MAX_KEY)] = ""


class PrivateAddressesRequest(WithKeys, frozen=True, kw_only=True):
    paths: Annotated[list[str], Meta(max_length=1000)]


class PrivateAddressesAnswer(Answer, frozen=True, kw_only=True):
    addresses: list[str]
    """Presigned URLs to PUT each file to."""


class PrivateUploadRequest(WithKeys, frozen=True, kw_only=True):
    path: Path
    size: Annotated[int, Meta(ge=1, le=2**53)]


class PrivateUpload(Answer, frozen=True, kw_only=True):
    upload: str
    parts: list[tuple[int, str]]
    """Number and tag of each part that the bucket has, of an upload that was interrupted."""
    tag: str
    """Of the file of this size that is there under this name; empty: there is none."""
    part_size: int
    """Of each part of this upload but the last one."""


class PrivatePartsRequest(WithKeys, frozen=True, kw_only=True):
    path: Path
    upload: Upload
    numbers: Annotated[list[Annotated[int, Meta(ge=1, le=MOST_PARTS)]], Meta(max_length=1000)]


class PrivateJoinRequest(WithKeys, frozen=True, kw_only=True):
    path: Path
    upload: Upload
    size: Natural
    tags: Annotated[list[Annotated[str, Meta(max_length=128)]], Meta(max_length=MOST_PARTS)]
    """Of all parts, in their order: other parts are not joined."""


Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class PartsRequest(Request, frozen=True, kw_only=True):
    sha256: Digest
    size: Annotated[int, Meta(ge=1, le=2**53)]
    direct: bool = False
    """Whether the caller can send parts to presigned URLs of the store."""
    allocated: Natural | None = None
    """How many bytes the file takes on the caller's disk, where it has holes."""
    handed: Annotated[str, Meta(pattern=r"^([0-9a-f]{24})?\Z")] = ""
    """The name of a directory of this server into which the file was copied."""


class PlaceRequest(Request, frozen=True, kw_only=True):
    pass


class PlaceAnswer(Answer, frozen=True, kw_only=True):
    name: str = ""
    path: str = ""
    """A directory of this machine into which big files may be copied, each under its sha256. Only
    the embedded server has one."""


class PartsAnswer(Answer, frozen=True, kw_only=True):
    stored: bool
    """There is nothing to send."""
    part_size: Natural = 0
    """Bytes of every part but the last."""
    parts: list[int] = field(default_factory=list)
    """Numbers of the parts that are there; the first part is 1."""
    urls: list[tuple[int, str]] = field(default_factory=list)
    """Presigned URLs to PUT the next missing parts to, if not to the server."""


class PartAnswer(Answer, frozen=True, kw_only=True):
    number: int


class FinishRequest(Request, frozen=True, kw_only=True):
    pass


class FinishAnswer(Answer, frozen=True, kw_only=True):
    stored: bool
    """False: the digest is still being verified, call again."""
