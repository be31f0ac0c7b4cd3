"""The package where it lives: alone in an image, under old scripts, on a network, in a process that
is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import paddlecloud.data
from paddlecloud.data import recordio
from paddlecloud.data.legacy2017 import download
from tests.unit.data.vectors import HELLO, V1, V5, chunk

OLD_SCRIPT = """
import sys
import cPickle as pickle
import recordio
import paddle.v2.dataset as dataset
import paddle.v2.dataset.common as common
import paddle.v2.reader.creator
import glob

def train():
    def reader():
        for n in range(20):
            yield ([float(n)], n)
    return reader

dataset.convert(output_path = "./dataset",
                reader = train(),
                num_shards = 10,
                name_prefix = "uci_housing_train")
common.split(reader=train(), line_count=5, suffix="./train-%05d.pickle")

def recordio_reader(filepath, parallelism, trainer_id):
    def reader():
        if trainer_id >= parallelism:
            sys.stdout.write("invalied trainer_id: %d\\n" % trainer_id)
            return
        files = glob.glob(filepath)
        files.sort()
        my_file_list = []
        for idx, f in enumerate(files):
            if idx % parallelism == trainer_id:
                my_file_list.append(f)
        for fn in my_file_list:
            r = recordio.reader(fn)
            while True:
                d = r.read()
                if not d:
                    break
                yield pickle.loads(d)
    return reader

both = [list(recordio_reader("./dataset/uci_housing_train*", 2, n)()) for n in range(2)]
assert sorted(n for part in both for _, n in part) == list(range(20)), both
mine = common.cluster_files_reader("./train-*.pickle", trainer_count=2, train_id=1)
assert [n for _, n in mine()] == [5, 6, 7, 8, 9, 15, 16, 17, 18, 19]
again = paddle.v2.reader.creator.recordio(["./dataset/*"])
assert sorted(n for _, n in again()) == list(range(20))
print(sys.argv[1], common.DATA_HOME)
"""


def test_a_script_of_2017_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OLD_SCRIPT)
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::ResourceWarning",
            "-m",
            "paddlecloud.data.compat",
            "train.py",
            "arg",
        ],
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == f"arg {tmp_path}/.cache/paddle/dataset"
    assert lines[0] == "append file: ./train-00001.pickle"
    names = sorted(path.name for path in (tmp_path / "dataset").iterdir())
    assert names[0] == "uci_housing_train-00000-of-00009"
    assert len(names) == 10


HOUSING_SCRIPT = """
import paddle.v2 as paddle
import paddle.v2.dataset as dataset
dataset.common.DATA_HOME = "home"
dataset.convert(output_path = "./dataset",
                reader = dataset.uci_housing.train(),
                num_shards = 10,
                name_prefix = "uci_housing_train")
samples = list(paddle.reader.creator.recordio("dataset/*")())
tests = list(paddle.dataset.uci_housing.test()())
assert (len(samples), len(tests)) == (404, 102), (len(samples), len(tests))
features, price = tests[-1]
assert len(features) == 13 and price == [505 * 14 + 13.0]
assert features == [(505 - 252.5) / 505] * 13
try:
    paddle.trainer
except AttributeError as error:
    print(error)
