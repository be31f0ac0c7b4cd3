"""Sentences about the Python environments that `--requirements` asks for.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

ENVIRONMENT_TEXTS: dict[str, tuple[str, str]] = {
    "environment_failed": (
        "the packages of --requirements could not be installed with {python}: {lines} (the job's "
        "log has more); correct the file and submit again",
        "无法用 {python} 安装 --requirements 中的软件包：{lines}（详见任务日志），"
        "请修改该文件后重新提交",
    ),
    "environment_installed": (
        "its packages were installed",
        "软件包已安装",
    ),
    "environment_installed_in": (
        "its packages were installed in {seconds} s",
        "软件包已安装，用时 {seconds} 秒",
    ),
    "environment_key": (
        "Python environment of --requirements: {key}",
        "--requirements 的 Python 环境：{key}",
    ),
    "environment_making": (
        "its Python environment {key} is being made",
        "正在准备它的 Python 环境 {key}",
    ),
    "environment_network": (
        "the packages of --requirements could not be fetched in {tries} tries: {lines}; see "
        "whether that machine reaches the package index, then submit again",
        "尝试 {tries} 次仍无法下载 --requirements 中的软件包：{lines}，"
        "请检查该机器能否访问软件包索引，然后重新提交",
    ),
    "environment_said": (
        "its packages could not be installed; the installer said:",
        "软件包安装失败，安装程序的输出：",
    ),
    "environment_slow": (
        "installing the packages of --requirements took more than {minutes} minutes and was given "
        "up: {lines}; ask for fewer packages, or for ones that need not be compiled",
        "安装 --requirements 中的软件包超过 {minutes} 分钟，已放弃：{lines}，"
        "请减少软件包，或选用无需编译的版本",
    ),
    "environment_waits": (
        "the packages of --requirements are being installed; it starts when that is done",
        "正在安装 --requirements 的软件包，完成后启动",
    ),
    "help_requirements": (
        "a requirements file of pip: its packages are installed once and kept for later jobs",
        "pip 的 requirements 文件：其中的软件包只安装一次，供后续任务共用",
    ),
    "requirements_encoding": (
        "the file {path} of --requirements is neither UTF-8 nor UTF-16 with a byte order mark; "
        "save it as UTF-8",
        "--requirements 指定的文件 {path} 既不是 UTF-8，也不是带字节序标记的 UTF-16，"
        "请另存为 UTF-8",
    ),
    "requirements_long": (
        "the file of --requirements has {size} bytes, above the limit of {limit}; leave out its "
        "comments, its hashes and the packages that the others bring along",
        "--requirements 指定的文件有 {size} 字节，超过上限 {limit}，"
        "请删去注释、哈希以及由其他软件包带入的依赖",
    ),
    "requirements_local": (
        "line {line} of the requirements ({text}) names a file on your side; write its lines into "
        "the one file, or the package with its version",
        "requirements 第 {line} 行（{text}）引用了您本地的文件，"
        "请把其内容写入同一个文件，或写明软件包及版本",
    ),
    "requirements_unreadable": (
        "the file {path} of --requirements cannot be read: {reason}",
        "无法读取 --requirements 指定的文件 {path}：{reason}",
    ),
}
