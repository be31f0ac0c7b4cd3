"""`get_files`: the files of a job, listed or downloaded (`get_fils` in the old documents)."""

from __future__ import annotations

from paddlecloud.cli.gen2020.query_job import wanted_job
from paddlecloud.cli.job_status import report_waiting
from paddlecloud.cli.output import size, visible
from paddlecloud.cli.parser import BOOL, FLAG, JOB_ID, TEXT, Command, Option
from paddlecloud.model.errors import Conflict, Invalid, Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args
    from paddlecloud.client.download.engine import Result
    from paddlecloud.client.sdk import Listing

DIRECTORY = "output"


def run(args: Args, context: Context) -> int:
    job = wanted_job(args)
    _check_flags(args)
    args["download"] = args["download"] or args["resume"]
    args["prefix"] = args["prefix"] or None  # a variable of a shell that is not set
    if args["download"] and args["download_dir"] and not args["resume"]:
        from paddlecloud.client.download import staging  # noqa: PLC0415 - downloads only

        # Before anything is asked of the server.
        staging.check_download_dir(args["download_dir"], "", "")
    found = context.client.listing(job, args["prefix"], direct=bool(args["download"]))
    answer: dict[str, Any] = {"job_id": found.job_id, "files": found.files}
    done = None
    if not found.files:
        prefix = args["prefix"] or f"output/{found.job_id}"
        # A prefix such as `log` is not a path of the listing.
        is_whole = prefix == "/" or prefix.startswith(f"output/{found.job_id}")
        code = "no_files" if is_whole else "no_files_there"
        context.out.say(code, prefix=visible(prefix), job_id=found.job_id)
    elif args["download"] and not _has_not_begun(context, found):
        done = _download(args, context, found)
    if args["download"]:
        answer |= _download_values(args, found, done)
    if context.out.json:
        context.out.value(answer)
    elif not args["download"]:
        for row in found.files:
            # As in the documents of 2020; the target of a link comes last, so that the first word
            # of a row stays a path.
            target = f"\t-> {visible(row['link'])}" if row.get("link") else ""
            context.out.line(f"{visible(row['path'])}\t{row['size']}\t{row['time']}{target}")
    # A script that goes on with the download directory would miss something.
    complete = not args["download"] or (done is not None and not done.problems)
    return 0 if complete else 1


def _check_flags(args: Args) -> None:
    """A flag that counts for nothing is a mistake."""
    if args["download_dir"] is not None and args["download"] is None and not args["resume"]:
        raise Invalid("flag_needs_flag", flag="--download_dir", other="--download=1")
    if args["resume"] and args["download"] is False:
        raise Invalid("flag_needs_flag", flag="--resume", other="--download=1")


def _has_not_begun(context: Context, found: Listing) -> bool:
    """Whether the job waits, which is printed: an empty directory could be taken for a result."""
    if any(not row["path"].endswith("/") for row in found.files):
        return False
    return report_waiting(context.client.query_job(found.job_id, diff=False), context.out)


def _download(args: Args, context: Context, found: Listing) -> Result:
    from paddlecloud.client.download import engine, staging  # noqa: PLC0415 - as above

    out, client, resume = context.out, context.client, args["resume"]
    target = engine.target_of(client, found, args["download_dir"], resume=resume)
    directory = target.directory
    try:
        with out.progress("downloading", sum(row["size"] for row in found.files)) as bar:
            how = {"resume": resume, "progress": bar.add, "skipped": bar.skip}
            done = engine.download_job(client, found, target, **how)
    except (Retry, Conflict, KeyboardInterrupt):
        if staging.is_resumable(directory):
            out.say("download_kept")
        raise
    code, total = "downloaded_one" if done.files == 1 else "downloaded", done.bytes + done.kept
    out.say(code, count=done.files, size=size(total), directory=directory)
    # What was submitted does not change any more.
    has_outputs = any(row["path"].startswith(f"output/{found.job_id}/") for row in found.files)
    if found.is_early and has_outputs:
        out.say("download_early", job_id=found.job_id, state=out.error_state(found.state))
    if found.left_behind:
        out.message(found.left_behind)
    for complaint in done.errors():
        out.error(complaint.text(out.lang))
    return done


def _download_values(args: Args, found: Listing, done: Result | None) -> dict[str, Any]:
    """The `--json` keys of a download, also of one without any file."""
    import os  # noqa: PLC0415 - downloads only

    return {
        "job_status": found.state,
        "download_dir": os.path.abspath(args["download_dir"] or DIRECTORY),  # noqa: PTH100 - no pathlib
        "bytes": done.bytes if done else 0,
        "kept": done.kept if done else 0,
        "complaints": done.problems if done else {},
        "left_behind": found.left_behind,
    }


_HELP = (
    "List the files of a job, or download them into a new directory.",
    "查看任务的文件，或下载到一个新目录。",
)
_OPTIONS = (
    JOB_ID,
    Option(
        "prefix", TEXT,
        (
            "only this file, or what is in this directory, or else paths that begin like this; / "
            "means all, with the submitted files (default: output/<job_id>)",
            "只包含该文件或该目录下的文件，都不存在时包含路径以此开头的文件；"
            "/ 表示全部文件，包括提交的文件（默认：output/<job_id>）",
        ),
        metavar="PATH",
    ),
    Option(
        "download", BOOL, ("1 downloads the files, 0 lists them", "1 下载，0 只列出"),
        metavar="0|1",
    ),
    Option(
        "download_dir", TEXT, ("a directory that does not exist yet", "下载到的目录，要求不存在"),
        shown_default="output/<job_id>", metavar="DIRECTORY", completes="directory",
    ),
    Option(
        "resume", FLAG,
        (
            "continue an earlier download into this directory; what has arrived is not sent again",
            "继续此前到该目录的下载，已有的内容不再传输",
        ),
    ),
)  # fmt: skip
_EXAMPLES = (
    "paddlecloud get_files --job_id=job-338745e5caa42a1537955e41d6f1ce33",
    "paddlecloud get_files last --download=1",
    "paddlecloud get_files --job_id=job-338745e5caa42a1537955e41d6f1ce33 --download=1"
    " --download_dir=result",
    "paddlecloud get_files --job_id=job-338745e5caa42a1537955e41d6f1ce33 --download=1"
    " --download_dir=result --resume",
)

COMMANDS = tuple(
    Command(name, run, _HELP, operand="job_id", options=_OPTIONS, examples=_EXAMPLES)
    for name in ("get_files", "get_fils")
)
