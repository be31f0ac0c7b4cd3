"""A hostile or broken server: whatever it answers, the client says so in a sentence, or goes on.

Every call of the SDK and most commands are given answers that are right but for one value. What
comes of it is a result or a PaddleCloudError, never another exception, and never much memory.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud import Client
from paddlecloud.cli import main as cli
from paddlecloud.client.upload import blobs
from paddlecloud.model.errors import Internal, PaddleCloudError
from paddlecloud.net import retry
from paddlecloud.server.route_table import ROUTES
from tests.hostile.responses import (
    AT,
    BODIES,
    COMMAND,
    GONE,
    JOB,
    JUNK,
    MODEL,
    OTHER,
    PATH,
    SHA256,
    VIEW,
    answers,
    as_body,
    places,
    spoiled,
)
from tests.unit.client.fake_server import AK, SK, Answer, FakeServer, error, ok, serving

PREFIX = "/api/v1"
MOST_MEMORY = 200 * 1024
"""KiB by which this process may grow while all of it is tried."""
WAIT = 0.05
LOG = {"x-log-offset": "0", "x-log-attempt": "1", "x-log-worker": "trainer-0"}
FILE = {"x-content-version": f"7-{AT}-1", "x-content-sha256": SHA256}
FRAMED = {"frames": b"trainer-0 3 3\nhi\n"}

Call = Callable[[Client, Path], object]
CALLS: dict[str, Call] = {
    "whoami": lambda client, _: client.whoami(),
    "query_job": lambda client, _: client.query_job(JOB),
    "list_jobs": lambda client, _: client.list_jobs(),
    "history": lambda client, _: client.history(JOB),
    "kill_job": lambda client, _: client.kill_job(JOB),
    "delete_job": lambda client, _: client.delete_job(JOB),
    "wait": lambda client, _: client.wait(JOB, WAIT),
    "logs": lambda client, _: [*client.logs(JOB)],
    "logs merged": lambda client, _: [*client.logs(JOB, merge=True)],
    "logs of the failed": lambda client, _: [*client.logs(JOB, failed=True, grep="h")],
    "exec": lambda client, _: [*client.exec(JOB, ["ls"]).output()],
    "top": lambda client, _: client.top(JOB),
    "files": lambda client, _: client.get_files(JOB),
    "all files": lambda client, _: client.get_files(JOB, prefix="/"),
    "download": lambda client, here: client.get_files(JOB, download_dir=here / "got"),
    "download all": lambda client, here: client.get_files(JOB, "/", here / "got"),
    "submit": lambda client, here: client.submit_job(files=here / "job", start_cmd="true"),
    "submit to a bucket": lambda client, here: client.submit_job(
        files=here / "job", start_cmd="true", public_bos=0, bos_url="bucket.bj.bcebos.com/dir"
    ),
    "rerun": lambda client, _: client.rerun(JOB),
    "diff": lambda client, _: client.diff(JOB, OTHER),
    "gen_token": lambda client, _: client.gen_token("a@b.cn"),
    "list_tokens": lambda client, _: client.list_tokens(),
    "create_token": lambda client, _: client.create_token(),
    "revoke_token": lambda client, _: client.revoke_token("a"),
    "doctor": lambda client, _: client.doctor(),
    "gc": lambda client, _: client.gc(),
    "notifications": lambda client, _: client.notifications(),
    "set_notifications": lambda client, _: client.set_notifications(mail=True),
    "test_notifications": lambda client, _: client.test_notifications(),
    "quota": lambda client, _: client.quota(),
    "quota_history": lambda client, _: client.quota_history(),
    "set_quota": lambda client, _: client.set_quota("ann", plan=None),
    "plans": lambda client, _: client.plans(),
    "users": lambda client, _: client.admin.users(),
    "user": lambda client, _: client.admin.user("ann"),
    "create_user": lambda client, _: client.admin.create_user("ann"),
    "set_user": lambda client, _: client.admin.set_user("ann"),
    "delete_user": lambda client, _: client.admin.delete_user("ann"),
    "admin tokens": lambda client, _: client.admin.tokens(),
    "admin create_token": lambda client, _: client.admin.create_token("ann"),
    "admin revoke_token": lambda client, _: client.admin.revoke_token("a"),
    "admin jobs": lambda client, _: client.admin.jobs(),
    "pools": lambda client, _: client.admin.pools(),
    "audit": lambda client, _: client.admin.audit(),
}
COMMANDS = [
    *(["query_job", JOB], ["list_jobs"], ["kill_job", JOB], ["delete_job", JOB], ["logs", JOB]),
    *(["logs", "--merge", JOB], ["get_files", JOB], ["get_files", "--prefix=/", JOB]),
    *(["top", "--once", JOB], ["diff", JOB, OTHER], ["rerun", JOB], ["exec", JOB, "--", "ls"]),
    *(["token", "list"], ["token", "create"], ["token", "revoke", "a"], ["quota"]),
    *(["quota", "--history"], ["notifications", "show"], ["notifications", "test"]),
    *(["admin", "user", "list"], ["admin", "user", "show", "ann"], ["admin", "pool", "list"]),
    *(["admin", "audit"], ["admin", "gc"], ["admin", "job", "list"]),
    *(["admin", "token", "list"], ["admin", "quota", "plans"], ["doctor"]),
    ["submit_job", "--files=job", "--start_cmd=true", "--job_type=cpu"],
]


class Hostile:
    """A server whose answers are right, but for those that a test spoils."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.right = answers(server.url)
        self.restore()

    def restore(self) -> None:
        routes = self.server.routes
        routes.clear()
        for name, value in self.right.items():
            self.put(name, as_body(value))
        routes["GET /healthz"] = [ok({"ok": True})]
        below = f"GET {PREFIX}/jobs/{JOB}"
        routes[f"{below}/logs"] = lambda seen: Answer(
            FRAMED["frames"] if "frames" in seen.query else b"hi\n", headers=dict(LOG)
        )
        for path in (PATH, "bin/run"):
            routes[f"{below}/files/{path}"] = [Answer(MODEL + bytes.fromhex(SHA256), headers=FILE)]
        end = as_body({**COMMAND, "ended_at": AT, "exit_code": 0, "cause": "exit"})
        frames = b"o\0\0\0\x02hi" + b"x" + len(end).to_bytes(4, "big") + end
        routes[f"{below}/commands/c1/output"] = [Answer(frames)]
        routes["GET /bucket/model"] = [Answer(b"no", 403)]
        for name in ("part", "data"):
            routes[f"PUT /bucket/{name}"] = [Answer(b"", headers={"etag": '"0"'})]
        routes[f"PUT {PREFIX}/uploads/{SHA256}/1"] = [ok({"number": 1})]
        self._asks_for_files(as_body(self.right["POST /jobs"]))

    def _asks_for_files(self, accepted: bytes) -> None:
        """A submit is refused until its files were sent, and then accepted."""
        lacks = [SHA256]
        missing = error(409, "SnapshotMissing", "snapshot_missing", "send the files")

        def submit(seen: Any) -> Answer:
            spec = seen.json["spec"]
            is_known = not spec["public_bos"] or spec["snapshot"] == VIEW["snapshot"]
            return missing if lacks and not is_known else Answer(accepted)

        def snapshot(_: Any) -> Answer:
            return ok({"id": "s", "missing": [lacks.pop()] if lacks else []})

        self.server.routes[f"POST {PREFIX}/jobs"] = submit
        self.server.routes[f"POST {PREFIX}/snapshots"] = snapshot

    def put(self, name: str, body: bytes) -> None:
        method, _, path = name.partition(" ")
        headers = {"content-type": "application/json"}
        self.server.routes[f"{method} {PREFIX}{path}"] = [Answer(body, headers=headers)]
        if name == "POST /jobs":
            self._asks_for_files(body)
        if name == "POST /uploads":
            there = {"stored": False, "part_size": 4, "parts": [1, 2], "urls": []}
            self.server.routes[f"POST {PREFIX}{path}"] = [Answer(body, headers=headers), ok(there)]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with pytest.MonkeyPatch.context() as patch, serving() as server:
        patch.setattr(retry.TRANSPORT, "first_pause", 0.0)
        patch.setattr(retry.RESUME, "attempts", 1)
        patch.setattr(blobs, "BIG", 4)  # a file is sent in parts
        here = tmp_path_factory.mktemp("hostile")
        (here / "job").mkdir()
        (here / "job" / "data").write_bytes(MODEL)
        patch.chdir(here)
        environ = {"HOST": server.url, "AK": AK, "SK": SK, "BOS_AK": "a", "BOS_SK": "s"}
        for name, value in environ.items():
            patch.setenv(f"PADDLECLOUD_{name}", value)
        yield Hostile(server)


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MOST_MEMORY, f"{grown} KiB"


