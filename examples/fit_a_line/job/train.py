"""Linear regression on synthetic housing data: one process, checkpoint and resume.

Reads   $LOCAL_MOUNT_PATH/data/train_data/part-*.csv
Writes  $OUTPUT_PATH/<epoch>/model.pdparams, model.pdopt, state.json
A second run with the same OUTPUT_PATH goes on after the newest complete epoch.
"""
import argparse
import glob
import json
import os
import resource
import shutil
import time


def since_exec():
    """Seconds since the kernel started this process (so imports are counted)."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as f:
        return float(f.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def load_rows(pattern, trainer_id, trainers):
    import numpy as np

    files = sorted(glob.glob(pattern))
    if not files:
        raise SystemExit("no training data at %s" % pattern)
    mine = [f for i, f in enumerate(files) if i % trainers == trainer_id]
    table = np.concatenate([np.loadtxt(f, delimiter=",", dtype="float32") for f in mine])
    return table[:, :13], table[:, 13:]


def newest_epoch(root):
    done = []
    if os.path.isdir(root):
        for name in os.listdir(root):
            if name.isdigit() and os.path.exists(os.path.join(root, name, "state.json")):
                done.append(int(name))
    return max(done) if done else None


def save(root, epoch, model, opt, loss):
    """Fill a temporary directory, then rename it: a kill never leaves half an epoch."""
    import paddle

    tmp, final = os.path.join(root, ".saving"), os.path.join(root, str(epoch))
    shutil.rmtree(tmp, ignore_errors=True)
    os.makedirs(tmp)
    paddle.save(model.state_dict(), os.path.join(tmp, "model.pdparams"))
    paddle.save(opt.state_dict(), os.path.join(tmp, "model.pdopt"))
    with open(os.path.join(tmp, "state.json"), "w") as f:
        json.dump({"epoch": epoch, "loss": loss}, f)
    shutil.rmtree(final, ignore_errors=True)
    os.rename(tmp, final)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.5)
    ap.add_argument("--epoch_sleep", type=float, default=0.0, help="slow down, for kill tests")
    args = ap.parse_args()

    mount = os.getenv("LOCAL_MOUNT_PATH", ".")
    out = os.getenv("OUTPUT_PATH", "output")
    trainer_id = int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))

    import paddle

    print("paddle %s imported at %.2fs" % (paddle.__version__, since_exec()), flush=True)
    paddle.seed(1)
    x, y = load_rows(os.path.join(mount, "data/train_data/part-*.csv"), trainer_id, trainers)
    model = paddle.nn.Linear(13, 1)
    opt = paddle.optimizer.Adam(learning_rate=args.lr, parameters=model.parameters())

    root = out
    start, last = 0, newest_epoch(root)
    if last is not None:
        src = os.path.join(root, str(last))
        model.set_state_dict(paddle.load(os.path.join(src, "model.pdparams")))
        opt.set_state_dict(paddle.load(os.path.join(src, "model.pdopt")))
        start = last + 1
        print("resumed after epoch %d" % last, flush=True)

    first = True
    for epoch in range(start, args.epochs):
        for i in range(0, len(x), args.batch):
            loss = paddle.nn.functional.mse_loss(
                model(paddle.to_tensor(x[i : i + args.batch])),
                paddle.to_tensor(y[i : i + args.batch]),
            )
            loss.backward()
            opt.step()
            opt.clear_grad()
            if first:
                print("first step at %.2fs" % since_exec(), flush=True)
                first = False
        save(root, epoch, model, opt, float(loss))
        print("epoch %d loss %.4f" % (epoch, float(loss)), flush=True)
        time.sleep(args.epoch_sleep)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print("done, peak memory %d MiB, %.2fs" % (rss, since_exec()), flush=True)


if __name__ == "__main__":
    main()
