"""Sentences about reading logs: where to begin, whose log, and which lines.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

LOG_TEXTS: dict[str, tuple[str, str]] = {
    "grep_busy": (
        "{running} log searches are already running (limit {limit}); try again when one has ended",
        "已有 {running} 个日志搜索在运行（上限 {limit}），请在其中一个结束后重试",
    ),
    "grep_died": (
        "the search in the log of {job_id} was aborted; repeat it, or search in a copy: "
        "paddlecloud logs {job_id} | grep",
        "任务 {job_id} 的日志搜索意外中止，请重试，或在下载的日志中搜索：paddlecloud logs "
        "{job_id} | grep",
    ),
    "grep_follow": (
        "a search cannot follow a log: use either grep or follow (paddlecloud logs does both, "
        "one after the other)",
        "搜索不能同时跟踪日志：grep 与 follow 只能选其一（paddlecloud logs 会先后执行两者）",
    ),
    "grep_invalid": (
        "--grep={pattern} is not a valid regular expression: {detail}; escape . * + ? ( [ {{ "
        "| ^ $ with \\ to match them literally",
        "--grep={pattern} 不是有效的正则表达式：{detail}；要表示 . * + ? ( [ {{ | ^ $ "
        "字符本身，请在前面加 \\",
    ),
    "grep_set_letter": (
        "--grep cannot have {letter} inside of [...]; write (a|b) instead of [ab]",
        "--grep 的 [...] 中不能使用 {letter}，请用 (a|b) 代替 [ab]",
    ),
    "grep_slow": (
        "--grep took more than {seconds} s for a small part of {worker}'s log and was "
        "stopped; simplify the expression (no repeat inside a repeat)",
        "--grep 处理 {worker} 的一小段日志超过 {seconds} 秒，已中止；请简化表达式（"
        "避免重复嵌套重复）",
    ),
    "grep_too_long": (
        "the --grep expression is longer than {limit} characters",
        "--grep 的表达式超过 {limit} 个字符",
    ),
    "grep_workers": (
        "--grep with --merge searches at most {limit} workers at once, the job has {count}; "
        "choose one with -w",
        "--grep 与 --merge 一次最多搜索 {limit} 个实例，而任务有 {count} 个；请用 -w 指定一个",
    ),
    "log_at_limit": (
        "the log reached its limit of {limit} bytes; from here on only the last {tail} bytes "
        "are kept and appended when it ends",
        "日志达到上限 {limit} 字节，此后只保留最后 {tail} 字节，并在任务结束时附上",
    ),
    "log_left_out": (
        "{count} bytes omitted here",
        "此处省略 {count} 字节",
    ),
    "logs_nothing_failed": (
        "no worker of job {job_id} has failed (state {state}); remove --failed",
        "任务 {job_id} 没有失败的实例（状态 {state}），请去掉 --failed",
    ),
    "since_invalid": (
        "--since={value} is neither a duration (30s, 10m, 2h, 1d) nor a time (2026-01-31 "
        "14:00, 14:00, 2026-01-31T06:00:00Z)",
        "--since={value} 既不是时长（30s、10m、2h、1d）也不是时间（2026-01-31 14:00、14:00、"
        "2026-01-31T06:00:00Z）",
    ),
}
