"""`gen_token` as the documents show it: a real server, a real mail server, a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddlecloud.client import local_server
from paddlecloud.client.config.template import documented_file
from tests.integration.cli.person import PROGRAM, WAIT, Person, until
from tests.integration.server.mail_world import mails_to
from tests.integration.server.process import ServerProcess
from tests.integration.server.smtp import SmtpServer, text_of
from tests.ports import free_port

CONF = """\
// kept as it is
[openapi]
host = 127.0.0.1
port = {port}

[bcc]:
ak: "b" // mine
"""


class Team:
    """A team's server that mails through a server of its own."""

    def __init__(self, home: Path, smtp: SmtpServer) -> None:
        self.smtp = smtp
        home.mkdir()
        (home / "server.toml").write_text(
            f'team = true\nkey = "{"s" * 40}"\n[http]\nport = {free_port()}\n'
            "[tokens]\nper_address = 100\nper_source = 1000\n"
            f'[mail]\nhost = "127.0.0.1"\nport = {smtp.port}\nsecurity = "none"\n'
            'sender = "cloud@example.com"\n[replica]\nagent = false\n'
        )
        (home / "server.toml").chmod(0o600)
        self.process = ServerProcess(home)
        self.process.start()

    def keys_for(self, address: str) -> tuple[str, str]:
        """ak and sk of the first mail to them; mails to others may come at any time."""
        until(lambda: mails_to(self.smtp, address))
        text = text_of(mails_to(self.smtp, address)[0][0])
        ak, sk = re.search(r"^ak: (\w+)$", text, re.M), re.search(r"^sk: (\w+)$", text, re.M)
        assert ak is not None and sk is not None, text
        return ak[1], sk[1]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    top = tmp_path_factory.mktemp("team")
    with SmtpServer(top / "mails") as smtp:
        team = Team(top / "home", smtp)
        yield team
        team.process.close()


@pytest.fixture
def person(tmp_path: Path, team: Team) -> Person:
    here = tmp_path / "here"
    here.mkdir()
    person = Person(home=tmp_path / "home", here=here)
    person.home.mkdir()
    conf(person).write_text(CONF.format(port=team.process.port))
    return person


def conf(person: Person) -> Path:
    return person.home / "client.conf"


def test_the_dialogue_of_the_documents(team: Team, person: Person) -> None:
    with AtATerminal(person, "gen_token", "--email=张三@163.com") as terminal:
        terminal.sees("create_token...\r\n")
        terminal.sees("Paste your ak here:")
        ak, sk = team.keys_for("张三@163.com")
        terminal.types(ak)
        terminal.sees("Paste your sk here:")
        terminal.types(sk)
        terminal.sees("create_token done\r\n")
        assert terminal.ends() == 0
    assert sk not in terminal.shown, "the terminal showed the secret"
    text = conf(person).read_text()
    assert text.startswith(CONF.format(port=team.process.port))
    assert f"ak = {ak}\nsk = {sk}\n" in text
    assert stat.S_IMODE(conf(person).stat().st_mode) == 0o600
    who = person.types("token", "list", "--json")
    assert [row["ak"] for row in who.json] == [ak]


def test_pasted_lines_may_come_from_a_pipe_and_with_their_names(team: Team, person: Person) -> None:
    with piped(person, "gen_token", "--email=bob@example.com", "--json") as process:
        ak, sk = team.keys_for("bob@example.com")
        out, err = process.communicate(f"  ak: {ak} \nsk = {sk}\r\n".encode(), timeout=WAIT)
    assert process.returncode == 0, err
    assert json.loads(out) == {"user_id": "bob", "ak": ak, "path": str(conf(person))}
    assert err.decode().splitlines()[0] == "create_token..."
    assert sk not in out.decode() + err.decode()


