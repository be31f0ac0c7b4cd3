"""Sentences about submitted files: what was found, what was left out, uploads in parts.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

FILE_TEXTS: dict[str, tuple[str, str]] = {
    # -- the directory ------------------------------------------------------------------------
    "files_changed_since": (
        "changed after they were read: {paths}; the job gets them as they were",
        "以下文件在读取之后又被修改：{paths}；任务使用的是修改之前的内容",
    ),
    "files_found": (
        "files: {count} ({size}); the largest: {largest}",
        "共 {count} 个文件，{size}；最大的文件：{largest}",
    ),
    "files_none": (
        "the directory of --files holds no file, so the job is given none; check the path if it "
        "needs some",
        "--files 指定的目录中没有文件，任务将不带任何文件运行；如需文件，请检查路径",
    ),
    "files_read_again": (
        '"{path}" was changed while it was being submitted; the directory is read again',
        "“{path}”在提交过程中被修改，正在重新读取目录",
    ),
    "git_invalid": (
        "git: {value} is no short word about a repository; known are {known}",
        "git：{value} 不是仓库的简短描述，可用的有 {known}",
    ),
    "ignore_no_matcher": (
        "{path} needs the package pathspec to be read; install it with pip install pathspec",
        "读取 {path} 需要 pathspec，请用 pip install pathspec 安装",
    ),
    "ignore_too_large": (
        "{path} is larger than {limit} bytes; an ignore file holds patterns, shorten it",
        "{path} 超过 {limit} 字节，忽略文件只应包含规则，请缩短",
    ),
    # -- stored contents ----------------------------------------------------------------------
    "content_gone": (
        "the content {sha256} of the submitted files is not in the store any more, as is so for "
        "damaged ones; submit the files again",
        "提交的文件中的内容 {sha256} 已不在存储中（损坏的内容会被移走），请重新提交文件",
    ),
    "verify_busy": (
        "another verify is at work on this server; try again when it has ended",
        "服务器上正在进行另一次校验，请等它结束后再试",
    ),
    # -- uploads in parts ---------------------------------------------------------------------
    "upload_again": (
        "the upload was interrupted, the server, its store or the line there does not answer; "
        "trying again for half a minute, what arrived is kept",
        "上传中断：服务器、其存储或网络没有应答；将在半分钟内重试，已上传的内容会保留",
    ),
    "upload_again_damaged": (
        "what arrived is not what was sent, so it is sent again; check the network if it goes on",
        "收到的内容与发送的不一致，正在重新发送；若仍然如此，请检查网络",
    ),
    "upload_checksum": (
        "the header {header} has to be the CRC-32 of the part in 8 hexadecimal digits, not {value}",
        "请求头 {header} 应为该部分的 CRC-32（8 位十六进制），而不是 {value}",
    ),
    "upload_closing": (
        "the upload is being checked and takes no part now; ask how it stands, then go on",
        "该上传正在校验，暂不接收新的部分，请先查询状态再继续",
    ),
    "upload_damaged": (
        "what arrived is not what was sent ({reason}); send it again, and check the network",
        "收到的内容与发送的不一致（{reason}），请重新发送并检查网络",
    ),
    "upload_kept": (
        "run the same command again: what arrived is kept, and only the rest is sent",
        "请再次执行同一命令：已上传的内容会保留，只上传其余部分",
    ),
    "upload_no_parts": (
        "the store of this server takes no files in parts; upload the file whole",
        "该服务器的存储不支持分块上传，请整体上传",
    ),
    "upload_size": (
        "the upload of this content was begun with {want} bytes, not {got}; send the right size",
        "该内容的上传开始时为 {want} 字节，而不是 {got}，请使用正确的大小",
    ),
}