def attempt(call: Call) -> PaddleCloudError | None:
    """What comes of a call of the SDK: a result, or an error that has its sentences."""
    here = Path.cwd()
    for made in ("got", ".got.paddlecloud-part"):
        shutil.rmtree(here / made, ignore_errors=True)
    with Client() as client:
        try:
            call(client, here)
        except PaddleCloudError as error:
            for lang in ("en", "zh"):
                assert error.text(lang)
            return error
    return None


def test_the_right_answers_are_those_of_the_server(hostile: Hostile) -> None:
    for name, value in hostile.right.items():
        method, _, path = name.partition(" ")
        (route,) = [
            route
            for route in ROUTES
            if route.method == method
            and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", route.path), PREFIX + path)
        ][:1]
        assert route.answer is not None
        msgspec.convert(value, route.answer)


@pytest.mark.parametrize("name", CALLS)
def test_right_answers_are_taken(hostile: Hostile, name: str) -> None:
    hostile.restore()
    assert attempt(CALLS[name]) is None


PLACES = [(name, where) for name, value in answers("http://h").items() for where in places(value)]
"""Everything in every answer."""


def calls_of(route: str) -> list[str]:
    """The calls that read the answer of a route: those that fail when it is missing."""
    return USERS.setdefault(route, [])


USERS: dict[str, list[str]] = {}


