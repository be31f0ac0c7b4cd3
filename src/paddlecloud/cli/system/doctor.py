"""`doctor`: checks every link from the configuration to a finished job, and names the broken one.

The links hang on each other, so the first broken one ends the check: what lies behind it cannot
work either, and its advice would only mislead.
"""

from __future__ import annotations

import tempfile
from datetime import datetime
from functools import partial
from time import monotonic, perf_counter, sleep, time

from paddlecloud.cli.parser import Command
from paddlecloud.client.response_checks import parse, refuse
from paddlecloud.client.sdk import server_url
from paddlecloud.client.submit import submit
from paddlecloud.messages.cli import TEXTS
from paddlecloud.model.errors import PaddleCloudError, Retry, Unreachable, from_wire
from paddlecloud.net.endpoint import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

    Link = tuple[str, Callable[[], str]]

#: Seconds for the server to answer a health check.
SERVER_SECONDS = 10.0
#: Bytes that it needs for that; more is not from a server of ours.
LONGEST_HEALTH = 64 * 1024
#: Seconds that the tiny job may take.
JOB_SECONDS = 60.0
#: Seconds for an agent to contact the server.
AGENT_SECONDS = 10.0
#: A clock may be off by this many seconds before it is worth a word.
CLOCK_SECONDS = 60.0


class Broken(Exception):
    """A link that answered, and whose answer is wrong; the message is for the person."""


def run(args: Args, context: Context) -> int:
    del args
    made: list[str] = []
    try:
        return _check(context, made)
    finally:
        for job_id in made:
            _delete(context, job_id)


def _check(context: Context, made: list[str]) -> int:
    """Check the links in order; `made` gets the ids of jobs that were submitted for it."""
    out = context.out
    results: list[dict[str, object]] = []
    broken = None
    for name, check in _links(context, made):
        began = perf_counter()
        try:
            detail, ok = check(), True
        except PaddleCloudError as error:
            detail, ok = error.text(out.lang), False
        except Broken as error:
            detail, ok = str(error), False
        spent = perf_counter() - began
        results.append({"name": name, "ok": ok, "detail": detail, "seconds": round(spent, 4)})
        if not out.json:
            word = out.text("link_ok" if ok else "link_failed")
            verdict = out.paint(word, "green" if ok else "red")
            line = f"{_title(context, name)}: {verdict} ({spent * 1000:.0f} ms) {detail}"
            out.sentence(line.rstrip())
        if not ok:
            broken = name
            break
    if out.json:
        out.value({"ok": broken is None, "broken": broken, "checks": results})
    elif broken is None:
        out.say("doctor_well")
    else:
        out.say("doctor_broken", name=_title(context, broken))
    return 0 if broken is None else 1


def _links(context: Context, made: list[str]) -> Iterator[Link]:
    yield "configuration", lambda: context.config.path or context.out.text("doctor_config_none")
    yield "server", lambda: _server(context)
    yield "signature", lambda: _signature(context)
    try:
        checks = _server_checks(context)
    except PaddleCloudError as error:
        yield "report", partial(_raise, error)
        return
    for check in checks:
        yield str(check["name"]), partial(_reported, check)
    yield "job", lambda: _tiny_job(context, made)


def _server(context: Context) -> str:
    """Whether a server of ours is at that address; who we are there is the next question."""
    config, transport = context.config, context.client.transport
    if config.embedded:
        endpoint = transport.endpoint
    else:  # it is there or not whether we have keys for it or not
        endpoint = Endpoint(server_url(config), "", "", ca_file=config.ca_file)
    url, timeout = f"{endpoint.url}/healthz", (SERVER_SECONDS, SERVER_SECONDS)
    with transport.pool.request("GET", url, tls=endpoint.tls, timeout=timeout) as answer:
        body = answer.read(LONGEST_HEALTH)
    try:
        health = parse(body)
        if answer.status >= 400:
            raise from_wire(answer.status, health["error"])
        healthy = health["ok"] is True
    except (ValueError, KeyError, TypeError, AttributeError):
        healthy = False
    if not healthy:
        detail = f"GET /healthz: {answer.status}"
        raise Unreachable("server_malformed", address=endpoint.url, detail=detail)
    return endpoint.url


def _signature(context: Context) -> str:
    answer = context.client.whoami()
    try:
        seconds = abs(time() - datetime.fromisoformat(answer.get("time", "")).timestamp())
    except (ValueError, OverflowError):
        refuse("time", answer.get("time"), "response_time")
    who = f"{answer['user_id']} ({answer.get('ak', '')})"
    if seconds < CLOCK_SECONDS:
        return who
    return f"{who}; {context.out.text('clock_off', seconds=round(seconds))}"


def _server_checks(context: Context) -> list[dict[str, object]]:
    """The checks of the server; one that has just started waits for its agent first."""
    until = monotonic() + AGENT_SECONDS
    while True:
        checks = context.client.doctor()
        broken = {check["name"] for check in checks if not check["ok"]}
        if broken != {"agent"} or monotonic() > until:
            return checks
        sleep(0.1)


def _raise(error: PaddleCloudError) -> str:
    raise error


def _reported(check: dict[str, object]) -> str:
    if not check["ok"]:
        raise Broken(str(check["detail"]))
    return str(check["detail"])


def _tiny_job(context: Context, made: list[str]) -> str:
    """The whole way of a job: submit, run, finish, and the right bytes in its log. The caller
    deletes what is in `made`, whatever became of it."""
    client, out = context.client, context.out
    with tempfile.TemporaryDirectory(prefix="paddlecloud-doctor-") as empty:
        # Not by the client, which would print how many files it found.
        tiny = {"files": empty, "start_cmd": "echo ok", "job_name": "doctor", "cpu": 0.1}
        job_id = submit(client, tiny)["job"]["job_id"]
    made.append(job_id)
    try:
        job = client.wait(job_id, JOB_SECONDS)
    except Retry as error:
        if error.code != "wait_timeout":
            raise
        job = client.query_job(job_id, diff=False)
    detail = out.text("doctor_tiny_job", job_id=job.id, state=job.state)
    if job.state != "success":
        failure = job.view.get("failure") or {"message": job.view.get("queue_reason", "")}
        raise Broken(f"{detail}; {failure['message']}".rstrip("; "))
    log = b"".join(client.logs(job.id, follow=True))
    if log != b"ok\n":
        raise Broken(out.text("doctor_wrong_log", job_id=job.id, got=repr(log[:100])))
    return detail


def _delete(context: Context, job_id: str) -> None:
    """Delete the job, after it was ended if it still waits or runs."""
    client = context.client
    try:
        if not client.query_job(job_id, diff=False).final:
            client.kill_job(job_id)
            client.wait(job_id, JOB_SECONDS)
        client.delete_job(job_id)
    except PaddleCloudError as error:
        reason = error.text(context.out.lang)
        context.out.say("doctor_left_job", job_id=job_id, reason=reason)


def _title(context: Context, name: str) -> str:
    """A newer server may name links that this program has no word for."""
    return context.out.text("link_" + name) if "link_" + name in TEXTS else name


COMMANDS = (
    Command(
        "doctor",
        run,
        (
            "Check every link: configuration, server, signature, database, store, agent, and a "
            "tiny job from submit to log, which is deleted again.",
            "逐项检查：配置、服务器、签名、数据库、存储、执行端（Agent），"
            "并运行一个示例任务（随后删除）。",
        ),
        examples=("paddlecloud doctor", "paddlecloud doctor --json"),
    ),
)
