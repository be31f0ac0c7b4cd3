"""Users of a team on one machine: a real agent runs their jobs, and one of them looks around."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.sandbox import isolation as runtime_isolation
from paddlecloud.backends.base import ServerContext
from paddlecloud.backends.local import Local, LocalSettings
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, uids
from paddlecloud.db.tables.orders import Want, set_order
from paddlecloud.model.jobs.job import ExitCause, JobType
from paddlecloud.model.policy.pool import Pool
from paddlecloud.model.protocol.websocket import BINARY
from paddlecloud.net import websocket
from paddlecloud.net.endpoint import Endpoint, target_of
from paddlecloud.net.websocket import WebSocket
from paddlecloud.server.deps import utc_now
from paddlecloud.server.http.app import App
from paddlecloud.server.services.agents import lost_agents, orders
from paddlecloud.server.services.placement import isolation
from paddlecloud.server.settings import Settings
from paddlecloud.testing import SignedCaller
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.process import end_agents
from tests.integration.server.world import NODE, World, eventually
from tests.live_files import files_below
from tests.working_directory import kill_in

able = pytest.mark.skipif(
    sys.platform != "linux" or not runtime_isolation.possible(),
    reason="needs Linux 5.12 and the rights of root",
)
COUNTING = (
    "n=$(cat $OUTPUT_PATH/ckpt/n 2>/dev/null || echo 0); mkdir -p $OUTPUT_PATH/ckpt;"
    " n=$((n + 1)); echo $n > $OUTPUT_PATH/ckpt/n; echo attempt $PADDLECLOUD_ATTEMPT counts $n;"
)


class Team:
    """A team server in this process, and the agent of its one machine beside it."""

    def __init__(self, world: World, home: Path, users: frozenset[str] = frozenset()) -> None:
        self.world = world
        self.home = home
        self.agent_dir = home / "agent"
        (home / "server" / "server.key").write_text("canary key")
        (home / "server" / "credentials.json").write_text("canary credentials")
        (home / "server.toml").write_text("# canary settings")
        home.chmod(0o700)
        keys = world.agent_caller(NODE)
        self.agent_keys = {"agent_id": NODE, "ak": keys.ak, "sk": keys.sk}
        self.backends: list[Local] = []
        pool = Pool(
            name="local",
            backend="local",
            private=True,
            remote=False,
            job_types=frozenset({JobType.CPU}),
            users=users,
        )
        world.deps = replace(
            world.deps,
            pools={"local": pool},
            backends={"local": self.machine(self.agent_dir)},
            clock=utc_now,
        )
        world.app = App(world.deps)
        world.enter()
        self.people: dict[str, SignedCaller] = {}

    def machine(self, directory: Path) -> Local:
        """The place whose agent works in this directory."""
        directory.mkdir(mode=0o700)
        url = f"http://127.0.0.1:{self.world.stage.port}"
        config = directory / "agent.json"
        config.write_text(json.dumps({**self.agent_keys, "url": url}))
        # Users of this process alone: other tests run beside it.
        settings = LocalSettings(cpu=4, uid_base=1_000_002 + 10 * os.getpid())
        server = ServerContext(node=NODE, agent_config=config)
        self.backends.append(Local(settings, server))
        return self.backends[-1]

    def submit(self, user: str, command: str, **changes: Any) -> str:
        caller = self.people.setdefault(user, self.world.caller(user))
        job_id = self.world.submit(caller, start_cmd=command, **changes)
        self.world.plan()
        return job_id

    def state(self, job_id: str) -> str:
        return self.world.job(job_id).state.value

    def log(self, job_id: str) -> str:
        job = self.world.job(job_id)
        name = f"users/{job.owner}/output/{job_id}/log/trainer-0.log"
        return (self.world.deps.settings.store_dir / name).read_text("utf-8", "replace")

    def finished(self, job_id: str) -> str:
        eventually(lambda: self.world.job(job_id).final, 60)
        assert self.state(job_id) == "success", self.log(job_id)
        return self.log(job_id)

    def uid(self, user: str) -> int:
        found = self.world.deps.db.read(lambda tx: uids.known(tx, user))
        assert found is not None
        return found

    def place(self, job_id: str, attempt: int = 1) -> Path:
        return self.agent_dir / "replicas" / f"{job_id}.{attempt}.trainer-0"

    def journal(self, directory: Path | None = None) -> str:
        return ((directory or self.agent_dir) / "agent.log").read_text()

    def close(self) -> None:
        for config in self.home.glob("agent*/agent.json"):
            end_agents(config)
        for backend in self.backends:
            if backend._child is not None:
                backend._child.wait(60)
        for directory in self.home.glob("agent*/replicas"):
            kill_in(directory)


def team_settings(settings: Settings) -> Settings:
    running = replace(settings.running, ship_interval=timedelta(seconds=0.2))
    return replace(settings, team=True, default_plan="unlimited", running=running)


@pytest.fixture
def team(make_world: MakeWorld, tmp_path: Path) -> Iterator[Team]:
    team = Team(make_world(change=team_settings), tmp_path / "home")
    team.backends[0].ensure_agent()
    yield team
    team.close()


@able
def test_a_job_finds_nothing_of_the_server_or_of_other_users(team: Team) -> None:
    alice = team.submit(
        "alice",
        "echo canary work > w; echo canary out > $OUTPUT_PATH/o;"
        " echo canary log > $LOCAL_LOG_PATH/l;"
        " echo canary tmp > /tmp/t; echo canary shm > /dev/shm/s; echo canary stdout; touch up;"
        " exec sleep 60",
        env={"SECRET": "canary environment"},
    )
    eventually(lambda: (team.place(alice) / "work" / "up").exists())
    known = [
        *(team.home / "server" / name for name in ("paddlecloud.db", "server.key")),
        *(team.home / "server" / "credentials.json", team.home / "server.toml"),
        *(team.agent_dir / name for name in ("agent.json", "agent.log", "lock")),
        *(team.place(alice) / name for name in ("order.json", "stdout.log", "run.json")),
        *(team.place(alice) / name for name in ("work/w", "output/o", "log/l", "tmp/t")),
    ]
    assert all(path.exists() for path in known)
    known += sorted(files_below(team.world.deps.settings.store_dir))
    looks = "".join(f"cat '{path}' && echo 'read {path}';" for path in known)
    bob = team.submit(
        "bob",
        f"{looks} cat /tmp/t /dev/shm/s; cat /proc/*/environ /proc/*/cmdline;"
        f" find {team.home} /tmp /dev/shm -name '*.key' -o -name '*.db' -o -name o -o -name w;"
        f" ls -R {team.home}/store {team.home}/server; echo x > '{team.home}/mine'; echo looked",
    )
    text = team.finished(bob)
    assert "looked" in text
    assert "canary" not in text
    assert "\nread " not in text
    assert not (team.home / "mine").exists()
    assert team.uid("alice") != team.uid("bob")
    assert (team.place(alice) / "work" / "w").stat().st_uid == team.uid("alice")
    assert team.agent_dir.stat().st_mode & 0o777 == 0o700
    team.world.deps.db.write(lambda tx: set_order(tx, alice, 1, Want.STOP, cause=ExitCause.STOPPED))
    eventually(lambda: team.world.job(alice).final)


@able
def test_its_environment_is_clean_and_its_files_are_its_own(team: Team) -> None:
    job = team.submit(
        "alice",
        "id -u; env | sort; echo more >> run.sh; cat $LOCAL_MOUNT_PATH/run.sh;"
        " echo m > $OUTPUT_PATH/m",
        inherited_env={"PATH": "/somewhere/else", "VIRTUAL_ENV": "/venv"},
    )
    text = team.finished(job)
    lines = text.splitlines()
    assert lines[0] == str(team.uid("alice"))
    assert "USER=alice" in lines and f"HOME={team.place(job)}/home" in lines
    assert "/somewhere/else" not in text and "VIRTUAL_ENV" not in text
    assert "PADDLECLOUD_HOME" not in text
    outputs = team.world.deps.settings.store_dir / f"users/alice/output/{job}/rank-0"
    assert (outputs / "m").read_text() == "m\n"


@able
def test_a_kill_reaches_across_users(team: Team) -> None:
    job = team.submit("alice", "trap '' TERM; (setsid sleep 60 &); touch up; sleep 60; sleep 60")
    eventually(lambda: (team.place(job) / "work" / "up").exists())
    team.world.deps.db.write(
        lambda tx: set_order(
            tx, job, 1, Want.STOP, grace=timedelta(seconds=0.1), cause=ExitCause.STOPPED
        )
    )
    eventually(lambda: team.world.job(job).final)
    owners = []
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            owners += [entry.stat().st_uid] if entry.name.isdigit() else []
    assert team.uid("alice") not in owners


@able
def test_a_retried_job_goes_on_from_its_outputs(team: Team) -> None:
    job = team.submit("alice", f"{COUNTING} [ $n -ge 2 ] || exit 101", max_retries=1)
    eventually(lambda: team.world.job(job).retried == 1)
    team.world.clock.now = team.world.job(job).not_before or team.world.clock()
    team.world.plan()
    assert team.finished(job) == "attempt 2 counts 2\n"
    assert "moved from the previous attempt" in team.journal()
    place = team.world.deps.settings.store_dir / f"users/alice/output/{job}/rank-0/ckpt/n"
    assert place.read_text() == "2\n"


@able
def test_a_job_whose_machine_is_gone_goes_on_from_what_was_shipped(team: Team) -> None:
    job = team.submit("alice", f"{COUNTING} [ $n -ge 2 ] || exec sleep 60", max_retries=1)
    place = team.world.deps.settings.store_dir / f"users/alice/output/{job}/rank-0/ckpt/n"
    eventually(place.exists)
    lose_the_machine(team, job)
    lost_agents.mark_lost(team.world.deps, NODE)
    other = team.home / "agent-2"
    again = {"local": team.machine(other)}
    team.world.deps = replace(team.world.deps, backends=again)
    team.world.plan()
    assert team.finished(job) == "attempt 2 counts 2\n"
    assert "1 files downloaded" in team.journal(other)
    assert place.read_text() == "2\n"


@able
def test_a_preempted_replica_saves_its_work_and_says_why_it_ended(team: Team) -> None:
    wait = (
        "trap 'echo 7 > $OUTPUT_PATH/ckpt/n; exit 0' TERM; touch up; while :; do sleep 0.05; done"
    )
    job = team.submit("alice", f"{COUNTING} [ $n -ge 8 ] && exit 0; {wait}")
    eventually(lambda: (team.place(job) / "work" / "up").exists())

    def preempt(tx: Tx) -> None:
        cause = ExitCause("preempted")
        set_order(tx, job, 1, Want.STOP, grace=timedelta(seconds=60), cause=cause)

    team.world.deps.db.write(preempt)
    ended = team.world.deps.db.read

    def record() -> Any:
        attempt = ended(lambda tx: attempts.get_attempt(tx, job, 1))
        return None if attempt is None else attempt.replicas[0].exit

    eventually(lambda: record() is not None)
    assert (record().cause, record().exit_code) == ("preempted", 0)
    assert record().ran > 0
    place = team.world.deps.settings.store_dir / f"users/alice/output/{job}/rank-0/ckpt/n"
    assert place.read_text() == "7\n"


def lose_the_machine(team: Team, job: str) -> None:
    """Power off: everything stops at once, and its disk is gone."""
    run = json.loads((team.place(job) / "run.json").read_text())
    end_agents(team.agent_dir / "agent.json")
    for pid in (run["monitor_pid"], run["pid"]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(team.agent_dir)


@pytest.fixture
def unable(make_world: MakeWorld, tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A team server whose one agent said that it cannot keep users apart."""
    team = Team(make_world(change=team_settings), tmp_path / "home", frozenset(request.param))
    says(team.world, uid=False)
    return team.world


