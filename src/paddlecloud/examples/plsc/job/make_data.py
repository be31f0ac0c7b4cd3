"""Write synthetic faces: data/train_data/faces.zip with PGM images, and data/label.txt.

Each class is one smooth random pattern; its images are that pattern, shifted and with noise. Your
own data takes the same place: a zip of images of one size, and a line "name label" for each.
"""
import io
import os
import zipfile

import numpy as np


def make(root, classes=128, each=12, size=16, seed=7):
    """Fill `root` unless it is complete; the label file is written last."""
    labels = os.path.join(root, "label.txt")
    if os.path.exists(labels):
        return
    os.makedirs(os.path.join(root, "train_data"), exist_ok=True)
    rng = np.random.default_rng(seed)
    lines = []
    with zipfile.ZipFile(os.path.join(root, "train_data", "faces.zip"), "w") as archive:
        for label in range(classes):
            pattern = smooth(rng.normal(size=(size, size)))
            for number in range(each):
                name = "%05d/%03d.pgm" % (label, number)
                archive.writestr(name, pgm(another(pattern, rng)))
                lines.append("%s %d\n" % (name, label))
    with open(labels + ".new", "w") as out:
        out.writelines(lines)
    os.rename(labels + ".new", labels)
    print("made %d images of %d classes in %s" % (len(lines), classes, root), flush=True)


def smooth(noise):
    """Blur by averaging with the neighbours, and stretch to 0..1."""
    for axis in (0, 1, 0, 1):
        noise = noise + np.roll(noise, 1, axis) + np.roll(noise, -1, axis)
    return (noise - noise.min()) / (noise.max() - noise.min())


def another(pattern, rng):
    moved = np.roll(pattern, rng.integers(-1, 2, size=2), (0, 1))
    return np.clip(moved + rng.normal(scale=0.08, size=moved.shape), 0, 1)


def pgm(image):
    """The bytes of an 8-bit grey image in the simplest of the portable formats."""
    out = io.BytesIO()
    out.write(b"P5 %d %d 255\n" % image.shape[::-1])
    out.write((image * 255).astype("uint8").tobytes())
    return out.getvalue()
