"""Messages about Python environments (`--requirements`)."""

from __future__ import annotations

ENVIRONMENT_TEXTS: dict[str, tuple[str, str]] = {
    "environment_failed": (
        "cannot install the packages of --requirements with {python}: {lines} (more in the "
        "job's log); correct the file and submit again",
        "无法用 {python} 安装 --requirements 中的软件包：{lines}（详见任务日志）"
        "，请修改该文件后重新提交",
    ),
    "environment_host_memory": (
        "the machine ran out of memory while installing the packages of --requirements; "
        "submit again when fewer jobs run there, or use packages that need no compiling",
        "安装 --requirements 中的软件包时，机器内存不足，安装被终止，"
        "请在该机器上任务较少时重新提交，或选用无需编译的软件包",
    ),
    "environment_installed": (
        "packages installed",
        "软件包已安装",
    ),
    "environment_installed_in": (
        "packages installed in {seconds} s",
        "软件包已安装，用时 {seconds} 秒",
    ),
    "environment_key": (
        "Python environment of --requirements: {key}",
        "--requirements 的 Python 环境：{key}",
    ),
    "environment_lost": (
        "the supervisor of the --requirements install was killed in each of {tries} tries; "
        "submit again, and if it happens again check the memory and the agent's log on that "
        "machine",
        "监管 --requirements 安装的进程在 {tries} 次尝试中均被终止，请重新提交；若再次发生，"
        "请检查该机器的内存和执行端（Agent）日志",
    ),
    "environment_making": (
        "creating Python environment {key}",
        "正在准备它的 Python 环境 {key}",
    ),
    "environment_memory": (
        "installing the packages of --requirements needed more memory than this job's limit "
        "of {limit}; submit again with a larger --memory, or use packages that need no "
        "compiling",
        "安装 --requirements 中的软件包所需内存超过本任务的上限 {limit}，请加大 --memory "
        "后重新提交，或选用无需编译的软件包",
    ),
    "environment_network": (
        "cannot download the packages of --requirements after {tries} tries: {lines}; check "
        "that the machine reaches the package index, then submit again",
        "尝试 {tries} 次仍无法下载 --requirements 中的软件包：{lines}，"
        "请检查该机器能否访问软件包索引，然后重新提交",
    ),
    "environment_processes": (
        "installing the packages of --requirements exceeded the job's limit of {limit} "
        "processes and threads (more in the job's log); use packages that need no compiling, "
        "or ask an admin to raise running.pids_limit",
        "安装 --requirements 中的软件包时，进程和线程数超过任务的上限 {limit}（详见任务日志）"
        "，请选用无需编译的软件包，或请管理员调大 running.pids_limit",
    ),
    "environment_said": (
        "cannot install the packages; output of the installer:",
        "软件包安装失败，安装程序的输出：",
    ),
    "environment_slow": (
        "installing the packages of --requirements exceeded the limit of {minutes} minutes "
        "and was stopped: {lines}; use fewer packages or ones that need no compiling, or ask "
        "an admin to raise running.install_limit",
        "安装 --requirements 中的软件包超过上限 {minutes} 分钟，已终止：{lines}，"
        "请减少软件包，选用无需编译的版本，或请管理员调大 running.install_limit",
    ),
    "environment_waits": (
        "installing the packages of --requirements; the job starts when that is done",
        "正在安装 --requirements 的软件包，完成后启动",
    ),
    "help_requirements": (
        "pip requirements file; its packages are installed once and cached for later jobs",
        "pip 的 requirements 文件：其中的软件包只安装一次，供后续任务共用",
    ),
    "requirements_encoding": (
        "the --requirements file {path} is neither UTF-8 nor UTF-16 with a byte order mark; "
        "save it as UTF-8",
        "--requirements 指定的文件 {path} 既不是 UTF-8，也不是带字节序标记的 UTF-16，请另存为 "
        "UTF-8",
    ),
    "requirements_long": (
        "the --requirements file has {size} bytes, above the limit of {limit}; remove "
        "comments, hashes and packages that others depend on anyway",
        "--requirements 指定的文件有 {size} 字节，超过上限 {limit}，请删去注释、"
        "哈希以及由其他软件包带入的依赖",
    ),
    "requirements_local": (
        "line {line} of the requirements ({text}) names a local file; write its lines into "
        "the one file, or the package with its version",
        "requirements 第 {line} 行（{text}）引用了您本地的文件，请把其内容写入同一个文件，"
        "或写明软件包及版本",
    ),
    "requirements_unreadable": (
        "cannot read the --requirements file {path}: {reason}",
        "无法读取 --requirements 指定的文件 {path}：{reason}",
    ),
}
