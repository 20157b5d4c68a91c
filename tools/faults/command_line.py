"""Misuse of the command line, and its memory."""

import os
import struct
import zlib

from harness import corpus, expect, peak_of_children, remove

PREDICT = ["predict", "good.png", "--classes", "cat,dog"]
# Arguments that must be refused, and words of the refusal.
REFUSED = [
    ("predict absent.jpg --classes cat,dog", "absent.jpg"),
    ("predict empty-folder --classes cat,dog", "empty-folder"),
    ("predict good.png --classes-file empty-folder", "empty-folder"),
    ("predict good.png --model absent --classes cat,dog", "absent"),
    ("predict good.png --model empty-folder --classes cat,dog", "empty-folder"),
    ("predict good.png --model good.png --classes cat,dog", "good.png"),
    ("predict good.png --prompt good.png --classes cat,dog", "good.png"),
    ("predict good.png --classes cat,dog --views 9223372036854775807", "views"),
    ("predict good.png --classes cat,dog --views 0", "views"),
    ("predict good.png --classes cat,dog --threads 5000", "threads"),
    ("predict good.png --classes cat,dog --method stsss", "stss"),
    ("predict good.png --classes cat,dog --method stss --set radius=-1", "radius"),
    ("predict good.png --classes cat,dog --method stss --set bank=9223372036854775807", "bank"),
    ("eval --data folder:absent --out run", "absent"),
    ("eval --data csv:empty.csv --out run", "empty.csv"),
    ("eval --data wds:empty.tar --out run", "empty.tar"),
    ("eval --data nonsense:x --out run", "nonsense"),
    ("eval --data pocket:sketch --limit 0 --out run", "limit"),
    ("eval --data pocket:sketch --limit 2 --method zero-shot --out good.png", "good.png"),
    ("eval --data pocket:sketch --shard 3/2 --out run", "shard"),
    ("tune --method coop --data folder:absent --shots 1 --out run", "absent"),
    ("tune --method coop --data pocket:photo --shots 0 --out run", "shots"),
    ("landscape --data pocket:photo --points 9223372036854775807 --out run", "points"),
    ("report empty-folder", "empty-folder"),
    ("convert good.png out.safetensors", "good.png"),
    ("embed absent.jpg --out features.npy", "absent.jpg"),
    ("nonsense", "nonsense"),
]
NAMES = [b"not-utf-8-\xff\xfe.png", b"escape\x1b[31m.png", b"line\nfeed.png", b"with space.png", b"-dash.png"]


def misuse(trial):
    """B12."""
    folder, image = trial.folder, corpus("png")[0][1]
    (folder / "empty-folder").mkdir()
    for name, content in (("empty.csv", b""), ("empty.tar", b""), ("good.png", image)):
        (folder / name).write_bytes(content)

    def refused(arguments, words):
        ended = trial.program.refuses(arguments.split(), words)
        expect(ended.seconds < 20, f"took {ended.seconds:.0f} s")
        expect(not (folder / "run/summary.json").exists(), "a summary was written")
        remove(folder / "run")

    def named(name, json):
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:
            file.write(image)
        ended = trial.program.works([b"predict", b"./" + name, b"--classes", b"cat,dog", *([b"--json"] if json else [])])
        expect(b"\x1b" not in ended.stdout or b"\x1b" not in name, "an escape of a name reached the terminal")

    for arguments, words in trial.some(REFUSED):
        trial.case(arguments, lambda arguments=arguments, words=words: refused(arguments, words))
    for name in trial.some(NAMES):
        for json in (False, True):
            trial.case(f"an image called {name!r}, json {json}", lambda name=name, json=json: named(name, json))


def gif(side):
    return struct.pack("<6sHH", b"GIF89a", side, side) + b"\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;"


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = bytes(place // 997 % 256 for place in range(3 * width + 1))
    rows = b"".join(b"\0" + bytes([number % 251]) + row[2:] for number in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def memory(trial):
    """B12-memory: flat in the number of images, and not as large as a file says it is."""
    program, folder = trial.program, trial.folder
    room = 24 << 20  # what a second image may add to the first: buffers of the allocator
    photos, photo = folder / "photos", png(4000, 3000)
    photos.mkdir()
    (folder / "small.gif").write_bytes(gif(10))
    program.works(["predict", "small.gif", "--classes", "cat,dog"])
    least, peaks = peak_of_children(), []

    def many(count):
        for number in range(count):
            (photos / f"{number:04}.png").write_bytes(photo)
        ended = program.works(["predict", "photos", "--classes", "cat,dog", "--format", "csv"], patience=300)
        expect(ended.stdout.count(b"\n") > count, "a line is missing")
        peaks.append(peak_of_children())
        expect(peaks[-1] < peaks[0] + room, f"peaks of {peaks} bytes")

    for count in (1, max(4, trial.count(30))):
        trial.case(f"{count} photos of 12 megapixels", lambda count=count: many(count))
    before = peak_of_children()

    def refused(name, start, size, words):
        (folder / name).write_bytes(start)
        os.truncate(folder / name, size)
        program.refuses(["predict", name, "--classes", "cat,dog"], words)
        expect(peak_of_children() < before + room, f"{peak_of_children() >> 20} MB")

    for name, start in (("nothing.jpg", b""), ("header.jpg", b"\xff\xd8\xff\xe0"), ("png.png", b"\x89PNG\r\n\x1a\n")):
        trial.case(f"a sparse file of 3 GB, {name}", lambda name=name, start=start: refused(name, start, 3 << 30, "bytes"))
    trial.case("a file of 200 MB that is no image", lambda: refused("zeros.jpg", b"", 200 << 20, "not a JPEG"))
    side = 9459  # the square below 89 478 485 pixels

    def largest():
        (folder / "largest.gif").write_bytes(gif(side))
        program.works(["predict", "largest.gif", "--classes", "cat,dog", "--method", "zero"])
        allowed = least + 3 * side * side + (64 << 20)
        expect(peak_of_children() < allowed, f"{peak_of_children() >> 20} MB, allowed {allowed >> 20} MB")

    trial.case("the largest image, 35 bytes", largest)
    trial.notes |= {"peak MB with 10 x 10 pixels": least >> 20, "peak MB with 89 million pixels": peak_of_children() >> 20}
    trial.notes |= {"peak MB with one photo": peaks[0] >> 20, "peak MB with all photos": peaks[-1] >> 20}
