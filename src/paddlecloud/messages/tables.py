"""Every message by its code: English and Chinese, from the modules of all areas."""

from __future__ import annotations

from paddlecloud.messages._accounts import ACCOUNT_TEXTS
from paddlecloud.messages._agent import AGENT_TEXTS
from paddlecloud.messages._client import CLIENT_TEXTS
from paddlecloud.messages._data import DATA_TEXTS
from paddlecloud.messages._downloads import RESULT_TEXTS
from paddlecloud.messages._elastic import ELASTIC_TEXTS
from paddlecloud.messages._environments import ENVIRONMENT_TEXTS
from paddlecloud.messages._exec_top import LIVE_TEXTS
from paddlecloud.messages._files import FILE_TEXTS
from paddlecloud.messages._general import GENERAL_TEXTS
from paddlecloud.messages._jobs import JOB_TEXTS
from paddlecloud.messages._logs import LOG_TEXTS
from paddlecloud.messages._machines import MACHINE_TEXTS
from paddlecloud.messages._notifications import NOTIFY_TEXTS
from paddlecloud.messages._quota import QUOTA_TEXTS
from paddlecloud.messages._server import SERVER_TEXTS
from paddlecloud.messages._settings import SETTING_TEXTS
from paddlecloud.messages._stores import STORE_TEXTS
from paddlecloud.messages._submit import SUBMIT_TEXTS

TEXTS: dict[str, tuple[str, str]] = {
    **ACCOUNT_TEXTS,
    **AGENT_TEXTS,
    **CLIENT_TEXTS,
    **DATA_TEXTS,
    **ELASTIC_TEXTS,
    **ENVIRONMENT_TEXTS,
    **FILE_TEXTS,
    **GENERAL_TEXTS,
    **JOB_TEXTS,
    **LIVE_TEXTS,
    **LOG_TEXTS,
    **MACHINE_TEXTS,
    **NOTIFY_TEXTS,
    **QUOTA_TEXTS,
    **RESULT_TEXTS,
    **SERVER_TEXTS,
    **SETTING_TEXTS,
    **STORE_TEXTS,
    **SUBMIT_TEXTS,
}
