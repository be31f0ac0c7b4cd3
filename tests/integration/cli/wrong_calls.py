"""The table of wrong calls: what is typed, how it ends, and what the one sentence has to name.

`<job>` stands for a directory with a program in it, `<done>` for the id of a finished job, `<here>`
for the working directory with its collection of unfit files and configurations.
"""

from __future__ import annotations

from dataclasses import dataclass

USAGE, FAILED = 2, 1
UNKNOWN_JOB = "job-" + "0" * 32


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """One call. `names` stand in the sentence in every language, `advice` in the English one."""

    call: tuple[str, ...]
    names: tuple[str, ...]
    advice: str
    code: int = USAGE

    @property
    def title(self) -> str:
        return " ".join(word if len(word) < 60 else word[:57] + "..." for word in self.call)


def submit(*words: str) -> tuple[str, ...]:
    """A submit that would be right without these words."""
    return ("submit_job", "--files=<job>", "--start_cmd=sh run.sh", *words)


def usage(*call: str, names: tuple[str, ...], advice: str) -> Wrong:
    return Wrong(call=call, names=names, advice=advice)


def failed(*call: str, names: tuple[str, ...], advice: str) -> Wrong:
    return Wrong(call=call, names=names, advice=advice, code=FAILED)


def parameter(flag: str, value: str, advice: str, *more: str) -> Wrong:
    """A submit with one wrong value, which the sentence repeats beside the parameter's name."""
    return usage(*submit(f"--{flag}={value}", *more), names=(flag, value), advice=advice)


