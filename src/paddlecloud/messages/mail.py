"""Subjects and bodies of mails, in English and Chinese, by template.

Not part of `TEXTS`, which every command loads: only the server sends mail.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def letter(template: str, params: Mapping[str, object], lang: str) -> tuple[str, str]:
    """Subject and body of a mail; the subject is one line whatever the values hold."""
    which = 1 if lang == "zh" else 0
    subject = MAIL_TEXTS[f"{template}_subject"][which].format_map(params)
    body = MAIL_TEXTS[f"{template}_body"][which].format_map(params)
    return " ".join(subject.split()), body + _FOOT[which].format_map(params)


MAIL_TEXTS: dict[str, tuple[str, str]] = {
    "mail_ended_body": (
        "Your job {job_name} has ended: {state}.\n\n"
        "job_id: {job_id}\n"
        "time: {at}\n\n"
        "Its files: paddlecloud get_files --job_id={job_id}\n"
        "Its log: paddlecloud logs --job_id={job_id}\n",
        "您的任务 {job_name} 已结束，状态：{state}。\n\n"
        "job_id：{job_id}\n"
        "时间：{at}\n\n"
        "查看文件：paddlecloud get_files --job_id={job_id}\n"
        "查看日志：paddlecloud logs --job_id={job_id}\n",
    ),
    "mail_ended_subject": (
        "PaddleCloud: {job_name} has ended ({state})",
        "PaddleCloud：任务 {job_name} 已结束（{state}）",
    ),
    "mail_failed_body": (
        "Your job {job_name} did not succeed: {state}.\n\n"
        "{reason}\n\n"
        "job_id: {job_id}\n"
        "time: {at}\n\n"
        "What it wrote: paddlecloud logs --job_id={job_id}\n"
        "All about it: paddlecloud query_job --job_id={job_id}\n",
        "您的任务 {job_name} 未成功，状态：{state}。\n\n"
        "{reason}\n\n"
        "job_id：{job_id}\n"
        "时间：{at}\n\n"
        "查看日志：paddlecloud logs --job_id={job_id}\n"
        "查看详情：paddlecloud query_job --job_id={job_id}\n",
    ),
    "mail_failed_subject": (
        "PaddleCloud: {job_name} did not succeed ({state})",
        "PaddleCloud：任务 {job_name} 未成功（{state}）",
    ),
    "mail_long_queue_body": (
        "Your job {job_name} has been waiting for {waited} minutes.\n\n"
        "{reason}\n\n"
        "job_id: {job_id}\n\n"
        "Where it stands: paddlecloud query_job --job_id={job_id}\n"
        "If you no longer need it: paddlecloud kill_job --job_id={job_id}\n",
        "您的任务 {job_name} 已等待 {waited} 分钟。\n\n"
        "{reason}\n\n"
        "job_id：{job_id}\n\n"
        "查看排队情况：paddlecloud query_job --job_id={job_id}\n"
        "如不再需要：paddlecloud kill_job --job_id={job_id}\n",
    ),
    "mail_long_queue_subject": (
        "PaddleCloud: {job_name} is still waiting",
        "PaddleCloud：任务 {job_name} 仍在排队",
    ),
    "mail_quota_80_body": (
        "You have used {used} of your {limit} running minutes of today.\n\n"
        "When they are used up, running jobs are stopped and new ones wait until the next day\n"
        "begins at {renews}.\n\n"
        "All the numbers: paddlecloud quota\n",
        "您今天已使用 {used} 分钟运行时长，限额为 {limit} 分钟。\n\n"
        "用完后，运行中的任务会被停止，新任务将等到 {renews} 重新计算后运行。\n\n"
        "查看用量：paddlecloud quota\n",
    ),
    "mail_quota_80_subject": (
        "PaddleCloud: {used} of {limit} minutes of today are used",
        "PaddleCloud：今日运行时长已用 {used}/{limit} 分钟",
    ),
    "mail_started_body": (
        "Your job {job_name} has been running since {at}.\n\n"
        "job_id: {job_id}\n\n"
        "What it writes: paddlecloud logs -f --job_id={job_id}\n",
        "您的任务 {job_name} 已于 {at} 开始运行。\n\n"
        "job_id：{job_id}\n\n"
        "查看日志：paddlecloud logs -f --job_id={job_id}\n",
    ),
    "mail_started_subject": (
        "PaddleCloud: {job_name} has started",
        "PaddleCloud：任务 {job_name} 已开始运行",
    ),
    "mail_test_body": (
        "This is the test that you asked for: mail from this server reaches you.\n",
        "这是您请求的测试邮件：本服务器的邮件可以送达。\n",
    ),
    "mail_test_subject": (
        "PaddleCloud: a test",
        "PaddleCloud：测试邮件",
    ),
    "mail_token_body": (
        "Here is the token for {user_id}.\n\n"
        "ak: {ak}\n"
        "sk: {sk}\n\n"
        "What to do next: paste the two when `paddlecloud gen_token` asks for them. Or put these\n"
        "lines into ~/bin/paddlecloud/conf/client.conf (or ~/.paddlecloud/client.conf):\n\n"
        "[main]\n"
        "debug = 0\n"
        "userid: {user_id}\n"
        "ak: {ak}\n"
        "sk: {sk}\n"
        "{openapi}\n"
        "Then check that everything works: paddlecloud doctor\n\n"
        "Anyone with the sk can run jobs in your name, so keep it secret. If you did not request\n"
        "this token, ignore this mail; nothing happens until it is used.\n",
        "{user_id} 的密钥如下。\n\n"
        "ak: {ak}\n"
        "sk: {sk}\n\n"
        "下一步：在 paddlecloud gen_token 提示时依次粘贴 ak 和 sk；也可以把以下内容复制到\n"
        "~/bin/paddlecloud/conf/client.conf（或 ~/.paddlecloud/client.conf）中：\n\n"
        "[main]\n"
        "debug = 0\n"
        "userid: {user_id}\n"
        "ak: {ak}\n"
        "sk: {sk}\n"
        "{openapi}\n"
        "然后执行 paddlecloud doctor 检查是否一切正常。\n\n"
        "持有 sk 的人可以用您的身份运行任务，请勿告诉他人。如果您没有申请过密钥，\n"
        "请忽略本邮件；在使用之前它不会产生任何影响。\n",
    ),
    "mail_token_subject": (
        "PaddleCloud: your token",
        "PaddleCloud：您的密钥",
    ),
}

_FOOT = (
    "\n-- \nSent by the PaddleCloud server {server}. Change your notifications:\n"
    "paddlecloud notifications show\n",
    "\n-- \n由 PaddleCloud 服务器 {server} 发送。通知设置：paddlecloud notifications show\n",
)
