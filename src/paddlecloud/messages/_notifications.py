"""Messages about mail, webhooks and notifications. The mails themselves are in `mail`."""

from __future__ import annotations

NOTIFY_TEXTS: dict[str, tuple[str, str]] = {
    "mail_address_bad": (
        "{address} is not a deliverable mail address; correct it",
        "{address} 不是可投递的邮箱地址，请更正",
    ),
    "mail_address_utf8": (
        "the mail server {host} cannot deliver to addresses with non-ASCII letters; use "
        "another address, or a mail server that supports SMTPUTF8",
        "邮件服务器 {host} 不支持含非 ASCII 字符的地址，请换一个地址，或使用支持 SMTPUTF8 "
        "的邮件服务器",
    ),
    "mail_login_failed": (
        "the mail server {host} rejected the login ({status}); check mail.user and mail.password",
        "邮件服务器 {host} 拒绝登录（{status}），请检查 mail.user 和 mail.password",
    ),
    "mail_login_plain": (
        "mail.security is none, so the password for {host} would be sent in plain text; set "
        "it to starttls or tls",
        "mail.security 为 none，{host} 的密码将以明文传输，请设为 starttls 或 tls",
    ),
    "mail_not_configured": (
        "this server sends no mail: its [mail] host is not set; ask its admin",
        "本服务器未配置邮件（[mail] host 为空），请联系管理员",
    ),
    "mail_recipient_refused": (
        "the mail server {host} rejected the recipient ({status}); check the address",
        "邮件服务器 {host} 拒绝了收件人（{status}），请检查地址",
    ),
    "mail_refused": (
        "the mail server {host} rejected the mail ({status}); see its log",
        "邮件服务器 {host} 拒绝了邮件（{status}），原因见其日志",
    ),
    "mail_token_gone": (
        "the token is no longer valid, so nothing was mailed; request a new one",
        "该密钥已失效，未发送邮件，请重新申请",
    ),
    "mail_unreachable": (
        "cannot use the mail server {host}: {reason}; try again later, and check [mail] in "
        "the server's settings if it keeps failing",
        "当前无法使用邮件服务器 {host}：{reason}，请稍后重试；若持续出现请检查服务器设置中的 "
        "[mail]",
    ),
    "notify_event_unknown": (
        "{value} is not an event; the events are: {known}",
        "{value} 不是可通知的事件，可选：{known}",
    ),
    "notify_no_address": (
        "your account has no mail address; ask an admin to set it, or use --webhook",
        "您的账号没有邮箱地址，请联系管理员设置，或使用 --webhook",
    ),
    "notify_nothing_chosen": (
        "neither mail nor a webhook is configured; run paddlecloud notifications set --mail=1 "
        "or --webhook=URL first",
        "尚未选择邮件或 webhook，请先执行 paddlecloud notifications set --mail=1 或 --webhook=URL",
    ),
    "notify_nothing_given": (
        "nothing to change: give --events, --mail or --webhook",
        "没有要修改的内容，请指定 --events、--mail 或 --webhook",
    ),
    "notify_off": (
        "notifications are disabled on this server (notifications.enabled); ask its admin",
        "本服务器未启用通知（notifications.enabled），请联系管理员",
    ),
    "notify_test_often": (
        "{limit} tests an hour are allowed; try again in {seconds} s",
        "每小时最多测试 {limit} 次，请在 {seconds} 秒后重试",
    ),
    "notify_undelivered": (
        "delivery failed for {hours} hours; last try: {last}",
        "{hours} 小时内未能送达，最后一次：{last}",
    ),
    "vault_damaged": (
        "a sealed secret cannot be decrypted: it was modified, or belongs elsewhere; set it again",
        "加密保存的内容无法解密：已被修改或不属于此处，请重新设置",
    ),
    "vault_key_unknown": (
        "a sealed secret was sealed with another server key; add that key to old_keys, or set the"
        " secret again",
        "加密保存的内容使用了另一个服务器密钥，请将该密钥加入 old_keys，或重新设置",
    ),
    "webhook_gone": (
        "{host} responded 410 (gone), so the webhook was disabled; set it again when the "
        "receiver is back",
        "{host} 返回 410，表示已永久失效，webhook 已关闭，需要时请重新设置",
    ),
    "webhook_off": (
        "the webhook is disabled",
        "已不再使用 webhook",
    ),
    "webhook_plain": (
        "{url} is not https, so notifications would be sent in plain text; use an https URL",
        "{url} 不是 https 地址，内容将以明文传输，请使用 https",
    ),
    "webhook_private": (
        "{host} is an address of a private network or of this machine ({address}); webhooks "
        "only go to public addresses unless an admin sets notifications.webhook_private",
        "{host} 是内网或本机地址（{address}）；webhook 只能发往公网地址，除非管理员设置 "
        "notifications.webhook_private",
    ),
    "webhook_status": (
        "{host} responded {status} instead of 2xx; check the receiver",
        "{host} 返回 {status}，应为 2xx，请检查接收端",
    ),
    "webhook_unreachable": (
        "cannot reach {host}: {reason}; check the URL and the receiver",
        "无法连接 {host}：{reason}，请检查地址和接收端",
    ),
    "webhook_url": (
        "{url} is not a valid webhook URL ({problem}); write https://host/path",
        "{url} 不是有效的 webhook 地址（{problem}），应为 https://主机/路径",
    ),
}
