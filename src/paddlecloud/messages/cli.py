"""Output of the command line other than errors and help, in English and Chinese, by code.

Not part of `TEXTS`, because server and agent need none of it, and most commands neither.
"""

from __future__ import annotations

from paddlecloud.messages import localized, render


def say(code: str, lang: str, /, **params: object) -> str:
    """The sentence for `code`, of this file or of the model's."""
    if code not in TEXTS:
        return render(code, params, lang)
    return TEXTS[code][1 if lang == "zh" else 0].format_map(localized(params, lang))


#: States of jobs and workers for Chinese terminals; in pipes and JSON they are never translated.
STATES_ZH = {
    "submit": "提交中",
    "schedule": "调度中",
    "queue": "排队中",
    "running": "运行中",
    "failed": "失败",
    "success": "成功",
    "timeout": "运行超时",
    "schedule timeout": "超时未调度",
    "killing": "终止中",
    "killed": "已终止",
    "ordered": "待启动",
    "exited": "已退出",
    "lost": "失联",
}
TEXTS: dict[str, tuple[str, str]] = {
    # -- every command -----------------------------------------------------------------------
    "interrupted": ("interrupted", "已中断"),
    "crashed": (
        "internal error in this program ({kind}); details in {path}",
        "程序出现内部错误（{kind}），详情见 {path}",
    ),
    "crashed_unsaved": (
        "internal error in this program ({kind}); PADDLECLOUD_DEBUG=1 shows the details",
        "程序出现内部错误（{kind}），设置 PADDLECLOUD_DEBUG=1 可查看详情",
    ),
    "port_forward_runs": (
        "forwarding; Ctrl-C ends it",
        "正在转发，按 Ctrl-C 结束",
    ),
    # -- the embedded server ------------------------------------------------------------------
    "server_starting": (
        "starting the embedded server ...",
        "正在启动本机服务器……",
    ),
    "server_starting_with": (
        "starting the server with {path} ...",
        "正在以 {path} 启动服务器……",
    ),
    "server_awaited": ("waiting for the server: {reason}", "正在等待服务器：{reason}"),
    "server_replaced": (
        "upgrading the server from {old} to {new}; running jobs continue",
        "正在将服务器从 {old} 升级到 {new}，运行中的任务不受影响",
    ),
    "server_fresh": (
        "fresh start; the previous data is now in {path}",
        "已重新开始；原有内容现位于 {path}",
    ),
    "server_running": ("running: {url} (pid {pid})", "运行中：{url}（pid {pid}）"),
    "server_not_running": (
        "not running; any command starts it, or: paddlecloud server start",
        "未运行；任何命令都会自动启动它，也可执行 paddlecloud server start",
    ),
    "server_unwell": (
        "a server holds the lock but does not respond (pid {pid}); see {log}",
        "服务器持有锁但没有响应（pid {pid}），请查看 {log}",
    ),
    "server_stopped": (
        "stopped; running jobs continue",
        "已停止，运行中的任务不受影响",
    ),
    "server_stopped_idle": ("stopped", "已停止"),
    "server_was_off": ("it was not running", "服务器原本未运行"),
    "server_no_log": ("there is no log yet: {path}", "还没有日志：{path}"),
    "server_settings_later": (
        "already running; {path} is read at the next start: paddlecloud server stop, then start",
        "服务器已在运行，下次启动时才会读取 {path}：请先执行 paddlecloud server stop 再启动",
    ),
    "server_is_remote": (
        "the configuration names {url}; this command manages the embedded server of this machine",
        "配置中的服务器是 {url}；本命令只管理本机服务器",
    ),
    # -- submit_job and watching -------------------------------------------------------------
    "reading_files": ("reading: {count} files, {size}", "读取中：{count} 个文件，共 {size}"),
    "reading_one": ("reading: 1 file, {size}", "读取中：1 个文件，共 {size}"),
    "submit_left": (
        "no job was submitted; run the same command again, uploaded data is kept",
        "任务尚未提交；请再次执行同一命令，已上传的内容会保留",
    ),
    "dry_new": (
        "files to upload: {count} ({size})",
        "需上传 {count} 个文件，共 {size}",
    ),
    "dry_command": ("command: {command}", "启动命令：{command}"),
    "dry_trainers": ("trainers: {count}, each {asks}", "训练实例：{count} 个，每个 {asks}"),
    "dry_pservers": (
        "parameter servers: {count}, each {asks}",
        "参数服务器：{count} 个，每个 {asks}",
    ),
    "dry_pools": (
        "pools in order: {pools} (job_type={job_type})",
        "依次申请的资源池：{pools}（job_type={job_type}）",
    ),
    "dry_wall_time": ("wall_time: {time}", "最长运行时间：{time}"),
    "dry_env": ("environment: {names}", "环境变量：{names}"),
    "dry_inherited": ("from your shell: {names}", "继承自当前 shell 的变量：{names}"),
    "dry_requirements": ("packages to install: {names}", "需安装的软件包：{names}"),
    "dry_refused": ("refused: {reason}", "会被拒绝：{reason}"),
    "dry_accepted": (
        "dry run: the job would be accepted; nothing was sent",
        "试运行：任务会被接受；未发送任何内容",
    ),
    "dry_secrets": ("secrets: {names}", "机密：{names}"),
    "secret_prompt": ("Value of {name} (not shown): ", "{name} 的值（不回显）："),
    "secret_removed": ("the secret {name} was deleted", "机密 {name} 已删除"),
    "uploading": ("uploading", "上传中"),
    "downloading": ("downloading", "下载中"),
    "watch_state": ("{time} {state}", "{time} {state}"),
    "watch_state_why": ("{time} {state}: {reason}", "{time} {state}：{reason}"),
    "watch_left": (
        "interrupted, but {job_id} continues; follow it: paddlecloud logs -f {job_id}; end "
        "it: paddlecloud kill_job {job_id}",
        "已中断，{job_id} 继续运行；继续查看：paddlecloud logs -f {job_id}；结束任务："
        "paddlecloud kill_job {job_id}",
    ),
    "ended": ("{job_id}: {state}", "{job_id}：{state}"),
    "ended_why": ("{job_id}: {state}: {message}", "{job_id}：{state}：{message}"),
    "job_waits": (
        "{job_id} has not started; it is waiting ({state})",
        "{job_id} 尚未开始运行，正在等待（{state}）",
    ),
    "job_waits_why": (
        "{job_id} has not started; it is waiting ({state}): {reason}",
        "{job_id} 尚未开始运行，正在等待（{state}）：{reason}",
    ),
    "last_lines": ("last lines of {worker}:", "{worker} 的最后几行："),
    "results": (
        "results: paddlecloud get_files {job_id} --download=1",
        "获取结果：paddlecloud get_files {job_id} --download=1",
    ),
    "plsc_submits": (
        "submitting the PLSC example: {command} in a copy of {files}",
        "提交 PLSC 示例：在 {files} 的副本中执行 {command}",
    ),
    # -- other job commands ------------------------------------------------------------------
    "killing": (
        "{job_id}: {state}; it is `killed` when all its processes have exited",
        "{job_id}：{state}；全部进程结束后状态变为 killed",
    ),
    "deleted_job": (
        "{job_id} was deleted, {size} freed",
        "{job_id} 已删除，释放 {size}",
    ),
    "top_nothing": (
        "no running jobs; paddlecloud list_jobs shows waiting and ended ones",
        "没有运行中的任务；paddlecloud list_jobs 显示等待中和已结束的任务",
    ),
    "no_jobs": (
        "no jobs; submit one: paddlecloud submit_job --files=DIR --start_cmd=COMMAND",
        "没有任务；提交任务：paddlecloud submit_job --files=目录 --start_cmd=命令",
    ),
    "no_jobs_in": (
        "no job is in state {state}; paddlecloud list_jobs shows all",
        "没有状态为 {state} 的任务；paddlecloud list_jobs 显示全部任务",
    ),
    "no_jobs_named": (
        "no job is named {name}; paddlecloud list_jobs shows all",
        "没有名为 {name} 的任务；paddlecloud list_jobs 显示全部任务",
    ),
    "no_jobs_named_in": (
        "no job named {name} is in state {state}; paddlecloud list_jobs --name={name} shows those "
        "in other states",
        "没有名为 {name}、状态为 {state} 的任务；"
        "paddlecloud list_jobs --name={name} 显示其他状态的任务",
    ),
    "more_jobs": (
        "more jobs exist; --all shows every job",
        "还有更多任务，--all 显示全部",
    ),
    "no_files": ("no files under {prefix}", "{prefix} 下没有文件"),
    "no_files_there": (
        "no files under {prefix}; outputs and logs are under output/{job_id}/, submitted "
        "files under their own names",
        "{prefix} 下没有文件；输出和日志的路径以 output/{job_id}/ 开头，提交的文件使用原来的路径",
    ),
    "downloaded": (
        "{count} files, {size}, in {directory}",
        "{count} 个文件，共 {size}，已保存到 {directory}",
    ),
    "downloaded_one": (
        "1 file, {size}, in {directory}",
        "1 个文件，共 {size}，已保存到 {directory}",
    ),
    "diff_bytes": ("{sizes} bytes", "{sizes} 字节"),
    "diff_bytes_one": ("1 byte", "1 字节"),
    "diff_directory": ("directory", "目录"),
    "diff_executable": ("mode: not executable -> executable", "权限：不可执行 -> 可执行"),
    "diff_link": ("link to {target}", "链接到 {target}"),
    "diff_not_executable": ("mode: executable -> not executable", "权限：可执行 -> 不可执行"),
    "diff_unset": ("(not set)", "（未设置）"),
    "diff_same": (
        "{first} and {second} are the same in files, command, environment and resources",
        "{first} 与 {second} 的文件、命令、环境和资源完全相同",
    ),
    "download_early": (
        "{job_id} has not ended ({state}), so more files may follow; when it has, the same "
        "command with --resume fetches the rest",
        "{job_id} 尚未结束（{state}），之后可能还有内容；任务结束后，在同一命令后加 --resume "
        "可取回其余部分",
    ),
    "download_kept": (
        "partial download kept; run the same command with --resume to continue",
        "已下载的内容已保留，在同一命令后加 --resume 可继续",
    ),
    "collected": ("deleted {jobs} jobs, {size}", "已清理 {jobs} 个任务，共 {size}"),
    "collected_one": ("deleted 1 job, {size}", "已清理 1 个任务，共 {size}"),
    # -- keys and users ----------------------------------------------------------------------
    "gen_token_mailed": (
        "a mail with the keys was sent to {email}; paste them here when it arrives",
        "密钥邮件已发往 {email}，收到后请粘贴到此处",
    ),
    "gen_token_kept": ("the keys of {user} are in {path}", "{user} 的密钥已写入 {path}"),
    "gen_token_shadowed": (
        "{origin} also holds keys, which take precedence over the file; remove them to use "
        "the new ones",
        "{origin} 中也有密钥且优先于配置文件，如要使用新密钥请将其移除",
    ),
    "gen_token_again": (
        "these keys are not valid: {reason}; paste them again, nothing was changed",
        "密钥无效：{reason}；请重新粘贴，未做任何修改",
    ),
    "gen_token_unknown": (
        "the server does not know the access key {ak}; paste the pair of the latest mail "
        "again, nothing was changed",
        "服务器不认识 access key {ak}；请重新粘贴最新邮件中的一对密钥，未做任何修改",
    ),
    "secret_once": (
        "the sk is only shown once: save it now",
        "sk 只显示这一次，请立即保存",
    ),
    "machine_invited": (
        "for {uses} machine(s), until {until}; where PaddleCloud is not installed, paste instead:",
        "可加入 {uses} 台机器，有效期至 {until}；未安装 PaddleCloud 的机器请改用下面这行：",
    ),
    "machine_removed": ("removed the machine {name}", "已移除机器 {name}"),
    "pool_created": (
        "added the pool {pool}; next: `paddlecloud admin machine invite --pool={pool}`",
        "已新建资源池 {pool}；用 paddlecloud admin machine invite --pool={pool} 邀请机器加入",
    ),
    "pool_deleted": ("deleted the pool {pool}", "已删除资源池 {pool}"),
    "bearer_once": (
        "the token is only shown once: save it now; to revoke it: paddlecloud admin token revoke "
        "{ak}",
        "令牌只显示这一次，请立即保存；吊销：paddlecloud admin token revoke {ak}",
    ),
    "user_deleted": (
        "user {user} deleted",
        "已删除用户 {user}",
    ),
    # -- configuration and doctor ------------------------------------------------------------
    "link_configuration": ("configuration", "配置"),
    "link_server": ("server", "服务器"),
    "link_signature": ("signature", "签名"),
    "link_report": (
        "server self-checks",
        "服务器自检",
    ),
    "link_database": ("database", "数据库"),
    "link_store": ("store", "存储"),
    "link_agent": (
        "agent",
        "执行端（Agent）",
    ),
    "link_users": (
        "user isolation",
        "用户隔离",
    ),
    "link_job": (
        "test job",
        "示例任务",
    ),
    "link_ok": ("ok", "正常"),
    "link_failed": ("failed", "失败"),
    "clock_off": (
        "this machine's clock differs from the server's by {seconds} s; correct it",
        "本机时钟与服务器相差 {seconds} 秒，请校准",
    ),
    "doctor_config_none": (
        "no file; the embedded server is used",
        "无配置文件，使用本机服务器",
    ),
    "doctor_left_job": (
        "the test job {job_id} could not be deleted: {reason}; delete it: paddlecloud delete_job "
        "{job_id}",
        "示例任务 {job_id} 未能删除：{reason}；可执行 paddlecloud delete_job {job_id} 删除",
    ),
    "doctor_tiny_job": ("{job_id}: {state}", "{job_id}：{state}"),
    "doctor_wrong_log": (
        "{job_id} printed {got} instead of ok",
        "{job_id} 输出 {got}，应为 ok",
    ),
    "doctor_well": ("everything works", "一切正常"),
    "doctor_broken": (
        "first failed check: {name}",
        "第一个出问题的环节：{name}",
    ),
    # -- notifications -----------------------------------------------------------------------
    "notify_secret_once": (
        "save the webhook_secret, it is only shown once; it verifies the sender of a webhook",
        "请保存 webhook_secret：只显示这一次，用于验证 webhook 的来源",
    ),
    "notify_undelivered_now": ("not delivered: {why}", "未送达：{why}"),
    # -- data --------------------------------------------------------------------------------
    "data_reading": ("reading", "读取中"),
    "data_sound": (
        "{path}: valid, {records} records in {chunks} chunks",
        "{path}：完好，{chunks} 个块共 {records} 条记录",
    ),
    "data_found_damage": (
        "{path}: damaged in {count} places, {records} records are intact",
        "{path}：有 {count} 处损坏，完好的记录有 {records} 条",
    ),
    "data_found_damage_one": (
        "{path}: damaged in 1 place, {records} records are intact",
        "{path}：有 1 处损坏，完好的记录有 {records} 条",
    ),
    "data_repaired": (
        "{path}: {records} intact records written to {output}, {count} damaged places skipped",
        "{path}：{records} 条完好的记录已保存到 {output}，略过 {count} 处损坏",
    ),
    "data_repaired_one": (
        "{path}: {records} intact records written to {output}, 1 damaged place skipped",
        "{path}：{records} 条完好的记录已保存到 {output}，略过 1 处损坏",
    ),
    "data_written": ("{records} records in {count} files", "{count} 个文件共 {records} 条记录"),
}
