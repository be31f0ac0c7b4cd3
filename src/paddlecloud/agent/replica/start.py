"""Brings ordered replicas to life: their files first, then one call of the spawner.

What the owner of a job has to know (disk full, damaged files) ends the replica with a sentence;
what only the network or the server can mend is tried again for as long as the replica is wanted;
mistakes of the server alone end it, after some minutes. Whoever needs the network, for files or for
outputs of the attempt before, gets them by threads apart (`fetch`) and holds up nobody else; it can
be killed meanwhile.
Starting a replica twice starts it once: the order on disk and the monitor's own records see to it,
also across a restart of the agent. Once a monitor may have been asked for, the records alone decide
that it does not run: nothing is ended or deleted here.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inputs.cache import LOOK_AGAIN, InputCache
from paddlecloud.agent.inputs.snapshot_tree import HeldTree, SnapshotTrees, TreeBusy, hold, is_worth
from paddlecloud.agent.python_env.cache import Environments, with_environment
from paddlecloud.agent.registry import Stage, not_run, write_order
from paddlecloud.agent.replica import (
    _ports,
    _restore_outputs,
    _token_file,
    inspect,
    notices,
    preflight,
    records,
)
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.replica.records import CAUSE_PORT_TAKEN, CAUSE_START_FAILED, ORDER, ROOT
from paddlecloud.agent.sandbox import tmpdir, workspace
from paddlecloud.agent.server_link.channel import Channel, is_internal_error
from paddlecloud.agent.work_queue import WorkQueue
from paddlecloud.messages import render
from paddlecloud.model.diagnosis.exit_status import NO_ENVIRONMENT
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry, Unauthenticated
from paddlecloud.model.jobs.environment import TRAINER_COUNT, TRAINER_ID, with_paths, with_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.inputs.cache import Kept, Source
    from paddlecloud.agent.registry import StopRequest, Tracked
    from paddlecloud.agent.replica.records import Launch
    from paddlecloud.agent.server_link.orders import Run
    from paddlecloud.model.files.snapshot import Snapshot

_MOST_LAUNCHES = 6
#: So often it is tried although the server makes mistakes about its files: that is ten minutes.
_MOST_STUMBLES = 300
#: Failures of an install that the owner can look into by installing the packages elsewhere.
_PACKAGES = ("environment_failed", "environment_network")
#: Directories that a job gets unless its environment names another one.
_OWN = {workspace.TEMPORARY: "TMPDIR", workspace.HOME: "HOME"}
#: So many trees are held before anybody looks who holds them too by now: each is an open file.
_MOST_HOLDS = 64
#: Seconds between two looks whether the disk is full, or the store let go of what a tree has.
_LOOK_AT_DISK = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class _FarAway(Exception):
    """It takes the network to go on."""


class _NoWay(Channel):
    """The channel of a thread that is to wait for nobody."""

    def call(self, *_asked: Any, **_how: Any) -> NoReturn:
        raise _FarAway


class Starters:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._layer = workspace.Layer()
        self._input_cache = InputCache(context.directory / "cache", limit=context.cache_limit)
        self._trees = SnapshotTrees(
            context.directory / "cache",
            self._layer,
            context.spawner.can_overlay,
            self._input_cache.grew,
        )
        self._holds: dict[str, tuple[Tracked, HeldTree]] = {}
        """The tree of each replica whose monitor may not hold it yet."""
        self._most_holds = _MOST_HOLDS
        self._turns = WorkQueue()
        self._far = WorkQueue()
        """Those that need the network next."""
        self._behind: dict[str, Tracked] = {}
        """Those that wait for a tree which another one makes."""
        self._environments = Environments(context, self.hurry, self._input_cache.grew)

    def put(self, tracked: Tracked) -> None:
        """Start it as soon as a thread is free."""
        tracked.queued = True
        tracked.ordered_at = time.monotonic()
        self._turns.put(tracked)

    def hurry(self, tracked: Tracked | None = None) -> None:
        """Try at once what waits for its next try; one that is to stop waits for no fetcher."""
        if tracked is None:
            self._turns.hurry()
            return
        tracked.hurried = True
        if not tracked.wanted and self._far.withdraw(tracked):
            self._turns.put(tracked)
        self._turns.hurry(tracked)

    def close(self) -> None:
        """Let the threads end; those that were not begun are ordered again later."""
        self._turns.close()
        self._far.close()
        self._context.prune_due.set()

    def work(self) -> None:
        """The body of each thread that starts what needs nothing from elsewhere."""
        channel = _NoWay(self._context.link)
        self._context.guarded("a starter", lambda: self._turn(self._turns, channel))

    def fetch(self) -> None:
        """The body of each thread that starts what has to be fetched first."""
        channel = self._context.link.channel()
        self._context.guarded("a fetcher", lambda: self._turn(self._far, channel))

    def tidy(self) -> None:
        """The body of one thread more. It keeps the cache within its limit, and from filling the
        disk, which may take minutes: nobody waits for it."""
        self._context.guarded("the tidier", self._tidy)

    def _tidy(self) -> None:
        self._input_cache.hold_to(self._context.cache_limit)
        self._prune(self._is_short)
        self._context.cache_spent = self._is_short() and not self._input_cache.spares
        self._context.prune_due.wait(LOOK_AGAIN if self._input_cache.crowded else _LOOK_AT_DISK)
        self._context.prune_due.clear()

    def _is_short(self, needed: int = 0) -> bool:
        """Whether the disk has less room than that."""
        return workspace.free_space(self._context.directory) < needed

    def _prune(self, is_short: Callable[[], bool]) -> int:
        """Delete what is of no use, too much, or in the way; bytes freed."""
        self._let_go()
        freed = self._trees.drop_useless(self._ordered())
        freed += self._input_cache.prune(time.time(), self._kept, is_short)
        if freed:
            self._context.log.info(f"removed {freed} bytes of cached files")
        return freed

    def _turn(self, turns: WorkQueue, channel: Channel) -> None:
        tracked = turns.take()
        if tracked is None:
            return
        tracked.hurried = False
        then = self._try_later
        try:
            if not self._start(tracked, channel):
                then = self._settled
        except _FarAway:
            then = self._leave_to_fetchers
        except (OSError, PaddleCloudError) as error:
            if not self._failed_or_stopped(tracked, error):
                then = self._settled
        except Exception as error:  # noqa: BLE001 - the owner hears of it, and the log has the rest
            self._context.log.failure("could not be started", tracked.id)
            if not self._failed(tracked, error):
                then = self._settled
        finally:
            then(tracked)

    def _start(self, tracked: Tracked, channel: Channel) -> bool:
        """One try; whether there has to be another."""
        if not tracked.alive or tracked.reaping:
            return False
        launch = None
        if tracked.stage is Stage.LAUNCHED and _is_seen(tracked):
            return False
        if not tracked.asked:
            if tracked.stop is not None:
                return self._end_before_it_runs(tracked, tracked.stop)
            if tracked.held is None and tracked.ordered["direct"]:
                # From a disk they come at once, or the error says why not.
                self._hold(tracked, notices.of("held_fetching"))
            launch = self._make_ready(tracked, channel)
            # Who is kept apart from other users does not learn what theirs are doing.
            alone = tracked.ordered["uid"] is None
            held = _ports.taken(tracked.ordered["ports"], named=alone)
            if held:
                self._end(tracked, CAUSE_PORT_TAKEN, held)
                return False
        self._context.watch(tracked)
        request = tracked.stop
        if request is not None:
            # A monitor may be on its way; any that comes finds the wish and does not run.
            request_stop(tracked, request)
        if tracked.launches >= _MOST_LAUNCHES:
            return self._give_up(tracked)
        self._spawn(tracked, launch or records.read(tracked.root / ORDER))
        self._launched(tracked, request)
        if self._input_cache.is_due(time.time()):
            self._context.prune_due.set()
        return False

    def _hold(self, tracked: Tracked, held: dict[str, Any]) -> None:
        """Let the reporter tell it, if it lasts."""
        tracked.hold(held, now=time.monotonic())
        self._context.wake_reporter()

    def _make_ready(self, tracked: Tracked, channel: Channel) -> Launch:
        """Lay its files out and write its order down."""
        run = tracked.ordered
        uid = run["uid"]
        if uid is not None and os.geteuid() != 0:
            raise Refused("agent_cannot_separate", host=self._context.config.host)
        python = self._environments.ready(tracked) if run["requirements"] else None
        with self._input_cache.using(time.time()):
            tree = self._lay_out(tracked, channel)
        if run["resumes"]:
            earlier = self._context.registry.get(run["resumes"])
            how = _restore_outputs.give_back(tracked, earlier, channel, owner=uid)
            self._context.log.info(f"outputs given back: {how}", tracked.id)
        if run["private_root"]:
            workspace.write_in_root(tracked.root, _root_files(run["env"]), owner=uid)
        if run["secret"]:
            _token_file.write(tracked.root, run, tracked.id, self._context.link)
        launch = preflight.complete(self._launch(tracked, python, tree), run)
        write_order(tracked, launch)
        return launch

    def _lay_out(self, tracked: Tracked, channel: Channel) -> str | None:
        """Its directories and files; the tree that is to lie below them, if there is one."""
        run = tracked.ordered
        uid, shelf = run["uid"], run["blobs_dir"]
        blobs = self._input_cache.source(
            tracked.id, shelf, channel, direct=run["direct"], is_wanted=lambda: tracked.wanted
        )
        snapshot, tree = None, None
        if run["snapshot"]:
            snapshot, tree = self._submitted(tracked, run["snapshot"], channel, blobs)
        self._keep(tracked, tree)
        self._layer.lay_out(
            tracked.root,
            snapshot,
            blobs,
            _own(run),
            owner=uid,
            layered=tree is not None,
            checked=shelf is not None,
        )
        return tree.path if tree is not None else None

    def _submitted(
        self, tracked: Tracked, wanted: str, channel: Channel, blobs: Source
    ) -> tuple[Snapshot | None, HeldTree | None]:
        """The list of its files, and a tree of them if that serves it; the list may be None then.
        Retry while another one makes the tree, who wakes this one when it is done."""
        uid, shelf = tracked.ordered["uid"], tracked.ordered["blobs_dir"]
        try:
            snapshot = self._input_cache.remembered(wanted)
            if snapshot is None or is_worth(snapshot):
                tree = self._trees.ready(wanted, uid, shelf)
                if tree is not None:
                    return snapshot, tree
            snapshot = self._input_cache.snapshot(wanted, tracked.id, channel)
            if shelf is None and is_worth(snapshot) and isinstance(channel, _NoWay):
                raise _FarAway  # before thousands of names are given, and one is missing
            return snapshot, self._make_tree(tracked, snapshot, blobs)
        except TreeBusy as error:
            self._behind[tracked.id] = tracked
            if not self._trees.makes(error.filename):
                tracked.hurried = True  # who made it may have looked here a moment ago
            raise Retry("held_fetching", worker=tracked.ordered["worker"]) from error

    def _make_tree(self, tracked: Tracked, snapshot: Snapshot, blobs: Source) -> HeldTree | None:
        is_ours = True
        try:
            shelf, uid = tracked.ordered["blobs_dir"], tracked.ordered["uid"]
            place, near = self._input_cache.place(shelf), shelf is not None
            made = self._trees.make(snapshot, blobs, uid, place, checked=near)
            if made is not None and uid is not None and not near:
                self._input_cache.copied(snapshot.digests)
            return made
        except TreeBusy:
            is_ours = False
            raise
        except BlockingIOError as error:
            raise Retry("replica_not_started", replica=tracked.id, reason=str(error)) from error
        except OSError as error:
            raise workspace.disk_error(error, tracked.root, snapshot) from error
        finally:
            if is_ours:
                self._wake_those_behind()

    def _wake_those_behind(self) -> None:
        with suppress(KeyError):
            while True:
                self.hurry(self._behind.popitem()[1])

    def _keep(self, tracked: Tracked, tree: HeldTree | None) -> None:
        """Hold its tree until its monitor does; instead of the one that an earlier try had."""
        _, before = self._holds.pop(tracked.id, (None, None))
        if before is not None:
            before.let_go()
        if tree is not None:
            self._holds[tracked.id] = (tracked, tree)
        if len(self._holds) > self._most_holds:
            self._let_go()
            self._most_holds = max(_MOST_HOLDS, 2 * len(self._holds))

    def _let_go(self) -> None:
        """The trees of replicas that run, or never will."""
        for name, (tracked, _) in list(self._holds.items()):
            if not tracked.alive or _is_begun(tracked):
                _, tree = self._holds.pop(name, (None, None))
                if tree is not None:
                    tree.let_go()

    def _kept(self) -> Iterator[Kept]:
        yield from self._environments.kept()
        yield from self._trees.kept(self._ordered())

    def _ordered(self) -> set[str]:
        """The trees in orders of replicas that have not begun: an earlier agent wrote some."""
        waiting_for = [
            one for one in self._context.registry.all() if one.alive and not _is_begun(one)
        ]
        orders = [records.read(one.root / ORDER) or {} for one in waiting_for]
        return {order["tree"] for order in orders if order.get("tree")}

    def _launch(self, tracked: Tracked, python: str | None, tree: str | None) -> Launch:
        run = tracked.ordered
        env = _environment(run, tracked)
        return {
            "replica_id": tracked.id,
            "root": str(tracked.root),
            "command": run["command"],
            "env": env if python is None else with_environment(env, python),
            "grace": run["grace"],
            "max_seconds": run["max_seconds"],
            "cpu_request": run["cpu_request"],
            "cpu_limit": run["cpu_limit"],
            "memory_limit": run["memory_limit"],
            "pids_limit": run["pids_limit"],
            "log_limit": run["log_limit"] or None,
            "uid": run["uid"],
            "hide": list(run["hide"]),
            "user_namespaces": run["user_namespaces"],
            "show": [] if python is None else [python],
            "private_root": run["private_root"],
            "tree": tree,
            "notify": self._context.notices,
        }

    def _spawn(self, tracked: Tracked, launch: Any) -> None:
        if launch is None:
            # Deleted, or damaged: the next look finds out that it is lost.
            raise Retry("replica_not_started", replica=tracked.id, reason=f"{ORDER} is gone")
        if launch.get("tree") and tracked.id not in self._holds:
            self._keep(tracked, hold(launch["tree"]))  # an earlier agent wrote the order
        tracked.asked = True
        tracked.launches += 1
        self._context.spawner.spawn(launch)

    def _launched(self, tracked: Tracked, known: StopRequest | None) -> None:
        self._count_as_launched(tracked)
        tracked.run = None
        tracked.pause = 0.0
        took = (tracked.launched_at - tracked.ordered_at) * 1000
        self._context.log.info(f"launched {took:.1f} ms after its order", tracked.id)
        request = tracked.stop
        if request is not None and request is not known:
            request_stop(tracked, request)

    def _count_as_launched(self, tracked: Tracked) -> None:
        with tracked.lock:
            tracked.launched_at = time.monotonic()
            tracked.held = None
            if tracked.alive:
                tracked.stage = Stage.LAUNCHED
            tracked.just_launched = True

    def _failed_or_stopped(self, tracked: Tracked, error: Exception) -> bool:
        """Whether it has to be tried again."""
        if isinstance(error, Retry) and tracked.stop is not None and not tracked.asked:
            return self._end_before_it_runs(tracked, tracked.stop)
        return self._failed(tracked, error)

    def _failed(self, tracked: Tracked, error: Exception) -> bool:
        """Tell the owner, if it surely does not run and trying again is pointless; else True."""
        if isinstance(error, Unauthenticated):
            self._context.link.renew_keys()
        if tracked.asked:
            # It may run: whatever else is to be done about it, its records are looked at.
            self._count_as_launched(tracked)
            self._context.wake_reporter()
        if is_internal_error(error):
            tracked.internal_errors += 1
        pointless = is_internal_error(error) and tracked.internal_errors >= _MOST_STUMBLES
        if tracked.asked or (isinstance(error, Retry | Unauthenticated) and not pointless):
            said = notices.of_end(error)
            if said != tracked.last_error:
                self._context.log.warning(f"cannot be started yet: {error}", tracked.id)
            tracked.last_error = said
            if not tracked.asked and isinstance(error, PaddleCloudError):
                self._hold(tracked, notices.of_error(error))
            return True
        if isinstance(error, OSError):
            error = workspace.disk_error(error, tracked.root)
        workspace.clear(tracked.root)
        if self._free_space(tracked, error):
            return True
        self._end(tracked, CAUSE_START_FAILED, hint=_hint(error), said=notices.of_end(error))
        return False

    def _free_space(self, tracked: Tracked, error: Exception) -> bool:
        """Give up what is cached for a replica that found no space; whether that is worth a further
        try. The next time it would be what was fetched for the replica itself. How much room is
        needed for the outputs of its last attempt is not known: then all goes that can."""
        if not isinstance(error, PaddleCloudError) or error.code != "agent_workspace_full":
            return False
        needed = error.params["needed"]
        if tracked.freed_space or not isinstance(needed, int):
            return False
        tracked.freed_space = True
        _, tree = self._holds.pop(tracked.id, (None, None))
        if tree is not None:
            tree.let_go()
        is_known = needed > workspace.LEAST_NEEDED
        if is_known and self._is_short(needed - self._input_cache.size(time.time(), self._kept)):
            return False
        return self._prune(lambda: not is_known or self._is_short(needed)) > 0

    def _try_later(self, tracked: Tracked) -> None:
        """What it waits for may come at any time (`hurry`); else it is tried less and less."""
        tracked.pause = min(max(_FIRST_PAUSE, tracked.pause * 2), _LONGEST_PAUSE)
        self._turns.put(tracked, time.monotonic() + tracked.pause)
        if tracked.hurried:
            self._turns.hurry(tracked)

    def _leave_to_fetchers(self, tracked: Tracked) -> None:
        self._far.put(tracked)
        if not tracked.wanted:
            self.hurry(tracked)

    def _settled(self, tracked: Tracked) -> None:
        tracked.queued = False
        self._context.wake_reporter()

    def _give_up(self, tracked: Tracked) -> bool:
        """No monitor comes up. The wish to stop keeps a late one from running it, and then the
        records say whether one did; whether it has to be tried again."""
        said = tracked.last_error or notices.of("agent_no_monitor")
        cause = tracked.stop.cause if tracked.stop is not None else CAUSE_START_FAILED
        inspect.request_stop(tracked.root, grace=0.0, now=time.time(), cause=cause)
        if inspect.inspect(tracked.root).phase is Phase.NOT_STARTED:
            self._end(tracked, cause, said=said)
        return False

    def _end_before_it_runs(self, tracked: Tracked, request: StopRequest) -> bool:
        """As soon as nothing runs on its behalf; whether that has to be looked at again."""
        asks = tracked.run is not None and tracked.run["requirements"]
        if asks and not self._environments.leave(tracked):
            return True
        self._end(tracked, request.cause)
        return False

    def _end(
        self,
        tracked: Tracked,
        cause: str,
        message: str = "",
        hint: str = "",
        said: dict[str, Any] | None = None,
    ) -> None:
        """It will never run: leave a record that keeps a late monitor from running it, too. Why, in
        the system's words (`message`) or as a sentence for its owner (`said`)."""
        if said is not None:
            said = notices.at_last(said)
            message = render(said["code"], said["params"], "en")
        why = f": {message}" if message else ""
        self._context.log.info(f"ends before it ran, {cause}{why}", tracked.id)
        ended = not_run(cause, now=time.time(), message=message, hint=hint)
        if said is not None:
            ended["said"] = said
        with suppress(OSError):
            if tracked.root.is_dir():
                records.write(tracked.root / records.EXIT, ended)
        tracked.held = None
        tracked.shipped = True
        tracked.end(ended)