@pytest.mark.parametrize("unable", [[], ["alice", "bob"]], indirect=True)
def test_a_pool_that_cannot_keep_users_apart_takes_no_job(unable: World) -> None:
    spec = unable.spec()
    reply = unable.user.call(
        "POST", "/api/v1/jobs", body={"spec": spec, "idempotency_key": "k" * 8}
    )
    assert (reply.status, reply.code) == (422, "pool_not_separated")
    assert unable.count("jobs") == 0
    told = isolation.trouble(unable.deps, unable.deps.pools["local"])
    assert told is not None and told.code == "pool_not_separated"


@pytest.mark.parametrize("unable", [["alice"]], indirect=True)
def test_a_pool_that_cannot_keep_users_apart_serves_the_one_it_names(unable: World) -> None:
    pool = unable.deps.pools["local"]
    alice = unable.caller("alice")
    unable.submit(alice)
    assert isolation.uid_for(unable.deps, pool, "alice") is None
    # Whoever came in all the same: such an agent does not run it.
    assert isolation.uid_for(unable.deps, pool, "someone") is not None
    told = isolation.trouble(unable.deps, pool)
    assert told is not None and told.params == {"pool": "local", "user": "alice"}


def test_a_uid_is_given_once_and_to_one_user(make_world: MakeWorld) -> None:
    db = make_world().deps.db
    world_uid = db.write(lambda tx: uids.assign(tx, "someone", 200_000))
    assert world_uid == 200_000
    assert db.write(lambda tx: uids.assign(tx, "someone", 300_000)) == world_uid
    assert db.write(lambda tx: uids.assign(tx, NODE, 199_999)) not in (world_uid, 0)
    strangers = {db.write(lambda tx: uids.assign(tx, "nobody here", 200_000)) for _ in range(2)}
    assert len(strangers) == 2


