"""Messages about stores: the server's own and user buckets."""

from __future__ import annotations

STORE_TEXTS: dict[str, tuple[str, str]] = {
    # -- files in any store --------------------------------------------------------------------
    "blob_digest": (
        "the data has sha256 {got}, expected {want}; the file changed or was damaged in "
        "transit, send it again",
        "内容的 sha256 是 {got}，应为 {want}：文件被修改或在传输中损坏，请重新上传",
    ),
    "file_missing": (
        "file {path} does not exist; see get_files",
        "文件 {path} 不存在，请用 get_files 查看文件列表",
    ),
    "pack_malformed": (
        "the upload is invalid after {count} files: {detail}; send it again",
        "上传数据在第 {count} 个文件之后损坏：{detail}，请重新上传",
    ),
    "store_full": (
        "no disk space left on the server; delete jobs you no longer need (delete_job) or "
        "free space there, then try again",
        "服务器没有空间了；请删除不再需要的任务（delete_job）或清理服务器磁盘，然后重试",
    ),
    "store_room": (
        "a file of {size} does not fit, the server has {room} free; free disk space there, "
        "then try again",
        "文件大小为 {size}，而服务器只剩 {room} 可用，请清理服务器磁盘后重试",
    ),
    "store_room_files": (
        "{files} files of {size} in total do not fit, the server has {room} free; free disk "
        "space there, then try again",
        "{files} 个文件共 {size}，而服务器只剩 {room} 可用，请清理服务器磁盘后重试",
    ),
    "store_kind_unknown": (
        "unknown store kind {kind}; available: {known}",
        "不存在名为 {kind} 的存储类型，可用的有 {known}",
    ),
    "store_lock_busy": (
        "another server has held the lock {path} for over {seconds} s; try again",
        "另一台服务器持有锁 {path} 已超过 {seconds} 秒，请重试",
    ),
    "store_path_taken": (
        "cannot store {path}: a directory has that name, or a file has the name of one of its "
        "directories; use another name",
        "无法保存 {path}：同名目录已存在，或其上级目录名已被文件占用，请换一个名字",
    ),
    "store_setting_missing": (
        "a store of kind {kind} needs the setting {setting}; add it to the server's settings",
        "{kind} 类型的存储缺少设置 {setting}，请在服务器配置中补上",
    ),
    # -- the store of a server ----------------------------------------------------------------
    "check_bucket": (
        "the bucket {place} responds, and these keys can write and delete there",
        "存储桶 {place} 可以访问，密钥有效，可以写入和删除",
    ),
    "check_door": (
        "an object store responds at {door}",
        "{door} 上有对象存储响应",
    ),
    "check_store_failed": (
        "the store failed: {reason}; check the section [store]",
        "存储出错：{reason}，请检查 [store] 一节的配置",
    ),
    "diff_unkept": (
        "cannot store the differences from the commit with the job: {reason}",
        "与提交记录的差异未能随任务保存：{reason}",
    ),
    "store_bucket_missing": (
        "bucket {place} does not exist; create it, or correct its name or endpoint",
        "存储桶 {place} 不存在，请创建它，或改正名称或地址",
    ),
    "store_changed": (
        "{path} was replaced in the store while it was in use; try again",
        "{path} 在使用过程中被替换，请重试",
    ),
    "store_clock": (
        "the store {place} rejects this machine's clock ({detail}); set the clock",
        "存储 {place} 不接受本机的时间（{detail}），请校准时钟",
    ),
    "store_crowded": (
        "{limit} requests are already waiting for buckets, which is the limit; try again in a "
        "moment",
        "已有 {limit} 个请求在等待存储桶响应（已达上限），请稍后重试",
    ),
    "store_damaged": (
        "{path} was repeatedly damaged in transit to the store {place}; check the network, "
        "then try again",
        "{path} 在传往存储 {place} 的途中多次损坏，请检查网络后重试",
    ),
    "store_denied": (
        "the store {place} rejects these keys ({detail}); check the access key, the secret "
        "key and their permissions",
        "存储 {place} 拒绝了这对密钥（{detail}），请检查 access key、secret key 及其权限",
    ),
    "store_failed": (
        "the store {place} failed ({detail}); try again, and see its log if it happens again",
        "存储 {place} 出错（{detail}），请重试；若仍然出错，请查看存储服务的日志",
    ),
    "store_path_long": (
        "the name {path} is longer than the {limit} bytes that an object store allows; shorten it",
        "{path} 的名称超过对象存储允许的 {limit} 字节，请缩短",
    ),
    "store_refused": (
        "the store {place} rejects {path} ({detail}); check that it accepts such a name and size",
        "存储 {place} 拒绝了 {path}（{detail}），请确认它是否接受这样的名称和大小",
    ),
    "store_stranger": (
        "unexpected response from the store {place} ({came}): this is not an object store; "
        "check the endpoint, and that no sign-in page or proxy is in between",
        "存储 {place} 的地址上响应的不是对象存储（{came}），请检查地址，以及是否有登录页面或代理",
    ),
    "store_unreachable": (
        "the store {place} does not respond ({reason}); try again, and check its endpoint and "
        "the network if it happens again",
        "存储 {place} 没有响应（{reason}）；请重试，若仍无响应，请检查其地址和网络",
    ),
    "reason_ended": (
        "the connection was closed without a response",
        "连接已结束，没有响应",
    ),
    "reason_no_http": ("not an HTTP response: {detail}", "不是 HTTP 响应：{detail}"),
    "reason_timed_out": ("timed out", "超时"),
    # -- uploads in parts ---------------------------------------------------------------------
    "upload_incomplete": (
        "the upload has {got} of {want} bytes; send part {missing}, then finish it",
        "上传只有 {got} 字节（应为 {want}），请补传第 {missing} 部分后再完成",
    ),
    "upload_missing": (
        "the upload {upload} of this file does not exist (any more); start a new one",
        "该文件没有上传 {upload}（或已失效），请重新开始上传",
    ),
    "upload_part": (
        "part {number} with {size} bytes does not belong to this upload; parts are numbered "
        "from 1 and have at most {limit} bytes",
        "第 {number} 部分（{size} 字节）不属于该上传：编号从 1 开始，每部分最多 {limit} 字节",
    ),
    # -- what was not sent, or a bucket did not take -------------------------------------------
    "outputs_not_sent": (
        "these outputs were not sent: {message}",
        "以下输出未发送：{message}",
    ),
    "outputs_unsent": (
        "these outputs are not in the bucket: {message}",
        "以下输出未写入存储桶：{message}",
    ),
    "outputs_untaken": (
        "the server could not store these outputs: {message}",
        "服务器无法保存以下输出：{message}",
    ),
    "unsent_each": ("{files} ({reason}) and {rest}", "{files}（{reason}）以及 {rest}"),
    "unsent_first": ("the first of them", "其中第一个文件"),
    "unsent_given_up": (
        "{files} ({reason}); they are not kept",
        "{files}（{reason}）；未能保留",
    ),
    "unsent_it": ("it", "该文件"),
    "unsent_kept": (
        "{files} ({reason}); they are kept for {days} days on {host} in {place}, unless its "
        "disk is full; if that machine is not yours, ask an admin for them",
        "{files}（{reason}）；在 {host} 的 {place} 中保留 {days} 天，磁盘将满时可能提前删除；"
        "如果该机器不是您的，请联系管理员取回",
    ),
    # -- what a worker waits for ---------------------------------------------------------------
    "outputs_late": (
        "outputs of {worker} are not stored yet ({reason}); the job continues, and storing is "
        "retried",
        "{worker} 的输出尚未保存（{reason}）；任务继续运行，系统会重试",
    ),
    "outputs_wait": (
        "the command of {worker} has ended, but its outputs or log are not all stored yet "
        "({reason}); this is retried, and the job keeps its resources until then",
        "{worker} 的命令已结束，但其输出或日志尚未全部保存（{reason}）；系统会重试，"
        "保存完成前任务仍占用资源",
    ),
    "private_outputs_late": (
        "outputs of {worker} are not in its bucket yet ({reason}); the job continues, and "
        "storing is retried",
        "{worker} 的输出尚未写入存储桶（{reason}）；任务继续运行，系统会重试",
    ),
    "replica_not_ending": (
        "the supervisor of {worker} on machine {node} was killed, and its processes {pids} do "
        "not exit; killing them is retried, and the job ends when they have exited",
        "机器 {node} 上监视 {worker} 的进程被结束，其进程 {pids} 无法结束；系统会重试，"
        "这些进程结束后任务才会结束",
    ),
    "held_fetching": (
        "downloading the files of {worker}; it starts when they are complete",
        "正在读取 {worker} 的文件，完成后启动",
    ),
    "held_no_more": (
        "continues",
        "已恢复",
    ),
    "held_no_answer": (
        "no response in time",
        "没有及时响应",
    ),
    "held_sending": (
        "the command of {worker} has ended, storing its outputs",
        "{worker} 的命令已结束，正在保存其输出",
    ),
    # -- private storage ----------------------------------------------------------------------
    "private_file_changed": (
        "{path} in bos_url={bos_url} was changed or deleted after the job was submitted; "
        "submit it again to use the current files",
        "bos_url={bos_url} 中的 {path} 在任务提交后被修改或删除，请重新提交任务以使用当前的文件",
    ),
    "private_files_changed": (
        "{files} files in bos_url={bos_url} differ from those of the job to rerun (first: "
        "{path}); submit a new job with submit_job to use the current files",
        "bos_url={bos_url} 中有 {files} 个文件与要重新运行的任务不同（第一个是 {path}）；请用 "
        "submit_job 提交新任务以使用当前的文件",
    ),
    "private_files_found": (
        "the job gets the {files} files ({size}) in bos_url={bos_url}",
        "任务将使用 bos_url={bos_url} 中的 {files} 个文件（{size}）",
    ),
    "private_files_found_one": (
        "the job gets the only file ({size}) in bos_url={bos_url}",
        "任务将使用 bos_url={bos_url} 中唯一的文件（{size}）",
    ),
    "private_files_many": (
        "bos_url={bos_url} holds more than {limit} files; give a directory with fewer, or "
        "combine small files into larger ones",
        "bos_url={bos_url} 中的文件超过 {limit} 个；请指定文件较少的目录，或将小文件合并",
    ),
    "private_files_none": (
        "bos_url={bos_url} holds no files, so the job gets none; if it needs some, check the "
        "directory or give --files",
        "bos_url={bos_url} 中没有文件，任务将不带任何文件运行；如需文件，请检查目录或使用 --files",
    ),
    "private_files_bare": (
        "a bucket does not keep empty directories and executable bits, and --files has some: "
        "{paths}; create such directories in the command, and write `sh run.sh` for ./run.sh",
        "存储桶不保留空目录和可执行权限，而 --files 中有：{paths}；"
        "请在启动命令中创建这些目录，并用 sh run.sh 代替 ./run.sh",
    ),
    "private_job_keys": (
        "bos_url={bos_url} rejects the keys that this job was submitted with ({detail}); "
        "submit or rerun any job in this bucket with valid keys, which are then used for this "
        "job too",
        "bos_url={bos_url}：提交该任务时所用的密钥被拒绝（{detail}）"
        "；请用有效的密钥在该存储桶中提交或重新运行任意任务，之后该任务也会使用那对密钥",
    ),
    "private_keys_plain": (
        "the keys of [bos] are not sent to {url}: cloud keys are never sent over plain HTTP; "
        "use an https URL of the server",
        "不会将 [bos] 的密钥发送到 {url}：云密钥不得以明文 HTTP 传输，请使用服务器的 https 地址",
    ),
    "private_links_skipped": (
        "a bucket holds no links, so these links of --files are skipped: {paths}; copy their "
        "targets if the job needs them",
        "存储桶中不能有链接，--files 中的以下链接未上传：{paths}；如任务需要，请复制其指向的文件",
    ),
    "private_logs_wait": (
        "the logs are not in bos_url={bos_url} yet ({reason}); this is retried, and until "
        "then `logs` shows them",
        "日志尚未写入 bos_url={bos_url}（{reason}）；系统会重试，在此期间可用 logs 查看",
    ),
    "private_object_name": (
        "bos_url={bos_url} holds an object that cannot become a file ({reason}); rename or "
        "delete it, or give a directory without it",
        "bos_url={bos_url} 中有无法作为文件使用的对象（{reason}）；请重命名或删除它，"
        "或指定不含它的目录",
    ),
    "private_outputs_wait": (
        "the command of {worker} has ended, but its outputs are not in its bucket yet "
        "({reason}); this is retried, and the job keeps its resources until then",
        "{worker} 的命令已结束，但输出尚未写入存储桶（{reason}）；系统会重试，"
        "写入完成前任务仍占用资源",
    ),
    "private_place_file": (
        "bos_url={bos_url} is a file, but a job needs a directory; give the one that holds "
        "it: {above}",
        "bos_url={bos_url} 是文件，而任务需要目录；请指定它所在的目录：{above}",
    ),
    "private_put_failed": (
        "cannot upload {path} to bos_url={bos_url} ({reason}); check that the bucket has "
        "space and that this machine reaches it, then submit again",
        "无法将 {path} 写入 bos_url={bos_url}（{reason}）；请检查该存储桶是否有空间、"
        "本机能否访问它，然后重新提交",
    ),
    "private_start_waits": (
        "{worker} waits for its files before it starts ({reason}); this is retried, and the "
        "job keeps its resources until then",
        "{worker} 正在等待其文件，尚未启动（{reason}）；系统会重试，在此期间任务占用资源",
    ),
    "private_store_denied": (
        "bos_url={bos_url} rejects the keys of {keys} ({detail}); check ak and sk, and that "
        "they can read and write this directory",
        "bos_url={bos_url}：{keys} 的密钥被拒绝（{detail}），请检查 ak、sk 及其对该目录的读写权限",
    ),
    "private_store_keys": (
        "bos_url={bos_url} needs your own keys: set ak and sk in the section [bos] of client.conf",
        "bos_url={bos_url} 需要您自己的密钥：请在 client.conf 的 [bos] 一节设置 ak 和 sk",
    ),
    "private_store_no_bucket": (
        "bos_url={bos_url}: bucket {bucket} does not exist in region {region}; create it, or "
        "correct bos_url",
        "bos_url={bos_url}：区域 {region} 中没有存储桶 {bucket}，请创建它或改正 bos_url",
    ),
    "private_store_no_keys": (
        "bos_url={bos_url} needs your own keys: set ak and sk in the section [bos] of {path}, or "
        "PADDLECLOUD_BOS_AK and PADDLECLOUD_BOS_SK",
        "bos_url={bos_url} 需要您自己的密钥：请在 {path} 的 [bos] 一节设置 ak 和 sk，"
        "或设置 PADDLECLOUD_BOS_AK 和 PADDLECLOUD_BOS_SK",
    ),
    "private_store_off": (
        "private storage is disabled on this server, so bos_url={bos_url} cannot be used; "
        "remove public_bos and bos_url and give the directory with --files",
        "本服务器未开放私有存储，无法使用 bos_url={bos_url}；请去掉 public_bos 和 bos_url，"
        "并用 --files 指定目录",
    ),
    "private_store_stranger": (
        "bos_url={bos_url}: unexpected response from {host} ({came}): this is not an object "
        "store; check the region, and that no sign-in page or proxy is in between",
        "bos_url={bos_url}：{host} 上响应的不是对象存储（{came}），请检查区域，"
        "以及服务器与它之间是否有登录页面或代理",
    ),
    "private_store_unreachable": (
        "bos_url={bos_url}: {host} does not respond ({reason}); check the region and the network",
        "bos_url={bos_url}：{host} 没有响应（{reason}），请检查区域和网络",
    ),
}
