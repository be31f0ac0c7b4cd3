"""What an admin asks of a server, as `Client().admin`. The server decides who is one."""

from __future__ import annotations

from paddlecloud.model.signing import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.client.transport import Transport

    Rows = list[dict[str, Any]]

#: Rows of one page when all are wanted.
PAGE = 1000


class Admin:
    """Users, everybody's keys and jobs, pools, the audit."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def users(self) -> Rows:
        """Everybody, by id."""
        return self._pages("/admin/users", "users", "after", {}, None)

    def user(self, user_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get(_user(user_id))
        return found

    def create_user(self, user_id: str, **values: Any) -> dict[str, Any]:
        """Make a user; role, email, plan and lang may be given."""
        made: dict[str, Any] = self._transport.post("/admin/users", {"user_id": user_id, **values})
        return made

    def set_user(self, user_id: str, **values: Any) -> dict[str, Any]:
        """Change role, email, plan, lang or disabled."""
        changed: dict[str, Any] = self._transport.post(_user(user_id), values, again=True)
        return changed

    def delete_user(self, user_id: str) -> None:
        """Forget a user who has neither jobs nor files."""
        self._transport.post(f"{_user(user_id)}/delete", {})

    def tokens(self, user: str | None = None, *, revoked: bool = False) -> Rows:
        """Everybody's keys, or one user's, without their secrets."""
        query = {"user": user, "revoked": int(revoked)}
        answer: dict[str, Any] = self._transport.get("/admin/tokens", query)
        return list(answer["tokens"])

    def create_token(self, user_id: str, *, name: str = "", scope: str = "full") -> dict[str, Any]:
        """A pair of keys for a user; nobody can ask for its `sk` again."""
        path = f"{_user(user_id)}/tokens"
        made: dict[str, Any] = self._transport.post(path, {"name": name, "scope": scope})
        return made

    def revoke_token(self, ak: str) -> dict[str, Any]:
        path = f"/admin/tokens/{quote(ak)}/revoke"
        row: dict[str, Any] = self._transport.post(path, {}, again=True)
        return row

    def jobs(self, *, limit: int | None = 50, **filters: str | None) -> Rows:
        """Everybody's jobs, newest first; owner, state and name may be given."""
        return self._pages("/admin/jobs", "jobs", "before", filters, limit)

    def pools(self) -> Rows:
        answer: dict[str, Any] = self._transport.get("/admin/pools")
        return list(answer["pools"])

    def audit(
        self, *, user: str | None = None, since: float | None = None, limit: int | None = 100
    ) -> Rows:
        """Who changed what, newest first, since a time in seconds of 1970."""
        return self._pages(
            "/admin/audit", "events", "before", {"user": user, "since": since}, limit
        )

    def _pages(
        self, path: str, key: str, cursor: str, query: dict[str, Any], limit: int | None
    ) -> Rows:
        found: Rows = []
        at = None
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self._transport.get(path, {**query, "limit": size, cursor: at})
            found += page[key]
            at = page["next"]
            if at is None:
                break
        return found


def _user(user_id: str) -> str:
    return f"/admin/users/{quote(user_id)}"
