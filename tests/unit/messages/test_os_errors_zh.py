"""The words of the operating system: those of this one, and no English in a Chinese sentence."""

from __future__ import annotations

import errno
import os
import re
import sys

import pytest

from paddlecloud.messages import joined, render, words
from paddlecloud.messages._os_errors_zh import SYSTEM_TEXTS
from paddlecloud.messages.cli import say

COMMON = re.findall(
    r"\w+",
    """
EACCES EPERM ENOENT ENOTDIR EISDIR ENOSPC EROFS ELOOP ENAMETOOLONG EIO EMFILE ENFILE EDQUOT EBUSY
EEXIST ENOTEMPTY EFBIG EINVAL ESTALE ENXIO ETXTBSY EPIPE ENOMEM ENOEXEC E2BIG EAGAIN EBADF ENOTSUP
ECONNREFUSED ECONNRESET ETIMEDOUT EHOSTUNREACH ENETUNREACH EADDRINUSE EADDRNOTAVAIL
""",
)


@pytest.mark.skipif(sys.platform != "linux", reason="others say a few of them in other words")
@pytest.mark.parametrize("name", COMMON)
def test_what_this_system_says_is_known(name: str) -> None:
    said = os.strerror(getattr(errno, name))
    assert not SYSTEM_TEXTS[said].isascii()


def test_a_reason_of_the_system_is_told_in_the_language_of_the_sentence() -> None:
    values = {"path": "f", "reason": os.strerror(errno.EACCES)}
    assert "Permission denied" in render("files_unreadable", values, "en")
    assert "（权限不足）" in render("files_unreadable", values, "zh")
    assert "连接被拒绝" in say("server_awaited", "zh", reason="Connection refused")


def test_a_reason_that_nobody_knows_is_told_as_it_came() -> None:
    assert "（odd）" in render("files_unreadable", {"path": "f", "reason": "odd"}, "zh")
    assert "File exists" in render("files_unreadable", {"path": "File exists", "reason": ""}, "zh")


def test_words_within_words_are_of_one_language() -> None:
    rules = [joined(("a [", words("rule_default"), "]"), between=""), "b"]
    told = words("rules_more", paths=joined(rules), count=2)
    assert told == "a [default], b, ... (2 more rules)"
    assert render("files_skipped", {"paths": told}, "en").endswith(told)
    assert "a [默认], b……（未列出的规则：2 条）" in render("files_skipped", {"paths": told}, "zh")
