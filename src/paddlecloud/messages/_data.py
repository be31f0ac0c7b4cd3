"""Messages about `paddlecloud data`."""

from __future__ import annotations

DATA_TEXTS: dict[str, tuple[str, str]] = {
    "data_no_file": (
        "{command} needs at least one file: paddlecloud {command} FILE",
        "{command} 至少需要一个文件：paddlecloud {command} FILE",
    ),
    "data_missing": (
        "no file matches {pattern}; give the path of a RecordIO file",
        "没有与 {pattern} 匹配的文件，请给出 RecordIO 文件的路径",
    ),
    "data_missing_lines": (
        "no file matches {pattern}; give the path of a text file",
        "没有与 {pattern} 匹配的文件，请给出文本文件的路径",
    ),
    "data_unusable": (
        "cannot use {path}: {why}",
        "无法使用 {path}：{why}",
    ),
    "data_damaged": (
        "{damage}; `paddlecloud data repair` keeps the intact records",
        "{damage}；可用 paddlecloud data repair 保留完好的部分",
    ),
    "data_needs_flag": (
        "{command} needs {flag}; see paddlecloud {command} --help",
        "{command} 需要 {flag}，详见 paddlecloud {command} --help",
    ),
    "data_needs_one": (
        "{command} needs exactly one of {first} and {second}",
        "{command} 需要 {first} 和 {second} 中的一个",
    ),
    "data_none": (
        "{flag}=0 would write nothing; use a whole number from 1",
        "{flag}=0 不会写出任何内容，请给出不小于 1 的整数",
    ),
    "data_suffix": (
        "--suffix={suffix} has no placeholder for the file number, such as %05d",
        "--suffix={suffix} 中没有文件编号的位置，例如 %05d",
    ),
    "data_one_output": (
        "--output takes one file, but {count} files are to be repaired",
        "--output 只能用于一个文件，而这里有 {count} 个文件需要修复",
    ),
    "data_needs_package": (
        "a required package is not installed: {why}",
        "此操作需要尚未安装的软件包：{why}",
    ),
}
