"""`completion`: a script for bash, zsh, fish or PowerShell, written from the table of commands.

Commands, flags and the values that a flag may take are in the script, and a TAB among them starts
no Python. For a job the scripts call `complete_jobs`, which asks the server; in PowerShell jobs are
not completed.
"""

from __future__ import annotations

from paddlecloud.cli import registry
from paddlecloud.cli.help import pick
from paddlecloud.cli.output import one_line
from paddlecloud.cli.parser import TEXT, Command, Option
from paddlecloud.model.errors import Invalid, PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

SHELLS = ("bash", "zsh", "fish", "powershell")
_LIVE = ("submit", "schedule", "queue", "running")
#: The states of jobs that a command, or the last word of its name, is of use for.
_STATES: dict[str, tuple[str, ...]] = {
    "kill_job": _LIVE,
    "kill": _LIVE,
    "exec": ("running",),
    "port-forward": ("running",),
    "top": ("running",),
    "delete_job": ("failed", "success", "timeout", "schedule timeout", "killed"),
}


def run(args: Args, context: Context) -> int:
    shell = args["shell"]
    if shell is None:
        raise Invalid("shell_missing", shells=", ".join(SHELLS))
    script = _WRITERS[shell](registry.load_all(), context.out.lang)
    if context.out.json:
        context.out.value({"shell": shell, "script": script})
    else:
        context.out.line(script)
    return 0


