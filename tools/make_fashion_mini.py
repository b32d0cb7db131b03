"""Create the bundled fashion-mini archive from the full Fashion-MNIST.

    python tools/make_fashion_mini.py FOLDER_WITH_THE_FOUR_IDX_GZ_FILES

It holds the first 600 training and the first 100 test images of each of the ten classes, in the order
of the original files, so that the result does not depend on a random generator.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np

from flexfl.data.idx import read_idx

TRAIN_PER_CLASS, TEST_PER_CLASS, CLASSES = 600, 100, 10
TARGET = Path(__file__).parents[1] / "src/flexfl/data/fashion_mini/fashion_mini.npz"


def first_of_each_class(labels: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the first `count` samples of each class."""
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in range(CLASSES)]))


def main(folder: Path) -> None:
    arrays = {}
    for split, prefix, count in (("train", "train", TRAIN_PER_CLASS), ("test", "t10k", TEST_PER_CLASS)):
        images, labels = (
            read_idx(name, (folder / name).read_bytes())
            for name in (f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz")
        )
        chosen = first_of_each_class(labels, count)
        arrays[f"{split}_x"], arrays[f"{split}_y"] = images[chosen], labels[chosen]
    np.savez_compressed(TARGET, **arrays)
    content = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
    print(f"{TARGET.name}: {TARGET.stat().st_size / 1e6:.2f} MB, content sha256 {content}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
