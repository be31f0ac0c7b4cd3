"""What an admin asks of a server, as `Client().admin`. The server decides who is one."""

from __future__ import annotations

from paddlecloud.client import response_schemas
from paddlecloud.client.sdk import check_text
from paddlecloud.client.transport import DONE
from paddlecloud.model.protocol.bce_auth import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.client.sdk import Client

    Rows = list[dict[str, Any]]


class Admin:
    """Users, the keys and jobs of all users, pools and their machines, the audit log."""

    def __init__(self, client: Client) -> None:
        self._transport = client.transport
        self._pages = client.transport.pages

    def users(self) -> Rows:
        """All users, by id."""
        schema = response_schemas.USERS
        return self._pages("/admin/users", "users", "after", {}, None, schema=schema)

    def user(self, user_id: str) -> dict[str, Any]:
        return self._transport.get(_user(user_id), schema=response_schemas.USER)

    def create_user(
        self,
        user_id: str,
        *,
        role: str = "user",
        email: str | None = None,
        plan: str | None = None,
        lang: str | None = None,
    ) -> dict[str, Any]:
        """Make a user: `role` is "user", "readonly" or "admin"; without `plan` the default one."""
        asked = {"user_id": user_id, "role": role, "email": email, "plan": plan, "lang": lang}
        return self._transport.post("/admin/users", asked, schema=response_schemas.USER)

    def set_user(
        self,
        user_id: str,
        *,
        role: str | None = None,
        email: str | None = None,
        plan: str | None = None,
        lang: str | None = None,
        disabled: bool | None = None,
    ) -> dict[str, Any]:
        """Change a user; what is None stays. An empty `plan` is the default one, an empty `email`
        none."""
        asked = {"role": role, "email": email, "plan": plan, "lang": lang, "disabled": disabled}
        values = {name: value for name, value in asked.items() if value is not None}
        schema = response_schemas.USER
        return self._transport.post(_user(user_id), values, schema=schema, idempotent=True)

    def delete_user(self, user_id: str) -> None:
        """Delete a user who has neither jobs nor files."""
        self._transport.post(f"{_user(user_id)}/delete", {}, schema=DONE)

    def tokens(self, user: str | None = None, *, revoked: bool = False) -> Rows:
        """The keys of one user, or of all and the tokens without a user; never their secrets."""
        query = {"user": user, "revoked": int(revoked)}
        answer = self._transport.get("/admin/tokens", query, schema=response_schemas.TOKENS)
        return list(answer["tokens"])

    def create_token(self, user_id: str, *, name: str = "", scope: str = "full") -> dict[str, Any]:
        """A pair of keys for a user; its `sk` is returned only now."""
        path = f"{_user(user_id)}/tokens"
        asked = {"name": name, "scope": scope}
        return self._transport.post(path, asked, schema=response_schemas.NEW_TOKEN)

    def create_metrics_token(self, *, name: str = "") -> dict[str, Any]:
        """A bearer token for GET /metrics, without a user; its `token` is returned only now."""
        schema = response_schemas.NEW_BEARER_TOKEN
        asked = {"scope": "metrics", "name": name}
        return self._transport.post("/admin/tokens", asked, schema=schema)

    def revoke_token(self, ak: str) -> dict[str, Any]:
        path = f"/admin/tokens/{quote(check_text('ak', ak))}/revoke"
        return self._transport.post(path, {}, schema=response_schemas.TOKEN, idempotent=True)

    def jobs(
        self,
        *,
        owner: str | None = None,
        state: str | None = None,
        name: str | None = None,
        limit: int | None = 50,
    ) -> Rows:
        """The jobs of all users, newest first."""
        filters = {"owner": owner, "state": state, "name": name}
        paged = ("/admin/jobs", "jobs", "before", filters, limit)
        return self._pages(*paged, schema=response_schemas.JOBS)

    def pools(self) -> Rows:
        return list(self._transport.get("/admin/pools", schema=response_schemas.POOLS)["pools"])

    def create_pool(self, name: str, **options: Any) -> None:
        """Add a pool; `options` are the keys of [pools.NAME], such as kind."""
        asked = {"name": name, "options": options}
        self._transport.post("/admin/pools", asked, schema=DONE)

    def delete_pool(self, name: str) -> None:
        """Delete a pool that was added, and that runs no jobs."""
        self._transport.post(f"/admin/pools/{quote(name)}/delete", {}, schema=DONE)

    def invite_machines(self, pool: str, *, uses: int = 1, ttl: float = 3600.0) -> dict[str, Any]:
        """A token with which machines join a pool, for `ttl` seconds."""
        asked = {"pool": pool, "uses": uses, "ttl": ttl}
        return self._transport.post("/admin/invites", asked, schema=response_schemas.INVITE)

    def machines(self) -> Rows:
        """The machines that joined, by pool and name."""
        answer = self._transport.get("/admin/machines", schema=response_schemas.MACHINES)
        return list(answer["machines"])

    def machine(self, name: str) -> dict[str, Any]:
        return self._transport.get(_machine(name), schema=response_schemas.MACHINE)

    def set_machine(self, name: str, **values: Any) -> dict[str, Any]:
        """Change labels (None removes one) or drained (with a reason)."""
        schema = response_schemas.MACHINE
        return self._transport.post(_machine(name), values, schema=schema, idempotent=True)

    def remove_machine(self, name: str) -> None:
        """Revoke a machine's key; its replicas are lost."""
        self._transport.post(f"{_machine(name)}/remove", {}, schema=DONE)

    def audit(
        self, *, user: str | None = None, since: float | None = None, limit: int | None = 100
    ) -> Rows:
        """Who changed what, newest first, since a time in seconds of 1970."""
        query = {"user": user, "since": since}
        paged = ("/admin/audit", "events", "before", query, limit)
        return self._pages(*paged, schema=response_schemas.EVENTS)


def _machine(name: str) -> str:
    return f"/admin/machines/{quote(name)}"


def _user(user_id: str) -> str:
    return f"/admin/users/{quote(check_text('user_id', user_id))}"
