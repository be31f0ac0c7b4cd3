"""Explains how one process ended: a reason and advice for its exit code, signal or memory kill.

Uses one exit record and the end of its log. `first_failure` decides which replica caused a failure,
`outcome` what follows for the job.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from paddlecloud.messages.tables import TEXTS
from paddlecloud.model.diagnosis._error_line import error_line
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.jobs.job import ExitCause, ExitRecord, Reason, Resources
from paddlecloud.model.logs.tail import last_lines
from paddlecloud.model.units import format_size


class Diagnosis(NamedTuple):
    """Why a replica failed, and what to do about it."""

    reason: Reason
    advice: Reason | None


class _Signal(NamedTuple):
    name: str
    reason: str
    advice: str


NO_PSERVER = "no_pserver"
"""The hint that PSERVER mode cannot work with the PaddlePaddle that was found."""
NO_ENVIRONMENT = "no_environment"
"""The hint that the packages of --requirements could not be installed."""
_WITHOUT_ADVICE = frozenset(
    {"agent_workspace_failed", "replica_never_started", "replica_not_started"}
)
"""Reasons of a failed start whose sentences contain no advice."""
NOT_EXECUTABLE = "advice_not_executable"
_SEARCHED_LINES = 400
"""Lines of the tail in which the cause is searched: a message may be long."""
_LOG = "advice_log"
_LOG_OF = "advice_log_of"
_SHOWN_FIRST = "trainer-0"
_SIGABRT = 6
_WITH_ERROR = {"fail_exit": "fail_exit_error", "fail_abort": "fail_abort_error"}
"""Reasons and their forms with the line that states the error."""
_KNOWN_SIGNALS = {
    2: _Signal("SIGINT", "fail_sigint", _LOG),
    4: _Signal("SIGILL", "fail_ill", "advice_illegal"),
    6: _Signal("SIGABRT", "fail_abort", "advice_crash"),
    7: _Signal("SIGBUS", "fail_bus", "advice_bus"),
    8: _Signal("SIGFPE", "fail_fpe", "advice_crash"),
    9: _Signal("SIGKILL", "fail_sigkill", "advice_host_memory"),
    11: _Signal("SIGSEGV", "fail_segv", "advice_crash"),
    15: _Signal("SIGTERM", "fail_sigterm", _LOG),
}
"""Signals that end programs in practice, by their numbers on Linux (on macOS only SIGBUS differs).
Not from the signal module: the job's machine may differ from the one that runs this code."""
_UNSEARCHABLE = re.compile(r"(?:^|: )\d+: ([^:\s][^:]*): Permission denied$")
"""What dash prints for a missing program where a directory of PATH cannot be searched."""
_MISSING = (
    re.compile(r"(?:^|: )(?:\d+: |line \d+: )?([^:\s][^:]*): (?:command )?not found$"),
    re.compile(r"command not found: (\S.*)$"),
    re.compile(r"(?:[Cc]annot|[Cc]an't) open (?:file )?['‘]?([^:'’]+)"),
    re.compile(r"^(?:\S+: )?(?:line )?(?:\d+: )?['‘]?([^:'’]+)['’]?: No such file or directory$"),
)
_DENIED = re.compile(r"(?:\d+: )?([^:\s][^:]*): Permission denied$")
_WORK = re.compile("/".join(("^", ".*", "replicas", "[^/]+", "work", "(?=.)")))
"""The directory in which an agent starts a command."""
_WORK_WITHIN = re.compile("/".join((r"[^\s'\"(\[]*", "replicas", r"[^/\s]+", "work", r"(?=\w)")))
"""The same within a line."""
_FULL = re.compile(r"^(.*(?:No space left on device|Disk quota exceeded).*)$")
_PORT = re.compile(r"^(.*(?:[Aa]ddress already in use|EADDRINUSE).*)$")
_NO_PSERVER = re.compile(r"(DistFleetWrapper)")
_LINE_ENDS = re.compile(rb"(?:\r|\\r')'?: (?:(?:command )?not found|\[Errno 2\]|No such file)")
"""A name that ends with a carriage return, in error messages of shells and Python."""
_MODULE = re.compile(r"^(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?")


def diagnose_exit(
    job_id: str,
    worker: str,
    record: ExitRecord,
    resources: Resources,
    tail: bytes,
    *,
    logged: bool = True,
) -> Diagnosis:
    """Reason and advice for one failed replica; `logged` is False if its log is empty."""
    found = _diagnose(job_id, worker, record, resources, tail)
    if logged or found.advice is None or found.advice.code not in (_LOG, _LOG_OF):
        return found
    return Diagnosis(found.reason, _advice("advice_log_empty", worker=worker))


def with_message(code: str, worker: str, record: ExitRecord) -> Reason:
    """The reason `code` with the record's message: one of our reasons, or the system's text."""
    inner = record.said
    if inner is None or inner.code not in TEXTS:
        return _reason(code, worker, message=record.message or "?")
    return caused(code, inner.code, inner.params, worker=worker)


