"""Starts ordered replicas: creates their files, then asks the zygote for a supervisor.

A replica that has to download something first, files or the outputs of the previous attempt, is
left to the fetcher threads, so that it delays no other replica. It can be killed while it waits.

What the owner of the job has to know (a full disk, damaged files) ends the replica with a message.
What the network or the server may fix is retried for as long as the replica is wanted; internal
errors of the server end it after some minutes. Starting is idempotent, also across a restart of the
agent, because of the order on disk and the supervisor's own records. Once a supervisor may have
been started, only the records can prove that the replica does not run: nothing is deleted here.
"""

from __future__ import annotations

import enum
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inputs.cache import RECHECK_SECONDS, InputCache
from paddlecloud.agent.inputs.snapshot_tree import HeldTree, SnapshotTrees, TreeBusy, hold, is_worth
from paddlecloud.agent.python_env.cache import Environments, with_environment
from paddlecloud.agent.registry import Stage, write_order
from paddlecloud.agent.replica import (
    _ports,
    _restore_outputs,
    _secret_files,
    _token_file,
    inspect,
    notices,
    preflight,
    records,
)
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.replica.records import CAUSE_PORT_TAKEN, CAUSE_START_FAILED, ORDER, ROOT
from paddlecloud.agent.sandbox import tmpdir, workspace
from paddlecloud.agent.server_link.channel import is_internal_error
from paddlecloud.agent.work_queue import WorkQueue
from paddlecloud.messages import render
from paddlecloud.model.diagnosis.exit_status import NO_ENVIRONMENT
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry, Unauthenticated
from paddlecloud.model.jobs.environment import TRAINER_COUNT, TRAINER_ID, with_paths, with_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.inputs.cache import Evictable, OpenBlob
    from paddlecloud.agent.registry import StopRequest, Tracked
    from paddlecloud.agent.replica.records import Launch
    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.agent.server_link.orders import Run
    from paddlecloud.model.files.snapshot import Snapshot

_MAX_LAUNCHES = 6
#: Tries of a replica while the server has internal errors with its files: that is ten minutes.
_MAX_INTERNAL_ERRORS = 300
#: Failed installs whose packages the owner can try to install elsewhere.
_PACKAGE_ERRORS = ("environment_failed", "environment_network")
#: Directories that a job gets unless its environment names another one.
_OWN_DIRECTORIES = {workspace.TEMPORARY: "TMPDIR", workspace.HOME: "HOME"}
#: Each held tree is an open file. Above this number, those that supervisors hold are released.
_MAX_HELD_TREES = 64
#: Seconds between two checks for a full disk, and for trees that keep deleted bytes.
_DISK_CHECK_SECONDS = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class _Next(enum.Enum):
    """What happens to a replica after a try to start it."""

    DONE = enum.auto()
    RETRY = enum.auto()
    FETCH = enum.auto()
    """It needs a download first."""


