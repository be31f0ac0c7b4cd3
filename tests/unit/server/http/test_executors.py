"""Which threads tell soon that a store is silent."""

from __future__ import annotations

import asyncio

import pytest

from paddlecloud.server.http.executors import agents_of, in_bucket_thread
from paddlecloud.stores.deadline import is_prompt
from paddlecloud.testing import a_job

JOB = a_job(owner="someone")


@pytest.mark.parametrize(
    ("whose", "want"), [("", True), ("someone", True), (agents_of(JOB), False)]
)
def test_people_are_told_soon_and_agents_have_patience(whose: str, want: bool) -> None:
    assert asyncio.run(in_bucket_thread(is_prompt, whose=whose)) is want
