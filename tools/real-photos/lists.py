"""Lists the images of the protocol as CSV files (path,label) in this folder, which holds the files of both repositories."""

import csv
import pathlib

PHOTOS, STIMULI = pathlib.Path("ILSVRC2012_img_val_subset"), pathlib.Path("stimuli")


def write(name, rows):
    with open(f"{name}.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("path", "label"), *rows])
    print(f"{name}.csv: {len(rows)} images")


def photos(first):
    """The second photo in file order of every second class."""
    return [(sorted((PHOTOS / str(k)).iterdir())[1].as_posix(), k) for k in range(first, 1000, 2)]


def stimuli(folder, step=1):
    """Every `step`-th image in sorted order; the label is the folder, the category of the shape."""
    return [(path.as_posix(), path.parent.name) for path in sorted((STIMULI / folder).glob("*/*.png"))[::step]]


write("photos-choose", photos(0))
write("photos-test", photos(1))
write("cue-conflict", stimuli("style-transfer-preprocessed-512", 4))
write("edges", stimuli("edges"))
write("silhouettes", stimuli("filled-silhouettes"))
