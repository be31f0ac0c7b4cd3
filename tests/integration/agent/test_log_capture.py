"""What a replica prints arrives in its log: whole, in order, and within its limit."""

from __future__ import annotations

import os

from paddlecloud.agent.replica.inspect import request_stop
from tests.integration.agent.replicas import Bench, ended, eventually, has_file, running

COUNTED = "".join(f"{n}\n" for n in range(1, 300_001)).encode()


def test_a_stream_that_is_opened_anew_loses_nothing(bench: Bench) -> None:
    root, _ = bench.run(
        "echo one; echo two > /dev/stderr; echo three | tee /dev/stderr; echo four > /dev/stdout"
    )
    assert (root / "stdout.log").read_text() == "one\ntwo\nthree\nthree\nfour\n"


def test_the_log_is_whole_when_the_end_is_told(bench: Bench) -> None:
    root, end = bench.run("seq 300000")
    assert (root / "stdout.log").read_bytes() == COUNTED
    assert "log_lost" not in end


def test_what_children_print_after_the_main_process_is_kept(bench: Bench) -> None:
    root, _ = bench.run(
        "(trap '' TERM; touch deaf; sleep 0.2; echo late) &"
        " until [ -e deaf ]; do :; done; echo early",
        grace=60.0,
    )
    assert (root / "stdout.log").read_text() == "early\nlate\n"


def test_a_runaway_log_keeps_its_head_and_tail(bench: Bench) -> None:
    root, end = bench.run("seq 300000", log_limit=100_000)
    assert end["exit_code"] == 0
    log = (root / "stdout.log").read_bytes()
    head, first, rest = log.partition(b"\n[paddlecloud: the log reached its limit of 100000 bytes")
    assert first
    assert head == COUNTED[: len(head)]
    assert 74_999 <= len(head) <= 75_000
    tail = log[-25_000:]
    assert tail == COUNTED[-25_000:]
    left_out = len(COUNTED) - 75_000 - 25_000
    said = f"[paddlecloud: {left_out} bytes omitted here]\n[paddlecloud: 此处省略"
    assert f"{said} {left_out} 字节]\n".encode() + tail in rest


def test_a_log_at_its_limit_says_so_while_the_replica_runs(bench: Bench) -> None:
    root = bench.start(
        "yes | head -c 50000; touch printed; echo done > up; sleep 600", log_limit=1000
    )
    has_file(root, "up")
    eventually(lambda: (root / "stdout.log").read_text().endswith("]\n"))
    log = (root / "stdout.log").read_text()
    assert log.startswith("y\n" * 375 + "[paddlecloud: the log reached its limit of 1000 bytes;")
    request_stop(root, grace=5, now=0.0)
    ended(root)
    assert (root / "stdout.log").read_text().endswith(" 字节]\n" + "y\n" * 125)


def test_a_log_within_its_limit_is_not_touched(bench: Bench) -> None:
    root, _ = bench.run("seq 1000", log_limit=8_000)
    assert (root / "stdout.log").read_text() == "".join(f"{n}\n" for n in range(1, 1001))


def test_the_end_does_not_wait_until_a_stranger_lets_go_of_the_stream(bench: Bench) -> None:
    root = bench.start("echo mine; echo up > up; sleep 600")
    has_file(root, "up")
    stream = os.open(f"/proc/{running(root).pid}/fd/1", os.O_WRONLY)
    try:
        request_stop(root, grace=5, now=0.0)
        assert ended(root)["cause"] == "stopped"
    finally:
        os.close(stream)
    assert (root / "stdout.log").read_text() == "mine\n"


def test_what_the_agent_has_to_say_comes_first(bench: Bench) -> None:
    root, end = bench.run("echo mine; exit 3", preamble="[paddlecloud] ours\n", hint="no_pserver")
    assert (root / "stdout.log").read_text() == "[paddlecloud] ours\nmine\n"
    assert end["hint"] == "no_pserver"


def test_a_hint_is_for_failures_only(bench: Bench) -> None:
    assert "hint" not in bench.run("true", hint="no_pserver")[1]


def test_text_without_an_end_is_shown_while_the_replica_waits(bench: Bench) -> None:
    """A prompt, or a progress bar: that line has no end."""
    root = bench.start("printf 'go on? '; sleep 600")
    running(root)
    eventually(lambda: (root / "stdout.log").read_bytes() == b"go on? ")
    request_stop(root, grace=0, now=0.0)
    ended(root)