@pytest.fixture(scope="module", autouse=True)
def users_of_routes(hostile: Hostile) -> None:
    """Which calls ask for what."""
    for name, call in CALLS.items():
        hostile.restore()
        hostile.server.seen.clear()
        attempt(call)
        for seen in hostile.server.seen:
            route = f"{seen.method} {seen.path.removeprefix(PREFIX)}"
            if name not in calls_of(route):
                calls_of(route).append(name)


def test_every_route_is_asked_by_some_call(hostile: Hostile) -> None:
    unused = {route for route in hostile.right if not calls_of(route)}
    assert unused <= {f"GET /jobs/{JOB}/commands/c1", f"POST /jobs/{JOB}/commands/c1/stop",
                      "GET /admin/users/ann/quota", "POST /blobs"}  # fmt: skip


@given(st.sampled_from(PLACES), st.sampled_from(JUNK))
def test_one_wrong_value(hostile: Hostile, place: tuple[str, Any], junk: Any) -> None:
    route, where = place
    for name in calls_of(route):
        hostile.restore()
        value = hostile.right[route]
        hostile.put(route, as_body(spoiled(value, where, junk)))
        attempt(CALLS[name])


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", ["query_job", "list_jobs", "download", "submit", "diff"])
def test_no_answer_at_all(hostile: Hostile, name: str, body: bytes) -> None:
    hostile.restore()
    for route in hostile.right:
        if name in calls_of(route):
            hostile.put(route, body)
    assert attempt(CALLS[name]) is not None


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("path", 5, "files[0].path is 5, expected text"),
        ("size", -5, "files[0].size is -5, expected a whole number from 0"),
        ("size", 1e15, "files[0].size is 1000000000000000.0, expected a whole number"),
        ("size", GONE, "files[0].size is missing"),
        ("size", [], "files[0].size is a list"),
        ("time", None, "files[0].time is null"),
    ],
)
def test_a_wrong_row_is_named(hostile: Hostile, field: str, value: Any, told: str) -> None:
    hostile.restore()
    route = f"GET /jobs/{JOB}/files"
    hostile.put(route, as_body(spoiled(hostile.right[route], ("files", 0, field), value)))
    error = attempt(CALLS["download"])
    assert isinstance(error, Internal)
    assert error.code == "response_invalid"
    assert f"invalid server response: {told}" in str(error)
    assert "服务器的响应无效" in error.text("zh")


