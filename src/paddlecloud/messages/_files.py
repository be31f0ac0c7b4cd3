"""Messages about submitted files: scan, ignore rules, uploads."""

from __future__ import annotations

FILE_TEXTS: dict[str, tuple[str, str]] = {
    # -- words within a sentence --------------------------------------------------------------
    "name_drive": ("drive letter", "以盘符开头"),
    "name_encoding": ("not UTF-8", "不是 UTF-8"),
    "name_letters": ("backslash or NUL", "含有反斜杠或 NUL"),
    "name_long": ("too long", "过长"),
    "name_unsafe": ("unsafe path", "路径不安全"),
    "paths_more": ("{paths} and {count} more", "{paths}，另有 {count} 个"),
    "rule_default": ("default", "默认"),
    "rule_keys": ("default: keys", "默认：密钥"),
    "rules_more": (
        "{paths}, ... ({count} more rules)",
        "{paths}……（未列出的规则：{count} 条）",
    ),
    # -- the directory ------------------------------------------------------------------------
    "files_changed": (
        '"{path}" changed while it was being submitted; exclude it with an ignore rule, '
        "submit a copy of the directory, or submit again when it no longer changes",
        "“{path}”在提交过程中被修改，请用忽略规则排除它，提交目录的一份副本，"
        "或等它不再变化后重新提交",
    ),
    "files_changed_since": (
        "changed after they were read: {paths}; the job gets the earlier content",
        "以下文件在读取之后又被修改：{paths}；任务使用的是修改之前的内容",
    ),
    "files_closed": (
        "--files: cannot read the directory {path} ({reason}); make it readable or give "
        "another one",
        "--files：无法读取目录 {path}（{reason}），请修改权限或指定其他目录",
    ),
    "files_found": (
        "files: {count} ({size}); the largest: {largest}",
        "共 {count} 个文件，{size}；最大的文件：{largest}",
    ),
    "files_git_void": (
        "submitted although .gitignore excludes it: {paths}; a .paddlecloudignore replaces "
        "the .gitignore files beside and below it, so list there what the job must not get",
        "以下内容虽被 .gitignore 排除，仍会提交：{paths}；有 .paddlecloudignore "
        "的目录及其子目录中，.gitignore 不起作用，不应提交的内容请写入 .paddlecloudignore",
    ),
    "files_hold_keys": (
        "{path} holds the secret keys of PaddleCloud and cannot be submitted; give the "
        "directory of your training code",
        "{path} 中有 PaddleCloud 的密钥，不能提交；请指定训练代码所在的目录",
    ),
    "files_link_bare": (
        "links to excluded files, which are broken in the job: {links}; include the targets "
        "with a rule if the job needs them",
        "以下链接指向未提交的内容，在任务中无效：{links}；如任务需要，请用规则重新包含",
    ),
    "files_link_name": (
        'the link "{path}" points to "{target}", a name that cannot be submitted ({reason}); '
        "rename the target, or list the link in {rules}",
        "链接“{path}”指向“{target}”，该名称无法提交（{reason}），请重命名它所指的内容，"
        "或将该链接写入 {rules}",
    ),
    "files_link_never": (
        "links to files that are never submitted (environments, caches, .git, keys), which "
        "are broken in the job: {links}; no rule can include them, so remove the links or "
        "point them elsewhere",
        "以下链接指向从不提交的内容（虚拟环境、缓存、.git、密钥），在任务中无效：{links}；"
        "规则无法重新包含这些内容，请删除链接或改指他处",
    ),
    "files_link_nowhere": (
        "--files: {path} is a link to {target}, which does not exist; give the directory that "
        "holds your code",
        "--files：{path} 是指向 {target} 的链接，但目标不存在，请指定存放代码的目录",
    ),
    "files_link_gone": (
        "links that lead out of the directory to nothing, which are broken in the job: {links}",
        "以下链接指向提交目录之外且目标不存在，在任务中无效：{links}",
    ),
    "files_link_out": (
        "links that lead out of the directory are kept; the job reads and writes what is there: "
        "{links}",
        "以下链接指向提交目录之外，已原样保留，任务将直接读写目标内容：{links}",
    ),
    "files_link_outside": (
        'the link "{path}" points to "{target}" outside the submitted directory, which the '
        "machines of this server do not have; copy the data into the directory that --files "
        "names, or put it on storage that the machines share (PFS) and read it there; if the "
        "job does not need it, list the link in {rules}",
        "链接“{path}”指向“{target}”，不在提交目录之内，服务器的机器上没有这些内容；"
        "请把数据复制到 --files 指定的目录中，或放到各机器共享的存储（PFS）上读取；"
        "任务不需要时，请将该链接写入 {rules}",
    ),
    "files_link_whole": (
        'the link "{path}" points to the submitted directory itself, an endless recursion; '
        "remove the link, or list it in {rules}",
        "链接“{path}”指向提交目录本身，目录会无限包含自身，请删除该链接，或写入 {rules}",
    ),
    "files_confirm_disk": (
        "--files={path} is a whole disk; read and submit all of it? [y/N]",
        "--files={path} 是整个磁盘，确定要读取并提交其全部内容吗？[y/N]",
    ),
    "files_confirm_home": (
        "--files={path} holds your whole home directory; read and submit all of it? [y/N]",
        "--files={path} 包含整个主目录，确定要读取并提交其全部内容吗？[y/N]",
    ),
    "files_whole_disk": (
        "--files={path} is a whole disk; give the directory that holds your code, or add --yes "
        "to submit all of it",
        "--files={path} 是整个磁盘；请指定存放代码的目录，确需提交全部内容请加 --yes",
    ),
    "files_whole_home": (
        "--files={path} holds your whole home directory; give the directory that holds your "
        "code, or add --yes to submit all of it",
        "--files={path} 包含整个主目录；请指定存放代码的目录，确需提交全部内容请加 --yes",
    ),
    "files_missing": (
        "--files: directory {path} does not exist; give the directory that holds your code",
        "--files：目录 {path} 不存在，请指定存放代码的目录",
    ),
    "files_name": (
        'the name "{path}" cannot be submitted ({reason}); rename it',
        "文件名“{path}”无法提交（{reason}），请重命名",
    ),
    "files_none": (
        "the --files directory is empty, so the job gets no files; check the path if it needs some",
        "--files 指定的目录中没有文件，任务将不带任何文件运行；如需文件，请检查路径",
    ),
    "files_none_left": (
        "ignore rules exclude every file of the --files directory, so the job gets none; "
        "check {rules} if it needs some",
        "--files 指定的目录中的文件全部被规则排除，任务将不带任何文件运行；如需文件，请检查 "
        "{rules}",
    ),
    "files_not_directory": (
        "--files: {path} is not a directory; give the directory that holds it",
        "--files：{path} 不是目录，请指定它所在的目录",
    ),
    "files_read_again": (
        '"{path}" changed while it was being submitted; reading the directory again',
        "“{path}”在提交过程中被修改，正在重新读取目录",
    ),
    "files_refused": (
        "{count} entries cannot be submitted:{sentences}",
        "有 {count} 项无法提交：{sentences}",
    ),
    "files_skipped": (
        "not submitted: {paths}",
        "以下内容不会提交：{paths}",
    ),
    "files_unreadable": (
        'cannot read "{path}" ({reason}); make it readable, exclude it with an ignore rule, '
        "or move it out of the directory",
        "无法读取“{path}”（{reason}），请修改权限、用忽略规则排除它，或把它移出目录",
    ),
    "git_invalid": (
        "git: {value} is not a short description of a repository; known keys are {known}",
        "git：{value} 不是仓库的简短描述，可用的有 {known}",
    ),
    "ignore_too_large": (
        "{path} is larger than {limit} bytes; an ignore file only holds patterns, shorten it",
        "{path} 超过 {limit} 字节，忽略文件只应包含规则，请缩短",
    ),
    "ignore_unreadable": (
        "cannot read the ignore file {path} ({reason}); make it a readable file, or remove it",
        "{path} 规定了哪些内容不提交，但无法读取（{reason}），请换成可以读取的文件，或将其删除",
    ),
    "submit_unanswered": (
        "the server's response was incomplete ({reason}), so the job may have been accepted; "
        "check paddlecloud list_jobs before you submit it again",
        "没有收到服务器的完整响应（{reason}），任务可能已被接受；再次提交前请用 paddlecloud "
        "list_jobs 查看",
    ),
    "submit_unsure": (
        "the job may have been accepted anyway; check paddlecloud list_jobs before you submit "
        "it again",
        "任务可能已被接受，再次提交前请用 paddlecloud list_jobs 查看",
    ),
    # -- stored contents ----------------------------------------------------------------------
    "content_gone": (
        "blob {sha256} of the submitted files is no longer in the store (damaged blobs are "
        "moved aside); submit the files again",
        "提交的文件中的内容 {sha256} 已不在存储中（损坏的内容会被移走），请重新提交文件",
    ),
    # -- admin verify -------------------------------------------------------------------------
    "verified": (
        "read {files} files, {size}: {damaged_files} damaged, {missing_files} missing",
        "已读取 {files} 个文件，共 {size}；损坏 {damaged_files} 个，丢失 {missing_files} 个",
    ),
    "verified_one": (
        "read 1 file, {size}: {damaged_files} damaged, {missing_files} missing",
        "已读取 1 个文件，共 {size}；损坏 {damaged_files} 个，丢失 {missing_files} 个",
    ),
    "verified_so_far": (
        "read so far: {files}, {size}",
        "目前已读取 {files} 个文件，共 {size}",
    ),
    "verify_no_database": (
        "there is no server database at {database}; run `paddlecloud admin verify` on the "
        "server's machine, with its PADDLECLOUD_HOME or its settings file (--config)",
        "{database} 处没有服务器数据库；请在服务器所在机器上运行 paddlecloud admin verify，"
        "并指定其 PADDLECLOUD_HOME 或设置文件（--config）",
    ),
    "verify_output_changed": (
        "output of {user}: {paths} was rewritten after {jobs} listed it, and is a different "
        "file now",
        "{user} 的输出：{paths} 在 {jobs} 记录之后被重新写入，内容已不同",
    ),
    "verify_output_damaged": (
        "output of {user}: {paths} is not what {jobs} wrote; run the job again to replace it",
        "{user} 的输出：{paths} 与 {jobs} 写入的内容不一致；重新运行任务可生成新的输出",
    ),
    "verify_output_missing": (
        "output of {user}: {paths} of {jobs} is missing; run the job again to replace it",
        "{user} 的输出：{jobs} 的 {paths} 已丢失；重新运行任务可生成新的输出",
    ),
    "verify_submitted_damaged": (
        "submitted file of {user}: {paths}, in {jobs}, is damaged; with --repair it is moved "
        "aside, and the next submit uploads it again",
        "{user} 提交的文件：{paths}（涉及 {jobs}）已损坏；加 --repair 会将其移走，"
        "下次提交时重新上传",
    ),
    "verify_submitted_damaged_repaired": (
        "submitted file of {user}: {paths}, in {jobs}; moved to {aside}, and the next submit "
        "uploads it again",
        "{user} 提交的文件：{paths}，涉及 {jobs}；已移至 {aside}，下次提交时会重新上传",
    ),
    "verify_submitted_missing": (
        "submitted file of {user}: {paths}, in {jobs}, is missing; with --repair the next "
        "submit uploads it again",
        "{user} 提交的文件：{paths}（涉及 {jobs}）已丢失；加 --repair 后，下次提交时重新上传",
    ),
    "verify_submitted_missing_repaired": (
        "submitted file of {user}: {paths}, in {jobs}, is missing; the next submit uploads it "
        "again",
        "{user} 提交的文件：{paths}（涉及 {jobs}）已丢失；下次提交时会重新上传",
    ),
    # -- admin backup, admin restore ------------------------------------------------------------
    "backup_damaged": (
        "{path} is damaged: its sha256 is not the one in the backup; nothing was written; use "
        "another backup",
        "{path} 已损坏：其 sha256 与备份中记录的不一致；未写入任何内容，请使用其他备份",
    ),
    "backup_directory_missing": (
        "name the directory of the backup: paddlecloud {command} DIR",
        "请指定备份目录：paddlecloud {command} DIR",
    ),
    "backup_done": (
        "backup written to {path}: {files} files, {size}",
        "备份已写入 {path}：{files} 个文件，共 {size}",
    ),
    "backup_exists": (
        "{path} exists already; name a directory that does not exist yet",
        "{path} 已存在，请指定一个尚不存在的目录",
    ),
    "backup_failed": (
        "the backup failed at {path}: {reason}; the incomplete backup was deleted",
        "备份失败，位置 {path}：{reason}；未完成的备份已删除",
    ),
    "backup_in_store": (
        "{path} is inside the store {store}, which is what is copied; name a directory "
        "elsewhere, best on another disk",
        "{path} 位于要备份的存储目录 {store} 之内，请指定其他目录，最好在另一块磁盘上",
    ),
    "backup_left_out": (
        "not in the backup, keep a copy of your own: {names}",
        "以下内容不在备份中，请自行保存：{names}",
    ),
    "backup_newer": (
        "the backup {path} was written by the newer version {version}; restore it with that "
        "version",
        "备份 {path} 由更新的版本 {version} 写入，请使用该版本恢复",
    ),
    "backup_not_complete": (
        "{path} is not a complete backup: {file} is missing or not readable; name the directory "
        "that `paddlecloud admin backup` reported",
        "{path} 不是完整的备份：{file} 缺失或无法读取；请指定 paddlecloud admin backup 输出的目录",
    ),
    "backup_of_damaged": (
        "{count} stored blobs are damaged, and so are their copies: keep older backups, and run "
        "`paddlecloud admin verify`",
        "存储中有 {count} 个内容已损坏，其备份同样是损坏的：请保留较早的备份，"
        "并运行 paddlecloud admin verify",
    ),
    "backup_parent_missing": (
        "there is no directory {path} to write the backup to; create it or mount the disk",
        "备份所在的目录 {path} 不存在，请先创建或挂载磁盘",
    ),
    "backup_runs": (
        "another backup is being written to {path}; wait for it or choose another name",
        "另一个备份正在写入 {path}，请等待其完成或换一个名称",
    ),
    "backup_so_far": (
        "copied so far: {files} files, {size}",
        "目前已复制 {files} 个文件，共 {size}",
    ),
    "restore_checked": (
        "checked so far: {files} files, {size}",
        "目前已检查 {files} 个文件，共 {size}",
    ),
    "restore_database_used": (
        "the database that database.url names has tables already; restore into an empty one "
        "(createdb)",
        "database.url 指向的数据库中已有数据表，请恢复到一个空的数据库（createdb）",
    ),
    "restore_done": (
        "restored the backup of {at} into {home}; jobs: {jobs}, lost because they were running "
        "at that time: {lost}; start the server: {command}",
        "已将 {at} 的备份恢复到 {home}；任务共 {jobs} 个，"
        "其中备份时正在运行、结果未知的 {lost} 个；启动服务器：{command}",
    ),
    "restore_failed": (
        "the restore failed at {path}: {reason}; fix the cause and run the same command again",
        "恢复失败，位置 {path}：{reason}；请排除原因后再次运行同一命令",
    ),
    "restore_home_used": (
        "the home {home} is not empty: {path} exists; restore into a new PADDLECLOUD_HOME (and "
        "store.root, if it is set), or move the old one away",
        "{home} 不是空的：{path} 已存在；请恢复到新的 PADDLECLOUD_HOME（如设置了 store.root，"
        "也请更换），或将原目录移走",
    ),
    "restore_other_backup": (
        "{home} is partly restored from {path}; restore that backup, or delete the home first",
        "{home} 中有从 {path} 恢复到一半的数据；请继续恢复该备份，或先删除该目录",
    ),
    "restore_other_kind": (
        "the backup has a {name} of the kind {expected}, and the settings name {found}; restore "
        "it with settings of the same kind (--config)",
        "备份中的 {name} 类型为 {expected}，而设置中为 {found}；"
        "请使用相同类型的设置恢复（--config）",
    ),
    "restore_server_runs": (
        "a server is running in {home}; restore into another home, or stop the server and move "
        "its home away",
        "{home} 的服务器正在运行；请恢复到其他目录，或停止服务器并移走该目录",
    ),
    "restore_unfinished": (
        "{home} is only partly restored; finish it: paddlecloud admin restore {backup}",
        "{home} 尚未恢复完成，请继续：paddlecloud admin restore {backup}",
    ),
    # -- uploads in parts ---------------------------------------------------------------------
    "upload_again": (
        "upload interrupted: the server, its store or the network does not respond; retrying "
        "for half a minute, uploaded data is kept",
        "上传中断：服务器、其存储或网络没有响应；将在半分钟内重试，已上传的内容会保留",
    ),
    "upload_again_damaged": (
        "uploaded data was damaged in transit and is sent again; check the network if it "
        "happens again",
        "收到的内容与发送的不一致，正在重新发送；若仍然如此，请检查网络",
    ),
    "upload_checksum": (
        "the header {header} must be the CRC-32 of the part in 8 hexadecimal digits, got {value}",
        "请求头 {header} 应为该部分的 CRC-32（8 位十六进制），而不是 {value}",
    ),
    "upload_damaged": (
        "uploaded data does not match what was sent ({reason}); send it again, and check the "
        "network",
        "收到的内容与发送的不一致（{reason}），请重新发送并检查网络",
    ),
    "upload_kept": (
        "run the same command again: uploaded data is kept, only the rest is sent",
        "请再次执行同一命令：已上传的内容会保留，只上传其余部分",
    ),
    "upload_no_parts": (
        "the store of this server does not support multipart uploads; upload the file whole",
        "该服务器的存储不支持分块上传，请整体上传",
    ),
    "upload_size": (
        "this blob is known to have {want} bytes, got {got}; send the right size",
        "已知该内容为 {want} 字节，而不是 {got}，请使用正确的大小",
    ),
    "upload_too_large": (
        "the file has {size}, this server accepts files up to {limit}; split it",
        "文件大小为 {size}，该服务器最多接收 {limit} 的文件，请拆分文件",
    ),
    # -- paths --------------------------------------------------------------------------------
    "path_deep": (
        "{path} is {depth} directories deep, above the limit of {limit}; use fewer directories",
        "{path} 的目录层数为 {depth}，超过上限 {limit}，请减少目录层数",
    ),
    "path_encoding": (
        "the name {path} is not valid UTF-8; rename the file or exclude it",
        "文件名 {path} 不是有效的 UTF-8，请重命名或不要提交该文件",
    ),
    "path_long": (
        "{path} is too long: a name may have {most} bytes (here {size}), a whole path {limit}; "
        "shorten it",
        "{path} 过长：单个名称最多 {most} 字节（此处为 {size}），整个路径最多 {limit} 字节，请缩短",
    ),
    "path_unsafe": (
        "{path} is not a safe relative path; use names without .., \\, a leading / or a drive (C:)",
        "{path} 不是安全的相对路径，请勿使用 ..、\\，或以 /、盘符（C:）开头",
    ),
}
