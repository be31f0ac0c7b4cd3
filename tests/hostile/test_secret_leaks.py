"""Marked secrets are put wherever one can go; then everything that others may see is searched.

A real life of a team server: settings with secrets as text, by variable and by file, mail that
arrives and mail that fails, a webhook, a job that looks around, admins who mistype. No secret may
be found in the database, in a log or file that is not made to hold it, in the list of processes, in
an environment, in an answer or in an error.
"""

from __future__ import annotations

import base64
import http.server
import json
import re
import secrets
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddlecloud.server.http.auth import secret_of
from paddlecloud.testing import SignedCaller
from tests.hostile.target_server import HOST, TargetServer, caller_of, prepared
from tests.integration.cli.person import Person
from tests.integration.server.smtp import SmtpServer, text_of
from tests.integration.server.world import a_submit, eventually, packed
from tests.live_files import contents_below

VARIABLE = "THE_KEY_OF_OUR_SERVER"
MADE_FOR_SECRETS = {
    "server.toml", "old.key", "credentials.json", "agent.json", "server.key", "client.conf",
}  # fmt: skip
LOOKS = """
env; cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'
cat $HOME/* ./* /etc/paddlecloud/* 2>/dev/null
echo looked; echo o > $OUTPUT_PATH/o; while [ ! -e go ]; do sleep 0.05; done; exit 3
"""
SHOWS = "env; cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; echo shown"


class Canaries:
    """Secrets by where they were put, and everything that was seen by where it was found."""

    def __init__(self) -> None:
        self.marks: dict[str, bytes] = {}
        self.seen: list[tuple[str, bytes]] = []

    def mark(self, where: str, text: str = "") -> str:
        made = text or f"canary{secrets.token_hex(16)}"
        self.marks[where] = made.encode()
        return made

    def see(self, where: str, what: bytes | str) -> None:
        self.seen.append((where, what.encode() if isinstance(what, str) else what))

    def found(self) -> list[str]:
        return sorted(
            f"{secret} in {where}"
            for where, what in self.seen
            for secret, mark in self.marks.items()
            if mark in what
        )