def test_what_is_no_list_of_files_is_named(hostile: Hostile) -> None:
    hostile.restore()
    hostile.put(f"GET /jobs/{JOB}/files", b'{"files": "x"}')
    assert 'files is "x", expected a list' in str(attempt(CALLS["files"]))


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "", "a\0b", "c:\\x"])
def test_a_name_that_leads_out_is_refused_as_a_download(hostile: Hostile, path: str) -> None:
    hostile.restore()
    route = f"GET /jobs/{JOB}/files"
    hostile.put(route, as_body(spoiled(hostile.right[route], ("files", 0, "path"), path)))
    error = attempt(CALLS["download"])
    assert error is not None
    assert error.code == "download_name"
    assert "submit" not in str(error)
    assert "提交" not in error.text("zh")


HEADERS = [
    "",
    "x",
    "-5",
    "9" * 18,
    "9" * 300,
    "\xb2",
    "1e15",
    "0x5",
    " 5",
    "5-x",
    "99999999999999-x",
]


@pytest.mark.parametrize("value", HEADERS)
@pytest.mark.parametrize("header", LOG)
@pytest.mark.parametrize("name", ["logs", "logs merged", "logs of the failed"])
def test_wrong_headers_of_a_log(hostile: Hostile, header: str, value: str, name: str) -> None:
    hostile.restore()
    route = f"GET {PREFIX}/jobs/{JOB}/logs"
    hostile.server.routes[route] = [Answer(b"hi\n", headers={**LOG, header: value})]
    attempt(CALLS[name])


@pytest.mark.parametrize("value", HEADERS)
@pytest.mark.parametrize("header", FILE)
@pytest.mark.parametrize("chunk", [0, 5])
def test_wrong_headers_of_a_file(hostile: Hostile, header: str, value: str, chunk: int) -> None:
    hostile.restore()
    content = Answer(MODEL + bytes.fromhex(SHA256), headers={**FILE, header: value}, chunk=chunk)
    hostile.server.routes[f"GET {PREFIX}/jobs/{JOB}/files/{PATH}"] = [content]
    attempt(CALLS["download"])


@pytest.mark.parametrize(
    "body",
    [
        *(b"x" * 5000, b"a\n", b"a 1\n", b"a b c\n", b"a -1 -5\nxx", b"a 1 99999999999999\nx"),
        *(
            b"\xff\xfe 1 1\nx",
            b"! 0 1\nx",
            b"! 0 4\nx []",
            b"! 0 9\nx [\xff\xff]zz",
            b"! 0 4\nx {}",
        ),
        b"! 0 9\nx " + b"[" * 7,
    ],
)
@pytest.mark.parametrize("name", ["logs merged", "logs of the failed"])
def test_wrong_frames_of_a_log(hostile: Hostile, name: str, body: bytes) -> None:
    hostile.restore()
    hostile.server.routes[f"GET {PREFIX}/jobs/{JOB}/logs"] = [Answer(body, headers=LOG)]
    attempt(CALLS[name])


@pytest.mark.parametrize(
    "body", [b"x\0\0\0\x01{", b"x\0\0\0\x02[]", b"x\0\0\0\x02{}", b"o\xff\xff\xff\xffhi"]
)
def test_wrong_frames_of_a_command(hostile: Hostile, body: bytes) -> None:
    hostile.restore()
    hostile.server.routes[f"GET {PREFIX}/jobs/{JOB}/commands/c1/output"] = [Answer(body)]
    assert isinstance(attempt(CALLS["exec"]), Internal)


def test_a_bucket_that_answers_without_end_is_not_read_for_ever(hostile: Hostile) -> None:
    hostile.restore()
    hostile.server.routes["PUT /bucket/data"] = [Answer(b"x" * 200_000, 403, hold=True)]
    error = attempt(CALLS["submit to a bucket"])
    assert error is not None
    assert error.code == "private_put_failed"
    assert "403" in str(error)


ERROR = {"kind": "Invalid", "code": "param_range", "message": "no", "params": {"name": "cpu"}}


