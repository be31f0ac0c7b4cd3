"""What a server answers when all is well, for one job, and every way to spoil it."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

JOB = "job-" + "0123456789abcdef" * 2
OTHER = "job-" + "fedcba9876543210" * 2
AT = "2026-11-17T10:00:00+00:00"
MODEL = b"weights"
SHA256 = hashlib.sha256(MODEL).hexdigest()
PATH = f"output/{JOB}/rank-0/model"
USE = {"at": AT, "cpu": 0.5, "memory": 10, "gpu": 0.1, "gpu_memory": 5, "quiet": 0.0}
WORKER = {
    "name": "trainer-0", "state": "running", "node": "local", "pid": 7, "exit_code": None,
    "signal": None, "log_bytes": 3, "enforced": {"cpu": True}, "max_rss": 5, "cpu_seconds": 0.1,
    "usage": USE, "peak_memory": 5, "endpoint": "127.0.0.1:1", "cards": [0],
}  # fmt: skip
FAILURE = {"message": "it broke", "advice": "fix it", "worker": "trainer-0", "last_lines": ["oh"]}
VIEW = {
    "bos_url": "", "create_time": AT, "error_msg": "it broke", "finish_time": AT,
    "instance_count": 1, "instance_ids_list": ["7"], "job_id": JOB, "job_name": "a",
    "job_status": "failed", "job_type": "cpu", "kill_flag": 0, "public_bcc": 1, "public_bos": 1,
    "queue_reason": "", "start_cmd": "true", "start_time": AT, "wall_time": "", "owner": "ann",
    "number": 1, "version": 3, "description": "", "priority": "normal", "cluster": "default",
    "pool": "local", "exit_code": 1, "attempts": 1, "queue_position": None, "workers": [WORKER],
    "failure": FAILURE, "snapshot": f"sha256:{SHA256}", "resources": {"cpu": 1.0},
    "env": {"A": "1"}, "created_at": AT, "started_at": AT, "finished_at": AT, "advice": ["less"],
    "tasks": [], "git": {"commit": "c", "dirty": "1", "diff": "d"},
}  # fmt: skip
ROW = {key: VIEW[key] for key in ("job_id", "job_name", "job_status", "job_type", "create_time",
       "start_time", "finish_time", "queue_reason", "number", "error_msg")}  # fmt: skip
ROW |= {"age": 5, "duration": 2}
SPEC: dict[str, Any] = {"job_id": JOB, "spec": {"start_cmd": "true", "job_name": "a",
        "public_bos": 1, "bos_url": "", "env": {"A": "1"}, "git": {"dirty": "1"},
        "snapshot": f"sha256:{SHA256}",
        "directory": "d"}}  # fmt: skip
ENTRIES = [["bin", "dir", 0, "", 0, ""], ["bin/run", "file", 7, SHA256, 1, ""],
           ["latest", "link", 0, "", 0, "bin/run"]]  # fmt: skip
TOKEN = {"ak": "a", "user_id": "ann", "name": "", "scope": "full", "origin": "made",
         "created_at": AT, "last_used_at": None, "revoked_at": None}  # fmt: skip
NEW_TOKEN = {"ak": "a", "sk": "s", "user_id": "ann", "name": "", "scope": "full", "created_at": AT}
USER = {"user_id": "ann", "role": "user", "email": None, "plan": "free", "limits": {"cpu": 4},
        "lang": "en", "disabled": False, "disabled_at": None, "created_at": AT,
        "tokens": 1}  # fmt: skip
NODE = {"id": "n", "cpu": 2.0, "memory": 10, "gpu": 0, "used_cpu": 0.0, "used_memory": 0,
        "used_gpu": 0, "seen_at": AT, "enforces": {"cpu": True}}  # fmt: skip
POOL = {"name": "local", "backend": "local", "public": False, "preemption": False, "users": ["ann"],
        "job_types": ["cpu"], "nodes": [NODE], "note": "full"}  # fmt: skip
EVENT = {"number": 1, "at": AT, "actor": "ann", "source": "cli", "action": "x", "target": "y",
         "detail": {"a": 1}}  # fmt: skip
COMMAND = {"id": "c1", "job_id": JOB, "worker": "trainer-0", "argv": ["ls"], "created_at": AT,
           "ended_at": None, "exit_code": None, "cause": "", "message": ""}  # fmt: skip
QUOTA = {"user_id": "ann", "plan": "free", "own_limits": ["cpu"], "max_priority": "high",
         "limits": [{"name": "cpu", "used": 1, "limit": 4}], "minutes_left": 3.5, "renews": AT,
         "renews_at": AT}  # fmt: skip
NOTIFICATIONS = {"notifications": {"events": ["ended"], "known_events": ["ended"], "mail": True,
                 "email": "a@b.cn", "webhook": "", "webhook_off": "broken"},
                 "webhook_secret": None}  # fmt: skip

GROUP = {"role": "TRAINER", "count": 1, "cpu": 1.0, "memory": 0, "gpu": 0}
PLAN = {"job_type": "cpu", "pools": ["local"], "workers": [GROUP]}


def answers(url: str) -> dict[str, Any]:
    """By `METHOD /path` below the prefix; `url` is where addresses of a store lead."""
    row = {"path": PATH, "size": len(MODEL), "time": AT, "sha256": SHA256}
    files = {"job_id": JOB, "files": [row], "job_status": "failed", "left_behind": "none"}
    return {
        "GET /whoami": {"user_id": "ann", "ak": "a", "role": "user", "server": "s",
                        "version": "1", "time": AT},
        "GET /jobs": {"jobs": [ROW], "next": None},
        "POST /jobs": {"job": VIEW, "notes": ["runs as cpu"]},
        "POST /jobs/validate": {"has_files": False, "notes": ["runs as cpu"], "plan": PLAN},
        f"GET /jobs/{JOB}": VIEW,
        f"POST /jobs/{JOB}/kill": VIEW,
        f"POST /jobs/{JOB}/delete": {"job_id": JOB, "bytes": 5},
        f"GET /jobs/{JOB}/history": {"history": [
            {"at": AT, "event": "e", "before": "a", "after": "b", "reason": ""}]},
        f"GET /jobs/{JOB}/spec": SPEC,
        f"GET /jobs/{OTHER}/spec": {"job_id": OTHER, "spec": {**SPEC["spec"], "snapshot": None}},
        f"GET /jobs/{JOB}/snapshot": {"id": "s", "entries": ENTRIES, "time": AT, "tags": None},
        f"GET /jobs/{OTHER}/snapshot": {"id": None, "entries": [], "time": AT,
                                        "tags": {"a": "b"}},
        f"GET /jobs/{JOB}/files": {**files, "ways": {PATH: f"{url}/bucket/model"}},
        f"GET /jobs/{JOB}/usage": {"workers": [
            {"job_id": JOB, "job_name": "a", "worker": "trainer-0", "state": "running", "node": "n",
             "asked": {"cpu": 1.0, "memory": 5.0, "gpu": 1.0}, "usage": USE, "peak_memory": 5}]},
        f"POST /jobs/{JOB}/commands": COMMAND,
        f"GET /jobs/{JOB}/commands/c1": COMMAND,
        f"POST /jobs/{JOB}/commands/c1/stop": COMMAND,
        "POST /snapshots": {"id": "s", "missing": []},
        "POST /blobs": {"stored": 1},
        "POST /uploads": {"stored": False, "part_size": 4, "parts": [1],
                          "urls": [[2, f"{url}/bucket/part"]]},
        f"POST /uploads/{SHA256}/finish": {"stored": True},
        "POST /private/files": {"files": [["old", 3, "tag"]]},
        "POST /private/addresses": {"addresses": [f"{url}/bucket/data"]},
        "GET /tokens": {"tokens": [TOKEN]},
        "POST /tokens": NEW_TOKEN,
        "POST /tokens/a/revoke": TOKEN,
        "POST /gen_token": {"email": "a@b.cn"},
        "GET /doctor": {"checks": [{"name": "agent", "ok": True, "detail": "d"}]},
        "POST /admin/gc": {"jobs": 1, "bytes": 5},
        "GET /notifications": NOTIFICATIONS,
        "POST /notifications": NOTIFICATIONS,
        "POST /notifications/test": {"deliveries": [{"kind": "mail", "ok": True, "message": ""}]},
        "GET /quota": QUOTA,
        "GET /admin/users/ann/quota": QUOTA,
        "POST /admin/users/ann/quota": QUOTA,
        "GET /quota/history": {"user_id": "ann", "days": [
            {"date": "2026-11-17", "minutes": 1.0, "private_minutes": 0.0, "jobs": 2}]},
        "GET /admin/plans": {"plans": [{"name": "free", "default": True, "limits": {"cpu": 4},
                                        "max_priority": "high"}]},
        "GET /admin/users": {"users": [USER], "next": None},
        "GET /admin/users/ann": USER,
        "POST /admin/users": USER,
        "POST /admin/users/ann": USER,
        "POST /admin/users/ann/delete": {"user_id": "ann"},
        "POST /admin/users/ann/tokens": NEW_TOKEN,
        "GET /admin/tokens": {"tokens": [TOKEN]},
        "POST /admin/tokens/a/revoke": TOKEN,
        "GET /admin/jobs": {"jobs": [{**ROW, "owner": "ann", "pool": "local"}], "next": None},
        "GET /admin/pools": {"pools": [POOL]},
        "GET /admin/audit": {"events": [EVENT], "next": None},
    }  # fmt: skip


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a JSON value something can be put in the place of something."""
    yield above
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*above, key))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


