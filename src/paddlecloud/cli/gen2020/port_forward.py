"""`port-forward`: ports of a worker on this machine, for notebooks and dashboards of a job."""

from __future__ import annotations

from paddlecloud.cli.output import INTERRUPTED
from paddlecloud.cli.parser import JOB_ID, LIST, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args
    from paddlecloud.model.errors import PaddleCloudError


def run(args: Args, context: Context) -> int:
    if not args["job_id"]:
        raise Invalid("job_id_missing")
    job_id, *ports = args["job_id"]
    shown: list[str] = []

    def complain(error: PaddleCloudError) -> None:
        """Each problem once: a browser tries again and again."""
        text = error.text(context.out.lang)
        if text not in shown:
            shown.append(text)
            context.out.error(f"paddlecloud: {text}")

    how = {"worker": args["worker"], "address": args["address"], "on_error": complain}
    with context.client.port_forward(job_id, ports, **how) as forward:
        for local, remote in forward.ports:
            values = {"local": local, "remote": remote, "worker": forward.worker}
            if context.out.json:
                context.out.value({"job_id": forward.job_id, "address": args["address"], **values})
            else:
                host = f"[{args['address']}]" if ":" in args["address"] else args["address"]
                context.out.line(f"http://{host}:{local} -> {forward.worker} {remote}")
        context.out.flush()
        context.out.say("port_forward_runs")
        try:
            while not forward.wait(3600.0):
                pass
        except KeyboardInterrupt:
            return INTERRUPTED
        return 1


COMMANDS = (
    Command(
        "port-forward",
        run,
        (
            "Open ports of a running worker on this machine, for Jupyter, VisualDL or TensorBoard "
            "in a job. LOCAL is the port here (0: any free one). Connections go through the "
            "server; Ctrl-C ends it.",
            "在本机打开运行中实例的端口，用于任务里的 Jupyter、VisualDL 或 TensorBoard。"
            "LOCAL 是本机端口（0 表示任选空闲端口）。连接经由服务器转发；按 Ctrl-C 结束。",
        ),
        operand="job_id",
        words="JOB [LOCAL:]REMOTE ...",
        options=(
            JOB_ID.but(kind=LIST),
            Option(
                "worker", TEXT, ("which worker (default: the first that runs)",
                "哪个实例（默认第一个运行中的）"),
                short="w", metavar="NAME",
            ),
            Option(
                "address", TEXT, ("address of this machine to listen on", "在本机的哪个地址监听"),
                default="127.0.0.1", metavar="IP",
            ),
        ),
        examples=(
            "paddlecloud port-forward last 8888",
            "paddlecloud port-forward 338745e5 18888:8888 "
            "--worker=trainer-1",
        ),
    ),
)  # fmt: skip