def _diagnose(
    job_id: str, worker: str, record: ExitRecord, resources: Resources, tail: bytes
) -> Diagnosis:
    lines = last_lines(tail)
    if record.cause is ExitCause.START_FAILED:
        reason = with_message("fail_start", worker, record)
        if record.hint == NO_ENVIRONMENT:
            return Diagnosis(reason, _advice("advice_requirements"))
        # Most messages of our own already contain the advice.
        said = "" if record.said is None else record.said.code
        advised = said in TEXTS and said not in _WITHOUT_ADVICE
        return Diagnosis(reason, None if advised else _advice("advice_start"))
    if record.cause is ExitCause.STOPPED:
        return Diagnosis(_reason("fail_stopped", worker), _whole_log(job_id, worker))
    if record.oom:
        return _memory(worker, record, resources)
    number, code = record.signal, record.exit_code or 0
    if number is None and code - 128 in _KNOWN_SIGNALS:
        number = code - 128  # a shell reports the signal of its child so
    if number in (None, _SIGABRT):
        known = _known_cause(worker, record, lines)
        if known is not None:
            return known
    if number is not None:
        return _signal(worker, number, job_id, tail)
    full = record.message or _found((_FULL,), lines)
    if full and record.exit_code not in (126, 127):
        reason = _reason("fail_disk_full", worker, exit_code=record.exit_code, detail=full)
        return Diagnosis(reason, _advice("advice_disk_full", job_id=job_id))
    found = _exit(job_id, worker, record.exit_code, lines, tail)
    return found._replace(advice=_advice("advice_line_ends")) if _LINE_ENDS.search(tail) else found


def _known_cause(worker: str, record: ExitRecord, lines: tuple[str, ...]) -> Diagnosis | None:
    """A cause found in the log or the hint: a port in use, a PaddlePaddle without pservers."""
    code = 128 + record.signal if record.signal else record.exit_code
    port = _found((_PORT,), lines)
    if port:
        reason = _reason("fail_port_in_use", worker, exit_code=code, detail=port)
        return Diagnosis(reason, _advice("advice_port_in_use"))
    hinted = record.hint == NO_PSERVER and not _found((_MODULE,), lines)
    if (hinted and code not in (126, 127)) or _found((_NO_PSERVER,), lines):
        reason = _reason("fail_no_pserver", worker, exit_code=code)
        return Diagnosis(reason, _advice("advice_no_pserver"))
    return None


def _memory(worker: str, record: ExitRecord, resources: Resources) -> Diagnosis:
    peak = format_size(record.max_rss) if record.max_rss else "?"
    if not resources.memory and record.memory_limit:
        most = format_size(record.memory_limit)
        reason = _reason("fail_memory_default", worker, limit=most)
        return Diagnosis(reason, _advice("advice_memory_default", limit=most))
    if not resources.memory:
        return Diagnosis(
            _reason("fail_host_memory", worker, peak=peak), _advice("advice_host_memory")
        )
    limit = format_size(resources.memory)
    return Diagnosis(
        _reason("fail_memory", worker, limit=limit, peak=peak),
        _advice("advice_memory", limit=limit),
    )


def _signal(worker: str, number: int, job_id: str, tail: bytes) -> Diagnosis:
    other = _Signal(f"signal {number}", "fail_signal", _LOG)
    name, sentence, advice = _KNOWN_SIGNALS.get(number, other)
    reason = _reason(sentence, worker, exit_code=128 + number, signal=name)
    if number == _SIGABRT:  # a program that aborts prints why
        reason = _with_cause(reason, tail)
    if advice == _LOG:
        return Diagnosis(reason, _whole_log(job_id, worker))
    return Diagnosis(reason, _advice(advice, job_id=job_id))


def _exit(
    job_id: str, worker: str, code: int | None, lines: tuple[str, ...], tail: bytes
) -> Diagnosis:
    patterns = {127: (*_MISSING, _UNSEARCHABLE), 2: _MISSING}.get(code or 0, ())
    missing = _typed(_found(patterns, lines))
    if code == 127 or (code == 2 and missing):
        reason = _reason("fail_missing", worker, exit_code=code, command=missing or "?")
        return Diagnosis(reason, _advice("advice_missing", command=missing or "?"))
    if code == 126:
        denied = _typed(_found((_DENIED,), lines)) or "?"
        reason = _reason("fail_not_executable", worker, exit_code=code, command=denied)
        return Diagnosis(reason, _advice(NOT_EXECUTABLE, command=denied))
    reason = _with_cause(_reason("fail_exit", worker, exit_code=code), tail)
    module = _found((_MODULE,), lines)
    if module == "paddle":
        reason = _reason("fail_no_paddle", worker, exit_code=code)
        return Diagnosis(reason, _advice("advice_no_paddle"))
    if module:
        return Diagnosis(reason, _advice("advice_module", module=module))
    return Diagnosis(reason, _whole_log(job_id, worker))


def _with_cause(reason: Reason, tail: bytes) -> Reason:
    """The reason with the line of the log that states the error, if one does."""
    error = error_line(last_lines(tail, _SEARCHED_LINES))
    if error is None:
        return reason
    error = _WORK_WITHIN.sub("", error)
    return Reason(code=_WITH_ERROR[reason.code], params={**reason.params, "error": error})


def _whole_log(job_id: str, worker: str) -> Reason:
    """How to print its whole log; a job of one worker needs no name of it."""
    if worker == _SHOWN_FIRST:
        return _advice(_LOG, job_id=job_id)
    return _advice(_LOG_OF, job_id=job_id, worker=worker)


def _found(patterns: tuple[re.Pattern[str], ...], lines: tuple[str, ...]) -> str | None:
    for line in reversed(lines):
        for pattern in patterns:
            match = pattern.search(line)
            if match:
                return match[1].strip()[:200]
    return None


def _typed(path: str | None) -> str | None:
    """The path as written in the start command: Python prints the absolute one."""
    return None if path is None else _WORK.sub("", path, count=1)


def _reason(code: str, worker: str, **params: str | int | None) -> Reason:
    return Reason(code=code, params={"worker": worker, **params})


def _advice(code: str, **params: str | int) -> Reason:
    return Reason(code=code, params=params)
