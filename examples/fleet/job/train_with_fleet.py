"""Train with fleet: the job of the documents for public clouds, written for PaddlePaddle 3.

The four differences to a program for one process are marked, as they were in the original. The
network, the data and the steps are the original's; `paddle.fluid` and its static program are gone.
Writes  $OUTPUT_PATH/model.pdparams (rank 0)
"""
import argparse
import os

import numpy as np
import paddle

# Difference 1: import the library for distributed training.
import paddle.distributed as dist
from paddle.distributed import fleet


class Mlp(paddle.nn.Layer):
    def __init__(self, width=1280, classes=2):
        super().__init__()
        self.layers = paddle.nn.Sequential(
            paddle.nn.Linear(32, width),
            paddle.nn.Tanh(),
            paddle.nn.Linear(width, width),
            paddle.nn.Tanh(),
            paddle.nn.Linear(width, classes),
        )

    def forward(self, x):
        return self.layers(x)


def make_data(rng):
    x = rng.random(size=(128, 32)).astype("float32")
    y = rng.integers(2, size=128)
    return paddle.to_tensor(x), paddle.to_tensor(y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    # Difference 2: a strategy, and fleet finds the other processes by the environment.
    fleet.init(is_collective=True, strategy=fleet.DistributedStrategy())
    rank, world = dist.get_rank(), dist.get_world_size()
    nodes = int(os.getenv("EXPECT_NODES", "1"))
    if world < nodes:
        raise SystemExit("expected processes of %d nodes, found %d" % (nodes, world))
    print("worker %d of %d" % (rank, world), flush=True)

    paddle.seed(1)
    net = Mlp()
    model = net
    optimizer = paddle.optimizer.SGD(learning_rate=0.01, parameters=net.parameters())
    # Difference 3: fleet wraps the optimizer and the network. A single process stays as it is:
    # PaddlePaddle 3.3 would take its network for a pipeline.
    if world > 1:
        optimizer = fleet.distributed_optimizer(optimizer)
        model = fleet.distributed_model(net)

    rng = np.random.default_rng(rank)
    for step in range(args.steps):
        x, y = make_data(rng)
        cost = paddle.nn.functional.cross_entropy(model(x), y)
        cost.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 10 == 9:
            print("step %d cost %.4f" % (step, float(cost)), flush=True)

    print("checksum %.5f" % checksum(net), flush=True)
    # Difference 4: one process saves for all.
    if rank == 0:
        out = os.getenv("OUTPUT_PATH", "output")
        paddle.save(net.state_dict(), os.path.join(out, "model.pdparams"))


def checksum(net):
    """In double precision: a sum of a million small numbers would hide a difference else."""
    return sum(np.abs(p.numpy()).sum(dtype="float64") for p in net.parameters())


if __name__ == "__main__":
    main()
