from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.db.engine.columns import (
    from_micros,
    json_reader,
    maybe_from_micros,
    maybe_json_reader,
    maybe_to_json,
    maybe_to_micros,
    to_json,
    to_micros,
)
from paddlecloud.model.jobs.job import ExitCause, ExitRecord, JobSpec, ReplicaGroup, Resources, Role


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis wants its bounds naive
def test_a_time_comes_back_to_the_microsecond(at: datetime) -> None:
    assert from_micros(to_micros(at)) == at


def test_the_time_zone_does_not_matter() -> None:
    shanghai = datetime(2020, 5, 17, 18, 16, 9, tzinfo=timezone(timedelta(hours=8)))
    assert from_micros(to_micros(shanghai)).isoformat() == "2020-05-17T10:16:09+00:00"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(TypeError):
        to_micros(datetime(2020, 5, 17))  # noqa: DTZ001 - the mistake this test is about


def test_nothing_stays_nothing() -> None:
    assert maybe_to_micros(None) is None
    assert maybe_from_micros(None) is None
    assert maybe_to_json(None) is None
    assert maybe_json_reader(JobSpec)(None) is None


def test_a_spec_comes_back_whole() -> None:
    spec = JobSpec(
        start_cmd="echo '训练' \"$X\"",
        groups=(
            ReplicaGroup(role=Role.PSERVER, count=2, resources=Resources(cpu=0.5)),
            ReplicaGroup(role=Role.TRAINER, count=3, resources=Resources(memory=1 << 40, gpu=8)),
        ),
        wall_time=timedelta(minutes=90, microseconds=1),
        env={"K": "V=1"},
        public_bcc=False,
    )
    assert json_reader(JobSpec)(to_json(spec)) == spec


def test_a_field_that_an_older_version_did_not_write_reads_as_its_default() -> None:
    record = json_reader(ExitRecord)('{"cause":"exit","exit_code":3,"unknown_to_us":1}')
    assert record == ExitRecord(cause=ExitCause.EXIT, exit_code=3)
