"""What running jobs use: CPU, memory, cards, worker by worker."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
from paddlecloud.server.schemas.usage import UseAnswer
from paddlecloud.server.services.jobs import live_usage

router = Router()


@router.get("/api/v1/jobs/{job_id}/usage", "What a job's workers use now")
def of_job(deps: Deps, call: Call) -> UseAnswer:
    return live_usage.of_job(deps, call.caller, call.path["job_id"])


@router.get("/api/v1/usage", "What your running jobs use now")
def mine(deps: Deps, call: Call) -> UseAnswer:
    return live_usage.of_owner(deps, call.caller.user_id)