@pytest.mark.parametrize("chosen", [None, False, True])
@pytest.mark.parametrize("is_team", [False, True])
def test_jobs_of_a_team_create_no_user_namespaces_unless_the_settings_say_so(
    make_world: MakeWorld, is_team: bool, chosen: bool | None
) -> None:
    def change(settings: Settings) -> Settings:
        running = replace(settings.running, user_namespaces=chosen)
        return replace(settings, team=is_team, default_plan="unlimited", running=running)

    _, order = make_world(change=change).placed()
    assert order["run"]["user_namespaces"] is (not is_team if chosen is None else chosen)


GIB = 2**30


@pytest.mark.parametrize(
    ("is_team", "chosen", "asked", "want"),
    [
        (False, None, None, None),
        (False, GIB, None, GIB),
        (True, None, None, 0.9),
        (True, GIB, None, GIB),
        (True, 0, None, None),
        (True, None, 2 * GIB, 2 * GIB),
        (True, GIB, 2 * GIB, 2 * GIB),
    ],
)
def test_a_job_of_a_team_that_asks_for_no_memory_leaves_some_to_the_machine(
    make_world: MakeWorld,
    is_team: bool,
    chosen: int | None,
    asked: int | None,
    want: float | None,
) -> None:
    def change(settings: Settings) -> Settings:
        running = replace(settings.running, default_memory=chosen)
        return replace(settings, team=is_team, default_plan="unlimited", running=running)

    world = make_world(change=change)
    more = {} if asked is None else {"memory": asked}
    _, order = world.placed(**more)
    has = world.deps.nodes()["local"][0].total.memory
    share = round(has * want) if isinstance(want, float) else want
    assert order["run"]["memory_limit"] == share


