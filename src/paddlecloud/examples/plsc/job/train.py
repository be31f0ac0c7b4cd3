"""Large-scale classification in the spirit of PLSC: images in zip files, a label file, a margin.

Reads   $LOCAL_MOUNT_PATH/data/train_data/*.zip and data/label.txt (made here if there are none)
Writes  $OUTPUT_PATH/<pass>/: the network (by rank 0), this trainer's classes, the optimizer's state
Runs alone or as one of several trainers; another run with the same OUTPUT_PATH goes on after the
newest pass that every trainer has completed.
"""
import argparse
import json
import os
import shutil
import time

import numpy as np
import paddle
import paddle.distributed as dist

from make_data import make
from margin_softmax import MarginSoftmax
from zip_reader import ZipReader

WIDTH = 64


def main():
    args = arguments()
    if int(os.getenv("PADDLE_TRAINERS_NUM", "1")) > 1:
        dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.batch % world:
        raise SystemExit("a batch of %d cannot be shared by %d trainers" % (args.batch, world))
    root = os.path.join(os.getenv("LOCAL_MOUNT_PATH", "."), "data")
    make(root)
    reader = ZipReader(root)
    shards = world if args.shard else 1
    print(
        "trainer %d of %d: %d images, %d classes, last layer in %d part%s"
        % (rank, world, len(reader.samples), reader.classes, shards, "s" * (shards > 1)),
        flush=True,
    )
    job = Job(reader.classes, rank, world, sharded=shards > 1, rate=args.lr)
    job.resume(os.getenv("OUTPUT_PATH", "output"))
    for pass_id in range(job.next_pass, args.passes):
        began = time.monotonic()
        loss, right = job.train(reader.batches(pass_id, args.batch, rank, world))
        job.save(pass_id, loss)
        print(
            "pass %d loss %.4f accuracy %.4f (%.1f s)"
            % (pass_id, loss, right, time.monotonic() - began),
            flush=True,
        )
    print("checksum %.5f" % checksum(job.network), flush=True)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="over all trainers together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--shard", type=int, default=1, help="0: every trainer has all classes")
    return parser.parse_args()


class Job:
    """The network, its last layer and the optimizers of one trainer."""

    def __init__(self, classes, rank, world, sharded, rate):
        paddle.seed(1)
        self.rank, self.world, self.sharded = rank, world, sharded
        # A sharded last layer has one loss over all samples; else each trainer has its own.
        self.losses = 1 if sharded else world
        self.network = backbone()
        place = (rank, world) if sharded else (0, 1)
        self.last = MarginSoftmax(WIDTH, classes, *place)
        every = [*self.network.parameters(), *self.last.parameters()]
        self.shared = self.network.parameters() if sharded else every
        self.optimizer = paddle.optimizer.Momentum(rate, momentum=0.9, parameters=every)
        self.next_pass = 0
        self.out = None

    def train(self, batches):
        """One pass; the mean loss and the share of images that were told right."""
        told = []
        for images, labels in batches:
            features = self.network(paddle.to_tensor(images))
            loss, right = self.last(features, paddle.to_tensor(labels))
            (loss / self.losses).backward()
            self.share_gradients()
            self.optimizer.step()
            self.optimizer.clear_grad()
            told.append((float(loss), float(right)))
        return np.mean(told, axis=0)

    def share_gradients(self):
        """Sum the gradients of what every trainer has a copy of.

        The weights of a shard belong to one trainer, and their gradient is complete there.
        """
        if self.world == 1:
            return
        for parameter in self.shared:
            dist.all_reduce(parameter.grad)

    def resume(self, out):
        self.out = out
        newest = newest_pass(out)
        if self.world > 1:
            agreed = paddle.to_tensor([newest], dtype="int64")
            dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
            newest = int(agreed[0])
        if newest < 0:
            return
        place = os.path.join(out, str(newest))
        if self.rank == 0:
            self.network.set_state_dict(paddle.load(os.path.join(place, "network.pdparams")))
        if self.rank == 0 or self.sharded:
            self.last.set_state_dict(paddle.load(os.path.join(place, self.classes_file())))
        if self.world > 1:
            for parameter in self.shared:
                dist.broadcast(parameter, src=0)
        self.optimizer.set_state_dict(paddle.load(os.path.join(place, "optimizer.pdopt")))
        self.next_pass = newest + 1
        print("going on after pass %d" % newest, flush=True)

    def save(self, pass_id, loss):
        """Fill a hidden directory, then rename it: a kill never leaves half a pass."""
        hidden, final = os.path.join(self.out, ".saving"), os.path.join(self.out, str(pass_id))
        shutil.rmtree(hidden, ignore_errors=True)
        os.makedirs(hidden)
        if self.rank == 0:
            paddle.save(self.network.state_dict(), os.path.join(hidden, "network.pdparams"))
        if self.rank == 0 or self.sharded:
            paddle.save(self.last.state_dict(), os.path.join(hidden, self.classes_file()))
        paddle.save(self.optimizer.state_dict(), os.path.join(hidden, "optimizer.pdopt"))
        with open(os.path.join(hidden, "state.json"), "w") as out:
            json.dump({"pass": pass_id, "loss": loss}, out)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(hidden, final)

    def classes_file(self):
        rank, world = (self.rank, self.world) if self.sharded else (0, 1)
        return "classes-%d-of-%d.pdparams" % (rank, world)


def backbone():
    """Small enough for one CPU; a real job has a ResNet here."""
    nn = paddle.nn
    return nn.Sequential(
        nn.Conv2D(1, 16, 3, stride=2, padding=1),
        nn.PReLU(16),
        nn.Conv2D(16, 32, 3, stride=2, padding=1),
        nn.PReLU(32),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, WIDTH),
    )


def newest_pass(root):
    """The last pass that is complete here; -1 for none."""
    names = os.listdir(root) if os.path.isdir(root) else []
    complete = [n for n in names if os.path.exists(os.path.join(root, n, "state.json"))]
    return max((int(name) for name in complete if name.isdigit()), default=-1)


def checksum(network):
    return float(sum(p.abs().sum() for p in network.parameters()))


if __name__ == "__main__":
    main()
