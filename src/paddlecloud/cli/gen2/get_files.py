"""`get_files`: the files of a job, listed or downloaded (`get_fils` in the old documents)."""

from __future__ import annotations

from paddlecloud.cli.gen2.query_job import wanted_job
from paddlecloud.cli.options import BOOL, JOB_ID, TEXT, Command, Option
from paddlecloud.cli.render import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.options import Args


def run(args: Args, context: Context) -> int:
    job_id = wanted_job(args)
    if args["download"]:
        from paddlecloud.client.files import check_download_dir  # noqa: PLC0415 - downloads only

        check_download_dir(args["download_dir"])
    rows = context.client.get_files(job_id, args["prefix"])
    if not rows:
        context.out.say("no_files", prefix=args["prefix"] or f"output/{job_id}")
    if args["download"] and rows:
        _download(args, context, job_id, rows)
    if context.out.json:
        context.out.value({"job_id": job_id, "files": rows})
    elif not args["download"]:
        for row in rows:
            context.out.line(f"{row['path']}\t{row['size']}\t{row['time']}")
    # A script that goes on with the download directory would find none.
    return 1 if args["download"] and not rows else 0


def _download(args: Args, context: Context, job_id: str, rows: list[dict[str, Any]]) -> None:
    from paddlecloud.client import fetching  # noqa: PLC0415 - listing needs none of it

    out = context.out
    bar = out.progress(out.text("downloading"), sum(row["size"] for row in rows))
    try:
        total = fetching.download(
            context.client.transport,
            f"/jobs/{job_id}/files",
            rows,
            args["download_dir"],
            bar.add if bar else None,
        )
    finally:
        if bar:
            bar.done()
    count = sum(1 for row in rows if not row["path"].endswith("/"))
    out.say("downloaded", count=count, size=size(total), directory=args["download_dir"])


_HELP = (
    "List the files of a job, or download them into a new directory.",
    "查看任务的文件，或下载到一个新目录。",
)
_OPTIONS = (
    JOB_ID,
    Option(
        "prefix", TEXT,
        (
            "only files below this path; / means all, the submitted ones too "
            "(default: output/<job_id>)",
            "只包含该前缀下的文件；/ 表示全部文件，包括提交的文件（默认 output/<job_id>）",
        ),
        metavar="PATH",
    ),
    Option("download", BOOL, ("1: download them", "是否下载，0(否)/1(是)"), metavar="0|1"),
    Option(
        "download_dir", TEXT, ("a directory that does not exist yet", "下载到的目录，要求不存在"),
        default="output", metavar="DIRECTORY", completes="directory",
    ),
)  # fmt: skip
_EXAMPLES = (
    "paddlecloud get_files --job_id=job-338745e5caa42a1537955e41d6f1ce33",
    "paddlecloud get_files --job_id=job-338745e5caa42a1537955e41d6f1ce33 --download=1"
    " --download_dir=result",
)

COMMANDS = tuple(
    Command(
        name,
        run,
        _HELP,
        operand="job_id",
        options=_OPTIONS,
        examples=_EXAMPLES,
        hidden=name == "get_fils",
    )
    for name in ("get_files", "get_fils")
)
