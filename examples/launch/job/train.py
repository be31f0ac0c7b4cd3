"""A regression over all processes that the launchers of all nodes started.

The launcher gives each process its own rank and the list of all of them; nothing here knows how
many nodes there are. All print the same checksum of the weights at the end.
Writes  $OUTPUT_PATH/model.pdparams (rank 0)
"""
import argparse
import os

import numpy as np
import paddle
import paddle.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()

    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    asked = int(os.getenv("EXPECT_TRAINERS", str(world)))
    # Nodes that do not find each other would each train alone, without an error.
    if world != asked:
        raise SystemExit("expected %d trainers, found %d" % (asked, world))
    print("process %d of %d is ready" % (rank, world), flush=True)

    paddle.seed(1)
    net = paddle.nn.Linear(13, 1)
    model = paddle.DataParallel(net) if world > 1 else net
    optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=net.parameters())
    rng = np.random.default_rng(100 + rank)
    weights = np.linspace(-2.0, 2.0, 13)
    for step in range(args.steps):
        x = rng.normal(size=(64, 13)).astype("float32")
        y = (x @ weights + 22.5).astype("float32").reshape(-1, 1)
        loss = paddle.nn.functional.mse_loss(model(paddle.to_tensor(x)), paddle.to_tensor(y))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 10 == 9:
            print("step %d loss %.4f" % (step, float(loss)), flush=True)

    print("checksum %.5f" % float(sum(p.abs().sum() for p in net.parameters())), flush=True)
    if rank == 0:
        out = os.getenv("OUTPUT_PATH", "output")
        paddle.save(net.state_dict(), os.path.join(out, "model.pdparams"))


if __name__ == "__main__":
    main()