def request_stop(tracked: Tracked, request: StopRequest) -> None:
    """Ask the monitor to end it. Raises OSError when even that cannot be written down."""
    tracked.stop_sent = inspect.request_stop(
        tracked.root, grace=request.grace, now=time.time(), cause=request.cause
    )


def _hint(error: Exception) -> str:
    """What the advice to its owner has to be about, where that is not its files or the disk, and
    the sentence does not say it."""
    about_packages = isinstance(error, PaddleCloudError) and error.code in _PACKAGES
    return NO_ENVIRONMENT if about_packages else ""


def _is_seen(tracked: Tracked) -> bool:
    """Whether its records tell of it by now; then a further monitor has nothing to do."""
    return inspect.inspect(tracked.root).phase is not Phase.NOT_STARTED


def _is_begun(tracked: Tracked) -> bool:
    """Whether its command runs or did, or its monitor is gone: with the command's pid it is in the
    records that the monitor holds what the command needs."""
    seen = inspect.inspect(tracked.root)
    return seen.phase in (Phase.EXITED, Phase.LOST) or bool(seen.pid)


def _own(run: Run) -> list[str]:
    """Which directories it gets beside the usual ones. Its tmp is also its /tmp where it has a view
    of its own."""
    wanted = [name for name, variable in _OWN.items() if variable not in run["env"]]
    needed = run["uid"] is not None and workspace.TEMPORARY not in wanted
    if run["private_root"]:
        wanted.append(ROOT)
    if run["secret"]:
        wanted.append(_token_file.DIRECTORY)
    return [*wanted, workspace.TEMPORARY] if needed else wanted


