"""RecordIO under the loader of real PaddlePaddle: every sample once, whoever reads it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PROGRAM = """
import sys
import paddle
from paddlecloud.data import convert
from paddlecloud.data.paddle import RecordIODataset

samples = ([float(n)] * 4 for n in range(1000))
convert("data", samples, 3, "train", max_chunk_bytes=300, compressor="none")

def read(workers, **share):
    dataset = RecordIODataset("data/train-*", lambda r: paddlecloud_loads(r), **share)
    loader = paddle.io.DataLoader(dataset, batch_size=7, num_workers=workers)
    return [int(row[0]) for batch in loader for row in as_rows(batch)]

def paddlecloud_loads(record):
    import numpy, pickle
    return numpy.array(pickle.loads(record), dtype="float32")

def as_rows(batch):
    return (batch[0] if isinstance(batch, (list, tuple)) else batch).numpy().tolist()

for workers in (0, 2, 3):
    assert sorted(read(workers)) == list(range(1000)), workers
    parts = [read(workers, trainer_count=4, trainer_id=n) for n in range(4)]
    assert sorted(sum(parts, [])) == list(range(1000)), workers
    assert all(100 < len(part) < 400 for part in parts), [len(part) for part in parts]
model = paddle.nn.Linear(4, 1)
loader = paddle.io.DataLoader(RecordIODataset("data/train-*", paddlecloud_loads), batch_size=50)
for batch in loader:
    loss = model(batch[0] if isinstance(batch, (list, tuple)) else batch).mean()
    loss.backward()
print("trained", float(loss) == float(loss))
"""


def test_loader_workers_and_trainers_share_the_records(tmp_path: Path, modern: Path) -> None:
    source = Path(__file__).parents[2] / "src"
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [modern / "python", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "trained True"