class Starters:
    def __init__(self, context: Context) -> None:
        self._context = context
        cache = context.directory / "cache"
        self._input_cache = InputCache(
            cache, limit=context.cache_limit, proxies=context.config.proxies
        )
        self._builder = workspace.WorkspaceBuilder()
        self._trees = SnapshotTrees(
            cache, self._builder, context.spawner.can_overlay, self._input_cache.grew
        )
        self._environments = Environments(context, self.hurry, self._input_cache.grew)
        self._held_trees: dict[str, tuple[Tracked, HeldTree]] = {}
        """The tree of each replica whose supervisor may not hold it yet."""
        self._max_held_trees = _MAX_HELD_TREES
        self._start_queue = WorkQueue()
        self._fetch_queue = WorkQueue()
        self._waiting_for_tree: dict[str, Tracked] = {}
        """Those that wait for a tree which another thread builds."""

    def put(self, tracked: Tracked) -> None:
        """Start it as soon as a thread is free."""
        tracked.queued = True
        tracked.ordered_at = time.monotonic()
        self._start_queue.put(tracked)

    def hurry(self, tracked: Tracked | None = None) -> None:
        """Try at once what waits for its next try; one that is to stop waits for no fetcher."""
        if tracked is None:
            self._start_queue.hurry()
            return
        tracked.hurried = True
        if not tracked.wanted and self._fetch_queue.withdraw(tracked):
            self._start_queue.put(tracked)
        self._start_queue.hurry(tracked)

    def close(self) -> None:
        """Let the threads end; replicas that were not started are ordered again later."""
        self._start_queue.close()
        self._fetch_queue.close()
        self._context.prune_due.set()

    def run_starter(self) -> None:
        """The body of each thread that starts replicas which need no download."""
        channel = self._context.link.channel()
        self._context.guarded("a starter", lambda: self._turn(self._start_queue, channel))

    def run_fetcher(self) -> None:
        """The body of each thread that downloads for a replica and starts it."""
        channel = self._context.link.channel()
        self._context.guarded("a fetcher", lambda: self._turn(self._fetch_queue, channel))

    def run_pruner(self) -> None:
        """The body of the thread that keeps the cache within its limit, and the disk from filling
        up. That may take minutes, so no other thread waits for it."""
        self._context.guarded("the pruner", self._pruner_turn)

    def _pruner_turn(self) -> None:
        self._input_cache.set_limit(self._context.cache_limit)
        self._prune(self._is_short)
        self._context.cache_spent = self._is_short() and not self._input_cache.has_spared
        above_limit = self._input_cache.above_limit
        self._context.prune_due.wait(RECHECK_SECONDS if above_limit else _DISK_CHECK_SECONDS)
        self._context.prune_due.clear()

    def _is_short(self, needed: int = 0) -> bool:
        """Whether the disk has less free space than that."""
        return workspace.free_space(self._context.directory) < needed

    def _prune(self, is_short: Callable[[], bool]) -> int:
        """Delete what is useless, above the limit, or in the way; bytes freed."""
        self._release_trees()
        freed = self._trees.drop_useless(self._ordered_trees())
        freed += self._input_cache.prune(time.time(), self._evictable, is_short)
        if freed:
            self._context.log.info(f"removed {freed} bytes of cached files")
        return freed

    def _evictable(self) -> Iterator[Evictable]:
        """What is in the cache beside lists and blobs."""
        yield from self._environments.evictable()
        yield from self._trees.evictable(self._ordered_trees())

    def _ordered_trees(self) -> set[str]:
        """The trees in orders of replicas that do not run yet; earlier agents wrote some."""
        replicas = self._context.registry.all()
        waiting = [one for one in replicas if one.alive and not _has_begun(one)]
        orders = [records.read(one.root / ORDER) or {} for one in waiting]
        return {order["tree"] for order in orders if order.get("tree")}

    def _turn(self, queue: WorkQueue, channel: Channel) -> None:
        tracked = queue.take()
        if tracked is None:
            return
        tracked.hurried = False
        then = _Next.RETRY
        try:
            then = self._start(tracked, channel, may_fetch=queue is self._fetch_queue)
        except (OSError, PaddleCloudError) as error:
            then = self._failed(tracked, error)
        except Exception as error:  # noqa: BLE001 - reported to the owner, and logged
            self._context.log.failure("could not be started", tracked.id)
            then = self._failed(tracked, error)
        finally:
            if then is _Next.DONE:
                tracked.queued = False
                self._context.wake_reporter()
            elif then is _Next.FETCH:
                self._fetch_queue.put(tracked)
                if not tracked.wanted:
                    self.hurry(tracked)
            else:
                # What it waits for may come at any time (`hurry`).
                tracked.pause = min(max(_FIRST_PAUSE, tracked.pause * 2), _LONGEST_PAUSE)
                self._start_queue.put(tracked, time.monotonic() + tracked.pause)
                if tracked.hurried:
                    self._start_queue.hurry(tracked)

    def _start(self, tracked: Tracked, channel: Channel, *, may_fetch: bool) -> _Next:
        """One try to start a replica."""
        if not tracked.alive or tracked.reaping:
            return _Next.DONE
        if tracked.stage is Stage.LAUNCHED and _phase(tracked) is not Phase.NOT_STARTED:
            return _Next.DONE
        launch = None
        if not tracked.spawned:
            if tracked.stop is not None:
                return self._end_before_it_runs(tracked, tracked.stop)
            launch = self._prepare(tracked, channel, may_fetch=may_fetch)
            if launch is None:
                return _Next.FETCH
            # A job with a uid of its own does not learn which programs other users run.
            run = tracked.ordered
            taken = _ports.taken(run["ports"], named=run["uid"] is None)
            if taken:
                self._end(tracked, CAUSE_PORT_TAKEN, taken)
                return _Next.DONE
        self._spawn(tracked, launch)
        return _Next.DONE

    def _hold(self, tracked: Tracked, held: dict[str, Any]) -> None:
        """Let the reporter report what it waits for, if that lasts."""
        tracked.hold(held, now=time.monotonic())
        self._context.wake_reporter()

    def _needs_fetch(self, tracked: Tracked) -> bool:
        """Whether something has to be downloaded before it can start. It may be wrong about a file
        that is deleted or damaged at this moment: that is downloaded by the thread that asked."""
        run = tracked.ordered
        if run["secrets"]:
            return True
        if run["resumes"]:
            earlier = self._context.registry.get(run["resumes"])
            if _restore_outputs.needs_fetch(earlier):
                return True
        wanted, blobs_dir = run["snapshot"], run["blobs_dir"]
        if not wanted:
            return False
        snapshot = self._input_cache.snapshot_in_memory(wanted)
        if snapshot is None or is_worth(snapshot):
            try:
                tree = self._trees.ready(wanted, run["uid"], blobs_dir)
            except TreeBusy:
                return False  # it waits for the thread that builds the tree
            if tree is not None:
                tree.release()
                return False
        if blobs_dir is not None:
            return not self._input_cache.has_list(wanted)
        snapshot = self._input_cache.cached_snapshot(wanted)
        return snapshot is None or is_worth(snapshot) or not self._input_cache.has_blobs(snapshot)

    def _prepare(self, tracked: Tracked, channel: Channel, *, may_fetch: bool) -> Launch | None:
        """Create its files and write its order; None if it needs a download that it may not make.
        Raises Retry while its Python environment is installed."""
        run = tracked.ordered
        uid = run["uid"]
        if tracked.held is None and run["direct"]:
            # From a disk they come at once, or the error has the reason.
            self._hold(tracked, notices.message("held_fetching"))
        if uid is not None and os.geteuid() != 0:
            raise Refused("agent_cannot_separate", host=self._context.config.host)
        python = self._environments.ready(tracked) if run["requirements"] else None
        if not may_fetch and self._needs_fetch(tracked):
            return None
        with self._input_cache.in_use(time.time()):
            tree = self._create_files(tracked, channel)
        if run["resumes"]:
            earlier = self._context.registry.get(run["resumes"])
            how = _restore_outputs.restore(tracked, earlier, channel, owner=uid)
            self._context.log.info(f"outputs restored: {how}", tracked.id)
        if run["private_root"]:
            # Programs of 2017 read these files in `/`.
            files = {
                TRAINER_ID: f"{run['env'].get('PADDLE_TRAINER_ID', '0')}\n",
                TRAINER_COUNT: f"{run['env'].get('PADDLE_TRAINERS_NUM', '1')}\n",
            }
            workspace.write_in_root(tracked.root, files, owner=uid)
        if run["secret"]:
            _token_file.write(tracked.root, run, tracked.id, self._context.link)
        if run["secrets"]:
            _secret_files.write(tracked.root, run, tracked.id, channel)
        launch = preflight.complete(self._launch(tracked, python, tree), run)
        write_order(tracked, launch)
        return launch

    def _create_files(self, tracked: Tracked, channel: Channel) -> str | None:
        """Its directories and files; the path of the tree to mount below them, if it gets one."""
        run = tracked.ordered
        blobs_dir = run["blobs_dir"]
        open_blob = self._input_cache.source(
            tracked.id, blobs_dir, channel, direct=run["direct"], is_wanted=lambda: tracked.wanted
        )
        snapshot, tree = None, None
        if run["snapshot"]:
            snapshot, tree = self._find_files(tracked, run["snapshot"], channel, open_blob)
        self._hold_tree(tracked, tree)
        self._builder.create(
            tracked.root,
            snapshot,
            open_blob,
            _own_directories(run),
            owner=run["uid"],
            layered=tree is not None,
            checked=blobs_dir is not None,
        )
        return tree.path if tree is not None else None

    def _find_files(
        self, tracked: Tracked, wanted: str, channel: Channel, open_blob: OpenBlob
    ) -> tuple[Snapshot | None, HeldTree | None]:
        """The list of its files, and a tree of them if it is large; with a tree the list may be
        None. Raises Retry while another thread builds the tree, which wakes this one then."""
        uid, blobs_dir = tracked.ordered["uid"], tracked.ordered["blobs_dir"]
        try:
            snapshot = self._input_cache.snapshot_in_memory(wanted)
            if snapshot is None or is_worth(snapshot):
                tree = self._trees.ready(wanted, uid, blobs_dir)
                if tree is not None:
                    return snapshot, tree
            snapshot = self._input_cache.snapshot(wanted, tracked.id, channel)
            return snapshot, self._make_tree(tracked, snapshot, open_blob)
        except TreeBusy as error:
            self._waiting_for_tree[tracked.id] = tracked
            if not self._trees.is_building(error.filename):
                tracked.hurried = True  # that thread may have woken the others a moment ago
            raise Retry("held_fetching", worker=tracked.ordered["worker"]) from error

    def _make_tree(
        self, tracked: Tracked, snapshot: Snapshot, open_blob: OpenBlob
    ) -> HeldTree | None:
        uid, store = tracked.ordered["uid"], tracked.ordered["blobs_dir"]
        blobs_dir = store or self._input_cache.blobs_directory()
        try:
            tree = self._trees.make(snapshot, open_blob, uid, blobs_dir, checked=store is not None)
            if tree is not None and uid is not None and store is None:
                self._input_cache.mark_copied(snapshot.digests)
            return tree
        except TreeBusy:
            raise
        except BlockingIOError as error:
            raise Retry("replica_not_started", replica=tracked.id, reason=str(error)) from error
        except OSError as error:
            raise workspace.disk_error(error, tracked.root, snapshot) from error
        finally:
            with suppress(KeyError):
                while True:
                    self.hurry(self._waiting_for_tree.popitem()[1])

    def _hold_tree(self, tracked: Tracked, tree: HeldTree | None) -> None:
        """Hold its tree until its supervisor does, instead of that of an earlier try."""
        self._release_tree(tracked.id)
        if tree is not None:
            self._held_trees[tracked.id] = (tracked, tree)
        if len(self._held_trees) > self._max_held_trees:
            self._release_trees()
            self._max_held_trees = max(_MAX_HELD_TREES, 2 * len(self._held_trees))

    def _release_trees(self) -> None:
        """The trees of replicas that run, or never will."""
        for replica, (tracked, _) in list(self._held_trees.items()):
            if not tracked.alive or _has_begun(tracked):
                self._release_tree(replica)

    def _release_tree(self, replica: str) -> None:
        _, tree = self._held_trees.pop(replica, (None, None))
        if tree is not None:
            tree.release()

    def _launch(self, tracked: Tracked, python: str | None, tree: str | None) -> Launch:
        run = tracked.ordered
        env = _environment(run, tracked)
        return {
            "replica_id": tracked.id,
            "root": str(tracked.root),
            "command": run["command"],
            "env": env if python is None else with_environment(env, python),
            "secrets": {variable: name for name, variable in run["secrets"].items() if variable},
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

    def _spawn(self, tracked: Tracked, launch: Launch | None) -> None:
        """Start a supervisor; without `launch`, by the order on disk."""
        self._context.watch(tracked)
        request = tracked.stop
        if request is not None:
            # A supervisor may be starting; it finds the request and does not run the command.
            request_stop(tracked, request)
        if tracked.launches >= _MAX_LAUNCHES:
            self._give_up(tracked)
            return
        launch = launch or records.read(tracked.root / ORDER)
        if launch is None:
            # Deleted, or damaged: the next inspection finds that it is lost.
            raise Retry("replica_not_started", replica=tracked.id, reason=f"{ORDER} is gone")
        tree = launch.get("tree")
        if tree and tracked.id not in self._held_trees:
            self._hold_tree(tracked, hold(tree))  # an earlier agent wrote the order
        tracked.spawned = True
        tracked.launches += 1
        self._context.spawner.spawn(launch)
        self._set_launched(tracked)
        tracked.run = None
        tracked.pause = 0.0
        took = (tracked.launched_at - tracked.ordered_at) * 1000
        self._context.log.info(f"launched {took:.1f} ms after its order", tracked.id)
        if tracked.stop is not None and tracked.stop is not request:
            request_stop(tracked, tracked.stop)
        if self._input_cache.is_due(time.time()):
            self._context.prune_due.set()

    def _set_launched(self, tracked: Tracked) -> None:
        with tracked.lock:
            tracked.launched_at = time.monotonic()
            tracked.held = None
            if tracked.alive:
                tracked.stage = Stage.LAUNCHED
            tracked.just_launched = True

    def _failed(self, tracked: Tracked, error: Exception) -> _Next:
        """End the replica if it certainly does not run and another try is pointless."""
        if isinstance(error, Retry) and tracked.stop is not None and not tracked.spawned:
            return self._end_before_it_runs(tracked, tracked.stop)
        if isinstance(error, Unauthenticated):
            self._context.link.renew_keys()
        if tracked.spawned:
            # It may run, so its records are inspected.
            self._set_launched(tracked)
            self._context.wake_reporter()
        if is_internal_error(error):
            tracked.internal_errors += 1
        pointless = is_internal_error(error) and tracked.internal_errors >= _MAX_INTERNAL_ERRORS
        if tracked.spawned or (isinstance(error, Retry | Unauthenticated) and not pointless):
            message = notices.from_final_error(error)
            if message != tracked.last_error:
                self._context.log.warning(f"cannot be started yet: {error}", tracked.id)
            tracked.last_error = message
            if not tracked.spawned and isinstance(error, PaddleCloudError):
                self._hold(tracked, notices.from_error(error))
            return _Next.RETRY
        if isinstance(error, OSError):
            error = workspace.disk_error(error, tracked.root)
        workspace.clear(tracked.root)
        if self._free_space(tracked, error):
            return _Next.RETRY
        code = error.code if isinstance(error, PaddleCloudError) else ""
        hint = NO_ENVIRONMENT if code in _PACKAGE_ERRORS else ""
        self._end(tracked, CAUSE_START_FAILED, hint=hint, reason=notices.from_final_error(error))
        return _Next.DONE

    def _free_space(self, tracked: Tracked, error: Exception) -> bool:
        """Prune the cache for a replica that found no space; whether another try is worth it. Once
        only: the second time it would delete what was downloaded for the replica itself. The size
        of the outputs of its last attempt is not known; for these everything is deleted that can
        be."""
        if not isinstance(error, PaddleCloudError) or error.code != "agent_workspace_full":
            return False
        needed = error.params["needed"]
        if tracked.freed_space or not isinstance(needed, int):
            return False
        tracked.freed_space = True
        self._release_tree(tracked.id)
        is_known = needed > workspace.LEAST_NEEDED
        if is_known and self._is_short(
            needed - self._input_cache.size(time.time(), self._evictable)
        ):
            return False
        return self._prune(lambda: not is_known or self._is_short(needed)) > 0

    def _give_up(self, tracked: Tracked) -> None:
        """No supervisor starts. A stop request keeps a late one from running the command; then the
        records show whether one did."""
        message = tracked.last_error or notices.message("agent_no_monitor")
        cause = tracked.stop.cause if tracked.stop is not None else CAUSE_START_FAILED
        inspect.request_stop(tracked.root, grace=0.0, now=time.time(), cause=cause)
        if _phase(tracked) is Phase.NOT_STARTED:
            self._end(tracked, cause, reason=message)

    def _end_before_it_runs(self, tracked: Tracked, request: StopRequest) -> _Next:
        """End it as soon as no install runs for it."""
        has_install = tracked.run is not None and tracked.run["requirements"]
        if has_install and not self._environments.leave(tracked):
            return _Next.RETRY
        self._end(tracked, request.cause)
        return _Next.DONE

    def _end(
        self,
        tracked: Tracked,
        cause: str,
        message: str = "",
        hint: str = "",
        reason: dict[str, Any] | None = None,
    ) -> None:
        """It will never run: write a record that also keeps a late supervisor from running it.
        `reason` is code and values of a message for its owner; without it, `message` is a text."""
        if reason is not None:
            reason = notices.as_final(reason)
            message = render(reason["code"], reason["params"], "en")
        detail = f": {message}" if message else ""
        self._context.log.info(f"ends before it ran, {cause}{detail}", tracked.id)
        ended = records.exit_record(cause, now=time.time(), message=message)
        ended["hint"] = hint
        if reason is not None:
            ended["said"] = reason
        with suppress(OSError):
            if tracked.root.is_dir():
                records.write(tracked.root / records.EXIT, ended)
        _secret_files.remove(tracked.root)
        tracked.held = None
        tracked.shipped = True
        tracked.end(ended)


def request_stop(tracked: Tracked, request: StopRequest) -> None:
    """Ask the supervisor to end it. Raises OSError when that cannot be written."""
    tracked.stop_sent = inspect.request_stop(
        tracked.root, grace=request.grace, now=time.time(), cause=request.cause
    )


def _phase(tracked: Tracked) -> Phase:
    return inspect.inspect(tracked.root).phase


def _has_begun(tracked: Tracked) -> bool:
    """Whether its command runs or ran, or its supervisor is gone. A supervisor that has written the
    command's pid holds the tree."""
    observed = inspect.inspect(tracked.root)
    return observed.phase in (Phase.EXITED, Phase.LOST) or bool(observed.pid)


def _own_directories(run: Run) -> list[str]:
    """The directories that it gets beside the usual ones."""
    wanted = [name for name, variable in _OWN_DIRECTORIES.items() if variable not in run["env"]]
    # With a uid of its own, its tmp is mounted at /tmp.
    needed = run["uid"] is not None and workspace.TEMPORARY not in wanted
    if run["private_root"]:
        wanted.append(ROOT)
    if run["secret"]:
        wanted.append(_token_file.DIRECTORY)
    if run["secrets"]:
        wanted.append(_secret_files.DIRECTORY)
    return [*wanted, workspace.TEMPORARY] if needed else wanted


def _environment(run: Run, tracked: Tracked) -> dict[str, str]:
    if run["uid"] is None:
        temporary = tmpdir.short(tracked.root, tracked.path(workspace.TEMPORARY))
    else:
        temporary = "/tmp"
    env = with_paths(
        run["env"],
        work=tracked.path(workspace.WORK),
        output=tracked.path(workspace.OUTPUT),
        log=tracked.path(workspace.LOG),
        mount=tracked.path(workspace.MOUNT),
        temporary=temporary,
        home=tracked.path(workspace.HOME),
        user="" if run["uid"] is None else run["env"].get("PADDLE_CLOUD_USERNAME", ""),
    )
    if run["secret"]:
        env[_token_file.VARIABLE] = f"{tracked.path(_token_file.DIRECTORY)}/{_token_file.FILE}"
    if run["secrets"]:
        env[_secret_files.VARIABLE] = tracked.path(_secret_files.DIRECTORY)
    return with_root(env, tracked.path(ROOT)) if run["private_root"] else env
