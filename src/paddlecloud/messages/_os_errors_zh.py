"""Chinese translations of error texts of the operating system.

Keyed by the English text, because that is what an error contains, also one that was stored or came
from another machine. A text without a translation is shown as it is.
"""

from __future__ import annotations

SYSTEM_TEXTS: dict[str, str] = {
    # -- files --------------------------------------------------------------------------------
    "Bad file descriptor": "文件描述符无效",
    "Device or resource busy": "设备或资源忙",
    "Directory not empty": "目录不为空",
    "Disk quota exceeded": "超出磁盘配额",
    "File exists": "文件已存在",
    "File name too long": "文件名过长",
    "File too large": "文件过大",
    "Input/output error": "输入/输出错误",
    "Invalid argument": "参数无效",
    "Is a directory": "是目录",
    "No space left on device": "磁盘空间不足",
    "No such device or address": "设备或地址不存在",
    "No such file or directory": "文件或目录不存在",
    "Not a directory": "不是目录",
    "Operation not permitted": "不允许的操作",
    "Operation not supported": "不支持的操作",
    "Permission denied": "权限不足",
    "Read-only file system": "只读文件系统",
    "Stale file handle": "文件句柄已失效",
    "Text file busy": "文件正在被执行",
    "Too many levels of symbolic links": "符号链接层数过多",
    "Too many open files": "打开的文件过多",
    "Too many open files in system": "系统中打开的文件过多",
    # -- processes ----------------------------------------------------------------------------
    "Argument list too long": "参数列表过长",
    "Broken pipe": "管道已断开",
    "Cannot allocate memory": "内存不足",
    "Exec format error": "可执行文件格式错误",
    "Resource temporarily unavailable": "资源暂时不可用",
    # -- network ------------------------------------------------------------------------------
    "Address already in use": "地址已被占用",
    "Cannot assign requested address": "无法使用该地址",
    "Connection refused": "连接被拒绝",
    "Connection reset by peer": "连接被对方重置",
    "Connection timed out": "连接超时",
    "Name or service not known": "未知的主机名",
    "Network is unreachable": "网络不可达",
    "No address associated with hostname": "主机名没有对应的地址",
    "No route to host": "无法到达主机",
    "Temporary failure in name resolution": "域名解析暂时失败",
}
