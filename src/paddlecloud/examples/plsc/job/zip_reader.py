"""Read training images out of zip archives, in batches, without unpacking them to the disk.

The label file has a line "name label" for each image. All trainers go through the same shuffled
list; of every batch each trainer reads its own part, so that together they see each image once a
pass.
"""
import glob
import os
import zipfile

import numpy as np


class ZipReader:
    def __init__(self, root):
        found = sorted(glob.glob(os.path.join(root, "train_data", "*.zip")))
        if not found:
            raise SystemExit("no zip file in %s" % os.path.join(root, "train_data"))
        self.archives = [zipfile.ZipFile(path) for path in found]
        self.where = {name: archive for archive in self.archives for name in archive.namelist()}
        self.samples = read_labels(os.path.join(root, "label.txt"))
        missing = [name for name, _ in self.samples if name not in self.where]
        if missing:
            raise SystemExit("%s is in label.txt but in no zip file" % missing[0])
        self.classes = 1 + max(label for _, label in self.samples)

    def batches(self, pass_id, batch, rank=0, world=1):
        """Pairs of images [n, 1, height, width] and labels [n]; the rest of a pass is left out."""
        order = np.random.default_rng(pass_id).permutation(len(self.samples))
        own = batch // world
        for begin in range(0, len(order) - batch + 1, batch):
            mine = order[begin + rank * own : begin + (rank + 1) * own]
            names, labels = zip(*(self.samples[i] for i in mine))
            images = np.stack([self.image(name) for name in names])
            yield images[:, None], np.array(labels, dtype="int64")

    def image(self, name):
        """One image as floats from -1 to 1."""
        header, pixels = self.where[name].read(name).split(b"\n", 1)
        width, height = (int(word) for word in header.split()[1:3])
        grey = np.frombuffer(pixels, dtype="uint8").reshape(height, width)
        return grey.astype("float32") / 127.5 - 1


def read_labels(path):
    with open(path) as lines:
        return [(name, int(label)) for name, label in (line.split() for line in lines)]
