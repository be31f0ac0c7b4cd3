"""Sentences about submitting: the parameters, their help, and what this server can never do.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

SUBMIT_TEXTS: dict[str, tuple[str, str]] = {
    # -- parameters of submit_job ------------------------------------------------------------
    "bos_url_format": (
        "bos_url {value} is not of the form {{bucket}}.{{region}}.bcebos.com/your/dir",
        "bos_url {value} 的格式应为 {{bucket}}.{{region}}.bcebos.com/your/dir",
    ),
    "bos_url_needed": (
        "public_bos=0 means private storage: give its directory with --bos_url, or leave "
        "public_bos out and give --files",
        "public_bos=0 表示使用私有存储，请用 --bos_url 指定目录；或去掉 public_bos 并指定 --files",
    ),
    "bos_url_unused": (
        "bos_url {bos_url} is for private storage; add --public_bos=0, or leave bos_url out",
        "bos_url {bos_url} 仅用于私有存储，请加上 --public_bos=0，或去掉 bos_url",
    ),
    "distribute_alone": (
        "distribute_job_type={mode} is for several instances; set --instance_count or leave it out",
        "distribute_job_type={mode} 仅用于多实例任务，请指定 --instance_count，或去掉该参数",
    ),
    "env_format": (
        "env {value} is not of the form NAME=VALUE",
        "env {value} 的格式应为 NAME=VALUE",
    ),
    "env_name": (
        "env name {name} may have letters, digits and _ only and must not begin with a digit",
        "环境变量名 {name} 只能包含字母、数字和下划线，且不能以数字开头",
    ),
    "env_reserved": (
        "env name {name} is set by PaddleCloud for every job; choose another name",
        "环境变量 {name} 由 PaddleCloud 为每个任务设置，请换一个名字",
    ),
    "env_size": (
        "all env together are {size}, above the limit of {limit}; put large values into a file",
        "env 合计 {size}，超过上限 {limit}，请把较大的内容写入文件",
    ),
    "env_value_long": (
        "env {name} has {size} letters, above the limit of {limit}; put it into a file",
        "环境变量 {name} 的值有 {size} 个字符，超过上限 {limit}，请写入文件",
    ),
    "files_needed": (
        "say which directory to submit with --files=DIR (public storage needs it)",
        "请用 --files=目录 指定要提交的目录（使用公共存储时必填）",
    ),
    "gpu_in_cpu_job": (
        "gpu={gpu} contradicts job_type=cpu; leave one of them out",
        "gpu={gpu} 与 job_type=cpu 矛盾，请去掉其中一个",
    ),
    "gpu_job_without_gpu": (
        "job_type=gpu contradicts gpu=0; leave one of them out, or say --job_type=cpu",
        "job_type=gpu 与 gpu=0 矛盾，请去掉其中一个，或使用 --job_type=cpu",
    ),
    "memory_format": (
        "memory {value} is not a size; write it like 512Mi or 4G",
        "memory {value} 不是合法的大小，写法如 512Mi 或 4G",
    ),
    "memory_range": (
        "memory {value} is outside {low} to {high}; write it with a unit, like 512Mi or 4G",
        "memory {value} 超出范围 {low} 至 {high}，请带上单位，如 512Mi 或 4G",
    ),
    "param_choice": (
        "{name} is {value}; it must be one of: {choices}",
        "{name} 的值为 {value}，可选值：{choices}",
    ),
    "param_integer": (
        "{name} is {value}; it must be a whole number",
        "{name} 的值为 {value}，应为整数",
    ),
    "param_long": (
        "{name} has {size} bytes, above the limit of {limit}; shorten it or put it into a file",
        "{name} 有 {size} 字节，超过上限 {limit}，请缩短或写入文件",
    ),
    "param_missing": (
        '{name} is missing or empty; give it, for example --{name}="sh run.sh"',
        '缺少 {name} 或其值为空，请指定，例如 --{name}="sh run.sh"',
    ),
    "param_name_length": (
        "{name} has {size} letters; it must have 1 to {limit}",
        "{name} 有 {size} 个字符，应为 1 至 {limit} 个",
    ),
    "param_name_letters": (
        "{name} {value} has a slash or an unprintable letter; choose a plain name",
        "{name} {value} 含有斜杠或不可见字符，请换一个名字",
    ),
    "param_nul": (
        "{name} contains a NUL byte, which no program can receive; remove it",
        "{name} 含有 NUL 字节，程序无法接收，请去掉",
    ),
    "param_number": (
        "{name} is {value}; it must be a number",
        "{name} 的值为 {value}，应为数字",
    ),
    "param_range": (
        "{name} is {value}; it must be between {low} and {high}",
        "{name} 的值为 {value}，应在 {low} 与 {high} 之间",
    ),
    "param_step": (
        "{name} is {value}; at most two digits after the point are allowed",
        "{name} 的值为 {value}，小数点后最多两位",
    ),
    "param_twice": (
        "{name} was given twice, as {first} and as {second}; give it once",
        "{name} 给了两次（{first} 和 {second}），请只给一次",
    ),
    "param_type": (
        "{name} was given as a {type}; give a text or a number",
        "{name} 的类型是 {type}，应为文本或数字",
    ),
    "param_unknown": (
        "{name} is not a parameter of submit_job; submit_job --help lists them",
        "submit_job 没有参数 {name}，可用 submit_job --help 查看",
    ),
    "param_unknown_near": (
        "{name} is not a parameter of submit_job; did you mean {near}?",
        "submit_job 没有参数 {name}，您是否想用 {near}？",
    ),
    "param_utf8": (
        "{name} is not valid UTF-8 text; check the terminal's character encoding",
        "{name} 不是合法的 UTF-8 文本，请检查终端的字符编码",
    ),
    "snapshot_id_format": (
        "snapshot {value} is not of the form sha256:<64 hex digits>",
        "snapshot {value} 的格式应为 sha256:<64 位十六进制>",
    ),
    "wall_time_format": (
        "wall_time {value} is not of the form hh:mm:ss, for example 00:30:00",
        "wall_time {value} 的格式应为 hh:mm:ss，例如 00:30:00",
    ),
    "wall_time_range": (
        "wall_time {value} is outside {low} to {high}",
        "wall_time {value} 超出范围 {low} 至 {high}",
    ),
    # -- what this server can never do -------------------------------------------------------
    "priority_format": (
        "priority {value} is neither a class ({choices}) nor a whole number from {low} to {high}",
        "priority {value} 不是优先级名称（{choices}），也不是 {low} 至 {high} 的整数",
    ),
    "priority_not_allowed": (
        "your plan allows the priority {highest} at most, not {priority}; submit it with "
        "--priority={highest}, or ask the administrator",
        "您的套餐最高允许优先级 {highest}，不能使用 {priority}；"
        "请改用 --priority={highest}，或联系管理员",
    ),
    "cluster_unknown": (
        "cluster {cluster} does not exist on this server; it has: {known}",
        "本服务器没有资源池 {cluster}，可选：{known}",
    ),
    "gpu_none": (
        "the job asks for {gpu} GPU and no machine of {pools} has one; use --job_type=cpu",
        "任务需要 {gpu} 张 GPU，而 {pools} 中没有带 GPU 的机器，请使用 --job_type=cpu",
    ),
    "instances_one_only": (
        "instance_count is {instance_count}, but this server runs jobs of one instance only; "
        "use --instance_count=1",
        "instance_count 为 {instance_count}，但本服务器只运行单实例任务，请用 --instance_count=1",
    ),
    "job_type_none": (
        "no pool of {pools} takes job_type={job_type}; use one of: {types}",
        "{pools} 中没有资源池接受 job_type={job_type}，可选：{types}",
    ),
    "note_job_type_cpu": (
        "job_type is not given and no machine here has a GPU: the job runs as job_type=cpu",
        "未指定 job_type 且没有带 GPU 的机器：任务按 job_type=cpu 运行",
    ),
    "object_store_none": (
        "no object store is configured on this server, so bos_url {bos_url} cannot be used; leave "
        "public_bos and bos_url out and give the directory with --files",
        "本服务器没有配置对象存储，无法使用 bos_url {bos_url}；请去掉 public_bos 和 bos_url，"
        "用 --files 指定目录",
    ),
    "private_pool_none": (
        "public_bcc=0 with cluster={cluster} needs a private pool and {pools} are public; leave "
        "public_bcc out",
        "public_bcc=0 且 cluster={cluster} 需要私有资源池，而 {pools} 是公共的，请去掉 public_bcc",
    ),
    "resources_never": (
        "the job asks for {asks} and no machine of {pools} is that large (the largest has {has}); "
        "ask for less with --cpu, --memory, --gpu",
        "任务需要 {asks}，{pools} 中没有这么大的机器（最大的有 {has}），"
        "请用 --cpu、--memory、--gpu 减少申请",
    ),
    "wall_time_public": (
        "wall_time {wall_time} cannot be set on the public pools {pools}; leave --wall_time out, "
        "or use private resources with --public_bcc=0",
        "公共资源池 {pools} 不能指定 wall_time {wall_time}，请去掉 --wall_time，"
        "或用 --public_bcc=0 使用私有资源",
    ),
    # -- help of submit_job ------------------------------------------------------------------
    "help_job_name": ("name of the job; several jobs may share one", "任务名称，可以重名"),
    "help_start_cmd": ('command that starts the job, e.g. "sh run.sh"', '启动命令，例 "sh run.sh"'),
    "help_cluster": (
        "pool to run in; default asks them in the server's order",
        "指定资源池；default 按服务器配置的顺序依次申请",
    ),
    "help_public_bcc": (
        "computing resources: 1 public, 0 private",
        "计算资源：1 使用公共资源，0 使用私有资源",
    ),
    "help_public_bos": (
        "storage: 1 public (give --files), 0 private (give --bos_url)",
        "存储资源：1 使用公共存储（需 --files），0 使用私有存储（需 --bos_url）",
    ),
    "help_job_type": (
        "gpu or cpu; default gpu where the server has GPUs, else cpu",
        "任务类型 gpu 或 cpu；服务器有 GPU 时默认 gpu，否则为 cpu",
    ),
    "help_instance_count": ("number of instances, 1 to 1024", "计算节点数目，1 至 1024"),
    "help_wall_time": (
        "longest running time, hh:mm:ss; private pools only",
        "最长运行时间，格式 hh:mm:ss，仅私有资源池可指定",
    ),
    "help_bos_url": (
        "directory in private storage: {{bucket}}.{{region}}.bcebos.com/your/dir",
        "私有存储中的目录：{{bucket}}.{{region}}.bcebos.com/your/dir",
    ),
    "help_files": (
        "local directory with scripts and data, e.g. ./job",
        "本地脚本和数据目录，例 ./job",
    ),
    "help_watch_mode": (
        "1 follows states and log until the job ends, 0 returns at once",
        "1 持续打印任务状态和日志直到结束，0 立即返回",
    ),
    "help_cpu": (
        "CPUs of each instance, e.g. 0.5 or 4; also a limit when given",
        "每个实例的 CPU 数，例 0.5 或 4；指定后同时作为上限",
    ),
    "help_memory": (
        "memory limit of each instance, e.g. 512Mi or 4G",
        "每个实例的内存上限，例 512Mi 或 4G",
    ),
    "help_gpu": ("GPUs of each instance, 0 to 64", "每个实例的 GPU 数，0 至 64"),
    "help_distribute_job_type": (
        "PSERVER or NCCL2; default by job_type, for several instances only",
        "分布式模式 PSERVER 或 NCCL2；默认由 job_type 决定，仅用于多实例",
    ),
    "help_env": (
        "NAME=VALUE for the job's environment; may be repeated",
        "任务的环境变量 NAME=VALUE，可重复指定",
    ),
    "help_description": ("a note kept with the job", "任务备注"),
    "help_max_retries": (
        "how often a failed or lost run is tried again, 0 to 100",
        "失败或丢失后重试的次数，0 至 100",
    ),
    "help_priority": (
        "the class: low, normal, high or urgent (or a number, -100 to 200); higher ones start "
        "first",
        "优先级：low、normal、high 或 urgent（或 -100 至 200 的整数），越高越先运行",
    ),
}
