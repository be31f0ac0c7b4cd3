"""Messages about users, tokens and permissions."""

from __future__ import annotations

ACCOUNT_TEXTS: dict[str, tuple[str, str]] = {
    # -- rights ------------------------------------------------------------------------------
    "auth_readonly": (
        "user {user_id} is read-only and cannot change anything; ask an admin of this server "
        "for the role user",
        "{user_id} 是只读用户，不能进行修改；如需修改，请联系本服务器的管理员",
    ),
    "auth_scope": (
        "key {ak} is read-only; use a key with scope full: paddlecloud token create",
        "密钥 {ak} 只能读取，请使用权限为 full 的密钥：paddlecloud token create",
    ),
    "auth_metrics_only": (
        "token {ak} has the scope metrics; it is good for GET /metrics only",
        "令牌 {ak} 的权限为 metrics，只能用于 GET /metrics",
    ),
    "auth_bearer_unknown": (
        "this bearer token does not exist or was revoked; make another one: paddlecloud admin "
        "token create --scope=metrics",
        "该 Bearer 令牌不存在或已被吊销，可重新创建：paddlecloud admin token create "
        "--scope=metrics",
    ),
    # -- gen_token ---------------------------------------------------------------------------
    "email_domain": (
        "mail addresses at {domain} cannot get a token on this server; accepted domains: {domains}",
        "本服务器不接受 {domain} 的邮箱，可用的邮箱域名：{domains}",
    ),
    "email_invalid": (
        "{email} is not a valid mail address; the form is name@domain",
        "{email} 不是有效的邮箱地址，正确形式为 名称@域名",
    ),
    "email_missing": (
        "gen_token needs your mail address: paddlecloud gen_token --email=your_name@163.com",
        "gen_token 需要邮箱地址：paddlecloud gen_token --email=your_name@163.com",
    ),
    "email_taken": (
        "the address {email} already belongs to {user_id}; use another one",
        "邮箱 {email} 已属于用户 {user_id}，请换一个邮箱",
    ),
    "gen_token_no_mail": (
        "this server sends no mail; ask an admin to configure [mail] in its settings, or to "
        "create a token: paddlecloud admin token create USER",
        "本服务器未配置邮件；请管理员设置 [mail]，或用 paddlecloud admin token create USER "
        "创建密钥",
    ),
    "gen_token_not_team": (
        "this is an embedded server and it sends no mail; run gen_token on its own machine",
        "这是个人服务器，不发送邮件，请在其所在的机器上运行 gen_token",
    ),
    "gen_token_often": (
        "{limit} tokens were requested within an hour, which is the limit; try again in "
        "{minutes} minutes",
        "一小时内已申请 {limit} 次，达到上限，请在 {minutes} 分钟后重试",
    ),
    "keys_not_pasted": (
        "no keys were entered and nothing was changed; when the mail arrives, put its ak and "
        "sk into [main] of {path}, or run gen_token again",
        "没有输入密钥，未做任何修改；收到邮件后请将其中的 ak 和 sk 写入 {path} 的 [main]，"
        "或重新运行 gen_token 获取新邮件",
    ),
    # -- users -------------------------------------------------------------------------------
    "plan_unknown": (
        "plan {plan} does not exist on this server; available: {known}",
        "本服务器没有套餐 {plan}，可选：{known}",
    ),
    "user_change_missing": (
        "nothing to change; give at least one of: {known}",
        "没有要修改的内容，请至少给出以下之一：{known}",
    ),
    "user_has_jobs": (
        "{user_id} still has jobs ({jobs}) or stored files; disable the user instead, or wait "
        "until their retention time is over",
        "{user_id} 还有任务（{jobs} 个）或已存文件，请改为停用该用户，或等其超过保留时间",
    ),
    "user_id_invalid": (
        "{user_id} is not a valid user id; use 1 to 64 letters, digits, - _ or ., starting "
        "with a letter or digit",
        "{user_id} 不能作为用户 ID，请使用 1 到 64 个字母、数字、-、_ 或 .，以字母或数字开头",
    ),
    "user_id_missing": (
        "{command} needs a user id; see paddlecloud admin user list",
        "{command} 需要用户 ID，可用 paddlecloud admin user list 查看",
    ),
    "user_id_taken": (
        "user {user_id} already exists; choose another id",
        "用户 {user_id} 已存在，请换一个 ID",
    ),
    "user_last_admin": (
        "{user_id} is the last active admin; make another user an admin first",
        "{user_id} 是最后一个可用的管理员，请先设置另一个管理员",
    ),
    "user_unknown": (
        "user {user_id} does not exist; see paddlecloud admin user list",
        "没有用户 {user_id}，可用 paddlecloud admin user list 查看",
    ),
    # -- keys --------------------------------------------------------------------------------
    "token_missing": (
        "{command} needs an access key; see paddlecloud token list",
        "{command} 需要 ak，可用 paddlecloud token list 查看",
    ),
    "token_unknown": (
        "there is no active key {ak}; see paddlecloud token list",
        "没有可用的密钥 {ak}，可用 paddlecloud token list 查看",
    ),
    "secret_empty": (
        "the value of the secret {name} is empty; give it on stdin or at the prompt",
        "机密 {name} 的值为空，请从标准输入或提示处输入",
    ),
    "secret_encoding": (
        "the value of the secret {name} is not valid base64",
        "机密 {name} 的值不是合法的 base64",
    ),
    "secret_long": (
        "the secret {name} has {size} bytes, above the limit of {limit}; keep larger files in the "
        "submitted directory or in a bucket",
        "机密 {name} 有 {size} 字节，超过上限 {limit}；较大的文件请放在提交目录或存储桶中",
    ),
    "secret_name_missing": (
        "give the name of the secret: paddlecloud {command} NAME",
        "请给出机密名称：paddlecloud {command} NAME",
    ),
    "secret_unknown": (
        "you have no secret {name}; paddlecloud secret list shows yours",
        "您没有名为 {name} 的机密；可用 paddlecloud secret list 查看",
    ),
    "secrets_too_many": (
        "you have {count} secrets already, the limit; delete one: paddlecloud secret rm NAME",
        "您已有 {count} 个机密，达到上限；请删除一个：paddlecloud secret rm NAME",
    ),
    "tokens_too_many": (
        "{user_id} already has {count} keys, which is the limit; revoke one first",
        "{user_id} 已有 {count} 个密钥，达到上限，请先吊销一个",
    ),
    "bearer_tokens_too_many": (
        "this server already has {count} tokens without a user, which is the limit; revoke one "
        "first",
        "本服务器已有 {count} 个不属于用户的令牌，达到上限，请先吊销一个",
    ),
    "metrics_token_user": (
        "a token with the scope metrics belongs to no user; leave out {user_id}: paddlecloud admin "
        "token create --scope=metrics --name=prometheus",
        "权限为 metrics 的令牌不属于任何用户，请去掉 {user_id}：paddlecloud admin token create "
        "--scope=metrics --name=prometheus",
    ),
    "since_invalid": (
        "--since={value} is neither a duration (30s, 10m, 2h, 1d) nor a time (2026-01-31 "
        "14:00, 14:00, 2026-01-31T06:00:00Z)",
        "{value} 不是有效的时间，请写日期（如 2026-01-31）、时间（如 2026-01-31T08:00:00Z）"
        "或多久之前（如 7d、12h、30m）",
    ),
}
