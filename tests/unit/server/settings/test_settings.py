"""server.toml: what is right is read, what is wrong is told with its place and a suggestion."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import tzset

import pytest

from paddlecloud.backends.local import LocalSettings
from paddlecloud.backends.scripted import Script
from paddlecloud.model.errors import ConfigError
from paddlecloud.model.policy.quota import FREE, UNLIMITED
from paddlecloud.server.settings import (
    PoolSettings,
    Settings,
    check_command,
    read_settings,
    read_with_origins,
)
from paddlecloud.server.settings.load import read_pool

TOP = Path(__file__).resolve().parents[4]
ENGLISH = re.compile(r"\b(?:an|and|is|it|not|of|or|such|the|to|with)\b")
"""Words that only an English sentence has; names of settings, states and programs have none."""

RIGHT = """
name = "cloud.example"
time_zone = "Asia/Shanghai"

[http]
port = 8080
max_json = 1000000

[scheduling]
schedule_timeout = 3600
window = 10

[running]
grace = 0.5

[retention]
finished_jobs = 86400

[local_pool]
cpu = 2.5
memory = 1073741824
gpu = 1
"""


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == Settings(home=tmp_path)


@pytest.mark.parametrize(
    ("text", "want"),
    [("0", timedelta(0)), ('"0d"', timedelta(0)), ('"2d"', timedelta(days=2))],
)
def test_the_audit_may_be_kept_for_ever(tmp_path: Path, text: str, want: timedelta) -> None:
    (tmp_path / "server.toml").write_text(f"[retention]\naudit = {text}\n")
    assert read_settings(tmp_path).retention.audit == want


@pytest.mark.parametrize("text", ["-1", '"soon"', "true", "1e12"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.toml").write_text(f"[retention]\naudit = {text}\n")
    with pytest.raises(ConfigError, match="0 or more"):
        read_settings(tmp_path)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("")
    assert read_settings(tmp_path) == Settings(home=tmp_path)


def test_what_is_given_is_used_and_the_rest_stays(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(RIGHT)
    settings = read_settings(tmp_path)
    assert (settings.name, str(settings.zone)) == ("cloud.example", "Asia/Shanghai")
    assert (settings.http.port, settings.http.host) == (8080, "127.0.0.1")
    assert settings.scheduling.schedule_timeout == timedelta(hours=1)
    assert settings.scheduling.window == 10
    assert settings.running.grace == timedelta(milliseconds=500)
    assert settings.running.lost_after == Settings(home=tmp_path).running.lost_after
    assert settings.retention.finished_jobs == timedelta(days=1)
    assert (settings.local_pool.cpu, settings.local_pool.memory, settings.local_pool.gpu) == (
        2.5,
        2**30,
        1,
    )


def test_the_file_of_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('name = "home"')
    other = tmp_path / "other.toml"
    other.write_text('name = "other"')
    assert read_settings(tmp_path, other).name == "other"


WRONG = [
    ("colour = 1", "unknown setting colour; did you mean"),
    ("nmae = 'x'", "unknown setting nmae; did you mean name?"),
    ("home = '/elsewhere'", "unknown setting home"),
    ("[htpp]\nport = 1", "unknown setting htpp; did you mean http?"),
    ("[http]\nprot = 1", "unknown setting http.prot; did you mean http.port?"),
    ("[running]\ngrce = 1", "did you mean running.grace?"),
    ("[http]\nport = 'x'", "http.port = x is not a whole number, 0 or more"),
    ("[http]\nport = -1", "http.port = -1 is not a whole number, 0 or more"),
    ("[http]\nport = true", "http.port = True is not a whole number"),
    ("[http]\nhost = 1", "http.host = 1 is not a text in quotes"),
    ("[http]\nhost = '0.0.0.0'", "http.host = 0.0.0.0 is not a loopback address"),
    ("[http]\nhost = 'cloud.example'", "http.host = cloud.example is not a loopback address"),
    ("[http]\nhost = '::'", "http.host = :: is not a loopback address"),
    ("[http]\nhost = ''", "http.host =  is not an address to listen on"),
    ("[http]\nhost = 'a:80'", "http.host = a:80 is not an address to listen on"),
    ("[http]\ntls_cert = 'c'", "http.tls_key = (not set) is not the other half of the pair"),
    ("[http]\ntls_key = 'k'", "http.tls_cert = (not set) is not the other half of the pair"),
    ("[http]\ninsecure = 1", "http.insecure = 1 is not true or false"),
    ("[http]\npublic_url = 'cloud'", "http.public_url = cloud is not a URL such as https"),
    ("[http]\npublic_url = 'https://a/b'", "is not a URL such as https"),
    ("[http]\nallowed_hosts = 'a'", "http.allowed_hosts = a is not a list of texts"),
    ("[http]\nallowed_hosts = ['a:1']", "http.allowed_hosts = a:1 is not a host name"),
    ("[http]\nmax_json = '10Gb/s'", "http.max_json = 10Gb/s is not a whole number of bytes"),
    ("[http]\nmax_connections = 0", "http.max_connections = 0 is not a whole number above 0"),
    ("[running]\ngrace = '40 s'", "running.grace = 40 s is not a number of seconds above 0"),
    ("[running]\ngrace = '0s'", "running.grace = 0s is not a number of seconds above 0"),
    ("[running]\ngrace = '99999d'", "running.grace = 99999d is not a number of seconds"),
    ("[mail]\nsecurity = 'ssl'", "mail.security = ssl is not one of starttls, tls, none"),
    ("[mail]\nport = 0", "mail.port = 0 is not a port"),
    ("[mail]\nhost = 'mx'", "mail.sender =  is not a mail address"),
    ("[mail]\nhost = 'mx'\nsender = 'me'", "mail.sender = me is not a mail address"),
    ("[tokens]\nagain = 'both'", "tokens.again = both is not one of replace, add"),
    ("[tokens]\nlang = 'fr'", "tokens.lang = fr is not one of en, zh"),
    ("[tokens]\ndomains = ['a@b.c']", "tokens.domains = a@b.c is not a mail domain"),
    ("[database]\nurl = 'mysql://h/d'", "database.url = (hidden) is not a URL such as"),
    ("[database]\nconnections = 0", "database.connections = 0 is not a whole number above 0"),
    ("[replica]\nnode = 'a b'", "replica.node = a b is not a name"),
    ("default_plan = 'gold'", "default_plan = gold is not one of the plans: free, unlimited"),
    ("plans = 1", "plans = 1 is not a section: write [plans] above its keys"),
    ("[plans]\nfree = 1", "plans.free = 1 is not a section: write [plans.free] above its keys"),
    ("[plans.free]\nminutes = 1", "unknown setting plans.free.minutes"),
    ("[plans.free]\ncpu = 'many'", "plans.free.cpu = many is not a number"),
    ("[plans.'a b']\ncpu = 1", "plans.a b = a b is not a name"),
    ("[plans.free]\nmax_priority = 'top'", "max_priority = top is not one of low, normal"),
    ("[pools]\nname = 'a'", "pools.name = a is not a section: write [pools.name] above its keys"),
    ("pools = 1", "pools = 1 is not a section"),
    ("[pools.'a b']", "pools.a b = a b is not a name"),
    ("[pools.a]\nkind = 'moon'", "pools.a.kind = moon is not a backend"),
    ("[pools.a]\nkind = 1", "pools.a.kind = 1 is not a text"),
    ("[pools.a]\nknd = 'local'", "unknown setting pools.a.knd; did you mean pools.a.kind?"),
    ("[pools.a]\nmemroy = 1", "unknown setting pools.a.memroy; did you mean pools.a.memory?"),
    ("[pools.a]\nmemory = 'x'", "pools.a.memory = x is not a whole number of bytes"),
    ("[pools.a]\ncpu = 0", "pools.a.cpu = 0 is not a number above 0"),
    ("[pools.a]\nkind = 'scripted'\nnodes = 1.5", "pools.a.nodes = 1.5 is not a whole number"),
    ("[pools.a]\njob_types = ['tpu']", "pools.a.job_types = ['tpu'] is not a list"),
    ("[pools.a]\n[pools.b]", "pools = a, b is not one pool of backend"),
    ("[[pools]]\nbackend = 'local'", "pools. =  is not a name"),
    ("[[pools]]\nnmae = 'a'", "unknown setting pools[0].nmae; did you mean pools[0].name?"),
    ("[[pools]]\nname = 'a'\nbackend = 'moon'", "pools[0].backend = moon is not a backend"),
    ("[[pools]]\nname = 'a'\nbackend = 'base'", "pools[0].backend = base is not a backend"),
    ("[[pools]]\nname = 'a'\njob_types = ['tpu']", "pools.a.job_types = ['tpu'] is not a list"),
    ("[[pools]]\nname = 'a'\n[[pools]]\nname = 'a'", "pools.a = a is not a name that only"),
    ("[[pools]]\nname = 'a'\n[[pools]]\nname = 'b'", "pools = a, b is not one pool of backend"),
    ("[[pools]]\nname = 'a'\nsettings = {cup = 1}", "unknown setting pools[0].settings.cup"),
    ("[[pools]]\nname = 'a'\nsettings = {memory = 'x'}", "pools[0].settings.memory = x is not"),
    ("[[pools]]\nname = 'a'\nsettings = {cpu = [1]}", "pools[0].settings.cpu = [1] is not"),
    ("[running]\ngrace = 0", "running.grace = 0 is not a number of seconds above 0"),
    ("[local_pool]\ncpu = 'all'", "local_pool.cpu = all is not a number"),
    ("[http]\nport = 80.5", "http.port = 80.5 is not a whole number, 0 or more"),
    ("[http]\nport = 65536", "http.port = 65536 is not a port, 0 to 65535"),
    ("[running]\ngrace = inf", "running.grace = inf is not"),
    ("[running]\ngrace = 1e300", "running.grace = 1e+300 is not"),
    ("[local_pool]\ncpu = nan", "local_pool.cpu = nan is not"),
    ("time_zone = 'Mars/Base'", "time_zone = Mars/Base is not a zone name such as Asia/Shanghai"),
    ("time_zone = '../../etc/passwd'", "is not a zone name"),
    ("http = 1", "http = 1 is not a section: write [http] above its keys"),
    ("[name]\nx = 1", "name = {'x': 1} is not a text in quotes"),
    ("name", "cannot read"),
]


@pytest.mark.parametrize(("text", "want"), WRONG)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path)
    assert want in str(caught.value)
    assert str(path) in str(caught.value)
    if caught.value.code != "settings_unreadable":
        assert ENGLISH.findall(caught.value.text("zh").replace(str(path), "")) == []
    assert caught.value.text("zh") != str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_settings(tmp_path, tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read"):
        read_settings(tmp_path, tmp_path / "binary.toml")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "::1"])
def test_addresses_of_this_machine_alone_are_fine(tmp_path: Path, host: str) -> None:
    (tmp_path / "server.toml").write_text(f"[http]\nhost = '{host}'")
    assert read_settings(tmp_path).http.host == host


TEAM = """
team = true
[http]
host = "::"
tls_cert = "tls/cert.pem"
tls_key = "/etc/key.pem"
public_url = "https://cloud.example"
max_json = "16Mi"
[tokens]
domains = ["example.com"]
[plans.free]
minutes_a_day = "unlimited"
storage = "5Gi"
[plans.lab]
gpu = 8
[pools.office]
users = ["ann"]
cpu = 8
memory = "16Gi"
[retention]
finished_jobs = "30d"
"""


def test_a_team_server_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(TEAM)
    settings = read_settings(tmp_path)
    assert (settings.team, settings.name, settings.default_plan) == (True, "cloud.example", "free")
    assert (settings.tls, settings.port, settings.zone) == (True, 8443, None)
    assert settings.http.tls_cert == str(tmp_path / "tls" / "cert.pem")
    assert (settings.http.tls_key, settings.http.max_json) == ("/etc/key.pem", 16 * 2**20)
    assert (settings.plans["free"].minutes_a_day, settings.plans["free"].storage) == (None, 5 << 30)
    assert settings.plans["free"].running_jobs == FREE.running_jobs
    assert (settings.plans["lab"].gpu, settings.plans["lab"].waiting_jobs) == (8, 1000)
    assert settings.plans["unlimited"] == UNLIMITED
    given = LocalSettings(cpu=8, memory=16 << 30)
    assert settings.pools == (PoolSettings(name="office", users=("ann",), settings=given),)
    assert settings.retention.finished_jobs == timedelta(days=30)


def test_a_team_server_needs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("team = true")
    settings = read_settings(tmp_path)
    assert settings == Settings(home=tmp_path, team=True)
    assert (settings.port, settings.default_plan, settings.zone) == (8080, "free", None)
    assert [pool.name for pool in settings.pool_list] == ["local"]
    assert Settings(home=tmp_path).default_plan == "unlimited"


@pytest.mark.parametrize("extra", ["tls_cert = 'c'\ntls_key = 'k'", "insecure = true"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "cloud.example"])
def test_beyond_this_machine_with_tls_or_on_ones_own_word(
    tmp_path: Path, host: str, extra: str
) -> None:
    (tmp_path / "server.toml").write_text(f"[http]\nhost = '{host}'\n{extra}")
    assert read_settings(tmp_path).http.host == host


SECRET = "s3cret-" * 6


def test_a_secret_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "server.toml").write_text(
        'key = { env = "KEY" }\n[mail]\npassword = { file = "password" }'
    )
    settings, origins = read_with_origins(tmp_path, None, {"KEY": SECRET})
    assert (settings.key, settings.mail.password) == (SECRET, SECRET)
    password = tmp_path / "password"
    assert origins == {"key": "env KEY", "mail.password": f"file {password}"}
    assert SECRET not in repr(settings)


def test_a_secret_in_the_file_needs_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(f"key = '{SECRET}'\nold_keys = ['{SECRET}']")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"mode 0640.*chmod 600") as caught:
        read_settings(tmp_path)
    assert SECRET not in str(caught.value)
    path.chmod(0o600)
    assert read_settings(tmp_path).old_keys == (SECRET,)


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("postgresql:///cloud", True),
        ("postgresql://me@db/cloud?sslmode=require", True),
        ("postgresql://me:pw@db/cloud", False),
        ("postgresql://db/cloud?user=me&password=pw", False),
    ],
)
def test_an_address_without_a_password_is_no_secret(tmp_path: Path, url: str, fine: bool) -> None:
    path = tmp_path / "server.toml"
    path.write_text(f"[database]\nurl = '{url}'")
    path.chmod(0o644)
    if fine:
        assert read_settings(tmp_path).database.url == url
    else:
        with pytest.raises(ConfigError, match=r"database\.url is a secret"):
            read_settings(tmp_path)


WRONG_SECRETS = [
    ("key = { env = 'NO_KEY' }", "the environment variable NO_KEY of key is not set"),
    ("key = { env = 'EMPTY' }", "the environment variable EMPTY of key is not set"),
    ("key = { file = 'none' }", "none of key: No such file"),
    ("key = { file = 'empty' }", "empty of key: it is empty"),
    ("key = { file = 'binary' }", "binary of key: it is not a text"),
    ("key = { vault = 'x' }", "key = (hidden) is not a text in quotes"),
    ("key = 12345678901234567890123456789012", "key = (hidden) is not a text in quotes"),
    ("key = 'short-canary'", "key = (hidden) is not a secret of 32 characters or more"),
    ("old_keys = ['short-canary']", "old_keys[0] = (hidden) is not a secret of 32 characters"),
    ("[database]\nurl = 'canary://me:canary@h:port/d'", "database.url = (hidden) is not"),
]


@pytest.mark.parametrize(("text", "want"), WRONG_SECRETS)
def test_a_wrong_secret_is_told_without_itself(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    path.chmod(0o600)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path, None, {"EMPTY": " "})
    assert want in str(caught.value)
    assert "canary" not in str(caught.value) + caught.value.text("zh")
    if caught.value.code != "settings_no_secret_file":
        assert ENGLISH.findall(caught.value.text("zh").replace(str(tmp_path), "")) == []


def test_the_example_of_deploy_is_right(tmp_path: Path) -> None:
    environ = {
        "PADDLECLOUD_DATABASE": "postgresql://paddlecloud:pw@db/paddlecloud",
        "PADDLECLOUD_KEY": SECRET,
        "PADDLECLOUD_SMTP_PASSWORD": "pw",
    }
    settings = read_settings(tmp_path, TOP / "deploy" / "server.toml", environ)
    assert (settings.team, settings.tls) == (True, True)
    assert settings.database.url == environ["PADDLECLOUD_DATABASE"]


def test_what_the_example_shows_in_comments_is_right_too(tmp_path: Path) -> None:
    """A `#` with a key right after it shows a setting; it is read as if it were one."""
    text = (TOP / "deploy" / "server.toml").read_text("utf-8")
    shown = re.sub(r"(?m)^#(?=[a-z])", "", text)
    assert len(tomllib.loads(shown)["http"]) > len(tomllib.loads(text)["http"])
    path = tmp_path / "server.toml"
    path.write_text(shown)
    names = ("KEY", "OLD_KEY", "SMTP_PASSWORD", "STORE_AK", "STORE_SK")
    environ = {f"PADDLECLOUD_{name}": SECRET for name in names}
    environ["PADDLECLOUD_DATABASE"] = "postgresql:///x"
    settings = read_settings(tmp_path, path, environ)
    assert (settings.old_keys, settings.store.kind) == ((SECRET,), "s3")
    assert settings.pools[0].users == ("ann", "bob")


def test_the_words_of_a_check_are_in_the_readers_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_command.main(tmp_path, None, {}, as_json=False, lang="zh") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "key = 未设置  (默认)" in lines
    assert [line for line in lines if "(default)" in line or "not set" in line] == []
    assert check_command.main(tmp_path, None, {}, as_json=True, lang="zh") == 0
    assert '"key": "key", "value": "not set", "origin": "default"' in capsys.readouterr().out


NEW_FORM = """
[pools.far]
kind = "scripted"
nodes = 3
[pools.office]
users = ["ann"]
cpu = 8
memory = "16Gi"
"""
OLD_FORM = """
[[pools]]
name = "far"
backend = "scripted"
settings = { nodes = "3" }
[[pools]]
name = "office"
users = ["ann"]
settings = { cpu = "8", memory = "16Gi" }
"""


def test_both_forms_of_pools_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    read = []
    for text in (NEW_FORM, OLD_FORM):
        path.write_text(text)
        settings, origins = read_with_origins(tmp_path)
        rows = {
            row.key: (row.value, row.origin)
            for row in check_command.setting_rows(settings, origins)
        }
        assert rows["pools.office.cpu"] == ("8.0", "file")
        assert rows["pools.far.nodes"] == ("3", "file")
        assert rows["pools.far.preemption"] == ("false", "default")
        read.append(settings.pools)
    assert read[0] == read[1]
    assert [pool.name for pool in read[0]] == ["far", "office"], "the order of the file"
    assert read[0][0].settings == Script(nodes=3)


def test_a_pool_of_the_database_is_checked_like_one_of_the_file() -> None:
    assert read_pool("lab", {"kind": "scripted", "nodes": 2}).settings == Script(nodes=2)
    with pytest.raises(ConfigError, match=r"unknown setting pools\.lab\.nods"):
        read_pool("lab", {"kind": "scripted", "nods": 2})
    with pytest.raises(ConfigError, match="is not a name"):
        read_pool("a b", {})


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LANG": "", "LC_ALL": ""}, "en"),
        ({"LANG": "C", "PADDLECLOUD_LANG": "ZH"}, "zh"),
    ],
)
def test_the_language_is_the_machines(tmp_path: Path, environ: dict[str, str], want: str) -> None:
    assert read_settings(tmp_path, environ=environ).lang == want
    (tmp_path / "server.toml").write_text("team = true")
    assert read_settings(tmp_path, environ=environ).lang == want
    (tmp_path / "server.toml").write_text("team = true\n[tokens]\nlang = 'zh'")
    assert read_settings(tmp_path, environ=environ).lang == "zh"


def test_a_sentence_has_the_zone_unless_its_readers_are_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 1, 1, 3, 4, 5, 999_999, tzinfo=UTC)
    chosen = Settings(home=tmp_path, time_zone="Asia/Shanghai")
    assert chosen.format_time(at) == "2026-01-01 11:04 (Asia/Shanghai)"
    assert chosen.format_time(at, "seconds") == "2026-01-01 11:04:05 (Asia/Shanghai)"
    monkeypatch.setenv("TZ", "America/St_Johns")
    tzset()
    try:
        assert Settings(home=tmp_path).format_time(at) == "2025-12-31 23:34"
        team = Settings(home=tmp_path, team=True)
        assert team.format_time(at) == "2025-12-31 23:34 (UTC-03:30)"
        summer = datetime(2026, 7, 1, tzinfo=UTC)
        assert team.format_time(summer) == "2026-06-30 21:30 (UTC-02:30)"
        monkeypatch.delenv("TZ")
        tzset()
        assert team.format_time(at).endswith(f" (UTC{at.astimezone().isoformat()[-6:]})")
    finally:
        monkeypatch.undo()
        tzset()


def test_a_machine_without_time_zone_data_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlecloud.server.settings.validate.available_timezones", set)
    (tmp_path / "server.toml").write_text("time_zone = 'Asia/Nowhere'")
    with pytest.raises(ConfigError, match="it has no time zone data, install the package tzdata"):
        read_settings(tmp_path)
