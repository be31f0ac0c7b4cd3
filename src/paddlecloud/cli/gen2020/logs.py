"""`logs`: what a job wrote. Of one worker the bytes exactly as it wrote them, of several their
lines in the order of time, each with its worker."""

from __future__ import annotations

from paddlecloud.cli.gen2020.query_job import wanted_job
from paddlecloud.cli.job_status import report_waiting
from paddlecloud.cli.parser import FLAG, JOB_ID, NUMBER, TEXT, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def run(args: Args, context: Context) -> int:
    job_id = wanted_job(args)
    if context.out.json:
        job_id = context.client.resolve(job_id)
    if args["follow"]:
        job = context.client.query_job(job_id, diff=False)
        job_id = job.id
        report_waiting(job, context.out)
    chunks = context.client.logs(
        job_id,
        worker=args["worker"],
        follow=args["follow"],
        tail=args["lines"],
        attempt=args["attempt"],
        since=args["since"],
        merge=args["merge"] or None,
        failed=args["failed"],
        grep=args["grep"],
        timestamps=args["timestamps"],
    )
    size = 0
    if context.out.json:
        data = b"".join(chunks)
        size = len(data)
        log = data.decode("utf-8", "replace")
        context.out.value({"job_id": job_id, "worker": _worker(args, context, job_id), "log": log})
    else:
        for chunk in chunks:
            context.out.raw(chunk)
            size += len(chunk)
    if not size and not args["follow"]:
        report_waiting(context.client.query_job(job_id, diff=False), context.out)
    return 0


def _worker(args: Args, context: Context, job_id: str) -> str | None:
    """Whose log was printed; None: those of several, or of the one that failed."""
    if args["worker"] or args["merge"] or args["failed"]:
        return str(args["worker"]) if args["worker"] else None
    job = context.client.query_job(job_id, diff=False)
    return None if len(job.view.get("workers", ())) > 1 else "trainer-0"


COMMANDS = (
    Command(
        "logs",
        run,
        (
            "Print what a job wrote to stdout and stderr: all of it, unless -n limits it. Lines of "
            "several workers are in the order of time, each with its worker.",
            "显示任务的标准输出和标准错误：默认全部显示，-n 限制行数。多个实例的日志按时间合并，"
            "每行注明实例。",
        ),
        operand="job_id",
        options=(
            JOB_ID,
            Option(
                "worker", TEXT, ("only this worker, as it wrote", "只看此实例，原样输出"),
                short="w", metavar="NAME",
            ),
            Option(
                "follow", FLAG, ("keep printing until the job ends", "持续输出直到任务结束"),
                short="f",
            ),
            Option(
                "lines", NUMBER,
                ("only the last N lines of each worker", "只显示每个实例的最后 N 行"),
                short="n", metavar="N",
            ),
            Option(
                "since", TEXT,
                (
                    "only lines since then: 10m (ago), 14:00 or 2026-01-31 14:00",
                    "只显示此后的日志：如 10m（10 分钟前）、14:00、2026-01-31 14:00",
                ),
                metavar="TIME",
            ),
            Option(
                "timestamps", FLAG,
                ("show when each line was written", "显示每行写出的时间"),
            ),
            Option(
                "merge", FLAG,
                (
                    "the lines of all workers, the default for several",
                    "按时间合并所有实例的日志（有多个实例时默认如此）",
                ),
            ),
            Option(
                "failed", FLAG,
                ("only the worker that failed first", "查看导致失败的实例的日志"),
            ),
            Option(
                "grep", TEXT,
                ("only lines that match a regular expression", "只显示匹配正则表达式的行"),
                metavar="PATTERN",
            ),
            Option(
                "attempt", NUMBER, ("the log of this attempt", "查看第几次尝试的日志"), metavar="N",
            ),
        ),
        examples=(
            "paddlecloud logs last -f",
            "paddlecloud logs 338745e5 -n 20 -w trainer-0",
            "paddlecloud logs last --timestamps --since 10m",
            'paddlecloud logs last --grep "loss: [0-9.]+"',
        ),
    ),
)  # fmt: skip