SUBMIT = (
    usage("submit_job", names=("start_cmd",), advice="--start_cmd="),
    usage("submit_job", "--files=<job>", names=("start_cmd",), advice="--start_cmd="),
    usage("submit_job", "--files=<job>", "--start_cmd=", names=("start_cmd",), advice="give it"),
    usage("submit_job", "--files=<job>", "--start_cmd=  ", names=("start_cmd",), advice="give it"),
    usage("submit_job", "--files=<job>", "--start_cmd", names=("--start_cmd",), advice="a value"),
    usage(
        "submit_job", "--files=<job>", "--start_cmd", "--cpu=1",
        names=("--start_cmd",), advice="a value",
    ),
    usage(
        "submit_job", "--files=<job>", f"--start_cmd={'x' * 70_000}",
        names=("start_cmd", "70000", "65536"), advice="put it into a file",
    ),
    usage("submit_job", "--start_cmd=ls", names=("--files",), advice="--files=DIR"),
    usage("submit_job", "--start_cmd=ls", "--files=", names=("--files",), advice="--files=DIR"),
    usage(
        "submit_job", "--files=<job>", "--start_cmd=sh", "run.sh",
        names=("run.sh",), advice="quote values",
    ),
    usage(
        *submit("--start_cmd=other"), names=("--start_cmd",), advice="keep one",
    ),
    usage(
        "submit_job", "--files=<job>", "--file=<here>", "--start_cmd=ls",
        names=("--file",), advice="keep one",
    ),
    parameter("job_name", "", "1 to 128"),
    parameter("job_name", "a/b", "choose a plain name"),
    usage(*submit(f"--job_name={'x' * 129}"), names=("job_name", "129", "128"), advice="1 to 128"),
    usage(*submit("--job_name=a\nb"), names=("job_name", "a?b"), advice="choose a plain name"),
    parameter("cluster", "", "1 to 128"),
    parameter("public_bcc", "2", "0, 1"),
    parameter("public_bcc", "yes", "0, 1"),
    parameter("public_bos", "no", "0, 1"),
    usage(*submit("--public_bos="), names=("public_bos", '""'), advice="0, 1"),
    usage(*submit("--instance_count="), names=("instance_count", '""'), advice="whole number"),
    usage(*submit("--public_bos=0"), names=("public_bos", "--bos_url"), advice="--bos_url"),
    parameter("job_type", "tpu", "gpu, cpu"),
    parameter("instance_count", "two", "whole number"),
    parameter("instance_count", "1.5", "whole number"),
    parameter("instance_count", "0", "between 1 and 1024"),
    parameter("instance_count", "-1", "between 1 and 1024"),
    parameter("instance_count", "1025", "between 1 and 1024"),
    parameter("wall_time", "30", "hh:mm:ss"),
    parameter("wall_time", "00:61:00", "hh:mm:ss"),
    parameter("wall_time", "1h", "hh:mm:ss"),
    parameter("wall_time", "00:00:00", "00:00:01 to"),
    parameter("wall_time", "99999:00:00", "00:00:01 to"),
    parameter("bos_url", "http://bucket/dir", "{bucket}.{region}.bcebos.com", "--public_bos=0"),
    parameter("bos_url", "b.bj.bcebos.com/../x", "{bucket}.{region}", "--public_bos=0"),
    parameter("bos_url", "bucket.bj.bcebos.com/dir", "--public_bos=0"),
    parameter("watch_mode", "on", "0, 1"),
    parameter("cpu", "many", "must be a number"),
    parameter("cpu", "0", "between 0.01 and 1024"),
    parameter("cpu", "-2", "between 0.01 and 1024"),
    parameter("cpu", "5000", "between 0.01 and 1024"),
    parameter("cpu", "0.123", "two decimals"),
    parameter("cpu", "nan", "must be a number"),
    parameter("memory", "lots", "example 512Mi or 4G"),
    parameter("memory", "-1G", "example 512Mi or 4G"),
    parameter("memory", "4", "example 512Mi or 4G"),
    parameter("memory", "99999T", "example 512Mi or 4G"),
    parameter("gpu", "one", "whole number"),
    parameter("gpu", "65", "between 0 and 64"),
    usage(*submit("--gpu=1", "--job_type=cpu"), names=("gpu=1", "job_type=cpu"), advice="remove"),
    usage(*submit("--gpu=0", "--job_type=gpu"), names=("gpu=0", "job_type=gpu"), advice="remove"),
    parameter("distribute_job_type", "MPI", "PSERVER, NCCL2"),
    usage(
        *submit("--distribute_job_type=NCCL2"), names=("NCCL2", "--instance_count"), advice="set",
    ),
    usage(*submit("--env", "EPOCHS"), names=("env", "EPOCHS"), advice="NAME=VALUE"),
    usage(*submit("--env", "=1"), names=('""',), advice="letters, digits"),
    usage(*submit("--env", "1A=x"), names=("1A",), advice="letters, digits"),
    usage(*submit("--env", "MY-VAR=x"), names=("MY-VAR",), advice="letters, digits"),
    usage(*submit("--env", "PADDLE_TRAINER_ID=7"), names=("PADDLE_TRAINER_ID",), advice="another"),
    usage(*submit("--env", "PADDLECLOUD_X=7"), names=("PADDLECLOUD_X",), advice="another name"),
    usage(
        *submit("--env", f"BIG={'x' * 100_000}"), names=("BIG", "100000"), advice="into a file",
    ),
    usage(
        *submit(*(word for n in range(4) for word in ("--env", f"V{n}={'x' * 90_000}"))),
        names=("env", "256"), advice="into a file",
    ),
    usage(*submit(f"--description={'x' * 5000}"), names=("description", "5000"), advice="shorten"),
    parameter("max_retries", "101", "between 0 and 100"),
    parameter("max_retries", "-1", "between 0 and 100"),
    parameter("priority", "highest", "neither a class"),
    parameter("priority", "201", "from -100 to 200"),
    usage(*submit("--wal_time=00:10:00"), names=("--wal_time",), advice="--wall_time?"),
    usage(*submit("-cpu=2"), names=("-cpu",), advice="did you mean --cpu?"),
    usage(*submit("--startcmd", "ls"), names=("--startcmd",), advice="did you mean --start_cmd?"),
    usage(*submit("--zzzzqqq"), names=("--zzzzqqq",), advice="submit_job --help"),
    usage(*submit("--json=maybe"), names=("--json", "maybe"), advice="write --json alone"),
)  # fmt: skip

