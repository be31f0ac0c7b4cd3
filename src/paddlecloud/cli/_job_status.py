"""Follows a job to its end, and prints how it ended or why it waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import localtime, strftime

from paddlecloud.model.errors import PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli._output import Output
    from paddlecloud.client.sdk import Client, Job

WAITING = ("submit", "schedule", "queue")


def tell_waiting(job: Job, out: Output) -> bool:
    """Whether the job waits for its turn, which is told with the reason if there is one."""
    if job.state not in WAITING:
        return False
    reason = job.view.get("queue_reason")
    code = "job_waits_why" if reason else "job_waits"
    out.say(code, job_id=job.id, state=out.told_state(job.state), reason=reason)
    return True


def tell_end(job: Job, out: Output, seen: str = "") -> None:
    """One line, and for a failure the advice and the last lines of the worker that broke first,
    unless that is the worker whose whole log was just `seen`."""
    state = out.told_state(job.state)
    failure = job.view.get("failure")
    if not failure:
        out.say("ended", job_id=job.id, state=state)
        if job.state == "success":
            out.say("results", job_id=job.id)
        return
    out.say("ended_why", job_id=job.id, state=state, message=failure["message"])
    if failure["advice"]:
        out.tell(failure["advice"])
    if failure["last_lines"] and failure["worker"] != seen:
        out.say("last_lines", worker=failure["worker"])
        for line in failure["last_lines"]:
            out.tell(f"  {line}")


INTERRUPTED = 130

RUNNING = "running"

FIRST = "trainer-0"
"""Whose log is followed."""

OURS = b"[paddlecloud] "
"""How lines of the platform begin: it writes them into the log before the job runs, too."""

#: Seconds until the last state has to be here after the log has ended.
LAST_STATE = 60.0


def follow(client: Client, job: Job, out: Output) -> int:
    """0 if the job ends with `success`, 1 for any other end; the reason is told on stderr."""
    states = _States(client, job.id, out)
    try:
        states.start()
        piece = b""
        for piece in client.logs(job.id, follow=True):
            if not piece.startswith(OURS):
                states.heard_from_job()
            # With --json stdout belongs to the answer alone.
            (out.raw if not out.json else out.raw_aside)(piece)
        ended = states.last(LAST_STATE)
    except KeyboardInterrupt:
        out.say("watch_left", job_id=job.id)
        return INTERRUPTED
    is_read_here = bool(piece) and (out.json or out.in_one_place)
    if is_read_here and not piece.endswith(b"\n"):
        out.tell("")  # a line that the job did not end is no part of ours
    tell_end(ended, out, seen=FIRST if is_read_here else "")
    return 0 if ended.state == "success" else 1


class _States(threading.Thread):
    """Tells each change of state; a thread of its own, ended with the process."""

    def __init__(self, client: Client, job_id: str, out: Output) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._job_id = job_id
        self._out = out
        self._ended: Job | None = None
        self._lock = threading.Lock()
        self._told = ("", "")
        self._ahead = False
        """The log told that it runs before the server did."""

    def run(self) -> None:
        # Whoever asks for the end asks the server again, and gets its error or a better answer.
        with suppress(PaddleCloudError):
            for job in self._client.changes(self._job_id):
                if not job.final:
                    self._change(job)
                self._ended = job if job.final else None

    def heard_from_job(self) -> None:
        """A job that speaks itself runs: the two connections need not bring that in order."""
        with self._lock:
            if self._told[0] in ("", *WAITING):
                self._ahead = True
                self._tell(RUNNING, "")

    def _change(self, job: Job) -> None:
        with self._lock:
            self._ahead = self._ahead and job.state in WAITING and not _waits_again(job)
            if not self._ahead:
                self._tell(job.state, str(job.view.get("queue_reason") or ""))

    def last(self, seconds: float) -> Job:
        """The job at its end. What this thread met may be long over: the log went on after it."""
        self.join(seconds)
        return self._ended or self._client.wait(self._job_id, seconds)

    def _tell(self, state: str, reason: str) -> None:
        if (state, reason) == self._told:
            return
        self._told = (state, reason)
        code = "watch_state_why" if reason else "watch_state"
        time = strftime("%H:%M:%S", localtime())
        self._out.say(code, time=time, state=self._out.told_state(state), reason=reason)


def _waits_again(job: Job) -> bool:
    """Whether it had a place before and has none now: what its log told of is over."""
    return bool(job.view.get("attempts")) and not job.view.get("pool")