@given(
    st.sampled_from([*places({"error": ERROR})]),
    st.sampled_from(JUNK),
    st.sampled_from([400, 404, 409, 422, 429, 500, 503, 507]),
    st.sampled_from(["query_job", "submit", "download"]),
)
def test_wrong_errors(
    hostile: Hostile, where: tuple[Any, ...], junk: Any, status: int, name: str
) -> None:
    hostile.restore()
    body = as_body(spoiled({"error": ERROR}, where, junk))
    for route in hostile.right:
        if name in calls_of(route):
            hostile.put(route, body)
            method, _, path = route.partition(" ")
            hostile.server.routes[f"{method} {PREFIX}{path}"] = [Answer(body, status)]
    attempt(CALLS[name])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_take_right_answers(
    hostile: Hostile, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    hostile.restore()
    code = cli.main(words)
    assert code in (0, 1), capsys.readouterr().err
    assert "made a mistake" not in capsys.readouterr().err


@given(st.sampled_from(PLACES), st.sampled_from(JUNK), st.sampled_from([[], ["--json"]]))
def test_commands_say_what_is_wrong(
    hostile: Hostile, place: tuple[str, Any], junk: Any, more: list[str]
) -> None:
    route, where = place
    for words in COMMANDS:
        if not _asks(hostile, words, route):
            continue
        hostile.restore()
        hostile.put(route, as_body(spoiled(hostile.right[route], where, junk)))
        mistake = Path(Client().config.home) / "cache" / "last-error.txt"
        mistake.unlink(missing_ok=True)
        code = cli.main([*more, *words] if more and words[0] != "exec" else words)
        assert code in (0, 1, 2)
        assert not mistake.exists(), mistake.read_text()


ASKED: dict[str, set[str]] = {}


def _asks(hostile: Hostile, words: list[str], route: str) -> bool:
    """Whether a command reads the answer of that route."""
    known = ASKED.get(" ".join(words))
    if known is None:
        hostile.restore()
        hostile.server.seen.clear()
        cli.main(words)
        seen = hostile.server.seen
        known = {f"{each.method} {each.path.removeprefix(PREFIX)}" for each in seen}
        ASKED[" ".join(words)] = known
    return route in known


MEMORY = """
    import json, resource, sys, threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from paddlecloud import Client
    from paddlecloud.client.download import engine; from paddlecloud.net import retry
    from paddlecloud.model.errors import PaddleCloudError

    retry.TRANSPORT.first_pause, retry.RESUME.attempts = 0.0, 1
    job, case = "job-" + "0" * 32, sys.argv[1]
    row = {"path": "a", "size": 10 ** 15, "time": "2026"}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *_): pass
        def do_GET(self):
            endless = case.startswith("endless") and not self.path.endswith("/files")
            self.send_response(500 if case == "endless error" else 200)
            if "/files/" in self.path:
                self.send_header("x-content-version", "99999999999999-x")
            if case == "endless file" and self.path.endswith("/files"):
                endless = False
            if endless:
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                piece = b"[" * 65536 if case == "endless JSON" else b"x" * 65536
                while True:
                    self.wfile.write(b"10000\\r\\n" + piece + b"\\r\\n")
            body = {"rows": json.dumps({"files": [row | {"path": str(n)} for n in range(9)]}),
                    "brackets": '{"files": [' + "[]," * 30_000_000 + "[]]}"}
            text = body.get(case) or json.dumps({"files": [row]})
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_): pass

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    most = 900 if case == "brackets" else 400
    resource.setrlimit(resource.RLIMIT_DATA, (most << 20, most << 20))
    client = Client(host=f"http://127.0.0.1:{server.server_port}", ak="a", sk="s")
    call = client.query_job if "JSON" in case or "error" in case else client.get_files
    how = {} if call == client.query_job else {"download_dir": sys.argv[2]}
    try:
        call(job, **how)
    except PaddleCloudError as error:
        print(error.code)
"""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("size", marks=pytest.mark.slow),
        pytest.param("rows", marks=pytest.mark.slow),
        "brackets",
        "endless JSON",
        "endless error",
        "endless file",
    ],
)
def test_memory_is_bounded(tmp_path: Path, case: str) -> None:
    program = [sys.executable, "-c", textwrap.dedent(MEMORY), case, str(tmp_path / "got")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert json.dumps(done.stdout.strip()) != '""'