FILES = tuple(
    usage("submit_job", f"--files=<here>/{path}", "--start_cmd=ls", names=names, advice=advice)
    for path, names, advice in (
        ("none", ("none", "--files"), "directory that holds your code"),
        ("file.txt", ("file.txt", "--files"), "give the directory that holds it"),
        ("dangling", ("dangling", "--files"), "directory"),
        ("holds-itself", ("again",), "remove the link"),
        ("foreign-name", ("caf",), "rename it"),
        ("backslash", ("a\\b",), "rename it"),
    )
)

OTHERS = (
    usage("query_job", names=("--job_id",), advice="list_jobs"),
    usage("query_job", "--job_id=", names=("--job_id",), advice="list_jobs"),
    failed("query_job", "--job_id=17", names=("17",), advice="list_jobs"),
    failed("query_job", "job-0123", names=("job-0123",), advice="list_jobs"),
    failed("query_job", UNKNOWN_JOB.upper(), names=(UNKNOWN_JOB.upper(),), advice="list_jobs"),
    usage("query_job", "../../etc", names=("../../etc",), advice="4 hex digits"),
    usage("query_job", "<done>", "another", names=("another",), advice="query_job --help"),
    usage("query_job", "--jobid=<done>", names=("--jobid",), advice="did you mean --job_id?"),
    failed("query_job", UNKNOWN_JOB, names=(UNKNOWN_JOB,), advice="list_jobs"),
    usage("kill_job", names=("--job_id",), advice="list_jobs"),
    failed("kill_job", "job-x", names=("job-x",), advice="list_jobs"),
    failed("kill_job", UNKNOWN_JOB, names=(UNKNOWN_JOB,), advice="list_jobs"),
    failed("kill_job", "<done>", names=("<done>", "success"), advice="nothing to kill"),
    usage("logs", names=("--job_id",), advice="list_jobs"),
    failed("logs", "no_such_job", names=("no_such_job",), advice="list_jobs"),
    usage("logs", "<done>", "", names=('""',), advice="logs --help"),
    usage("logs", "<done>", "-n", "few", names=("-n", "few"), advice="whole number"),
    usage("logs", "<done>", "--lines=-3", names=("--lines", "-3"), advice="whole number"),
    usage("logs", "<done>", "--folow", names=("--folow",), advice="did you mean --follow?"),
    usage("logs", "<done>", "-w", "worker7", names=("worker7",), advice="trainer-0"),
    usage("logs", "<done>", "--worker=trainer-9", names=("trainer-9",), advice="trainer-0"),
    failed("logs", "<done>", "--attempt=7", names=("7", "1"), advice="attempt"),
    failed("logs", UNKNOWN_JOB, names=(UNKNOWN_JOB,), advice="list_jobs"),
    usage("get_files", names=("--job_id",), advice="list_jobs"),
    failed("get_files", "job-12", names=("job-12",), advice="list_jobs"),
    failed("get_files", UNKNOWN_JOB, names=(UNKNOWN_JOB,), advice="list_jobs"),
    usage("get_files", "<done>", "--download=2", names=("--download", "2"), advice="0 or 1"),
    usage("get_files", "<done>", "--download", names=("--download",), advice="a value"),
    usage(
        "get_files", "<done>", "--download=1", "--download_dir=<job>",
        names=("<job>",), advice="--download_dir",
    ),
    usage("list_jobs", "--state=runing", names=("--state", "runing"), advice="running"),
    usage("list_jobs", "--limit=0", names=("--limit", "0"), advice="--all"),
    usage("list_jobs", "--limit=", names=("--limit", '""'), advice="whole number"),
    usage("list_jobs", "--limit=ten", names=("--limit", "ten"), advice="whole number"),
    usage("list_jobs", "--limit=99999999999", names=("99999999999",), advice="--all"),
    usage("list_jobs", "running", names=("running",), advice="list_jobs --help"),
    usage("server", names=("server",), advice="start, run, check, stop, status, logs"),
    usage("server", "strat", names=("server strat",), advice="did you mean server start?"),
    usage("server", "start", "now", names=("now",), advice="server start --help"),
    usage("server", "stop", "--force", names=("--force",), advice="server stop --help"),
    usage("server", "status", "--jason", names=("--jason",), advice="did you mean --json?"),
    usage("server", "logs", "-n", "x", names=("-n", "x"), advice="whole number"),
    usage("config", names=("config",), advice="show"),
    usage("config", "shwo", names=("config shwo",), advice="did you mean config show?"),
    usage("config", "show", "--orign", names=("--orign",), advice="did you mean --origin?"),
    usage("admin", names=("admin",), advice="gc"),
    usage("admin", "gc", "--days=3", names=("--days",), advice="admin gc --help"),
    usage("completion", names=("bash",), advice="bash, zsh, fish, powershell"),
    usage("completion", "tcsh", names=("tcsh",), advice="bash, zsh, fish, powershell"),
    usage("doctor", "me", names=("me",), advice="doctor --help"),
    usage("version", "2", names=("2",), advice="version --help"),
    usage("help", "sumbit_job", names=("sumbit_job",), advice="did you mean submit_job?"),
    usage("sumbit_job", names=("sumbit_job",), advice="did you mean submit_job?"),
    usage("submit", names=("submit",), advice="did you mean submit_job?"),
    usage("frobnicate", names=("frobnicate",), advice="paddlecloud help all"),
    usage("", names=('""',), advice="paddlecloud help all"),
    usage("--jsno", "list_jobs", names=("--jsno",), advice="paddlecloud help all"),
)  # fmt: skip

