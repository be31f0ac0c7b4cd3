"""Multipart uploads of S3: initiate, put parts in any order, list, complete, abort.

The server keeps the parts and their list, so an upload survives its sender.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from paddlecloud.model.errors import NotFound, Retry
from paddlecloud.stores.base import Part
from paddlecloud.stores.s3._client import Answer, Body, Request, S3Client
from paddlecloud.stores.s3._errors import OUTAGE_TRIES, TRIES, document

Query = tuple[tuple[str, str], ...]
_UPLOAD = re.compile(r"[\w.~+=-]{1,1024}")


def begin(client: S3Client, key: str, headers: Mapping[str, str]) -> str:
    query = (("uploads", ""),)
    answer = client.ask(Request(method="POST", key=key, query=query, headers=headers))
    found = answer.xml("InitiateMultipartUploadResult").findtext("UploadId")
    if not found:
        raise Retry("store_failed", place=client.place, detail="a response without UploadId")
    return found


def put(client: S3Client, key: str, upload: str, number: int, data: Body) -> Part:
    return _put(client, upload, number, _part(key, upload, number, data))


def put_with_retries(
    client: S3Client, key: str, upload: str, number: int, data: Body, *, wanted: Callable[[], bool]
) -> Part:
    """The same, retried through an outage of half a minute, while the part is wanted."""
    request = _part(key, upload, number, data)
    return _put(client, upload, number, replace(request, tries=OUTAGE_TRIES, wanted=wanted))


def part_query(upload: str, number: int) -> Query:
    return (("partNumber", str(number)), ("uploadId", upload))


def listed(client: S3Client, key: str, upload: str) -> list[Part]:
    """The parts that are there, by number."""
    found: dict[int, Part] = {}
    for item in _rows(client, key, upload):
        number = int(item.findtext("PartNumber") or 0)
        size, tag = int(item.findtext("Size") or 0), item.findtext("ETag") or ""
        # SeaweedFS names a part that was sent twice two times.
        found[number] = Part(number=number, size=size, tag=tag)
    return [found[number] for number in sorted(found)]


def finish(client: S3Client, key: str, upload: str, parts: Sequence[Part]) -> None:
    """Complete an upload; NotFound when there is no such upload (any more)."""
    rows = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><ETag>{escape(part.tag)}</ETag></Part>"
        for part in parts
    )
    body = f"<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>".encode()
    query = (("uploadId", upload),)
    request = Request(method="POST", key=key, query=query, body=body, tries=OUTAGE_TRIES, slow=True)
    body_received = b""
    for number in range(TRIES):
        if number:
            client.pause(number)
        answer = _ask(client, upload, request)
        body_received = answer.body
        # A server that fails after it has started its response reports the error with status 200.
        if document(body_received, "Error") is None:
            answer.xml("CompleteMultipartUploadResult")
            return
    detail = body_received.decode("utf-8", "replace")[:300]
    raise Retry("store_failed", place=client.place, detail=detail)


def drop(client: S3Client, key: str, upload: str) -> None:
    """Abort an upload. Idempotent."""
    try:
        client.ask(Request(method="DELETE", key=key, query=(("uploadId", upload),)))
    except NotFound:
        return


def drop_old(client: S3Client, prefix: str, before: datetime) -> int:
    """Drop every upload below `prefix` that began before and got no part since; how many."""
    found = listed_uploads(client, prefix)
    old = [(names, upload) for names, upload, began in found if began < before]
    idle = [each for each in old if not _goes_on(client, *each, before)]
    for names, upload in idle:
        for name in names:
            drop(client, name, upload)
    return len(idle)


def listed_uploads(client: S3Client, prefix: str) -> Iterator[tuple[set[str], str, datetime]]:
    """The open uploads below `prefix`: the possible keys of its file, its id, when it began."""
    marks: Query = ()
    while True:
        query: Query = (("uploads", ""), ("prefix", prefix), ("max-uploads", "1000"), *marks)
        answer = client.ask(Request(method="GET", query=(*query, ("encoding-type", "url"))))
        if document(answer.body, "ListBucketResult") is not None:
            # An object store that ignores `uploads` cannot list any.
            return
        top = answer.xml("ListMultipartUploadsResult")
        quoted = top.findtext("EncodingType") == "url"
        for item in top.iter("Upload"):
            began = datetime.fromisoformat(item.findtext("Initiated") or "")
            name = item.findtext("Key") or ""
            # SeaweedFS declares that names are quoted, and quotes none. By the wrong one of the two
            # names no server knows the upload.
            names = {name, unquote_plus(name)} if quoted else {name}
            yield names, item.findtext("UploadId") or "", began
        mark = top.findtext("NextKeyMarker") or ""
        following = (
            ("key-marker", unquote_plus(mark) if quoted else mark),
            ("upload-id-marker", top.findtext("NextUploadIdMarker") or ""),
        )
        if top.findtext("IsTruncated") != "true" or following == marks:
            return
        marks = following


def _goes_on(client: S3Client, names: Iterable[str], upload: str, since: datetime) -> bool:
    times = [item.findtext("LastModified") for item in _rows_of_any(client, names, upload)]
    return any(datetime.fromisoformat(time) >= since for time in times if time)


def _rows_of_any(client: S3Client, names: Iterable[str], upload: str) -> Iterator[Element]:
    for name in names:
        with suppress(NotFound):
            yield from _rows(client, name, upload)


def _rows(client: S3Client, key: str, upload: str) -> Iterator[Element]:
    """The rows of the list of parts, page by page."""
    after = ""
    while True:
        query: Query = (("uploadId", upload), ("max-parts", "1000"))
        if after:
            query += (("part-number-marker", after),)
        answer = _ask(client, upload, Request(method="GET", key=key, query=query))
        top = answer.xml("ListPartsResult")
        yield from top.iter("Part")
        following = top.findtext("NextPartNumberMarker") or ""
        if top.findtext("IsTruncated") != "true" or following in ("", after):
            return
        after = following


def _part(key: str, upload: str, number: int, data: Body) -> Request:
    return Request(method="PUT", key=key, query=part_query(upload, number), body=data, part=True)


def _put(client: S3Client, upload: str, number: int, request: Request) -> Part:
    answer = _ask(client, upload, request)
    return Part(number=number, size=len(request.body), tag=answer.headers.get("etag", ""))


def _ask(client: S3Client, upload: str, request: Request) -> Answer:
    try:
        if _UPLOAD.fullmatch(upload):
            return client.ask(request)
    except NotFound:
        pass
    raise NotFound("upload_missing", upload=upload[:100])
