"""The schemas of the responses that the client reads, one per route.

A key is required if the client, the command line or their users rely on it; the others may be
missing, because an older server does not send them, but have to be of the right kind.
`tests/contract/test_schemas.py` compares them with what the server declares.
"""

from __future__ import annotations

from paddlecloud.client.response_checks import (
    anything,
    by_key,
    count,
    each,
    flag,
    integer,
    keys,
    maybe,
    measure,
    name,
    row,
    scalar,
    text,
    up_to,
    url,
    url_or_path,
)

_MIB = 1024 * 1024

_USE = keys(
    {"cpu": measure, "memory": count},
    {"at": text, "gpu": maybe(measure), "gpu_memory": maybe(count), "quiet": measure},
)
_WORKER = keys(
    {"name": text, "state": text},
    {
        "node": text,
        "pid": maybe(integer),
        "exit_code": maybe(integer),
        "signal": maybe(integer),
        "log_bytes": count,
        "enforced": by_key(flag),
        "max_rss": maybe(count),
        "cpu_seconds": maybe(measure),
        "usage": maybe(_USE),
        "peak_memory": maybe(count),
        "endpoint": text,
        "cards": each(count),
    },
)
_FAILURE = keys({"message": text, "advice": text, "worker": text, "last_lines": each(text)})
_JOB_KEYS = {"job_id": text, "job_status": text}
_OF_JOB = {
    "advice": each(text),
    "attempts": count,
    "bos_url": text,
    "cluster": text,
    "create_time": text,
    "created_at": text,
    "age": count,
    "duration": maybe(count),
    "description": text,
    "env": by_key(text),
    "error_msg": text,
    "exit_code": maybe(integer),
    "failure": maybe(_FAILURE),
    "finish_time": text,
    "finished_at": maybe(text),
    "git": maybe(by_key(text)),
    "instance_count": count,
    "instance_ids_list": each(text),
    "job_name": text,
    "job_type": text,
    "kill_flag": count,
    "number": count,
    "owner": text,
    "pool": text,
    "priority": text,
    "public_bcc": count,
    "public_bos": count,
    "queue_position": maybe(count),
    "queue_reason": text,
    "resources": by_key(measure),
    "secrets": each(text),
    "snapshot": maybe(text),
    "start_cmd": text,
    "start_time": text,
    "started_at": maybe(text),
    "tasks": each(anything),
    "version": integer,
    "wall_time": text,
    "workers": each(_WORKER),
}
JOB = keys(_JOB_KEYS, _OF_JOB)
#: A job whose changes are waited for.
FOLLOWED = keys({**_JOB_KEYS, "version": integer}, _OF_JOB)
SUBMITTED = keys({"job": JOB, "notes": each(text)})
_GROUP = keys({"role": text, "count": count, "cpu": measure, "memory": count, "gpu": count})
_PLAN = keys({"job_type": text, "pools": each(text), "workers": each(_GROUP)})
SECRET = keys({"name": text}, {"created_at": text, "updated_at": text})
SECRETS = keys({"secrets": each(SECRET)})
DELETED_SECRET = keys({"name": text})
VALIDATED = keys({"has_files": flag}, {"notes": each(text), "plan": _PLAN})
JOBS = keys({"jobs": each(JOB), "next": maybe(count)})
_CHANGE = keys({}, {"at": text, "event": text, "before": text, "after": text, "reason": text})
HISTORY = keys({"history": each(_CHANGE)})
DELETED = keys({"bytes": count})
_SPEC_KEYS = {
    "bos_url": maybe(text),
    "directory": text,
    "env": maybe(by_key(text)),
    "git": maybe(by_key(text)),
    "inherited_env": maybe(by_key(text)),
    "public_bos": scalar,
    "requirements": maybe(text),
    "secret": maybe(by_key(text)),
    "require": maybe(text),
    "snapshot": maybe(text),
}
SPEC = keys({"spec": keys({}, _SPEC_KEYS)}, {"job_id": text})
_WORKER_USE = keys(
    {
        "job_id": text,
        "job_name": text,
        "worker": text,
        "state": text,
        "asked": keys({"cpu": measure, "memory": measure, "gpu": measure}),
        "usage": maybe(_USE),
        "peak_memory": maybe(count),
    },
    {"node": text},
)
USES = keys({"workers": each(_WORKER_USE)})

_FILE = keys(
    {"path": text, "size": count, "time": text},
    {"sha256": maybe(text), "written_sha256": maybe(text)},
)
FILES = keys(
    {"files": each(_FILE)},
    {
        "job_id": text,
        "job_status": maybe(text),
        "ways": maybe(by_key(url_or_path)),
        "left_behind": maybe(text),
    },
)
#: path, kind, size, sha256, executable, target.
_ENTRY = row(text, text, count, text, scalar, text)
SNAPSHOT = keys(
    {"entries": each(_ENTRY)},
    {"id": maybe(text), "time": maybe(text), "tags": maybe(by_key(text))},
)
MISSING = keys({"missing": each(text)})