CONFIGURATION = tuple(
    usage("query_job", UNKNOWN_JOB, f"--config=<here>/{name}", names=names, advice=advice)
    for name, names, advice in (
        ("none.conf", ("none.conf", "--config"), "does not exist"),
        ("empty", ("empty",), "cannot read"),
        ("no-section.conf", ("no-section.conf:1", "ak"), "put [main] above it"),
        ("no-equals.conf", ("no-equals.conf:2", "hello"), "key = value"),
        ("debug.conf", ("debug.conf:2", "maybe"), "0 or 1"),
        ("port.conf", ("port.conf:3", "99999"), "1 to 65535"),
        ("port-word.conf", ("port-word.conf:3", "http"), "1 to 65535"),
        ("host.conf", ("host.conf:2", "ftp://server"), "https://name"),
        ("scheme.conf", ("scheme.conf:3", "gopher"), "http or https"),
        ("sk-blank.conf", ("sk-blank.conf:3", "main.sk"), "paste it again"),
        ("ak-slash.conf", ("ak-slash.conf:2", "main.ak"), "paste it again"),
        ("latin1.conf", ("latin1.conf",), "save it as UTF-8"),
        ("huge.conf", ("huge.conf", "1048576"), "this is not a configuration"),
        ("no-keys.conf", ("server.example", "[main]"), "put yours into [main]"),
        ("no-sk.conf", ("server.example", "[main]"), "put yours into [main]"),
    )
)

REFUSED = (
    failed(
        *submit("--instance_count=2", "--memory=10Ti"), names=("10 TiB",), advice="use less",
    ),
    failed(
        *submit("--public_bos=0", "--bos_url=b.bj.bcebos.com/dir"),
        names=("b.bj.bcebos.com/dir", "[bos]", "client.conf"), advice="set ak and sk",
    ),
    failed(
        "submit_job", "--public_bos=0", "--bos_url=b.bj.bcebos.com/dir", "--start_cmd=ls",
        names=("b.bj.bcebos.com/dir", "[bos]", "client.conf"), advice="PADDLECLOUD_BOS_AK",
    ),
    failed(*submit("--cluster=cce"), names=("cce", "local"), advice="default, local"),
    failed(*submit("--cluster=bcc", "--public_bcc=0"), names=("bcc",), advice="default, local"),
    failed(*submit("--job_type=gpu"), names=("gpu", "local"), advice="cpu"),
    failed(*submit("--gpu=2"), names=("gpu", "local"), advice="cpu"),
    failed(*submit("--cpu=1000"), names=("1000", "--cpu"), advice="use less"),
    failed(*submit("--memory=10000G"), names=("--memory", "local"), advice="use less"),
)  # fmt: skip

EVERY = SUBMIT + FILES + OTHERS + CONFIGURATION + REFUSED