def complete_jobs(args: Args, context: Context) -> int:
    """Print the jobs that may stand where TAB was pressed, each with a tab and what it is. Never
    fails, and ends soon: a shell waits for it."""
    import os  # noqa: PLC0415 - only a TAB needs it
    from threading import Timer  # noqa: PLC0415 - as above

    from paddlecloud.client import job_candidates  # noqa: PLC0415 - as above

    timer = Timer(job_candidates.SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    typed = (args["typed"] or "").rpartition("=")[2]
    states = _STATES.get((args["command"] or "").rpartition(" ")[2], ())
    try:
        found = job_candidates.candidates(context.config, typed, states)
    except (OSError, PaddleCloudError):
        found = []
    for word, about in found:
        context.out.line(f"{word}\t{one_line(about)}")
    context.out.flush()
    timer.cancel()
    return 0


def bash(table: list[Command], lang: str) -> str:
    del lang
    flags = [f'        "{c.name}") flags="{" ".join(_flags(c))}" ;;' for c in table]
    values = [
        f'        "{command.name} {option.flag}") {_bash_value(option)} ;;'
        for command in table
        for option in command.options
        if _values(option) or option.completes
    ]
    words = [f'        "{first}") words="{" ".join(rest)}" ;;' for first, rest in _second(table)]
    return _BASH.format(
        first=" ".join(_first(table)),
        groups="|".join(group for group in registry.GROUPS if " " not in group),
        deeper="|".join(f'"{group}"' for group in registry.GROUPS if " " in group),
        second="\n".join(words),
        flags="\n".join(flags),
        values="\n".join(values),
        jobs="|".join(f'"{c.name}"' for c in table if _takes_jobs(c)),
        switches="|".join(_switches(table)),
    )


def zsh(table: list[Command], lang: str) -> str:
    """zsh reads bash's script through its own adapter; one script then serves both."""
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash(table, lang)


def fish(table: list[Command], lang: str) -> str:
    lines = ["complete -c paddlecloud -f"]
    done: set[str] = set()
    for command in table:
        first, *more = command.name.split()
        about = _fish_quote(pick(registry.purpose(command.name), lang))
        if first not in done:
            text = "" if more else f" -d {about}"
            lines.append(f"complete -c paddlecloud -n __fish_use_subcommand -a {first}{text}")
            done.add(first)
        where = f"__fish_seen_subcommand_from {first}"
        for word in more:
            text = f" -d {about}" if word is more[-1] else ""
            line = f'complete -c paddlecloud -n "{where}" -a {word}{text}'
            lines += [line] if line not in lines else []
            where += f"; and __fish_seen_subcommand_from {word}"
        lines += [_fish_option(where, command, option, lang) for option in command.options]
        if _takes_jobs(command):
            lines.append(f'complete -c paddlecloud -n "{where}" -k -a "{_fish_jobs(command)}"')
    return "\n".join(lines)


def powershell(table: list[Command], lang: str) -> str:
    del lang
    flags = [f"    '{c.name}' = @({_ps_list(_flags(c))})" for c in table]
    values = [
        f"    '{command.name} {option.flag}' = @({_ps_list(_values(option))})"
        for command in table
        for option in command.options
        if _values(option)
    ]
    second = [f"    '{first}' = @({_ps_list(rest)})" for first, rest in _second(table)]
    return _POWERSHELL.format(
        first=_ps_list(_first(table)),
        second="\n".join(second),
        flags="\n".join(flags),
        values="\n".join(values),
    )


def _first(table: list[Command]) -> list[str]:
    return [*dict.fromkeys(command.name.split()[0] for command in table), "help"]


def _second(table: list[Command]) -> list[tuple[str, list[str]]]:
    rows = [(group, registry.within(group)) for group in registry.GROUPS]
    return [*rows, ("completion", list(SHELLS)), ("help", ["all", *_first(table)[:-1]])]


def _flags(command: Command) -> list[str]:
    """`--name=` where a value has to follow, so that the next TAB offers values."""
    return [o.flag if o.kind == "flag" else o.flag + "=" for o in command.options]


def _values(option: Option) -> tuple[str, ...]:
    choices = option.choices or option.offers or (("0", "1") if option.kind == "bool" else ())
    return tuple(choice for choice in choices if " " not in choice)


def _takes_jobs(command: Command) -> bool:
    """Whether its words without dashes are jobs."""
    return any(o.name == command.operand and o.completes == "job" for o in command.options)


def _switches(table: list[Command]) -> list[str]:
    """Flags without a value: the word behind one is not theirs."""
    found = (o.spellings for c in table for o in c.options if o.kind == "flag")
    return sorted({spelling for spellings in found for spelling in spellings})


def _bash_value(option: Option) -> str:
    if option.completes:
        return f"files={option.completes}"
    return f'words="{" ".join(_values(option))}"'


def _fish_jobs(command: Command) -> str:
    asked = f"paddlecloud complete_jobs --command='{command.name}' -- (commandline -ct)"
    return f"({asked} 2>/dev/null)"


def _fish_option(where: str, command: Command, option: Option, lang: str) -> str:
    parts = [f'complete -c paddlecloud -n "{where}" -l {option.name}']
    if option.short:
        parts.append(f"-s {option.short}")
    if option.kind != "flag":
        parts.append("-r")
    if option.completes == "job":
        parts.append(f'-k -a "{_fish_jobs(command)}"')
    elif option.completes:
        parts.append("-F" if option.completes == "file" else '-a "(__fish_complete_directories)"')
    elif _values(option):
        parts.append(f'-a "{" ".join(_values(option))}"')
    return " ".join([*parts, "-d", _fish_quote(pick(option.help, lang))])


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _ps_list(words: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


# bash breaks words at "=", so `--job_type=g` arrives as three words: the flag, "=", "g".
_BASH = """\
_paddlecloud() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local words="" flags="" files="" command="${{COMP_WORDS[1]}}" first=2 operand=1
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{first} --help --version" -- "$current"))
        return
    fi
    local group="$command"
    case "$command" in
        {groups}) command="$command ${{COMP_WORDS[2]}}"; first=3 ;;
        completion|help) case "$current" in -*) ;; *) first=3 ;; esac ;;
    esac
    if [ "$COMP_CWORD" -ge 3 ]; then
        case "$command" in
            {deeper}) group="$command"; command="$command ${{COMP_WORDS[3]}}"; first=4 ;;
        esac
    fi
    if [ "$COMP_CWORD" -lt "$first" ]; then
        case "$group" in
{second}
        esac
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return
    fi
    if [ "$current" = "=" ]; then current=""; elif [ "$previous" = "=" ]; then
        previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    case "$command $previous" in
{values}
    esac
    case "$previous" in {switches}) ;; -*) operand="" ;; esac
    case "$current" in -*) operand="" ;; esac
    if [ -n "$operand" ] && [ -z "$words$files" ]; then
        case "$command" in {jobs}) files=job ;; esac
    fi
    if [ "$files" = job ]; then
        local line
        while IFS= read -r line; do
            COMPREPLY+=("${{line%%$'\t'*}}")
        done < <("${{COMP_WORDS[0]}}" complete_jobs --command="$command" -- "$current" 2>/dev/null)
        return
    elif [ "$files" = file ]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$current"))
        return
    elif [ "$files" = directory ]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -d -- "$current"))
        return
    elif [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return
    fi
    case "$command" in
{flags}
    esac
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
    if [ "${{#COMPREPLY[@]}}" -eq 1 ]; then
        case "${{COMPREPLY[0]}}" in *=) compopt -o nospace 2>/dev/null ;; esac
    fi
}}
complete -F _paddlecloud paddlecloud"""

_POWERSHELL = """\
$paddlecloudFirst = @({first})
$paddlecloudSecond = @{{
{second}
}}
$paddlecloudFlags = @{{
{flags}
}}
$paddlecloudValues = @{{
{values}
}}
Register-ArgumentCompleter -Native -CommandName paddlecloud -ScriptBlock {{
    param($word, $ast, $position)
    $given = @($ast.CommandElements | ForEach-Object {{ $_.ToString() }})
    $done = if ($word) {{ $given.Count - 1 }} else {{ $given.Count }}
    $command = if ($done -gt 1) {{ $given[1] }} else {{ '' }}
    $found = if ($done -le 1) {{ $paddlecloudFirst }}
    elseif ($done -eq 2 -and $paddlecloudSecond.ContainsKey($command)) {{
        $paddlecloudSecond[$command]
    }} elseif ($done -eq 3 -and $paddlecloudSecond.ContainsKey("$command $($given[2])")) {{
        $paddlecloudSecond["$command $($given[2])"]
    }} else {{
        foreach ($next in 2, 3) {{
            if ($paddlecloudFlags.ContainsKey($command)) {{ break }}
            $command = "$command $($given[$next])"
        }}
        $flag, $value = $word -split '=', 2
        $key = "$command $flag"
        if ($null -ne $value -and $paddlecloudValues.ContainsKey($key)) {{
            $paddlecloudValues[$key] | ForEach-Object {{ "$flag=$_" }}
        }} else {{ $paddlecloudFlags[$command] }}
    }}
    $found | Where-Object {{ $_ -like "$word*" }} | ForEach-Object {{
        [System.Management.Automation.CompletionResult]::new($_)
    }}
}}"""

_WRITERS = {"bash": bash, "zsh": zsh, "fish": fish, "powershell": powershell}

COMMANDS = (
    Command(
        "completion",
        run,
        (
            "Print a completion script; the examples load it in bash or zsh, fish and PowerShell.",
            "输出命令补全脚本；示例依次为 bash（zsh 相同）、fish 和 PowerShell 中的加载方法。",
        ),
        operand="shell",
        options=(
            Option(
                "shell", TEXT, ("which shell", "哪种 shell"), metavar="SHELL", choices=SHELLS,
            ),
        ),
        examples=(
            'eval "$(paddlecloud completion bash)"',
            "paddlecloud completion fish | source",
            "paddlecloud completion powershell | Out-String | Invoke-Expression",
        ),
    ),
    Command(
        "complete_jobs",
        complete_jobs,
        ("Print jobs for a completion script.", "为补全脚本输出任务。"),
        operand="typed",
        options=(
            Option("typed", TEXT, ("what was typed of the job", "已输入的部分")),
            Option("command", TEXT, ("for which command", "用于哪个命令")),
        ),
    ),
)  # fmt: skip