def test_wrong_keys_are_asked_for_again_and_nothing_is_kept(team: Team, person: Person) -> None:
    before = conf(person).read_bytes()
    with piped(person, "gen_token", "--email=carl@example.com") as process:
        ak, sk = team.keys_for("carl@example.com")
        lines = f"{ak}\nwrong\nnonsense/x\n{sk}\n{ak}\n{ak}\n"
        out, err = process.communicate(lines.encode(), timeout=WAIT)
    assert process.returncode == 1
    assert conf(person).read_bytes() == before
    assert out.decode().count("Paste your ak here:") == 3
    assert "create_token done" not in out.decode()
    assert err.decode().count("these keys are not valid: the signature does not match") == 1
    assert err.decode().count("does not know the access key nonsense/x; paste the pair") == 1
    assert "gen_token" not in err.decode()
    stdin = f"x\ny\n\n\n\n{ak}\n\n{sk}\n"
    again = person.types("gen_token", "--email=carl@example.com", stdin=stdin)
    assert again.code == 0, again.err
    assert f"ak = {ak}" in conf(person).read_text()


def test_who_leaves_changes_nothing(team: Team, person: Person) -> None:
    before = conf(person).read_bytes()
    done = person.types("gen_token", "--email=dora@example.com", stdin="")
    assert (done.code, conf(person).read_bytes()) == (1, before)
    assert "nothing was changed" in done.err
    with AtATerminal(person, "gen_token", "--email=dora@example.com") as terminal:
        terminal.sees("Paste your ak here:")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ends() == 130
    assert conf(person).read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ((), 2, "--email="),
        (("--email=nonsense",), 2, "is not a valid mail address"),
        (("--email=",), 2, "--email="),
    ],
)
def test_a_wrong_address_is_named(
    person: Person, words: tuple[str, ...], code: int, part: str
) -> None:
    done = person.types("gen_token", *words, stdin="")
    assert done.code == code
    assert part in done.err
    assert done.err.count("\n") == 1


def test_keys_of_the_environment_win_and_that_is_told(team: Team, person: Person) -> None:
    with piped(person, "gen_token", "--email=ed@example.com", PADDLECLOUD_AK="a") as process:
        ak, sk = team.keys_for("ed@example.com")
        _, err = process.communicate(f"{ak}\n{sk}\n".encode(), timeout=WAIT)
    assert process.returncode == 0, err
    assert "PADDLECLOUD_AK also holds keys" in err.decode()


@pytest.mark.parametrize(
    "words", [(), ("--email=",), ("--email=nonsense",), ("--email=张 三@163.com",)]
)
def test_the_embedded_server_needs_an_address_too(
    newcomer: Callable[[str], Person], words: tuple[str, ...]
) -> None:
    person = newcomer("home")
    done = person.types("gen_token", *words)
    assert (done.code, done.out, conf(person).exists()) == (2, "", False)
    assert "paddlecloud gen_token --email=your_name@163.com" in done.err or (
        f"{words[0].removeprefix('--email=')} is not a valid mail address" in done.err
    )
    assert not local_server.is_alive(str(person.home)), "for that no server is needed"


def test_a_first_token_writes_the_whole_documented_file(team: Team, person: Person) -> None:
    conf(person).unlink()
    host = {"PADDLECLOUD_HOST": f"http://127.0.0.1:{team.process.port}"}
    with piped(person, "gen_token", "--email=gil@example.com", **host) as process:
        ak, sk = team.keys_for("gil@example.com")
        _, err = process.communicate(f"{ak}\n{sk}\n".encode(), timeout=WAIT)
    assert process.returncode == 0, err
    port = team.process.port
    filled = {"user_id =": "user_id = gil", "ak =": f"ak = {ak}", "sk =": f"sk = {sk}"}
    want = documented_file("127.0.0.1", str(port))
    for empty, line in filled.items():
        want = want.replace(f"\n{empty}\n", f"\n{line}\n", 1)
    assert conf(person).read_text() == want
    assert person.types("token", "list").code == 0, "the file alone names server and keys"


def test_the_private_server_hands_out_keys_at_once(newcomer: Callable[[str], Person]) -> None:
    person = newcomer("home")
    person.home.mkdir()
    conf(person).write_text("# mine\n[main]\ndebug = 0\nuserid: old\n")
    done = person.types("gen_token", "--email=your_name@163.com")
    assert done.code == 0, done.err
    assert done.out == "create_token...\ncreate_token done\n"
    text = conf(person).read_text()
    ak = re.search(r"^ak = (\w{32})$", text, re.M)
    assert ak is not None and text.startswith("# mine\n[main]\ndebug = 0\nuserid: ")
    assert local_server.is_alive(str(person.home))
    names = {row["ak"]: row["name"] for row in person.types("token", "list", "--json").json}
    assert names[ak[1]] == "gen_token"
    asked = person.types("gen_token", "--email=张三@163.com", "--json")
    assert (asked.code, asked.json["path"]) == (0, str(conf(person)))