@contextmanager
def a_receiver() -> Iterator[tuple[int, list[bytes]]]:
    """A webhook's other end; what it was sent."""
    got: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(bytes(self.headers) + body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else ""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_no_secret_is_in_clear_where_it_does_not_belong(
    database: str,
    s3_settings: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    birds = Canaries()
    key, old = birds.mark("server key"), birds.mark("old key")
    if database:
        birds.mark("database password", urlsplit(database).password or "")
    with SmtpServer(tmp_path / "mails", "--refuse=nobody") as smtp, a_receiver() as (port, got):
        monkeypatch.setenv(VARIABLE, key)
        door = f'[private_store]\ndoor = "{s3_settings["endpoint"]}"\n'
        site = a_team(tmp_path / "home", birds, database, smtp.port, door)
        (site.home / "old.key").write_text(old)
        (site.home / "old.key").chmod(0o600)
        try:
            site.server.start()
            live(site, birds, key, smtp, port)
            eventually(lambda: len(got) >= 2, 60)
            for body in got:
                birds.see("webhook", body)
            person_looks(site, birds, tmp_path, s3_settings)
            admin_mistypes(birds, tmp_path)
            look_at_rest(site, birds)
            look_at_answers(site, birds)
        finally:
            site.server.close()
    assert len(birds.marks) >= 9
    assert birds.found() == []


def a_team(home: Path, birds: Canaries, database: str, mail_port: int, more: str) -> TargetServer:
    rest = f"[notifications]\nwebhook_private = true\n{more}"
    top = f'key = {{ env = "{VARIABLE}" }}\nold_keys = [{{ file = "old.key" }}]'
    site = prepared(home, database=database, mail_port=mail_port, top=top, rest=rest)
    text = (home / "server.toml").read_text()
    password = birds.mark("mail password")
    (home / "server.toml").write_text(text.replace("[mail]", f'[mail]\npassword = "{password}"'))
    return site


def live(site: TargetServer, birds: Canaries, key: str, smtp: SmtpServer, port: int) -> None:
    """Tokens by mail, a job with a webhook that fails, mail that nobody takes."""
    admin = site.server.caller()
    birds.mark("admin's secret key", admin.sk)
    config = site.home / "agent" / "agent.json"
    birds.mark("agent's secret key", json.loads(config.read_text())["sk"])
    assert site.raw("POST", "/api/v1/gen_token", body=b'{"email": "ann@example.com"}').status == 202
    text = text_of(smtp.wait(1)[0])
    found = dict(re.findall(r"^(ak|sk): (\w+)$", text, re.M))
    birds.mark("mailed secret key", found["sk"])
    ann = caller_of(site, found)
    assert found["sk"] == secret_of(key.encode(), found["ak"])
    made = ann.post("/api/v1/tokens", {"name": "second"})
    birds.mark("shown secret key", made["sk"])
    wishes = {"events": ["started", "failed"], "mail": True, "webhook": f"http://{HOST}:{port}/w"}
    chosen = ann.post("/api/v1/notifications", wishes)
    birds.mark("webhook secret", chosen["webhook_secret"])
    admin.post("/api/v1/admin/users", {"user_id": "n", "email": "nobody@example.com"})
    site.raw("POST", "/api/v1/gen_token", body=b'{"email": "nobody@example.com"}')
    wrong = SignedCaller(host=HOST, port=site.server.port, ak=ann.ak, sk=made["sk"])
    assert wrong.call("GET", "/api/v1/whoami").code == "auth_signature"
    site.people |= {"admin": admin, "ann": ann}
    value = base64.b64encode(birds.mark("secret of a job").encode()).decode()
    birds.mark("the same in base64", value)
    ann.post("/api/v1/secrets", {"name": "canary", "value": value})
    job = submit(ann)
    work = site.home / "agent" / "replicas" / f"{job}.1.trainer-0" / "work"
    log = f"/api/v1/jobs/{job}/logs"
    eventually(lambda: b"looked" in ann.call("GET", log).body, 30)
    look_at_processes(site, birds)
    (work / "go").touch()
    eventually(lambda: ann.get(f"/api/v1/jobs/{job}")["job_status"] == "failed", 30)
    birds.see("log of the job", ann.call("GET", log).body)
    site.things["job_id"] = job


def submit(caller: SignedCaller) -> str:
    data = LOOKS.encode()
    caller.post("/api/v1/blobs", packed(data))
    entry = ["run.sh", "file", len(data), packed(data)[:32].hex(), 0, ""]
    files = caller.post("/api/v1/snapshots", {"entries": [entry]})["id"]
    secret = {"canary": ""}
    body = a_submit({"start_cmd": "sh run.sh", "snapshot": files, "secret": secret})
    return str(caller.post("/api/v1/jobs", body)["job"]["job_id"])


def look_at_processes(site: TargetServer, birds: Canaries) -> None:
    """Of every process there is. The variable that the server was given is in the server's own."""
    server = site.server.facts()["pid"]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            birds.see(f"command line of {entry.name}", (entry / "cmdline").read_bytes())
        with suppress(OSError):
            if int(entry.name) != server:
                name = (entry / "comm").read_text().strip()
                birds.see(f"environment of {name}", (entry / "environ").read_bytes())


def person_looks(site: TargetServer, birds: Canaries, top: Path, bucket: dict[str, str]) -> None:
    """What the command line says to somebody who has everything in client.conf, with a job whose
    files lie in a bucket of their own, and one whose keys are wrong."""
    (top / "here").mkdir()
    person = Person(home=top / "person", here=top / "here")
    person.home.mkdir(mode=0o700)
    ann = site.people["ann"]
    bcc, bos = birds.mark("bcc key"), birds.mark("bos key", bucket["secret_key"])
    ak = bucket["access_key"]
    own = f"--bos_url={bucket['bucket']}.bj.bcebos.com/{bucket['prefix']}"
    (person.home / "client.conf").write_text(
        f"[main]\nuser_id = ann\nak = {ann.ak}\nsk = {ann.sk}\n[openapi]\nhost = {HOST}\n"
        f"port = {site.server.port}\n[bcc]\nak = b\nsk = {bcc}\n[bos]\nak = {ak}\nsk = {bos}\n"
    )
    (person.home / "client.conf").chmod(0o600)
    job = site.things["job_id"]
    for words in (
        ("list_jobs",), ("query_job", f"--job_id={job}"), ("query_job", "--job_id=job-none"),
        ("config", "show", "--origin"), ("config", "show", "--json"), ("doctor", "--json"),
        ("token", "list"), ("notifications", "show"), ("quota",), ("get_files", f"--job_id={job}"),
        ("submit_job", "--files=none", "--start_cmd=x"),
        ("submit_job", "--public_bos=0", own, f"--start_cmd={SHOWS}", "--watch_mode=1"),
    ):  # fmt: skip
        for debug in ("0", "1"):
            done = person.types(*words, PADDLECLOUD_DEBUG=debug)
            birds.see(f"{' '.join(words)} (debug {debug})", done.out + done.err)
    assert "shown" in done.out, done.err
    typed, again = birds.mark("piped secret"), ("rerun", job, "--start_cmd=true", "--watch_mode=1")
    for more in (("secret", "set", "piped"), ("secret", "list"), again):
        done = person.types(*more, stdin=typed, PADDLECLOUD_DEBUG="1")
        assert done.code == 0, done.err
        birds.see(f"{' '.join(more)} (debug 1)", done.out + done.err)
    wrong = {"PADDLECLOUD_BOS_AK": "nobody", "PADDLECLOUD_BOS_SK": birds.mark("wrong bos key")}
    done = person.types("submit_job", "--public_bos=0", own, "--start_cmd=x", **wrong)
    assert "rejects the keys" in done.err
    birds.see("a submit with wrong keys", done.out + done.err)
    for path, data in contents_below(person.home):
        if path.name not in MADE_FOR_SECRETS:
            birds.see(f"file {path.name} of the person", data)


def admin_mistypes(birds: Canaries, top: Path) -> None:
    """Servers that cannot start: a wrong database, a wrong key, a secret in the wrong place."""
    wrong = birds.mark("password of a wrong database")
    short = birds.mark("a key in the wrong place")
    for number, text in enumerate(
        (
            f'[database]\nurl = "postgresql://u:{wrong}@{HOST}:9/none?connect_timeout=1"\n',
            f'[database]\nurl = "postgresql://u:{wrong}@{HOST}:nine/none"\n',
            f'[database]\nurl = "mysql://u:{wrong}@{HOST}/none"\n',
            f'[database]\nurl = ["postgresql://u:{wrong}@{HOST}/none"]\n',
            f'[mail]\npassword = {{ text = "{short}" }}\n',
            f'old_keys = ["{short[:31]}"]\n',
            f'key = {{ file = "missing" }}\nold_keys = "{short}"\n',
            f'[mail]\nhost = "{HOST}"\nport = 9\nsender = "a@b.example"\npassword = "{short}"\n',
        )
    ):
        home = top / f"wrong{number}"
        home.mkdir(mode=0o700)
        (home / "server.toml").write_text(f"team = true\n{text}")
        (home / "server.toml").chmod(0o600)
        start = [sys.executable, "-P", "-m", "paddlecloud.server", "--home", str(home)]
        for more in ([], ["--check", "--json"]) if number < 2 else (["--check"],):
            ran = subprocess.run([*start, *more], capture_output=True, timeout=60, check=False)
            birds.see(f"wrong settings {number} {more}", ran.stdout + ran.stderr)
        for path, data in contents_below(home):
            if path.name not in MADE_FOR_SECRETS:
                birds.see(f"file {path.name} of wrong settings {number}", data)


def look_at_rest(site: TargetServer, birds: Canaries) -> None:
    """Every value of every table, and every file of the home that is not made for a secret."""
    with site.rows() as ask:
        for table in site.tables():
            for row in ask(f'select * from "{table}"'):
                for value in row:
                    shown = value if isinstance(value, bytes) else str(value).encode()
                    birds.see(f"table {table}", shown)
    for path, data in contents_below(site.home):
        if path.name in MADE_FOR_SECRETS:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        else:
            birds.see(f"file {path.relative_to(site.home)}", data)


def look_at_answers(site: TargetServer, birds: Canaries) -> None:
    """Whatever can be asked for without naming anything, as anybody, and what an admin sees."""
    admin, ann = site.people["admin"], site.people["ann"]
    document: dict[str, Any] = ann.get("/api/v1/openapi.json")
    for path, operations in document["paths"].items():
        place = path.replace("{job_id}", site.things["job_id"]).replace("{user_id}", "ann")
        if "get" in operations and "{" not in place:
            for caller in (admin, ann):
                birds.see(f"GET {place}", caller.call("GET", place).body)
    audit = admin.call("GET", "/api/v1/admin/audit").body
    assert b"token.mail" in audit
    birds.see("the audit", audit)
