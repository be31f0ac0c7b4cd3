"""Follows a job to its end, and prints how it ended or why it waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import localtime, strftime

from paddlecloud.cli.output import INTERRUPTED
from paddlecloud.model.errors import PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.output import Output
    from paddlecloud.client.sdk import Client, Job

WAITING = ("submit", "schedule", "queue")


def report_waiting(job: Job, out: Output) -> bool:
    """Whether the job waits for its turn, which is printed with the reason if there is one."""
    if job.state not in WAITING:
        return False
    reason = job.view.get("queue_reason")
    code = "job_waits_why" if reason else "job_waits"
    out.say(code, job_id=job.id, state=out.error_state(job.state), reason=reason)
    return True


def report_end(job: Job, out: Output, *, printed: bool = False) -> None:
    """One line, and for a failure the advice and the last lines of the worker that broke first,
    unless the whole log was just `printed`."""
    state = out.error_state(job.state)
    failure = job.view.get("failure")
    if not failure:
        out.say("ended", job_id=job.id, state=state)
        if job.state == "success":
            out.say("results", job_id=job.id)
        return
    out.say("ended_why", job_id=job.id, state=state, message=failure["message"])
    if failure["advice"]:
        out.message(failure["advice"])
    if failure["last_lines"] and not printed:
        out.say("last_lines", worker=failure["worker"])
        for line in failure["last_lines"]:
            out.message(f"  {line}", wrapped=False)


RUNNING = "running"

OURS = b"[paddlecloud] "
"""How lines of the platform begin: it writes them into the log before the job runs, too."""

_PREFIXED = 64
"""Bytes in which such a beginning is found, also behind the name of a worker."""

#: Seconds until the last state has to be here after the log has ended.
LAST_STATE = 60.0


def follow(client: Client, job: Job, out: Output) -> int:
    """0 if the job ends with `success`, 1 for any other end; the reason goes to stderr."""
    states = _States(client, job.id, out)
    try:
        states.start()
        chunk = b""
        for chunk in client.logs(job.id, follow=True):
            if OURS not in chunk[:_PREFIXED]:
                states.job_wrote()
            # With --json stdout belongs to the answer alone.
            (out.raw if not out.json else out.raw_aside)(chunk)
        ended = states.last(LAST_STATE)
    except KeyboardInterrupt:
        out.say("watch_left", job_id=job.id)
        return INTERRUPTED
    is_read_here = bool(chunk) and (out.json or out.in_one_place)
    if is_read_here and not chunk.endswith(b"\n"):
        out.message("")  # a line that the job did not end is no part of ours
    report_end(ended, out, printed=is_read_here)
    return 0 if ended.state == "success" else 1


class _States(threading.Thread):
    """Prints each change of state, in a daemon thread."""

    def __init__(self, client: Client, job_id: str, out: Output) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._job_id = job_id
        self._out = out
        self._ended: Job | None = None
        self._lock = threading.Lock()
        self._printed = ("", "")
        self._ahead = False
        """The log showed that the job runs before the server reported it."""

    def run(self) -> None:
        # `last` asks the server again, and raises its error.
        with suppress(PaddleCloudError):
            for job in self._client.changes(self._job_id):
                if job.final:
                    self._ended = job
                    return
                self._change(job)

    def job_wrote(self) -> None:
        """A job that writes to its log runs: the log may arrive before the state."""
        with self._lock:
            if self._printed[0] in ("", *WAITING):
                self._ahead = True
                self._print(RUNNING, "")

    def _change(self, job: Job) -> None:
        # Placed before and not now: its log is that of an earlier attempt.
        waits_again = bool(job.view.get("attempts")) and not job.view.get("pool")
        with self._lock:
            self._ahead = self._ahead and job.state in WAITING and not waits_again
            if not self._ahead:
                self._print(job.state, str(job.view.get("queue_reason") or ""))

    def last(self, seconds: float) -> Job:
        """The job at its end. The log may have continued after the state that this thread read."""
        self.join(seconds)
        return self._ended or self._client.wait(self._job_id, seconds)

    def _print(self, state: str, reason: str) -> None:
        if (state, reason) == self._printed:
            return
        self._printed = (state, reason)
        code = "watch_state_why" if reason else "watch_state"
        time = strftime("%H:%M:%S", localtime())
        self._out.say(code, time=time, state=self._out.error_state(state), reason=reason)
