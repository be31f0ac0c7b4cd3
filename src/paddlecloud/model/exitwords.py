"""How one process ended, as a sentence and an advice: exit code, signal, memory, missing command.

Knows a single exit record and the log beside it; which replica is to blame, and what follows for
the job, is `failure.py`.
"""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

from paddlecloud.model.job import ExitCause, ExitRecord, Reason, Resources
from paddlecloud.model.quantities import format_size
from paddlecloud.model.tail import last_lines


class Words(NamedTuple):
    reason: Reason
    advice: Reason | None


_SIGNAL_CODES = {
    "SIGSEGV": "fail_segv",
    "SIGABRT": "fail_abort",
    "SIGFPE": "fail_fpe",
    "SIGILL": "fail_ill",
    "SIGBUS": "fail_bus",
    "SIGKILL": "fail_sigkill",
    "SIGTERM": "fail_sigterm",
    "SIGINT": "fail_sigint",
}
_SIGNAL_ADVICE = {
    "SIGSEGV": "advice_crash",
    "SIGABRT": "advice_crash",
    "SIGFPE": "advice_crash",
    "SIGILL": "advice_illegal",
    "SIGBUS": "advice_bus",
    "SIGKILL": "advice_host_memory",
}
_MISSING = (
    re.compile(r"(?:^|: )(?:\d+: |line \d+: )?([^:\s][^:]*): (?:command )?not found$"),
    re.compile(r"command not found: (\S.*)$"),
    re.compile(r"(?:[Cc]annot|[Cc]an't) open ['‘]?([^:'’]+)"),
    re.compile(r"can't open file '([^']+)'"),
    re.compile(r"^(?:\S+: )?(?:line )?(?:\d+: )?['‘]?([^:'’]+)['’]?: No such file or directory$"),
)
_DENIED = re.compile(r"(?:\d+: )?([^:\s][^:]*): Permission denied$")
_MODULE = re.compile(r"^(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?")


def words_for(
    job_id: str, worker: str, record: ExitRecord, resources: Resources, tail: bytes
) -> Words:
    """The sentence and the advice for one replica that did not end well."""
    lines = last_lines(tail)
    if record.cause is ExitCause.START_FAILED:
        reason = _reason("fail_start", worker, message=record.message or "?")
        return Words(reason, _advice("advice_start"))
    if record.cause is ExitCause.STOPPED:
        return Words(_reason("fail_stopped", worker), _advice("advice_log", job_id=job_id))
    if record.oom:
        return _memory(worker, record, resources)
    number = _signal_of(record)
    if number is not None:
        return _signal(worker, number, record, job_id)
    return _exit(job_id, worker, record.exit_code, lines)


def signal_name(number: int) -> str | None:
    """SIGSEGV for 11; None for a number that is no signal here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _signal_of(record: ExitRecord) -> int | None:
    """The signal that ended it; a shell in between tells its child's as exit code 128 + n."""
    if record.signal is not None:
        return record.signal
    code = record.exit_code or 0
    return code - 128 if 128 < code < 192 and signal_name(code - 128) in _SIGNAL_CODES else None


def _memory(worker: str, record: ExitRecord, resources: Resources) -> Words:
    peak = format_size(record.max_rss) if record.max_rss else "?"
    if not resources.memory:
        return Words(_reason("fail_host_memory", worker, peak=peak), _advice("advice_host_memory"))
    limit = format_size(resources.memory)
    return Words(
        _reason("fail_memory", worker, limit=limit, peak=peak),
        _advice("advice_memory", limit=limit),
    )


def _signal(worker: str, number: int, record: ExitRecord, job_id: str) -> Words:
    name = signal_name(number) or f"signal {number}"
    code = record.exit_code if record.signal is None else 128 + number
    reason = _reason(_SIGNAL_CODES.get(name, "fail_signal"), worker, exit_code=code, signal=name)
    return Words(reason, _advice(_SIGNAL_ADVICE.get(name, "advice_log"), job_id=job_id))


def _exit(job_id: str, worker: str, code: int | None, lines: tuple[str, ...]) -> Words:
    missing = _found(_MISSING, lines) if code in (127, 2) else None
    if code == 127 or (code == 2 and missing):
        reason = _reason("fail_missing", worker, exit_code=code, command=missing or "?")
        return Words(reason, _advice("advice_missing", command=missing or "?"))
    if code == 126:
        denied = _found((_DENIED,), lines) or "?"
        reason = _reason("fail_not_executable", worker, exit_code=code, command=denied)
        return Words(reason, _advice("advice_not_executable", command=denied))
    reason = _reason("fail_exit", worker, exit_code=code)
    module = _found((_MODULE,), lines)
    if module:
        return Words(reason, _advice("advice_module", module=module))
    return Words(reason, _advice("advice_log", job_id=job_id))


def _found(patterns: tuple[re.Pattern[str], ...], lines: tuple[str, ...]) -> str | None:
    for line in reversed(lines):
        for pattern in patterns:
            match = pattern.search(line)
            if match:
                return match[1].strip()[:200]
    return None


def _reason(code: str, worker: str, **params: str | int | None) -> Reason:
    return Reason(code=code, params={"worker": worker, **params})


def _advice(code: str, **params: str | int) -> Reason:
    return Reason(code=code, params=params)
