"""What a person who typed an unknown command or flag probably meant.

Names that other programs use for the same thing (kubectl, docker, Slurm, Ray, SkyPilot, dstack) are
looked up in tables; otherwise the spelling decides. Without a clear winner there is no suggestion.
"""

from __future__ import annotations

from paddlecloud.cli import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddlecloud.cli.parser import Option

#: Commands by their names in other programs; of two words where one is not clear enough.
_COMMANDS = {
    "list_jobs": (
        "jobs", "list", "ls", "ps", "queue", "squeue", "sacct", "qstat", "bjobs", "history",
        "get jobs", "get job", "get pods", "job list", "job ls", "jobs list", "jobs queue",
    ),
    "query_job": (
        "query", "job", "describe", "show", "info", "inspect", "scontrol", "status", "state",
        "stat", "job status", "job show", "job describe", "describe job",
    ),
    "submit_job": (
        "submit", "run", "launch", "apply", "create", "train", "sbatch", "srun", "qsub", "bsub",
        "job submit", "job run", "jobs launch", "create job",
    ),
    "kill_job": (
        "kill", "stop", "cancel", "terminate", "abort", "end", "scancel", "qdel", "bkill",
        "job stop", "job kill", "job cancel", "jobs cancel", "stop_job", "cancel_job", "end_job",
    ),
    "delete_job": ("rm", "delete", "remove", "del", "job delete", "job rm", "delete job"),
    "logs": ("log", "tail", "attach", "follow", "watch", "stdout", "job logs", "get logs"),
    "get_files": (
        "download", "cp", "scp", "rsync", "pull", "fetch", "files", "results", "artifacts",
        "outputs", "get files", "download_files",
    ),
    "rerun": ("retry", "resubmit", "requeue", "restart", "repeat", "clone"),
    "exec": ("ssh", "shell", "bash", "sh", "enter"),
    "top": ("htop", "stats", "metrics", "usage", "monitor", "nvidia-smi", "sstat"),
    "diff": ("compare",),
    "plsc": ("demo", "example", "examples"),
    "gen_token": ("login", "signin", "auth", "auth login", "register"),
    "token list": ("keys", "tokens"),
    "quota": ("limits", "quotas", "plan"),
    "doctor": ("check", "ping", "health", "diagnose"),
    "config show": ("settings", "conf", "config view", "config list", "config get"),
    "server run": ("serve",),
    "server start": ("start server", "daemon"),
    "server stop": ("stop server", "shutdown"),
    "server status": ("status server",),
    "admin pool list": ("sinfo", "pools"),
    "admin machine list": ("nodes", "machines", "get nodes"),
    "admin user list": ("users",),
    "help": ("man",),
    "help all": ("commands",),
}  # fmt: skip
#: Of these, what is meant where no job follows; nothing where it could be several things.
_ALONE = {
    "job": "list_jobs", "status": "list_jobs", "state": "list_jobs", "stat": "list_jobs",
    "restart": None,
}  # fmt: skip
#: Words within a group of commands, the likeliest first.
_VERBS = {
    "add": ("create",), "new": ("create",), "make": ("create",), "gen": ("create",),
    "ls": ("list", "ls"), "get": ("show", "list"), "describe": ("show",),
    "info": ("show", "status"), "view": ("show",), "print": ("show",), "rm": ("delete", "revoke"),
    "remove": ("delete", "revoke"), "delete": ("revoke",), "del": ("delete", "revoke"),
    "update": ("set",), "edit": ("set",), "change": ("set",), "up": ("start",), "down": ("stop",),
    "kill": ("stop",), "stop": ("kill",), "cancel": ("kill",), "log": ("logs",),
    "fix": ("repair",), "check": ("verify",), "cat": ("head",), "block": ("disable",),
    "serve": ("run",),
}  # fmt: skip
#: Flags by their names in other programs.
_FLAGS = {
    "files": (
        "dir", "directory", "path", "folder", "workdir", "working_dir", "code", "src", "source",
        "upload", "context",
    ),
    "start_cmd": ("cmd", "command", "run", "script", "entrypoint", "entry", "wrap", "exec"),
    "job_name": ("name", "jobname"),
    "job_id": ("id", "job", "jobid", "job_ids"),
    "wall_time": ("timeout", "time", "time_limit", "walltime", "max_time", "max_duration"),
    "cpu": ("cpus", "ncpus", "vcpu", "vcpus", "num_cpus", "cpus_per_task", "c"),
    "memory": ("mem", "ram", "mem_per_node", "m"),
    "gpu": ("gpus", "gres", "num_gpus", "ngpus", "gpus_per_node", "g"),
    "instance_count": (
        "nodes", "num_nodes", "nnodes", "replicas", "instances", "workers", "num_workers",
        "parallelism", "ntasks", "nproc", "count", "trainers", "num_trainers",
    ),
    "watch_mode": ("watch", "follow", "wait", "attach", "tail", "f", "w"),
    "cluster": ("pool", "queue", "partition", "backend", "p"),
    "env": ("environment", "envs", "e", "export", "set_env"),
    "max_retries": ("retry", "retries", "max_restarts", "restart"),
    "requirements": ("pip", "packages", "deps", "dependencies", "r"),
    "priority": ("prio", "qos", "nice"),
    "description": ("desc", "comment", "note", "message"),
    "job_type": ("type", "device"),
    "download_dir": (
        "output", "output_dir", "out", "o", "dest", "target", "dir", "directory", "to",
    ),
    "worker": ("rank", "replica", "container", "pod", "c", "instance"),
    "lines": ("tail", "last", "limit"),
    "limit": ("count", "number", "max", "lines", "head", "tail"),
    "since": ("after", "from", "since_time"),
    "grep": ("filter", "search", "match", "pattern"),
    "attempt": ("previous", "try"),
    "merge": ("all", "all_containers", "all_workers"),
    "state": ("status", "s"),
    "name": ("job_name", "jobname"),
    "user": ("owner", "u", "username", "user_id"),
    "all": ("a", "everything"),
    "follow": ("watch", "tail_f"),
    "once": ("one", "no_follow"),
    "json": ("output", "format", "o"),
    "email": ("mail", "address"),
    "help": ("usage", "?"),
    "config": ("conf", "config_file", "settings"),
}  # fmt: skip