def _root_files(env: dict[str, str]) -> dict[str, str]:
    """What programs of 2017 read in `/`: a line each."""
    return {
        TRAINER_ID: f"{env.get('PADDLE_TRAINER_ID', '0')}\n",
        TRAINER_COUNT: f"{env.get('PADDLE_TRAINERS_NUM', '1')}\n",
    }


def _temporary(run: Run, tracked: Tracked) -> str:
    """Where a replica is kept apart from other users', /tmp is its own and this same directory."""
    if run["uid"] is not None:
        return "/tmp"
    return tmpdir.short(tracked.root, tracked.path(workspace.TEMPORARY))


def _environment(run: Run, tracked: Tracked) -> dict[str, str]:
    env = with_paths(
        run["env"],
        work=tracked.path(workspace.WORK),
        output=tracked.path(workspace.OUTPUT),
        log=tracked.path(workspace.LOG),
        mount=tracked.path(workspace.MOUNT),
        temporary=_temporary(run, tracked),
        home=tracked.path(workspace.HOME),
        user="" if run["uid"] is None else run["env"].get("PADDLE_CLOUD_USERNAME", ""),
    )
    if run["secret"]:
        env[_token_file.VARIABLE] = f"{tracked.path(_token_file.DIRECTORY)}/{_token_file.FILE}"
    return with_root(env, tracked.path(ROOT)) if run["private_root"] else env
