"""Messages about `logs`: `--since`, `--grep`, limits."""

from __future__ import annotations

LOG_TEXTS: dict[str, tuple[str, str]] = {
    "grep_invalid": (
        "--grep={pattern} is not a valid regular expression (RE2 syntax, without look-around and "
        "backreferences): {detail}; escape . * + ? ( [ {{ | ^ $ with \\ to match them literally",
        "--grep={pattern} 不是有效的正则表达式（RE2 语法，不支持环视和反向引用）：{detail}；要表示 "
        ". * + ? ( [ {{ | ^ $ 字符本身，请在前面加 \\",
    ),
    "grep_too_long": (
        "the --grep expression is longer than {limit} characters; shorten it",
        "--grep 的表达式超过 {limit} 个字符",
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
