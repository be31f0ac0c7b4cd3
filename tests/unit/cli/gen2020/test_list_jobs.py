"""`list_jobs` and `top`: stable rows in a pipe, what a person wants to know on a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from paddlecloud.cli.gen2020.list_jobs import age, hours
from paddlecloud.cli.main import main
from tests.unit.cli.scripted import ID, Captured
from tests.unit.cli.test_output import on_terminal
from tests.unit.client.fake_server import FakeServer, ok

OTHER = "job-" + "fe" * 16
ROW: dict[str, Any] = {
    "job_id": ID,
    "job_name": "训练",
    "job_status": "failed",
    "job_type": "cpu",
    "create_time": "2026-11-18 10:00:00",
    "start_time": "2026-11-18 10:00:01",
    "finish_time": "2026-11-18 10:01:01",
    "queue_reason": "",
    "number": 2,
    "error_msg": "trainer-0 exited with code 1: ValueError: wrong",
    "age": 200,
    "duration": 60,
}
WAITS = {
    **ROW,
    "job_id": OTHER,
    "job_status": "queue",
    "start_time": "",
    "finish_time": "",
    "error_msg": "",
    "queue_reason": "needs 4 GPUs, 1 is free",
    "duration": None,
}


@pytest.fixture
def jobs(server: FakeServer) -> FakeServer:
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": [ROW, WAITS], "next": None})]
    return server


@pytest.mark.usefixtures("jobs")
def test_a_pipe_gets_whole_ids_and_all_columns_in_any_language(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("PADDLECLOUD_LANG", "zh")
    assert main(["list_jobs"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split("\t") == [
        ID, "failed", "cpu", "2026-11-18 10:00:00", "2026-11-18 10:00:01", "2026-11-18 10:01:01",
        "训练", "", "trainer-0 exited with code 1: ValueError: wrong",
    ]  # fmt: skip
    assert second.split("\t")[7:] == ["needs 4 GPUs, 1 is free", ""]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("lang", "want"),
    [
        (
            "en",
            [
                "JOB           STATE   NAME  TYPE  SUBMITTED            AGE  DURATION",
                "job-01234567  failed  训练  cpu   2026-11-18 10:00:00  3m   0:01:00",
                "  trainer-0 exited with code 1: ValueError: wrong",
                "job-fefefefe  queue   训练  cpu   2026-11-18 10:00:00  3m",
                "  needs 4 GPUs, 1 is free",
            ],
        ),
        (
            "zh",
            [
                "任务          状态             名称  类型  提交于   运行时长",
                "job-01234567  失败（failed）   训练  cpu   3分钟前  0:01:00",
                "  trainer-0 exited with code 1: ValueError: wrong",
                "job-fefefefe  排队中（queue）  训练  cpu   3分钟前",
                "  needs 4 GPUs, 1 is free",
            ],
        ),
    ],
)
def test_a_terminal_shows_age_duration_and_reason(
    lang: str, want: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = on_terminal(monkeypatch)
    for name, value in (("COLUMNS", "80"), ("NO_COLOR", "1"), ("PADDLECLOUD_LANG", lang)):
        monkeypatch.setenv(name, value)
    assert main(["list_jobs"]) == 0
    assert out.getvalue().splitlines() == want


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["--name=zzz"], "no job is named zzz; paddlecloud list_jobs shows all\n"),
        (["--name=zzz", "--state=failed"], "no job named zzz is in state failed; "),
        (["--state=failed"], ""),
        ([], ""),
    ],
)
def test_a_name_without_jobs_is_said(
    words: list[str], want: str, server: FakeServer, capsys: Captured
) -> None:
    none = ok({"jobs": [], "next": None})
    server.routes["GET /api/v1/jobs"] = [none]
    server.routes["GET /api/v1/admin/jobs"] = [none]
    for command in (["list_jobs"], ["admin", "job", "list"]):
        assert main([*command, *words]) == 0
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(want) and bool(captured.err) == bool(want)


def test_a_terminal_hears_that_there_is_no_job(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": [], "next": None})]
    out, told = on_terminal(monkeypatch)
    assert main(["list_jobs", "--state=failed"]) == 0
    assert main(["list_jobs"]) == 0
    assert out.getvalue() == "", "no header without rows"
    assert "failed" in told.getvalue() and "no jobs; submit one" in told.getvalue()


def test_an_older_server_sends_no_age(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {key: value for key, value in ROW.items() if key not in ("age", "duration", "error_msg")}
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": [row], "next": None})]
    out, _ = on_terminal(monkeypatch)
    assert main(["list_jobs"]) == 0
    assert "job-01234567" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [(0, "0s", "0秒前"), (59, "59s", "59秒前"), (60, "1m", "1分钟前"), (7200, "2h", "2小时前"),
     (3 * 86400, "3d", "3天前")],
)  # fmt: skip
def test_ages(seconds: int, english: str, chinese: str) -> None:
    assert (age(seconds, "en"), age(seconds, "zh")) == (english, chinese)


@pytest.mark.parametrize(
    ("seconds", "want"), [(0, "0:00:00"), (3725, "1:02:05"), (90061, "1d 01:01:01")]
)
def test_durations(seconds: int, want: str) -> None:
    assert hours(seconds) == want


def test_top_is_chinese_on_a_chinese_terminal(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    worker = {
        "job_id": ID, "job_name": "训练", "worker": "trainer-0", "state": "running",
        "usage": None, "asked": {"cpu": 1.0, "memory": 0, "gpu": 0}, "peak_memory": None,
    }  # fmt: skip
    server.routes["GET /api/v1/usage"] = [ok({"workers": [worker]})]
    monkeypatch.setenv("PADDLECLOUD_LANG", "zh")
    assert main(["top", "--once"]) == 0
    assert capsys.readouterr().out.startswith(f"{ID}\t训练\ttrainer-0\trunning\t")
    out, _ = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["top", "--once"]) == 0
    header, row = out.getvalue().splitlines()
    assert header.split() == ["任务", "名称", "实例", "状态", "CPU", "内存", "峰值", "GPU"]
    assert row.startswith("job-01234567  训练  trainer-0  运行中（running）  - / 1")