GONE = object()
JUNK: list[Any] = [
    *(GONE, None, True, 5, -5, 0, 10**15, 1 << 53, 10**30, -1e15, 1e15, 1e308, 0.5),
    *("", "x", "../../x", "/etc/passwd", "a\0b", "\ud800", "\x1b[2J", "x" * 100_000),
    *([], {}, [[]], [None], {"x": None}, nested(200), [5] * 10_000, {"a": {"b": {}}}),
    *("http://[", "http://h:99999/", "http://h:x/", "ftp://h/", "http://ä/", "http:///x"),
]
BODIES = [
    b"", b"null", b"5", b"[]", b'"x"', b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000,
    b'{"files": [{"size": 1e999}]}', b'{"jobs": NaN}', b'{"a": ' + b"9" * 5000 + b"}",
    b"<html>",
]  # fmt: skip


def spoiled(value: Any, where: tuple[Any, ...], junk: Any) -> Any:
    """A copy of the value with junk in one place."""
    if not where:
        return {} if junk is GONE else junk
    value = copy.deepcopy(value)
    inner = value
    for key in where[:-1]:
        inner = inner[key]
    if junk is GONE:
        del inner[where[-1]]
    else:
        inner[where[-1]] = junk
    return value


def as_body(value: Any) -> bytes:
    return json.dumps(value).encode()
