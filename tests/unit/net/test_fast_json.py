"""The quick reader gives what `json` gives, and refuses what is not JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.net.fast_json import loads

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_it_reads_what_json_writes(value: object, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert loads(text) == value
    if ascii_only:
        assert loads(f" \n{text}\r\n\t".encode()) == value


@given(st.text(alphabet='{}[]",:0123456789.eE+-\\ntfalsrue NaI\x00\n'))
def test_it_refuses_what_json_refuses(text: str) -> None:
    try:
        want = json.loads(text, parse_constant=_refuse)
    except ValueError:
        with pytest.raises(ValueError):
            loads(text)
    else:
        assert loads(text) == want


def _refuse(name: str) -> float:
    raise ValueError(name)


@pytest.mark.parametrize("bad", [b"", b" ", b"{", b"\xff", b"{} x", b"NaN", b'"\n"', b"[1,]"])
def test_bad_text_is_a_value_error(bad: bytes) -> None:
    with pytest.raises(ValueError):
        loads(bad)


def test_bad_text_is_a_value_error_where_nobody_imported_json() -> None:
    program = (
        "import sys\n"
        "from paddlecloud.net.fast_json import loads\n"
        "for bad in ('', '{', '{\"url\": \"http', '[1,]', '{\"a\" 1}', 'NaN', '[' * 100000):\n"
        "    assert 'json' not in sys.modules\n"
        "    try:\n"
        "        loads(bad)\n"
        "    except ValueError:\n"
        "        sys.modules.pop('json', None)\n"
        "        sys.modules.pop('json.decoder', None)\n"
        "    else:\n"
        "        sys.exit(f'{bad!r} was read')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_python_without_the_c_part_reads_too() -> None:
    program = (
        "import sys; sys.modules['_json'] = None\n"
        "from paddlecloud.net.fast_json import loads\n"
        "assert loads(b' {\"a\": [1, 2.5, null]} ') == {'a': [1, 2.5, None]}\n"
        "assert 'json' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
