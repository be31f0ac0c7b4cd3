"""Fit y = w * x + b by gradient descent, with the standard library alone.

Reads   $LOCAL_MOUNT_PATH/data/points.csv
Writes  $OUTPUT_PATH/<epoch>/model.json, and $OUTPUT_PATH/model.json at the end
A second run with the same OUTPUT_PATH goes on after the newest epoch.
"""

import csv
import json
import os
import pathlib
import time

EPOCHS = 10
RATE = 0.1


def main():
    mount = pathlib.Path(os.environ.get("LOCAL_MOUNT_PATH", "."))
    output = pathlib.Path(os.environ.get("OUTPUT_PATH", "output"))
    points = read_points(mount / "data" / "points.csv")
    first, weight, bias = newest(output)
    for epoch in range(first, EPOCHS):
        for _ in range(20):
            weight, bias = step(points, weight, bias)
        save(output / str(epoch), weight, bias)
        print(f"epoch {epoch} loss {loss(points, weight, bias):.6f}", flush=True)
        time.sleep(float(os.environ.get("EPOCH_SECONDS", "0.1")))
    save(output, weight, bias)
    print(f"y = {weight:.2f} x + {bias:.2f}")


def read_points(path):
    with open(path, newline="") as file:
        return [(float(x), float(y)) for x, y in csv.reader(file)]


def newest(output):
    """The epoch to go on with and its weights."""
    done = sorted(int(found.name) for found in output.glob("[0-9]*") if found.is_dir())
    if not done:
        return 0, 0.0, 0.0
    model = json.loads((output / str(done[-1]) / "model.json").read_text())
    print(f"resumed after epoch {done[-1]}")
    return done[-1] + 1, model["weight"], model["bias"]


def step(points, weight, bias):
    slope = sum(2 * (weight * x + bias - y) * x for x, y in points) / len(points)
    drift = sum(2 * (weight * x + bias - y) for x, y in points) / len(points)
    return weight - RATE * slope, bias - RATE * drift


def loss(points, weight, bias):
    return sum((weight * x + bias - y) ** 2 for x, y in points) / len(points)


def save(directory, weight, bias):
    """Fill a temporary file, then rename it: a kill never leaves half a model."""
    directory.mkdir(parents=True, exist_ok=True)
    scratch = directory / "model.json.new"
    scratch.write_text(json.dumps({"weight": weight, "bias": bias}) + "\n")
    scratch.rename(directory / "model.json")


if __name__ == "__main__":
    main()