"""


def test_the_example_of_the_documents_runs(tmp_path: Path) -> None:
    """With the data set in its place, as on a cluster without a way out."""
    path = tmp_path / "home" / "uci_housing" / "housing.data"
    path.parent.mkdir(parents=True)
    rows = (range(14 * n, 14 * n + 14) for n in range(506))
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    wanted = download.md5file(str(path))
    (tmp_path / "train.py").write_text(
        f"import paddlecloud.data.legacy2017.uci_housing as housing\nhousing.MD5 = {wanted!r}\n"
        + HOUSING_SCRIPT
    )
    done = subprocess.run(
        [sys.executable, "-m", "paddlecloud.data.compat", "train.py"],
        cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "module 'paddle.v2' has no attribute 'trainer'\n"
    names = sorted(path.name for path in (tmp_path / "dataset").iterdir())
    assert names[-1] == "uci_housing_train-00009-of-00009"


@pytest.mark.parametrize("words", [[], ["--help"], ["missing.py"]])
def test_compat_tells_how_it_is_called(tmp_path: Path, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paddlecloud.data.compat", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_real_paddle_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text("real = True\n")
    program = (
        "from paddlecloud.data import install_compat\n"
        "install_compat(); install_compat()\n"
        "import paddle.v2.dataset.common\n"
        "assert paddle.real and paddle.v2.dataset.common.split\n"
    )
    environ = {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=60)


def test_the_package_stands_alone(tmp_path: Path) -> None:
    """Only its own directory and an interpreter without anything installed; no snappy then."""
    source = Path(paddlecloud.data.__file__).parent
    shutil.copytree(source, tmp_path / "paddlecloud" / "data")
    program = (
        "import io, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from paddlecloud.data import recordio, convert, samples, install_compat\n"
        "convert('out', range(9), 2, 'a', compressor='none')\n"
        "assert sorted(samples('out/*')) == list(range(9))\n"
        "assert not [m for m in sys.modules if m.startswith('paddlecloud.') and '.data' not in m]\n"
        "try:\n"
        "    list(recordio.Reader(io.BytesIO(bytes.fromhex(sys.argv[1]))))\n"
        "except ImportError as error:\n"
        "    assert 'pip install cramjam' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('no cramjam was expected here')\n"
    )
    bare = [sys.executable, "-I", "-S", "-c", program, V1.hex()]
    subprocess.run(bare, cwd=tmp_path, check=True, timeout=60)


WRITE_AND_DIE = """
import os, sys
from paddlecloud.data import recordio
w = recordio.Writer(sys.argv[1], in_place=sys.argv[2] == "in_place", max_chunk_bytes=100)
for n in range(1000):
    w.write(b"%09d" % n)
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["in_place", "safe"])
def test_a_writer_that_is_killed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_DIE, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    process.stdin.close()
    if how == "safe":
        assert not path.exists()
        return
    with recordio.Writer(path, append=True) as writer:
        writer.write(b"after")
    found = list(recordio.Reader(path))
    assert found == [b"%09d" % n for n in range(len(found) - 1)] + [b"after"]
    assert len(found) > 900


class _Files(BaseHTTPRequestHandler):
    """Serves bytes by path, with ranges or without."""

    files: dict[str, bytes]
    ranges = True
    asked: list[str]

    def do_GET(self) -> None:
        data = self.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        self.asked.append(wanted or "all")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        self.send_response(206 if start else 200)
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[_Files]]]:
    handler = type("Files", (_Files,), {"files": {}, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", handler
        http.shutdown()
        thread.join()


@pytest.mark.parametrize("ranges", [True, False])
def test_files_are_read_over_http(server: tuple[str, type[_Files]], ranges: bool) -> None:
    url, handler = server
    handler.ranges = ranges
    many = [chunk([bytes([n]) * 3000]) for n in range(40)]
    handler.files = {"/a?x=1,2": V5, "/b": b"".join(many[:20]) + b"junk" + b"".join(many[20:])}
    assert list(recordio.Reader(f"{url}/a?x=1,2")) == [*HELLO, b"x"]
    want = [bytes([n]) * 3000 for n in range(40)]
    assert list(recordio.Reader(f"{url}/b", errors="skip")) == want
    if ranges:
        handler.asked.clear()
        half = recordio.Reader(f"{url}/b", part=(1, 2), errors="skip")
        assert list(half) == want[20:]
        assert len(recordio.Index.of(f"{url}/a?x=1,2")) == 3
    with pytest.raises(OSError, match="404"):
        recordio.Reader(f"{url}/c")


def test_a_data_set_is_fetched_once(
    server: tuple[str, type[_Files]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    handler.files = {"/d.bin": b"data"}
    monkeypatch.setattr(download, "data_home", lambda: str(tmp_path))
    md5 = "8d777f385d3dfec8815d20f7496026dc"
    for _ in range(2):
        path = download.download(f"{url}/d.bin", "uci", md5)
    assert (Path(path).read_bytes(), download.md5file(path)) == (b"data", md5)
    assert handler.asked == ["all"]
    with pytest.raises(RuntimeError, match="3 times"):
        download.download(f"{url}/d.bin", "uci", "0" * 32)