#: A part is held in memory by each of a few threads.
LARGEST_PART = 1024 * _MIB
UPLOAD = keys(
    {"stored": flag},
    {"part_size": up_to(LARGEST_PART), "parts": each(count), "urls": each(row(count, url))},
)
FINISHED = keys({"stored": flag})
HANDING = keys({}, {"name": text, "path": text})
PRIVATE_FILES = keys({"files": each(row(text, count, text))})
ADDRESSES = keys({"addresses": each(url)})
PRIVATE_UPLOAD = keys(
    {"upload": text, "parts": each(row(count, text)), "tag": text, "part_size": count}
)

COMMAND = keys(
    {"id": name, "job_id": name, "exit_code": maybe(integer), "cause": text, "message": text},
    {"worker": text, "argv": each(text), "created_at": text, "ended_at": maybe(text)},
)

PORT_FORWARD = keys({"job_id": name, "worker": text})

WHOAMI = keys(
    {"user_id": text}, {"ak": text, "role": text, "server": text, "version": text, "time": text}
)
MAILED = keys({"email": text})
TOKEN = keys(
    {"ak": text},
    {
        "user_id": text,
        "name": text,
        "scope": text,
        "origin": text,
        "created_at": text,
        "last_used_at": maybe(text),
        "revoked_at": maybe(text),
    },
)
TOKENS = keys({"tokens": each(TOKEN)})
NEW_TOKEN = keys(
    {"ak": text, "sk": text, "user_id": text}, {"name": text, "scope": text, "created_at": text}
)
NEW_BEARER_TOKEN = keys(
    {"ak": text, "token": text}, {"name": text, "scope": text, "created_at": text}
)
CHECKS = keys({"checks": each(keys({"name": text, "ok": flag, "detail": text}))})
COLLECTED = keys({"jobs": count, "bytes": count})
_CHOICES = keys(
    {"events": each(text), "mail": flag, "email": text, "webhook": text, "webhook_off": text},
    {"known_events": each(text)},
)
NOTIFICATIONS = keys({"notifications": _CHOICES}, {"webhook_secret": maybe(text)})
DELIVERIES = keys({"deliveries": each(keys({"kind": text, "ok": flag, "message": text}))})
QUOTA = keys(
    {
        "user_id": text,
        "plan": text,
        "own_limits": each(text),
        "max_priority": text,
        "limits": each(keys({"name": text, "used": maybe(measure), "limit": maybe(measure)})),
        "minutes_left": maybe(measure),
        "renews": text,
    },
    {"renews_at": text},
)
_DAY = keys({"date": text, "minutes": measure, "private_minutes": measure, "jobs": count})
DAYS = keys({"days": each(_DAY)})
_PLAN_LIMITS = by_key(maybe(measure))
_PLAN = keys({"name": text, "default": flag, "limits": _PLAN_LIMITS, "max_priority": text})
PLANS = keys({"plans": each(_PLAN)})

USER = keys(
    {"user_id": text},
    {
        "role": text,
        "email": maybe(text),
        "plan": text,
        "limits": by_key(scalar),
        "lang": text,
        "disabled": flag,
        "disabled_at": maybe(text),
        "created_at": text,
        "tokens": count,
    },
)
USERS = keys({"users": each(USER), "next": maybe(name)})
_NODE = keys(
    {
        "id": text,
        "cpu": measure,
        "memory": count,
        "gpu": count,
        "used_cpu": measure,
        "used_memory": count,
        "used_gpu": count,
        "seen_at": maybe(text),
    },
    {"enforces": by_key(flag)},
)
_POOL = keys(
    {
        "name": text,
        "backend": text,
        "public": flag,
        "users": each(text),
        "job_types": each(text),
        "nodes": each(_NODE),
        "note": text,
    },
    {"preemption": flag},
)
POOLS = keys({"pools": each(_POOL)})
INVITE = keys(
    {"token": text, "url": text, "tls_sha256": text, "agent_sha256": text},
    {"pool": text, "uses": count, "expires_at": text},
)
MACHINE = keys(
    {
        "name": text,
        "pool": text,
        "state": text,
        "labels": by_key(text),
        "address": text,
        "version": text,
        "cpu": measure,
        "memory": count,
        "gpu": count,
        "used_cpu": measure,
        "used_memory": count,
        "used_gpu": count,
        "jobs": each(text),
    },
    {
        "reason": text,
        "enforces": by_key(flag),
        "joined_at": text,
        "seen_at": maybe(text),
    },
)
MACHINES = keys({"machines": each(MACHINE)})
_EVENT = keys(
    {"detail": by_key(scalar)},
    {"number": count, "at": text, "actor": text, "source": text, "action": text, "target": text},
)
EVENTS = keys({"events": each(_EVENT), "next": maybe(count)})