def command(words: Sequence[str], group: str) -> str | None:
    """The command that these words were meant to be; `group` is the part of them that exists."""
    ours = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    typed = [word.lower() for word in words[:ours]]
    if group:
        return _in_group(group, typed[len(group.split()) :])
    if not typed:
        return None
    if len(words) == 1 and typed[0] in _ALONE:
        return _ALONE[typed[0]]
    for asked in (" ".join(typed[:2]), typed[0]):
        found = next((name for name, others in _COMMANDS.items() if asked in others), None)
        if found is not None:
            return found
    if typed[0].startswith("job-"):
        return f"query_job {words[0]}"
    known = ["help"] + [name for _, table in registry.SECTIONS for name, _, _ in table]
    known += [name for name in registry.GROUPS if " " not in name]
    scores = {name: _score(typed, name) for name in known}
    # A command that explains a second word too is better than its group.
    return _clearest({n: s and s - len(n.split()) / 10 for n, s in scores.items()})


def flag(spelling: str, options: Sequence[Option]) -> str | None:
    """The option that `spelling` was meant to be, as the person should write it."""
    typed = _plain(spelling)
    for option in options:
        if typed in _FLAGS.get(option.name, ()):
            return f"-{option.short}" if option.short else option.flag
    scores: dict[str, float | None] = {}
    for option in options:
        near = [_distance(typed, _plain(name)) for name in option.spellings if len(name) > 2]
        scores[option.flag] = min((score for score in near if score is not None), default=None)
    return _clearest(scores)


def _in_group(group: str, typed: Sequence[str]) -> str | None:
    known = registry.within(group)
    for verb in _VERBS.get(typed[0] if typed else "", ()):
        if verb in known:
            return f"{group} {verb}"
    found = _clearest({name: _distance(_plain(typed[0]), name) for name in known} if typed else {})
    return found and f"{group} {found}"


def _score(typed: Sequence[str], name: str) -> float | None:
    """How far the typed words are from a command: word by word, or written as one word."""
    parts = name.split()
    as_one = _distance(_plain(typed[0]).replace("_", ""), name.replace("_", "").replace(" ", ""))
    if len(typed) < len(parts):
        return as_one
    each = [_distance(_plain(word), part) for word, part in zip(typed, parts, strict=False)]
    by_word = None if None in each else sum(score or 0 for score in each)
    return min((score for score in (as_one, by_word) if score is not None), default=None)


def _clearest(scores: dict[str, float | None]) -> str | None:
    """The name with the lowest score, unless another one is as near."""
    near = sorted((score, name) for name, score in scores.items() if score is not None)
    if not near or (len(near) > 1 and near[0][0] == near[1][0]):
        return None
    return near[0][1]


def _plain(word: str) -> str:
    return word.strip("-").lower().replace("-", "_")


def _distance(typed: str, known: str) -> float | None:
    """Letters to add, drop, replace or swap; None if there are too many of them for a slip of the
    finger. The beginning of a name counts less than one letter."""
    if len(typed) >= 3 and known.startswith(typed):
        return 0.5 if typed != known else 0
    allowed = 0 if len(typed) < 3 else 1 if len(typed) < 6 else 2
    if abs(len(typed) - len(known)) > allowed:
        return None
    before: list[int] = []
    row = list(range(len(known) + 1))
    for at, letter in enumerate(typed, 1):
        before, last = row, before
        row = [at]
        for place, other in enumerate(known, 1):
            best = min(row[-1] + 1, before[place] + 1, before[place - 1] + (letter != other))
            if last and place > 1 and typed[at - 2] == other and letter == known[place - 2]:
                best = min(best, last[place - 2] + 1)
            row.append(best)
    return row[-1] if row[-1] <= allowed else None
