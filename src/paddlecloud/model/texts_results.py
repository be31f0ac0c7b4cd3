"""Sentences about what a job leaves behind: shipping it, downloading it, running it again.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

RESULT_TEXTS: dict[str, tuple[str, str]] = {
    "download_changing": (
        '"{path}" changes all the time while it is downloaded; download it when the job has ended',
        "“{path}”在下载过程中不断变化，请在任务结束后再下载",
    ),
    "download_damaged": (
        "not all files came: the store of the server does not have the bytes any more that were "
        "put there, so these are left out: {paths}; ask an admin to restore them and add them with "
        "--resume; else run the job again for outputs, and for submitted files have an admin run "
        "`paddlecloud admin verify`, then submit the directory again (before that, jobs get the "
        "damaged bytes); everything else is here",
        "部分文件未下载：服务器存储中的内容已不是当初写入的内容，已跳过：{paths}；"
        "请联系管理员恢复后用 --resume 补充下载；否则，输出请重新运行任务，提交的文件请管理员运行 "
        "paddlecloud admin verify 之后重新提交该目录（在此之前任务得到的仍是损坏的内容）；"
        "其余文件均已下载",
    ),
    "download_digest": (
        '"{path}" came with sha256 {got} instead of {want}; it was damaged on the way or on this '
        "machine, download it again",
        "“{path}”收到的内容 sha256 为 {got}，应为 {want}：在传输中或在本机损坏，请重新下载",
    ),
    "download_dir_busy": (
        "another download is writing to {path} right now; wait until it has ended, or choose "
        "another place with --download_dir",
        "另一个下载正在写入 {path}，请等待其结束，或用 --download_dir 换一个位置",
    ),
    "download_dir_exists": (
        "the download directory {path} exists already; name a new one with --download_dir, or add "
        "to an earlier download of this job with --resume",
        "下载目录 {path} 已存在，请用 --download_dir 指定一个不存在的目录，"
        "或用 --resume 继续该任务此前的下载",
    ),
    "download_dir_foreign": (
        "the download directory {path} exists already, and no download of this job made it, so "
        "--resume cannot add to it; name a new one with --download_dir",
        "下载目录 {path} 已存在，且不是该任务此前下载的目录，--resume 无法继续，"
        "请用 --download_dir 指定一个不存在的目录",
    ),
    "download_edited": (
        "these files were changed on this machine since they were downloaded, so they are left as "
        "they are: {paths}; delete one and use --resume to fetch it again",
        "以下文件下载后在本机被修改过，保持不变：{paths}；如需重新下载，请删除后使用 --resume",
    ),
    "download_failed": (
        '"{path}" cannot be written ({reason}); choose another place with --download_dir',
        "无法写入“{path}”（{reason}），请用 --download_dir 换一个位置",
    ),
    "download_full": (
        'no space is left on this machine for "{path}"; free some, or choose another disk with '
        "--download_dir",
        "本机没有空间写入“{path}”，请清理磁盘或用 --download_dir 换一个磁盘",
    ),
    "download_gone": (
        "not all files came: these are not there any more, so they are left out: {paths}; "
        "get_files lists what there is now, and --resume adds it; everything else is here",
        "部分文件未下载：以下文件已不存在，已跳过：{paths}；"
        "可用 get_files 查看现有文件，并用 --resume 补充下载；其余均已下载",
    ),
    "download_links": (
        "not all came: these links cannot be made on this machine, or lead out of the directory: "
        "{paths}; everything else is here",
        "部分内容未下载：以下链接无法在本机创建，或指向目录之外：{paths}；其余均已下载",
    ),
    "download_lost": (
        "not all files came: these, which the job was given, were changed or deleted in its bucket "
        "since it was submitted and are left out: {paths}; everything else is here",
        "部分文件未下载：以下输入文件在任务提交后于存储桶中被修改或删除，已跳过：{paths}；"
        "其余文件均已下载",
    ),
    "download_name_twice": (
        '"{path}" cannot be kept beside a file of the same name in other letters; download a '
        "smaller --prefix",
        "“{path}”与另一个仅大小写不同的文件重名，请用 --prefix 缩小下载范围",
    ),
    "download_not_its_own": (
        "these files are here, but they are not what the job wrote: they were replaced in the "
        "store of the server since: {paths}; ask an admin, or run the job again",
        "以下文件已下载，但不是任务写入的内容，在服务器存储中已被替换：{paths}；"
        "请联系管理员，或重新运行任务",
    ),
    "bundle_length": (
        "{size} bytes came for files of {want}; send them again",
        "收到 {size} 字节，而文件共 {want} 字节，请重新发送",
    ),
    "download_short": (
        '"{path}" came with {got} of {want} bytes; the connection broke, download it again',
        "“{path}”只收到 {got} 字节（应为 {want}），连接中断，请重新下载",
    ),
    "output_gap": (
        "{path} has {size} bytes here and not {offset}; send the whole file",
        "{path} 在服务器上有 {size} 字节，而不是 {offset}，请发送整个文件",
    ),
    "output_hollow": (
        "{path} says {size} bytes, but only {there} of them are on the disk, and above {limit} a "
        "file that is mostly holes is not sent; write it without them, or pack it (tar -S)",
        "{path} 大小为 {size} 字节，但只占磁盘 {there} 字节；超过 {limit} 字节且大部分为空洞的"
        "文件不会发送，请写成不含空洞的文件，或先打包（tar -S）",
    ),
    "output_links_outside": (
        "not brought back, because these links lead out of OUTPUT_PATH or LOCAL_LOG_PATH: {paths}; "
        "copy the files there instead of linking to them",
        "以下链接指向 OUTPUT_PATH 或 LOCAL_LOG_PATH 之外，未取回：{paths}；"
        "请把文件复制到其中，不要使用链接",
    ),
    "output_names_bytes": (
        "brought back under these names, because their own are no UTF-8 (%B0 stands for a byte): "
        "{paths}; give files names in UTF-8 (LANG=C.UTF-8)",
        "以下文件的原名不是 UTF-8 编码，取回后使用这些名称（%B0 表示一个字节）：{paths}；"
        "请使用 UTF-8 文件名（LANG=C.UTF-8）",
    ),
    "output_no_files": (
        "not brought back, because these are no files: {paths}; links that lead nowhere or in "
        "circles, pipes, sockets and devices stay behind",
        "以下内容不是文件，未取回：{paths}；失效或循环的链接、管道、套接字和设备不会取回",
    ),
    "output_unreadable": (
        "{path} cannot be read on the machine of the job: {reason}; see to its rights, or to the "
        "disk",
        "无法在任务所在机器上读取 {path}：{reason}；请检查其权限或磁盘",
    ),
    "rerun_files_gone": (
        "the files of {job_id} are not kept any more; give the directory with --files",
        "{job_id} 的文件已不再保留，请用 --files 指定目录",
    ),
    "rerun_unset": (
        "{name} is neither a flag of submit_job nor a variable that the job was given; variables: "
        "{known}",
        "{name} 既不是 submit_job 的参数，也不是该任务设置的变量；已有变量：{known}",
    ),
}