def test_admins_do_their_work_from_the_command_line(team: Team, person: Person) -> None:
    chief = Person(home=team.process.home, here=person.here)
    made = chief.types("admin", "user", "create", "fay", "--email=fay@example.com", "--json")
    assert (made.code, made.json["plan"]) == (0, "free"), made.err
    token = chief.types("admin", "token", "create", "fay", "--scope=read", "--json")
    assert "the sk is only shown once" in token.err
    fay = {"PADDLECLOUD_AK": token.json["ak"], "PADDLECLOUD_SK": token.json["sk"]}
    assert person.types("list_jobs", "--json", **fay).json == []
    refused = person.types("token", "create", **fay)
    assert (refused.code, "is read-only" in refused.err) == (1, True)
    none = person.types("admin", "user", "list", **fay)
    assert (none.code, "only an admin" in none.err) == (1, True)
    shown = chief.types("admin", "user", "set", "fay", "--role=readonly", "--plan=unlimited")
    assert "role: readonly\n" in shown.out and "plan: unlimited\n" in shown.out
    assert chief.types("admin", "user", "disable", "fay").code == 0
    assert person.types("list_jobs", **fay).code == 1
    assert chief.types("admin", "user", "enable", "fay").code == 0
    assert person.types("list_jobs", **fay).code == 0
    gone = chief.types("admin", "token", "revoke", token.json["ak"])
    assert (gone.code, person.types("list_jobs", **fay).code) == (0, 1)
    rows = chief.types("admin", "audit", "--user=fay", "--since=1h", "--json").json
    assert [row["action"] for row in reversed(rows)] == [
        "user.create", "token.create", "user.set", "user.disable", "user.enable", "token.revoke",
    ]  # fmt: skip
    assert token.json["sk"] not in json.dumps(rows)
    assert "fay\treadonly\tunlimited\tfay@example.com" in chief.types("admin", "user", "list").out
    assert chief.types("admin", "pool", "list").code == 0
    assert chief.types("admin", "job", "list", "--user=fay").out == ""
    assert chief.types("admin", "user", "delete", "fay").code == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("admin", "user", "show"), "needs a user id"),
        (("admin", "token", "revoke"), "needs an access key"),
        (("token", "revoke"), "needs an access key"),
        (("admin", "audit", "--since=yesterday"), "is neither a duration"),
        (("admin", "audit", "--since=99999999999d"), "is neither a duration"),
        (("admin", "user", "set", "admin"), "at least one of"),
        (("admin", "user", "create", "a/b"), "letters, digits, _ . and -"),
    ],
)
def test_a_wrong_word_of_an_admin_is_named(
    team: Team, person: Person, words: tuple[str, ...], part: str
) -> None:
    done = Person(home=team.process.home, here=person.here).types(*words)
    assert (done.code, part in done.err) == (2, True), done.err


def piped(person: Person, *words: str, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [PROGRAM, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=person.here,
        env=person.environ(more),
    )


class AtATerminal:
    """The real command on a terminal of its own."""

    def __init__(self, person: Person, *words: str) -> None:
        self._person, self._words = person, words
        self.shown = ""
        self._read = 0

    def __enter__(self) -> AtATerminal:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [PROGRAM, *self._words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self._person.here,
            env=self._person.environ(),
            start_new_session=True,
        )
        os.close(slave)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def sees(self, text: str) -> None:
        """Read on until the text is there, behind what was seen before."""
        deadline = time.monotonic() + WAIT
        while text not in self.shown[self._read :]:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown!r}"
            assert self._receive(deadline), f"it ended without {text!r}: {self.shown!r}"
        self._read = self.shown.index(text, self._read) + len(text)

    def types(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def ends(self) -> int:
        while self._receive(time.monotonic() + WAIT):
            pass
        return self.process.wait(WAIT)

    def _receive(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"nothing more came after {self.shown!r}"
        try:
            piece = os.read(self._master, 4096)
        except OSError:  # its other end is closed
            return False
        self.shown += piece.decode("utf-8", "replace")
        return bool(piece)
