"""Messages about submit_job: parameters, their help, admission."""

from __future__ import annotations

SUBMIT_TEXTS: dict[str, tuple[str, str]] = {
    # -- parameters of submit_job ------------------------------------------------------------
    "bos_url_format": (
        "bos_url {value} is not of the form {{bucket}}.{{region}}.bcebos.com/your/dir: {reason}",
        "bos_url {value} 的格式应为 {{bucket}}.{{region}}.bcebos.com/your/dir：{reason}",
    ),
    "bos_url_control": (
        "it contains a line break or another control character",
        "其中有换行或其他控制字符",
    ),
    "bos_url_host": (
        '"{host}" is not a bucket of bcebos.com',
        "“{host}”不是 bcebos.com 的存储桶",
    ),
    "bos_url_label": (
        '"{label}" must be 1 to {most} lower-case letters, digits and hyphens, without a '
        "hyphen at either end",
        "“{label}”应为 1 到 {most} 个小写字母、数字或连字符，且不以连字符开头或结尾",
    ),
    "bos_url_long": (
        "a name may have {most} bytes, the whole directory {limit}, and {depth} levels",
        "目录中单个名称最多 {most} 字节，整个目录最多 {limit} 字节、{depth} 层",
    ),
    "bos_url_name": (
        '"{name}" is not a valid directory name',
        "“{name}”不能用作目录名",
    ),
    "bos_url_needed": (
        "public_bos=0 means private storage: give its directory with --bos_url, or remove "
        "public_bos and give --files",
        "public_bos=0 表示使用私有存储，请用 --bos_url 指定目录；或去掉 public_bos 并指定 --files",
    ),
    "bos_url_port": (
        "remove the port {port}",
        "请去掉端口 {port}",
    ),
    "bos_url_scheme": (
        "remove {scheme}, or write https://",
        "请去掉 {scheme}，或改为 https://",
    ),
    "bos_url_sign": (
        "remove {sign} and what follows: this is a directory, not a web page",
        "请去掉 {sign} 及其后的内容：这里是目录，不是网页地址",
    ),
    "bos_url_slashes": (
        "it has two slashes in a row, or too many at the end",
        "其中有连续的斜杠，或末尾的斜杠过多",
    ),
    "bos_url_unused": (
        "bos_url {bos_url} is for private storage; add --public_bos=0, or remove bos_url",
        "bos_url {bos_url} 仅用于私有存储，请加上 --public_bos=0，或去掉 bos_url",
    ),
    "distribute_alone": (
        "distribute_job_type={mode} is for several instances; set --instance_count or remove it",
        "distribute_job_type={mode} 仅用于多实例任务，请指定 --instance_count，或去掉该参数",
    ),
    "env_format": (
        "env {value} is not of the form NAME=VALUE",
        "env {value} 的格式应为 NAME=VALUE",
    ),
    "env_name": (
        "env name {name} may only have letters, digits and _, and must not start with a digit",
        "环境变量名 {name} 只能包含字母、数字和下划线，且不能以数字开头",
    ),
    "env_reserved": (
        "env name {name} is set by PaddleCloud for every job; choose another name",
        "环境变量 {name} 由 PaddleCloud 为每个任务设置，请换一个名字",
    ),
    "env_size": (
        "all env variables together have {size}, above the limit of {limit}; put large values "
        "into a file",
        "env 合计 {size}，超过上限 {limit}，请把较大的内容写入文件",
    ),
    "env_value_long": (
        "env {name} has {size} characters, above the limit of {limit}; put it into a file",
        "环境变量 {name} 的值有 {size} 个字符，超过上限 {limit}，请写入文件",
    ),
    "files_needed": (
        "no directory given; use --files=DIR (required for public storage)",
        "请用 --files=目录 指定要提交的目录（使用公共存储时必填）",
    ),
    "gpu_in_cpu_job": (
        "gpu={gpu} contradicts job_type=cpu; remove one of them",
        "gpu={gpu} 与 job_type=cpu 矛盾，请去掉其中一个",
    ),
    "gpu_job_without_gpu": (
        "job_type=gpu contradicts gpu=0; remove one of them, or use --job_type=cpu",
        "job_type=gpu 与 gpu=0 矛盾，请去掉其中一个，或使用 --job_type=cpu",
    ),
    "memory_format": (
        "{name} {value} is not a size; write for example 512Mi or 4G",
        "{name} {value} 不是合法的大小，写法如 512Mi 或 4G",
    ),
    "memory_range": (
        "{name} {value} is outside {low} to {high}; give a unit, for example 512Mi or 4G",
        "{name} {value} 超出范围 {low} 至 {high}，请带上单位，如 512Mi 或 4G",
    ),
    "param_choice": (
        "{name} is {value}; it must be one of: {choices}",
        "{name} 的值为 {value}，可选值：{choices}",
    ),
    "job_file_key": (
        "{path}: {name} is not a parameter of submit_job; see submit_job --help",
        "{path}：submit_job 没有参数 {name}，可用 submit_job --help 查看",
    ),
    "job_file_key_near": (
        "{path}: {name} is not a parameter of submit_job; did you mean {near}?",
        "{path}：submit_job 没有参数 {name}，您是否想用 {near}？",
    ),
    "job_file_key_twice": (
        "{path}: {name} is given twice, the second time as {other}; give it once",
        "{path}：{name} 给了两次（第二次写作 {other}），请只给一次",
    ),
    "job_file_long": (
        "the job file {path} has more than {limit} bytes; give a TOML file with parameters of "
        "submit_job",
        "任务文件 {path} 超过 {limit} 字节，请指定写有 submit_job 参数的 TOML 文件",
    ),
    "job_file_syntax": (
        "the job file {path} is not valid TOML: {reason}",
        "任务文件 {path} 不是合法的 TOML：{reason}",
    ),
    "job_file_unreadable": (
        "the job file {path} cannot be read: {reason}; check the path behind -f",
        "无法读取任务文件 {path}：{reason}，请检查 -f 后的路径",
    ),
    "secret_binary": (
        "the secret {name} is not text, so the variable {variable} cannot hold it; use "
        "--secret {name} and read its file",
        "机密 {name} 不是文本，无法放入变量 {variable}；请使用 --secret {name} 并读取其文件",
    ),
    "secret_deleted": (
        "the secret {names} was deleted after the job was submitted; set it again (paddlecloud "
        "secret set {name}), then rerun the job",
        "任务提交后机密 {names} 已被删除；请重新设置（paddlecloud secret set {name}）"
        "后再次运行任务",
    ),
    "secret_missing": (
        "you have no secret {names}; set it first: paddlecloud secret set {name}",
        "您没有名为 {names} 的机密，请先设置：paddlecloud secret set {name}",
    ),
    "secret_name": (
        'the secret name "{name}" is not valid; use 1 to {limit} letters, digits, "_", "-" and '
        '".", beginning with a letter, a digit or "_"',
        "机密名称“{name}”无效；请用 1 至 {limit} 个字母、数字、“_”、“-”和“.”，"
        "以字母、数字或“_”开头",
    ),
    "secret_twice": (
        "the secret {name} is given twice; give it once",
        "机密 {name} 给了两次，请只给一次",
    ),
    "secret_variable_given": (
        "the variable {variable} is given by --env and by --secret; remove one of them",
        "变量 {variable} 同时由 --env 和 --secret 给出，请去掉其中一个",
    ),
    "secret_variable_twice": (
        "two secrets are given as the variable {variable}; choose another name for one of them",
        "两个机密使用了同一个变量 {variable}，请为其中一个换一个变量名",
    ),
    "secrets_of_job": (
        "the job names {count} secrets, above the limit of {limit}; put several values into one "
        "file",
        "任务使用了 {count} 个机密，超过上限 {limit}，请把多个值放进一个文件",
    ),
    "secrets_plain": (
        "secrets do not travel over plain HTTP between machines, and the server is at {url}; "
        "use https",
        "机密不会在机器之间通过未加密的 HTTP 传输，而服务器地址是 {url}，请使用 https",
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
        "{name} has {size} characters; it must have 1 to {limit}",
        "{name} 有 {size} 个字符，应为 1 至 {limit} 个",
    ),
    "param_name_letters": (
        "{name} {value} contains a slash or an unprintable character; choose a plain name",
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
        "{name} is {value}; it may have at most two decimals",
        "{name} 的值为 {value}，小数点后最多两位",
    ),
    "param_twice": (
        "{name} is given twice, as {first} and as {second}; give it once",
        "{name} 给了两次（{first} 和 {second}），请只给一次",
    ),
    "param_path": (
        "{name} {value} is not a path; give a text or a Path",
        "{name} {value} 不是路径，应为文本或 Path",
    ),
    "param_type": (
        "{name} is a {type}; give a text or a number",
        "{name} 的类型是 {type}，应为文本或数字",
    ),
    "param_unknown": (
        "{name} is not a parameter of submit_job; see submit_job --help",
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
    "pservers_alone": (
        "{name} is for parameter servers, and a single instance has none; set --pservers or "
        "--instance_count, or remove it",
        "{name} 用于参数服务器，而单实例任务没有参数服务器；请指定 --pservers 或 "
        "--instance_count，或去掉该参数",
    ),
    "pservers_in_nccl2": (
        "{name}={value} is for parameter servers, and distribute_job_type=NCCL2 has none; "
        "remove one of them",
        "{name}={value} 用于参数服务器，而 distribute_job_type=NCCL2 没有参数服务器，"
        "请去掉其中一个",
    ),
    "snapshot_id_format": (
        "snapshot {value} is not of the form sha256:<64 hex digits>",
        "snapshot {value} 的格式应为 sha256:<64 位十六进制>",
    ),
    "retry_codes_format": (
        "retry_exit_codes {value} is not valid; give exit codes from 1 to 255 separated by "
        "commas, such as 101,102, or any",
        "retry_exit_codes {value} 不是退出码；请给出 1 至 255 的数字，用逗号分隔，例如 "
        "101,102，或 any",
    ),
    "retry_codes_unused": (
        "retry_exit_codes {value} has no effect without retries; add --max_retries=N",
        "没有重试时 retry_exit_codes {value} 不起作用，请加 --max_retries=N",
    ),
    "wall_time_format": (
        "{name} {value} is not of the form hh:mm:ss, for example 00:30:00",
        "{name} {value} 的格式应为 hh:mm:ss，例如 00:30:00",
    ),
    "wall_time_range": (
        "{name} {value} is outside {low} to {high}",
        "{name} {value} 超出范围 {low} 至 {high}",
    ),
    # -- what this server can never do -------------------------------------------------------
    "priority_format": (
        "priority {value} is neither a class ({choices}) nor a whole number from {low} to {high}",
        "priority {value} 不是优先级名称（{choices}），也不是 {low} 至 {high} 的整数",
    ),
    "priority_not_allowed": (
        "your plan allows at most priority {highest}, not {priority}; submit it with "
        "--priority={highest}, or ask the administrator",
        "您的套餐最高允许优先级 {highest}，不能使用 {priority}；请改用 --priority={highest}，"
        "或联系管理员",
    ),
    "no_pool": (
        "no pool of this server accepts your jobs; ask an admin to add you to one (users = [...])",
        "此服务器上没有可运行您任务的资源池；请管理员把您加入某个资源池（users = [...]）",
    ),
    "cluster_unknown": (
        "cluster {cluster} does not exist on this server; it has: {known}",
        "本服务器没有资源池 {cluster}，可选：{known}",
    ),
    "gpu_none": (
        "the job requests {gpu} GPU, but no machine of {pools} has one; use --job_type=cpu",
        "任务需要 {gpu} 张 GPU，而 {pools} 中没有带 GPU 的机器，请使用 --job_type=cpu",
    ),
    "require_format": (
        "{value} is no label; write --require=KEY=VALUE, with letters, digits, _ . - and commas "
        "between several",
        "{value} 不是标签，请写成 --require=KEY=VALUE，只能用字母、数字和 _ . -，多个用逗号分隔",
    ),
    "require_none": (
        "no machine of {pools} has the label {require}; ask an admin for the labels, or leave "
        "out --require",
        "{pools} 中没有带标签 {require} 的机器，请向管理员查询标签，或去掉 --require",
    ),
    "require_twice": (
        "--require names a label twice: {value}",
        "--require 中有重复的标签：{value}",
    ),
    "gang_never": (
        "the {replicas} replicas together request {asks}, but the {machines} machines of pool "
        "{pool} have {has} in total; use a smaller --instance_count, or less --memory, --gpu, "
        "--cpu",
        "{replicas} 个实例共需 {asks}，而资源池 {pool} 的 {machines} 台机器总共有 {has}，请用 "
        "--instance_count 减少实例，或用 --memory、--gpu、--cpu 减少申请",
    ),
    "gangs_none": (
        "instance_count is {instance_count} ({replicas} replicas), but {pools} cannot run "
        "jobs of several replicas; use --instance_count=1",
        "instance_count 为 {instance_count}（{replicas} 个实例），但 {pools} "
        "不能运行多实例任务，请用 --instance_count=1",
    ),
    "instances_public": (
        "instance_count is {instance_count} ({replicas} replicas), but only private pools run "
        "several and {pools} are public; use --instance_count=1, or ask the admin of this "
        "server for a private pool",
        "instance_count 为 {instance_count}（{replicas} 个实例）"
        "，仅私有资源池可运行多实例任务，而 {pools} 是公共的：请用 --instance_count=1，"
        "或请管理员提供私有资源池",
    ),
    "job_type_none": (
        "none of the pools {pools} accepts job_type={job_type}; use one of: {types}",
        "{pools} 中没有资源池接受 job_type={job_type}，可选：{types}",
    ),
    "job_python_changed": (
        "the job's Python is {python}: {own} belongs to PaddleCloud. If your packages are "
        "elsewhere, activate their environment before submit_job",
        "任务使用的 Python 为 {python}：{own} 是 PaddleCloud 自己的环境。"
        "如果您的依赖包在其他环境中，请先激活该环境再提交",
    ),
    "job_python_none": (
        "the job finds no python3: {own} belongs to PaddleCloud, and PATH has no other. "
        "Activate the environment of your packages before submit_job",
        "任务找不到 python3：{own} 是 PaddleCloud 自己的环境，PATH 中没有其他 Python。"
        "请先激活您的依赖包所在的环境再提交",
    ),
    "note_job_type_cpu": (
        "job_type is not given and no machine has a GPU: the job runs as job_type=cpu",
        "未指定 job_type 且没有带 GPU 的机器：任务按 job_type=cpu 运行",
    ),
    "note_pserver": (
        "the job starts {trainers} trainers and {pservers} parameter servers; each runs start_cmd "
        "with its TRAINING_ROLE; --distribute_job_type=NCCL2 starts trainers only",
        "任务将启动 {trainers} 个训练实例和 {pservers} 个参数服务器，各自执行 start_cmd，角色见 "
        "TRAINING_ROLE；加 --distribute_job_type=NCCL2 则只启动训练实例",
    ),
    "note_pserver_one": (
        "the job starts {trainers} trainers and 1 parameter server; each runs start_cmd with its "
        "TRAINING_ROLE; --distribute_job_type=NCCL2 starts trainers only",
        "任务将启动 {trainers} 个训练实例和 1 个参数服务器，各自执行 start_cmd，角色见 "
        "TRAINING_ROLE；加 --distribute_job_type=NCCL2 则只启动训练实例",
    ),
    "note_waits": (
        "the job has to wait: {reason}",
        "任务需要等待：{reason}",
    ),
    "private_pool_none": (
        "public_bcc=0 with cluster={cluster} needs a private pool, but {pools} are public; "
        "remove public_bcc, or ask the admin of this server for a private pool",
        "public_bcc=0 且 cluster={cluster} 需要私有资源池，而 {pools} 是公共的，请去掉 "
        "public_bcc，或请管理员提供私有资源池",
    ),
    "replicas_too_many": (
        "the job has {replicas} replicas, above this server's limit of {limit}; use a smaller "
        "--instance_count or --pservers",
        "任务有 {replicas} 个实例，超过本服务器的上限 {limit}，请用 --instance_count 和 "
        "--pservers 减少",
    ),
    "resources_never": (
        "the job requests {asks}, but no machine of {pools} is that large (the largest has "
        "{has}); use less --cpu, --memory, --gpu",
        "任务需要 {asks}，{pools} 中没有这么大的机器（最大的有 {has}），请用 --cpu、--memory、"
        "--gpu 减少申请",
    ),
    "wall_time_public": (
        "wall_time {wall_time} cannot be set on the public pools {pools}; remove --wall_time, "
        "or ask the admin of this server for a private pool",
        "公共资源池 {pools} 不能指定 wall_time {wall_time}，请去掉 --wall_time，"
        "或请管理员提供私有资源池",
    ),
    # -- help of submit_job ------------------------------------------------------------------
    "help_job_name": (
        "name of the job; names may repeat",
        "任务名称，可以重名",
    ),
    "help_start_cmd": ('command that starts the job, e.g. "sh run.sh"', '启动命令，例 "sh run.sh"'),
    "help_cluster": (
        "pool to run in; default tries the pools in the server's order",
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
    "help_instance_count": (
        "number of instances, 1 to 1024",
        "计算实例数目，1 至 1024",
    ),
    "help_wall_time": (
        "maximum running time, hh:mm:ss; private pools only",
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
        "1 prints states and log until the job ends, 0 returns at once",
        "1 持续打印任务状态和日志直到结束，0 立即返回",
    ),
    "help_cpu": (
        "CPUs of each instance, e.g. 0.5 or 4; also the limit when given",
        "每个实例的 CPU 数，例 0.5 或 4；指定后同时作为上限",
    ),
    "help_memory": (
        "memory limit of each instance, e.g. 512Mi or 4G",
        "每个实例的内存上限，例 512Mi 或 4G",
    ),
    "help_gpu": (
        "GPUs of each instance, 0 to 64",
        "每个实例的 GPU 数，0 至 64",
    ),
    "help_distribute_job_type": (
        "PSERVER or NCCL2; default depends on job_type, only for several instances",
        "分布式模式 PSERVER 或 NCCL2；默认由 job_type 决定，仅用于多实例任务",
    ),
    "help_pservers": (
        "number of parameter servers; default one per instance, PSERVER mode only",
        "参数服务器个数；默认与训练实例数相同，仅用于 PSERVER 模式",
    ),
    "help_pserver_cpu": (
        "CPUs of each parameter server; default as for a trainer",
        "每个参数服务器的 CPU 数；默认与训练实例相同",
    ),
    "help_pserver_memory": (
        "memory limit of each parameter server, e.g. 512Mi or 4G; default as for a trainer",
        "每个参数服务器的内存上限，例 512Mi 或 4G；默认与训练实例相同",
    ),
    "help_require": (
        "labels that the machines must have, such as gpu=a100; several with commas",
        "机器须带的标签，例如 gpu=a100，多个用逗号分隔",
    ),
    "help_env": (
        "NAME=VALUE for the job's environment; may be repeated",
        "任务的环境变量 NAME=VALUE，可重复指定",
    ),
    "help_secret": (
        "NAME or NAME=VARIABLE: a secret of yours as the file $PADDLECLOUD_SECRETS/NAME, and as "
        "a variable; may be repeated (see paddlecloud secret set)",
        "NAME 或 NAME=变量名：将您的机密作为文件 $PADDLECLOUD_SECRETS/NAME 提供，"
        "并可同时作为环境变量，可重复指定（参见 paddlecloud secret set）",
    ),
    "help_description": (
        "a note stored with the job",
        "任务备注",
    ),
    "help_max_retries": (
        "how often to retry when the machine is lost or the program asks for it "
        "(--retry_exit_codes), 0 to 100",
        "机器丢失或程序要求重试（--retry_exit_codes）时的重试次数，0 至 100",
    ),
    "help_retry_exit_codes": (
        "exit codes that --max_retries retries, default 101,102; any: every failure that may "
        "be temporary",
        "可触发 --max_retries 重试的退出码，默认 101,102；any 表示所有可能恢复的失败",
    ),
    "help_hang_timeout": (
        "stop the job and save its stacks when no worker printed anything or used the CPU for "
        "this long, hh:mm:ss; default: never",
        "所有实例超过该时间没有输出也没有使用 CPU 时停止任务并保存调用栈，格式 hh:mm:ss，"
        "默认不检查",
    ),
    "help_priority": (
        "priority class: low, normal, high or urgent (or a number, -100 to 200); higher ones "
        "start first",
        "优先级：low、normal、high 或 urgent（或 -100 至 200 的整数），越高越先运行",
    ),
}
