"""`paddle.v2.dataset.uci_housing`, which the documents of 2017 take for their example.

The file is fetched once into `DATA_HOME`, and taken from there if it lies there. Samples are lists
of floats and no arrays: nothing has to be installed for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from paddlecloud.data.legacy2017.download import download

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
feature_names = [
    "CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT",
]  # fmt: skip

Sample = tuple[list[float], list[float]]
Creator = Callable[[], Iterator[Sample]]


def train() -> Creator:
    """Features and price of the first four fifths of the rows."""
    rows = _rows(download(URL, "uci_housing", MD5))
    return _creator(rows[: len(rows) * 4 // 5])


def test() -> Creator:
    """The same of the last fifth."""
    rows = _rows(download(URL, "uci_housing", MD5))
    return _creator(rows[len(rows) * 4 // 5 :])


def _creator(rows: list[list[float]]) -> Creator:
    return lambda: ((row[:-1], row[-1:]) for row in rows)


def _rows(path: str) -> list[list[float]]:
    """Rows with each feature moved by its mean and divided by its range."""
    width = len(feature_names) + 1
    numbers = [float(word) for word in Path(path).read_text().split()]
    columns = [numbers[place::width] for place in range(width)]
    scaled = []
    for column in columns[:-1]:
        mean, extent = sum(column) / len(column), max(column) - min(column)
        scaled.append([(value - mean) / extent for value in column])
    return [list(row) for row in zip(*scaled, columns[-1], strict=True)]