def test_the_reserve_of_a_large_machine_is_no_tenth() -> None:
    assert orders.spared(100 * GIB) == 96 * GIB
    assert orders.spared(10 * GIB) == 9 * GIB


@able
def test_a_job_that_takes_more_than_jobs_without_memory_may_is_told_so(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    if not cgroups.detect().enforces()["memory"]:
        pytest.skip("this machine cannot limit the memory of a process group")

    def change(settings: Settings) -> Settings:
        known = team_settings(settings)
        return replace(known, running=replace(known.running, default_memory=64 * 2**20))

    team = Team(make_world(change=change), tmp_path / "home")
    team.backends[0].ensure_agent()
    try:
        job = team.submit("alice", "head -c 300000000 /dev/zero | tail -c 300000000 > /dev/null")
        eventually(lambda: team.world.job(job).final, 60)
        seen = team.people["alice"].get(f"/api/v1/jobs/{job}")
        assert seen["job_status"] == "failed"
        assert "64 MiB" in seen["error_msg"] and "without --memory" in seen["error_msg"]
        assert "--memory" in seen["failure"]["advice"]
    finally:
        team.close()


@able
def test_a_job_of_a_team_creates_no_user_namespace(team: Team) -> None:
    job = team.submit("alice", "unshare -U echo created; echo over")
    text = team.finished(job)
    assert text.endswith("over\n")
    assert "created" not in text
    (worker,) = team.people["alice"].get(f"/api/v1/jobs/{job}")["workers"]
    assert worker["enforced"]["user_namespaces"] is True


def test_the_embedded_server_gives_no_uid_and_hides_nothing(world: World) -> None:
    _, order = world.placed()
    assert (order["run"]["uid"], order["run"]["hide"], order["run"]["resumes"]) == (None, [], None)


@pytest.mark.parametrize("able_to", [False, True])
def test_doctor_names_the_machines_of_a_team_without_a_memory_limit(
    make_world: MakeWorld, tmp_path: Path, able_to: bool
) -> None:
    team = Team(make_world(change=team_settings), tmp_path / "home")
    says(team.world, uid=True, memory=able_to)
    checks = team.world.user.get("/api/v1/doctor")["checks"]
    (agent,) = (each for each in checks if each["name"] == "agent")
    assert agent["ok"]
    assert (f"no memory limit on {NODE}" in agent["detail"]) is not able_to


def says(world: World, *, uid: bool, memory: bool = True) -> None:
    """The agent polls and says whether it can."""
    agent = world.agent
    question = {
        "agent": NODE,
        "boot": agent.boot,
        "version": agent.version,
        "cursor": 0,
        "wait": 0,
        "capacity": {"cpu": 4.0, "memory": 2**30},
        "enforces": {"uid": uid, "memory": memory},
    }
    answer = agent.caller.post("/api/v1/agent/poll", question)
    assert answer["settings"]["separate"] is True


@able
def test_a_command_beside_a_job_is_its_user_and_sees_its_view(team: Team) -> None:
    job = team.submit(
        "alice", "echo mine > /tmp/t; echo shared > /dev/shm/s; touch up; exec sleep 60"
    )
    eventually(lambda: (team.place(job) / "work" / "up").exists())
    eventually(lambda: team.state(job) == "running")
    key = team.home / "server" / "server.key"
    script = (
        f"id -u; pwd; cat /tmp/t /dev/shm/s; cat '{key}' || echo hidden; echo $USER; touch own;"
    )
    script += " echo again > /dev/stdout"
    alice = team.people["alice"]
    made = alice.post(f"/api/v1/jobs/{job}/commands", {"argv": ["sh", "-c", script]})
    path = f"/api/v1/jobs/{job}/commands/{made['id']}"
    eventually(lambda: alice.get(path)["ended_at"] is not None)
    text = alice.call("GET", f"{path}/output").body
    out = text[5 : 5 + int.from_bytes(text[1:5], "big")].decode()
    work = team.place(job) / "work"
    want = [str(team.uid("alice")), str(work), "mine", "shared", "hidden", "alice", "again"]
    assert out.splitlines() == want
    assert (work / "own").stat().st_uid == team.uid("alice")
    other = team.world.caller("bob").call("POST", f"{path}/stop")
    assert (other.status, other.code) == (404, "job_unknown")
    alice.post(f"/api/v1/jobs/{job}/kill")
    eventually(lambda: team.world.job(job).final)


@able
def test_a_tunnel_leads_to_ports_of_the_user_and_a_terminal_is_the_user_s(team: Team) -> None:
    listen = (
        "exec python3 -c 'import socket, time;"
        ' s = socket.create_server(("127.0.0.1", 0)); open("port", "w").write('
        "str(s.getsockname()[1])); time.sleep(60)'"
    )
    job, others = team.submit("alice", listen), team.submit("bob", listen)
    ports = [team.place(one) / "work" / "port" for one in (job, others)]
    eventually(lambda: all(port.exists() and port.read_text() for port in ports), 30)
    alice = team.people["alice"]
    eventually(lambda: team.state(job) == "running", 30)
    endpoint = Endpoint(f"http://127.0.0.1:{alice.port}", alice.ak, alice.sk)

    def opened(path: str, **query: object) -> tuple[int, str, WebSocket | None]:
        target = target_of(f"/jobs/{job}/{path}", query)
        response = websocket.connect(endpoint, target, proxy=None, timeout=30)
        if response.status == 101:
            return 101, "", WebSocket(response, endpoint)
        return response.status, json.loads(response.read())["error"]["code"], None

    status, _, tunnel = opened("tunnel", port=int(ports[0].read_text()))
    assert status == 101 and tunnel is not None
    tunnel.close()
    assert opened("tunnel", port=int(ports[1].read_text()))[:2] == (422, "tunnel_port_foreign")
    # That of the server itself, too.
    assert opened("tunnel", port=alice.port)[:2] == (422, "tunnel_port_foreign")
    terminal = {"term": "vt220", "rows": 7, "columns": 70}
    script = "id -u; stty size; tty > /dev/tty; echo $TERM"
    asked = {"argv": ["sh", "-c", script], "terminal": terminal}
    made = alice.post(f"/api/v1/jobs/{job}/commands", asked)
    _, code, tunnel = opened(f"commands/{made['id']}/terminal")
    assert tunnel is not None, code
    shown = b""
    while not tunnel.ended:
        shown += b"".join(data for kind, data in tunnel.receive() if kind == BINARY)
    tunnel.close()
    uid, size, name, term = shown.decode().split("\r\n")[:4]
    assert (int(uid), size, term) == (team.uid("alice"), "7 70", "vt220"), shown
    assert name.startswith("/dev/pts/")
