"""Messages about outputs, downloads and rerun."""

from __future__ import annotations

RESULT_TEXTS: dict[str, tuple[str, str]] = {
    "download_again": (
        "download interrupted: the server, its store or the network does not respond; "
        "retrying for half a minute, downloaded data is kept",
        "下载中断：服务器、其存储或网络没有响应；将在半分钟内重试，已下载的内容会保留",
    ),
    "download_changing": (
        "not all files were downloaded: these kept changing during the download and were "
        "skipped: {paths}; add them with --resume when the job has ended; everything else was "
        "downloaded",
        "部分文件未下载：以下文件在下载过程中不断变化，已跳过：{paths}；请在任务结束后用 "
        "--resume 补充下载；其余均已下载",
    ),
    "download_damaged": (
        "not all files were downloaded: the stored bytes of these are damaged, so they were "
        "skipped: {paths}; ask an admin to restore them and add them with --resume; otherwise "
        "run the job again for outputs, and for submitted files ask an admin to run "
        "`paddlecloud admin verify --repair`, then submit the directory again (until then, "
        "jobs get the damaged bytes); everything else was downloaded",
        "部分文件未下载：服务器存储中的内容已不是当初写入的内容，已跳过：{paths}；"
        "请联系管理员恢复后用 --resume 补充下载；否则，输出请重新运行任务，"
        "提交的文件请管理员运行 paddlecloud admin verify --repair 之后重新提交该目录（"
        "在此之前任务得到的仍是损坏的内容）；其余文件均已下载",
    ),
    "download_digest": (
        '"{path}" arrived with sha256 {got}, expected {want}; it was damaged in transit or on '
        "this machine, download it again",
        "“{path}”收到的内容 sha256 为 {got}，应为 {want}：在传输中或在本机损坏，请重新下载",
    ),
    "download_dir_busy": (
        "another download is writing to {path}; wait until it has ended, or use another "
        "--download_dir",
        "另一个下载正在写入 {path}，请等待其结束，或用 --download_dir 换一个位置",
    ),
    "download_dir_exists": (
        "the download directory {path} already exists; give a new one with --download_dir, or "
        "continue an earlier download of this job with --resume",
        "下载目录 {path} 已存在，请用 --download_dir 指定一个不存在的目录，或用 --resume "
        "继续该任务此前的下载",
    ),
    "download_dir_file": (
        "{path} already exists and is not a directory; give a new directory with --download_dir",
        "{path} 已存在但不是目录，无法下载到其中，请用 --download_dir 指定一个不存在的目录",
    ),
    "download_dir_foreign": (
        "the download directory {path} already exists and was not created by a download of "
        "this job, so --resume cannot continue it; give a new one with --download_dir",
        "下载目录 {path} 已存在，且没有该任务下载到此目录的记录，--resume 无法继续，请用 "
        "--download_dir 指定一个不存在的目录",
    ),
    "download_dir_in_way": (
        "{path} exists, but its partial download is in {part}; move {path} away first, then "
        "continue with --resume",
        "{path} 现已存在，此前下载的内容保存在 {part}；请先移走 {path}，再用 --resume 继续",
    ),
    "download_dir_nowhere": (
        "{path} is a broken link; give a new directory with --download_dir, or the target of "
        "the link",
        "{path} 是一个链接，其指向不存在，无法下载到其中，请用 --download_dir "
        "指定一个不存在的目录，或链接所指的路径",
    ),
    "download_dir_other": (
        "{part} holds an unfinished download of {job_id} into {path}; continue it (get_files "
        "{job_id} with --resume and the same --download_dir), use another --download_dir, or "
        "delete {part}",
        "{part} 中保存着 {job_id} 到 {path} 的未完成下载；请先继续那个下载（get_files "
        "{job_id}，加 --resume 和同样的 --download_dir），或用 --download_dir "
        "为本次下载换一个位置，或删除 {part}",
    ),
    "download_edited": (
        "changed on this machine since they were downloaded and left as they are: {paths}; to "
        "fetch one again, delete it and use --resume",
        "以下文件下载后在本机被修改过，保持不变：{paths}；如需重新下载，请删除后使用 --resume",
    ),
    "download_failed": (
        'cannot write "{path}" ({reason}); use another --download_dir',
        "无法写入“{path}”（{reason}），请用 --download_dir 换一个位置",
    ),
    "download_full": (
        'no disk space left on this machine for "{path}"; free some, or use another disk with '
        "--download_dir",
        "本机没有空间写入“{path}”，请清理磁盘或用 --download_dir 换一个磁盘",
    ),
    "download_gone": (
        "not all files were downloaded: these no longer exist and were skipped: {paths}; "
        "get_files lists the current files, and --resume adds them; everything else was "
        "downloaded",
        "部分文件未下载：以下文件已不存在，已跳过：{paths}；可用 get_files 查看现有文件，并用 "
        "--resume 补充下载；其余均已下载",
    ),
    "download_links": (
        "not everything was downloaded: these links cannot be created on this machine, or "
        "point outside the directory: {paths}; everything else was downloaded",
        "部分内容未下载：以下链接无法在本机创建，或指向目录之外：{paths}；其余均已下载",
    ),
    "download_lost": (
        "not all files were downloaded: these inputs of the job were changed or deleted in "
        "its bucket after the submit and were skipped: {paths}; everything else was downloaded",
        "部分文件未下载：以下输入文件在任务提交后于存储桶中被修改或删除，已跳过：{paths}；"
        "其余文件均已下载",
    ),
    "download_name": (
        'the server lists a file "{path}", a name that cannot be used on this machine '
        "({reason}); nothing was downloaded, choose other files with --prefix",
        "服务器列出的文件“{path}”的名称无法在本机使用（{reason}）；没有下载任何内容，请用 "
        "--prefix 选择其他文件",
    ),
    "download_name_letters": (
        '"{path}" is not a possible file name here, where names are encoded as {encoding}; '
        "set LC_ALL=C.UTF-8 (and not PYTHONUTF8=0), or choose other files with --prefix",
        "本机文件名编码为 {encoding}，无法使用名称“{path}”，请设置 LC_ALL=C.UTF-8（且不要设置 "
        "PYTHONUTF8=0），或用 --prefix 下载其他文件",
    ),
    "download_name_twice": (
        'two of these files, or a file and a directory, would both be named "{path}" on this '
        "machine, which may not distinguish upper and lower case; download fewer at a time "
        "with --prefix",
        "其中有两个文件（或一个文件与一个目录）在本机都会名为“{path}”（本机可能不区分大小写）"
        "，请用 --prefix 缩小下载范围",
    ),
    "download_not_its_own": (
        "downloaded, but not what the job wrote: these files were replaced in the server's "
        "store since: {paths}; ask an admin, or run the job again",
        "以下文件已下载，但不是任务写入的内容，在服务器存储中已被替换：{paths}；请联系管理员，"
        "或重新运行任务",
    ),
    "download_part_foreign": (
        "partial downloads are kept in {path}, but that is not a directory of yours; delete "
        "it, or use another --download_dir",
        "未完成的下载保存在 {path}，但那里已有内容，且不是您的目录，请将其删除，或用 "
        "--download_dir 换一个位置",
    ),
    "download_rest": (
        "an earlier download into this directory covered more files: the rest of its data is "
        "in {part}; continue it with --resume and the earlier --prefix",
        "此前到该目录的下载包含更多内容，其余已下载的部分保存在 {part}，用当时的 --prefix 加 "
        "--resume 可继续",
    ),
    "bundle_length": (
        "received {size} bytes for files of {want}; send them again",
        "收到 {size} 字节，而文件共 {want} 字节，请重新发送",
    ),
    "download_short": (
        '"{path}" arrived with {got} of {want} bytes; the connection broke, download it again',
        "“{path}”只收到 {got} 字节（应为 {want}），连接中断，请重新下载",
    ),
    "output_gap": (
        "{path} has {size} bytes on the server, not {offset}; send the whole file",
        "{path} 在服务器上有 {size} 字节，而不是 {offset}，请发送整个文件",
    ),
    "output_hollow": (
        "{path} has {size} bytes, but only {there} of them are on disk; mostly sparse files "
        "above {limit} are not sent; write it without holes, or pack it (tar -S)",
        "{path} 大小为 {size} 字节，但只占磁盘 {there} 字节；超过 {limit} "
        "字节且大部分为空洞的文件不会发送，请写成不含空洞的文件，或先打包（tar -S）",
    ),
    "output_links_outside": (
        "not collected, because these links point outside OUTPUT_PATH and LOCAL_LOG_PATH: "
        "{paths}; copy the files there instead of linking to them",
        "以下链接指向 OUTPUT_PATH 或 LOCAL_LOG_PATH 之外，未取回：{paths}；"
        "请把文件复制到其中，不要使用链接",
    ),
    "output_names_bytes": (
        "collected under these names, because the original ones are not UTF-8 (%B0 stands for "
        "a byte): {paths}; use UTF-8 file names (LANG=C.UTF-8)",
        "以下文件的原名不是 UTF-8 编码，取回后使用这些名称（%B0 表示一个字节）：{paths}；"
        "请使用 UTF-8 文件名（LANG=C.UTF-8）",
    ),
    "output_no_files": (
        "not collected, because these are not regular files: {paths}; broken or circular "
        "links, pipes, sockets and devices are skipped",
        "以下内容不是文件，未取回：{paths}；失效或循环的链接、管道、套接字和设备不会取回",
    ),
    "output_unreadable": (
        "cannot read {path} on the machine of the job: {reason}; check its permissions, or "
        "the disk",
        "无法在任务所在机器上读取 {path}：{reason}；请检查其权限或磁盘",
    ),
    "rerun_files_elsewhere": (
        "the files of {job_id} are in different storage than the new job uses; give the "
        "directory with --files",
        "{job_id} 的文件不在新任务所用的存储中，请用 --files 指定目录",
    ),
    "rerun_files_empty": (
        "--files names no directory; give one, or remove it to run {job_id} again with its "
        "own files",
        "--files 没有指定目录，请给出目录；如要使用 {job_id} 原来的文件，请去掉该参数",
    ),
    "rerun_files_gone": (
        "the files of {job_id} are no longer kept; give the directory with --files",
        "{job_id} 的文件已不再保留，请用 --files 指定目录",
    ),
    "rerun_unset": (
        "{name} is neither a flag of submit_job nor a variable of the job; variables: {known}",
        "{name} 既不是 submit_job 的参数，也不是该任务设置的变量；已有变量：{known}",
    ),
    "rerun_unset_empty": (
        "--unset names nothing; give a variable of the job or a flag, as in --unset=wall_time",
        "--unset 没有指定名称，请给出该任务的变量或参数，例如 --unset=wall_time",
    ),
    "rerun_unset_local": (
        "--unset={name} has no effect, because {name} applies to one call and is not stored "
        "with a job; remove it",
        "--unset={name} 没有可取消的内容：{name} 只对一次命令有效，不随任务保存，请去掉",
    ),
    "rerun_unset_given": (
        "{names}: given, and unset by --unset in the same call; remove one of the two",
        "{names}：同一命令中既给出了值，又用 --unset 取消，请只保留其中一项",
    ),
}
