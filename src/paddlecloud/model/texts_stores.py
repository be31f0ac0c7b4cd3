"""Sentences about object stores: the server's own, and a user's private one.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

STORE_TEXTS: dict[str, tuple[str, str]] = {
    # -- the store of a server ----------------------------------------------------------------
    "check_bucket": (
        "the bucket {place} answers and takes these keys",
        "存储桶 {place} 可以访问，密钥有效",
    ),
    "check_store_failed": (
        "the store failed: {reason}; check the section [store]",
        "存储出错：{reason}，请检查 [store] 一节的配置",
    ),
    "store_bucket_missing": (
        "there is no bucket {bucket} at {place}; make it, or correct its name",
        "{place} 上没有存储桶 {bucket}，请创建它或改正名称",
    ),
    "store_changed": (
        "{path} was replaced in the store while it was in use; try again",
        "{path} 在使用过程中被替换，请重试",
    ),
    "store_clock": (
        "the store {place} refuses the time of this machine ({detail}); set its clock",
        "存储 {place} 不接受本机的时间（{detail}），请校准时钟",
    ),
    "store_damaged": (
        "{path} was damaged on the way to the store {place} again and again; "
        "check the network, then try again",
        "{path} 在传往存储 {place} 的途中多次损坏，请检查网络后重试",
    ),
    "store_denied": (
        "the store {place} refuses these keys ({detail}); check the access key, the secret key and "
        "what they are allowed to do",
        "存储 {place} 拒绝了这对密钥（{detail}），请检查 access key、secret key 及其权限",
    ),
    "store_failed": (
        "the store {place} failed ({detail}); try again, and look at its log if it goes on",
        "存储 {place} 出错（{detail}），请重试；若仍然出错，请查看存储服务的日志",
    ),
    "store_path_long": (
        "{path} has a longer name than the {limit} bytes that an object store allows; shorten it",
        "{path} 的名称超过对象存储允许的 {limit} 字节，请缩短",
    ),
    "store_unreachable": (
        "the store {place} does not answer ({reason}); check its address and the network",
        "存储 {place} 没有应答（{reason}），请检查地址和网络",
    ),
    # -- uploads in parts ---------------------------------------------------------------------
    "upload_incomplete": (
        "the upload has {got} of {want} bytes; send part {missing}, then finish it",
        "上传只有 {got} 字节（应为 {want}），请补传第 {missing} 部分后再完成",
    ),
    "upload_missing": (
        "there is no upload {upload} for this file (any more); begin a new one",
        "该文件没有上传 {upload}（或已失效），请重新开始上传",
    ),
    "upload_part": (
        "part {number} with {size} bytes is none of this upload; parts are numbered from 1 and "
        "have at most {limit} bytes",
        "第 {number} 部分（{size} 字节）不属于该上传：编号从 1 开始，每部分最多 {limit} 字节",
    ),
    # -- private storage ----------------------------------------------------------------------
    "private_store_denied": (
        "bos_url={bos_url}: the keys in [bos] of client.conf are refused there ({detail}); check "
        "ak and sk, and that they may read and write this directory",
        "bos_url={bos_url}：client.conf 中 [bos] 的密钥被拒绝（{detail}），"
        "请检查 ak、sk 及其读写权限",
    ),
    "private_store_keys": (
        "bos_url={bos_url} needs your own keys: set ak and sk in the section [bos] of client.conf",
        "bos_url={bos_url} 需要您自己的密钥：请在 client.conf 的 [bos] 一节设置 ak 和 sk",
    ),
    "private_store_no_bucket": (
        "bos_url={bos_url}: there is no bucket {bucket} in region {region}; make it, or correct "
        "bos_url",
        "bos_url={bos_url}：区域 {region} 中没有存储桶 {bucket}，请创建它或改正 bos_url",
    ),
    "private_store_unreachable": (
        "bos_url={bos_url}: {host} does not answer ({reason}); check the region and the network",
        "bos_url={bos_url}：{host} 没有应答（{reason}），请检查区域和网络",
    ),
    "private_store_url": (
        "bos_url={bos_url} is not of the form BUCKET.REGION.bcebos.com/your/dir",
        "bos_url={bos_url} 的格式应为 BUCKET.REGION.bcebos.com/your/dir",
    ),
}
