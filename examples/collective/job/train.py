"""A small two-class classifier, data parallel over all trainers of the job.

Each trainer sees other data; after every step the gradients are averaged over all of them. All
print the same checksum of the weights at the end as a proof.
Writes  $OUTPUT_PATH/model.pdparams (rank 0)
"""
import argparse
import os

import numpy as np
import paddle
import paddle.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    asked = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if asked > 1:
        dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    # Trainers that do not find each other would each train alone, without an error.
    if world != asked:
        raise SystemExit("expected %d trainers, found %d" % (asked, world))
    print("trainer %d of %d is ready" % (rank, world), flush=True)

    paddle.seed(1)
    net = paddle.nn.Sequential(
        paddle.nn.Linear(32, 64), paddle.nn.Tanh(), paddle.nn.Linear(64, 2)
    )
    model = paddle.DataParallel(net) if world > 1 else net
    optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=net.parameters())
    rng = np.random.default_rng(100 + rank)
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            images, labels = batch(rng)
            loss = paddle.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        print("epoch %d loss %.4f" % (epoch, float(loss)), flush=True)

    print("checksum %.5f" % float(sum(p.abs().sum() for p in net.parameters())), flush=True)
    if rank == 0:
        out = os.getenv("OUTPUT_PATH", "output")
        paddle.save(net.state_dict(), os.path.join(out, "model.pdparams"))


def batch(rng):
    """Points of 32 numbers; the class says which half of them has the larger sum."""
    x = rng.normal(size=(64, 32)).astype("float32")
    y = (x[:, :16].sum(1) > x[:, 16:].sum(1)).astype("int64")
    return paddle.to_tensor(x), paddle.to_tensor(y)


if __name__ == "__main__":
    main()
