"""Parameter-server training of a linear regression: static graph, CPU, asynchronous.

The same script runs in every process; TRAINING_ROLE decides what it does. Trainer r sees only the
features i with i % trainers == r, so a small loss over all features at the end shows that the
trainers share one model.
Writes  model/000/part-* in the $OUTPUT_PATH of each server: its part of the parameters
"""
import argparse
import os
import tempfile

import numpy as np
import paddle
from paddle.distributed import fleet

FEATURES = 13
WEIGHTS = np.linspace(-2.0, 2.0, FEATURES)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10000, help="samples in each shard")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    if not hasattr(paddle.base.core, "DistFleetWrapper"):
        raise SystemExit(
            "PaddlePaddle %s has no parameter server: install paddlepaddle==2.6.2 on Python 3.10, "
            "or train without servers: --distribute_job_type=NCCL2" % paddle.__version__
        )
    paddle.enable_static()
    fleet.init(is_collective=False)
    network = build(args.lr)
    if fleet.is_server():
        serve()
    else:
        train(network, args)


def build(rate):
    """The inputs, the loss, and a copy of the program that only looks."""
    x = paddle.static.data("x", [None, FEATURES], "float32")
    y = paddle.static.data("y", [None, 1], "float32")
    guess = paddle.static.nn.fc(x, 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(guess, y))
    look = paddle.static.default_main_program().clone(for_test=True)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(learning_rate=rate), strategy)
    optimizer.minimize(loss)
    return x, y, loss, look


def serve():
    # A server writes where the trainers tell it to; "model" then lies in its own OUTPUT_PATH.
    os.chdir(os.environ["OUTPUT_PATH"])
    fleet.init_server()
    print("serving", flush=True)
    fleet.run_server()  # returns never: the platform ends it when the trainers are done


def train(network, args):
    x, y, loss, look = network
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    rank, trainers = fleet.worker_index(), fleet.worker_num()
    print("trainer %d of %d is ready" % (rank, trainers), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, "part-%05d" % shard) for shard in range(args.shards)]
        for shard, path in enumerate(paths):
            write_slots(path, args.rows, rank, trainers, seed=1000 * shard + rank)
        data = paddle.distributed.QueueDataset()
        data.init(batch_size=32, thread_num=1, use_var=[x, y], pipe_command="cat")
        data.set_filelist(paths)
        fleet.barrier_worker()
        # All files in one pass. Parameters travel only in here: a loop over exe.run pulls them
        # once and never learns. A second call in the same process crashes PaddlePaddle 2.6.2.
        exe.train_from_dataset(paddle.static.default_main_program(), data, debug=False)
    fleet.barrier_worker()

    xs = np.random.default_rng(9).normal(size=(256, FEATURES)).astype("float32")
    ys = (xs @ WEIGHTS + 22.5).astype("float32").reshape(-1, 1)
    (value,) = exe.run(look, feed={"x": xs, "y": ys}, fetch_list=[loss.name])
    print("loss over all features %.4f" % float(np.mean(value)), flush=True)
    # Every trainer has to call this: there is a barrier in it.
    fleet.save_persistables(exe, "model")
    fleet.stop_worker()


def write_slots(path, rows, rank, trainers, seed):
    """MultiSlot text: for each variable the count of its values, then the values."""
    rng = np.random.default_rng(seed)
    mask = np.arange(FEATURES) % trainers == rank
    with open(path, "w") as out:
        for _ in range(rows):
            x = rng.normal(size=FEATURES) * mask
            values = " ".join("%.5f" % value for value in x)
            out.write("%d %s 1 %.5f\n" % (FEATURES, values, x @ WEIGHTS + 22.5))


if __name__ == "__main__":
    main()
