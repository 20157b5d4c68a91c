"""Makes the files of corpus/: well-formed ones in every layout that the readers know, and attacks.

    python make_corpus.py            (torch 2.x, safetensors, Pillow)

Small on purpose: the fault tests damage them some ten thousand times. Files below corpus/*-attacks must be refused;
those below corpus/formats carry Pillow's own pixels beside them.
"""
import base64
import gzip
import io
import json
import pathlib
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

here = pathlib.Path(__file__).resolve().parent / "corpus"


def put(path, data):
    path = here / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def model(dtype=torch.float16):
    """A CLIP of one layer and 64 channels, in OpenAI's names."""
    draw = torch.Generator().manual_seed(0)

    def t(*shape):
        return (torch.randn(*shape, generator=draw) * 0.05).to(dtype)

    def block(prefix, width, mlp):
        return {
            f"{prefix}.attn.in_proj_weight": t(3 * width, width), f"{prefix}.attn.in_proj_bias": t(3 * width),
            f"{prefix}.attn.out_proj.weight": t(width, width), f"{prefix}.attn.out_proj.bias": t(width),
            f"{prefix}.ln_1.weight": t(width), f"{prefix}.ln_1.bias": t(width),
            f"{prefix}.ln_2.weight": t(width), f"{prefix}.ln_2.bias": t(width),
            f"{prefix}.mlp.c_fc.weight": t(mlp, width), f"{prefix}.mlp.c_fc.bias": t(mlp),
            f"{prefix}.mlp.c_proj.weight": t(width, mlp), f"{prefix}.mlp.c_proj.bias": t(width),
        }

    state = {
        "visual.class_embedding": t(64), "visual.positional_embedding": t(2, 64), "visual.proj": t(64, 16),
        "visual.conv1.weight": t(64, 3, 4, 4), "visual.ln_pre.weight": t(64), "visual.ln_pre.bias": t(64),
        "visual.ln_post.weight": t(64), "visual.ln_post.bias": t(64), "token_embedding.weight": t(8, 64),
        "positional_embedding": t(4, 64), "ln_final.weight": t(64), "ln_final.bias": t(64), "text_projection": t(64, 16),
        "logit_scale": torch.tensor(2.5, dtype=dtype),
    }
    state |= block("visual.transformer.resblocks.0", 64, 16) | block("transformer.resblocks.0", 64, 16)
    return state


def weights():
    state = model()
    (here / "safetensors").mkdir(parents=True, exist_ok=True)
    save_file(state, here / "safetensors/small.safetensors", metadata={"format": "pt"})
    (here / "torch").mkdir(parents=True, exist_ok=True)
    torch.save(state, here / "torch/zip.pt")
    torch.save(state, here / "torch/legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": state, "epoch": 3}, here / "torch/nested.pt", pickle_protocol=4)


def header(entries, data=b"", length=None):
    text = json.dumps(entries).encode() if not isinstance(entries, bytes) else entries
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors_attacks():
    """Headers that lie; a name says what about."""
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    eight = b"\0" * 8
    attacks = {
        "length-2-63": header({"a": one}, eight, 1 << 63),
        "length-above-100-mb": header({"a": one}, eight, (100 << 20) + 1),
        "length-above-file": header({"a": one}, eight, 4000),
        "overlap": header({"a": one, "b": {**one, "data_offsets": [4, 12]}}, b"\0" * 12),
        "hole": header({"a": one, "b": {**one, "data_offsets": [12, 20]}}, b"\0" * 20),
        "duplicate-key": header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
                                b'"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}', b"\0" * 16),
        "negative-offset": header({"a": {**one, "data_offsets": [-8, 0]}}, eight),
        "huge-offset": header({"a": {**one, "data_offsets": [0, 1 << 62]}}, eight),
        "reversed-offsets": header({"a": {**one, "data_offsets": [8, 0]}}, eight),
        "shape-overflow": header({"a": {**one, "shape": [1 << 32, 1 << 32]}}, eight),
        "shape-negative": header({"a": {**one, "shape": [-2]}}, eight),
        "wrong-dtype": header({"a": {**one, "dtype": "F33"}}, eight),
        "dtype-of-another-size": header({"a": {**one, "dtype": "F16"}}, eight),
        "trailing-bytes": header({"a": one}, b"\0" * 9),
        "shifted-data": header({"a": {**one, "data_offsets": [1, 9]}}, b"\0" * 9),
        "data-cut": header({"a": one}, b"\0" * 7),
        "not-an-object": header([1, 2], eight),
        "deep-nesting": header(b"[" * 100_000, eight),
        "not-utf-8": header(b'{"\xff\xfe":1}', eight),
        "empty-header": header(b"", eight),
        "no-header": b"\0" * 8,
        "three-bytes": b"\x01\0\0",
    }
    for name, data in attacks.items():
        put(f"safetensors-attacks/{name}.safetensors", data)
    for name, change in {
        "missing-tensor": lambda s: s.pop("visual.ln_pre.weight"),
        "extra-tensor": lambda s: s.update({"visual.transformer.resblocks.0.attn.extra": torch.zeros(3)}),
        "nan": lambda s: s["visual.ln_pre.weight"].__setitem__(3, float("nan")),
        "infinity": lambda s: s["visual.ln_pre.weight"].__setitem__(3, float("inf")),
        "transposed": lambda s: s.update({"visual.transformer.resblocks.0.mlp.c_fc.weight":
                                          s["visual.transformer.resblocks.0.mlp.c_fc.weight"].t().contiguous()}),
    }.items():
        state = model()
        change(state)
        save_file(state, here / f"safetensors-attacks/{name}.safetensors")


def torch_zip(data, storages=(), extra=(), name="archive"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}/data.pkl", data)
        archive.writestr(f"{name}/byteorder", b"little")
        archive.writestr(f"{name}/version", b"3\n")
        for number, content in enumerate(storages):
            archive.writestr(f"{name}/data/{number}", content)
        for path, content in extra:
            archive.writestr(path, content)
    return out.getvalue()


class Call:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def pickle_attacks():
    """Each in a torch archive; a file MARK in the working directory would show that one of them ran."""
    import os
    import subprocess

    attacks = {
        f"os-system-protocol-{p}": pickle.dumps({"visual.proj": Call(os.system, "touch MARK")}, protocol=p) for p in range(6)
    }
    attacks |= {
        "eval": pickle.dumps(Call(eval, "open('MARK','w')"), protocol=2),
        "popen": pickle.dumps(Call(subprocess.Popen, ["touch", "MARK"]), protocol=2),
        "nt-system": b"\x80\x02cnt\nsystem\nX\x0a\0\0\0touch MARK\x85R.",
        "inst": b"(S'touch MARK'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\nS'touch MARK'\no.",
        "stack-global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0atouch MARK\x85R.",
        "nested-reduce": b"\x80\x02cbuiltins\ngetattr\ncos\nsystem\nX\x08\0\0\0__call__\x86R.",
        "newobj": b"\x80\x02csubprocess\nPopen\n(S'touch MARK'\nt\x81.",
        "build-setstate": b"\x80\x02ccollections\nOrderedDict\n)R}X\x0c\0\0\0__setstate__cos\nsystem\nsb.",
        "unknown-storage": b"\x80\x02}X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nEvilStorage\n"
                           b"X\x01\0\0\x000X\x03\0\0\0cpuK\x04tQK\0(K\x04t(K\x01t\x89)tRs.",
        "short-rebuild": b"\x80\x02}X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n(K\0tRs.",
        "beyond-storage": b"\x80\x02}X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
                          b"X\x01\0\0\x000X\x03\0\0\0cpuK\x04tQK\0(K\xfft(K\x01t\x89)tRs.",
        "string-of-2-gb": b"\x80\x02X\xff\xff\xff\x7fabc.",
        "bytes-of-2-63": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        "integer-of-2-gb": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "memo-slot-2-32": b"\x80\x02Nr\xff\xff\xff\xff.",
        "deep-tuple": b"\x80\x02" + b"N" + b"\x85" * 100_000 + b".",
        "itself": b"\x80\x02}q\0X\x01\0\0\0ah\0s.",
        "protocol-6": b"\x80\x06N.",
        "no-stop": b"\x80\x02N",
        "empty": b"",
    }
    bomb = b"\x80\x02]q\0"
    for level in range(60):
        bomb += b"](" + bytes([ord("h"), level]) * 40 + b"eq" + bytes([level + 1])
    attacks["memo-bomb"] = bomb + b"."
    shared = b"\x80\x02}q\0"
    for level in range(30):
        entries = b"".join(b"X\x01\0\0\0" + bytes([97 + i]) + b"h" + bytes([level]) for i in range(8))
        shared += b"}(" + entries + b"uq" + bytes([level + 1])
    attacks["shared-dictionaries"] = shared + b"."
    for name, data in attacks.items():
        put(f"pickle-attacks/{name}.pt", torch_zip(data))
    put("pickle-attacks/path-escape.pt", torch_zip(pickle.dumps({}), extra=[("../MARK", b"x"), ("/tmp/MARK", b"x")]))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N." + b"\0" * (64 << 20))
    put("pickle-attacks/zip-bomb.pt", out.getvalue())
    lying = bytearray(torch_zip(b"\x80\x02N."))
    place = lying.find(b"PK\x01\x02")
    lying[place + 20:place + 28] = b"\xff\xff\xff\x7f\xff\xff\xff\x7f"
    put("pickle-attacks/zip-false-size.pt", bytes(lying))
    put("pickle-attacks/bare.pt", attacks["os-system-protocol-2"])


def photo(width, height, mode="RGB"):
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([(x * 255 // max(width - 1, 1)), (y * 255 // max(height - 1, 1)), ((x * 7 + y * 13) % 256)], -1)
    noise = np.random.default_rng(1).integers(-20, 20, rgb.shape)
    return Image.fromarray((rgb + noise).clip(0, 255).astype(np.uint8)).convert(mode)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def images():
    rgb = photo(40, 30)
    for name, data in {
        "jpeg/baseline-420.jpg": encoded(rgb, "JPEG", quality=80),
        "jpeg/baseline-444.jpg": encoded(rgb, "JPEG", quality=90, subsampling=0),
        "jpeg/baseline-422-restart.jpg": encoded(rgb, "JPEG", subsampling=1, restart_marker_blocks=2),
        "jpeg/progressive.jpg": encoded(rgb, "JPEG", progressive=True),
        "jpeg/grey.jpg": encoded(rgb.convert("L"), "JPEG"),
        "jpeg/cmyk.jpg": encoded(rgb.convert("CMYK"), "JPEG"),
        "jpeg/optimised-exif.jpg": encoded(rgb, "JPEG", optimize=True, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"),
        "png/rgb.png": encoded(rgb, "PNG"),
        "png/rgba.png": encoded(rgb.convert("RGBA"), "PNG"),
        "png/palette.png": encoded(rgb.convert("P"), "PNG", transparency=3),
        "png/grey.png": encoded(rgb.convert("L"), "PNG"),
        "png/grey-16.png": encoded(Image.fromarray((np.arange(1200).reshape(30, 40) * 50).astype(np.uint16)), "PNG"),
        "png/one-bit.png": encoded(rgb.convert("1"), "PNG"),
        "gif/one.gif": encoded(rgb.convert("P"), "GIF"),
        "gif/two.gif": encoded(rgb.convert("P"), "GIF", save_all=True, append_images=[photo(40, 30).rotate(90).convert("P")]),
        "gif/frame-outside.gif": bytes.fromhex("47494638396101000100800000000000ffffff2c02000000010001000002024401003b"),
        "webp/lossy.webp": encoded(rgb, "WEBP", quality=70),
        "webp/lossless.webp": encoded(rgb, "WEBP", lossless=True),
        "webp/alpha.webp": encoded(rgb.convert("RGBA"), "WEBP"),
        "tiff/rgb.tif": encoded(rgb, "TIFF"),
        "tiff/lzw.tif": encoded(rgb, "TIFF", compression="tiff_lzw"),
        "tiff/deflate.tif": encoded(rgb, "TIFF", compression="tiff_deflate"),
        "tiff/packbits.tif": encoded(rgb.convert("L"), "TIFF", compression="packbits"),
        "tiff/grey-16.tif": encoded(Image.fromarray((np.arange(1200).reshape(30, 40) * 50).astype(np.uint16)), "TIFF"),
        "tiff/palette.tif": encoded(rgb.convert("P"), "TIFF"),
        "bmp/rgb.bmp": encoded(rgb, "BMP"),
        "bmp/palette.bmp": encoded(rgb.convert("P"), "BMP"),
        "bmp/one-bit.bmp": encoded(rgb.convert("1"), "BMP"),
    }.items():
        put(name, data)


def formats():
    """Every layout of pixels, with what Pillow's convert("RGB") makes of it."""
    rgb = photo(24, 18)
    files = {
        "jpeg-420.jpg": encoded(rgb, "JPEG", subsampling=2), "jpeg-422.jpg": encoded(rgb, "JPEG", subsampling=1),
        "jpeg-444.jpg": encoded(rgb, "JPEG", subsampling=0), "jpeg-411.jpg": encoded(rgb, "JPEG", subsampling="4:1:1"),
        "jpeg-progressive.jpg": encoded(rgb, "JPEG", progressive=True),
        "jpeg-progressive-444.jpg": encoded(rgb, "JPEG", progressive=True, subsampling=0),
        "jpeg-restart.jpg": encoded(rgb, "JPEG", restart_marker_rows=1),
        "jpeg-grey.jpg": encoded(rgb.convert("L"), "JPEG"), "jpeg-cmyk.jpg": encoded(rgb.convert("CMYK"), "JPEG"),
        "jpeg-quality-5.jpg": encoded(rgb, "JPEG", quality=5), "jpeg-quality-100.jpg": encoded(rgb, "JPEG", quality=100),
        "jpeg-icc.jpg": encoded(rgb, "JPEG", icc_profile=b"\0" * 200), "jpeg-comment.jpg": encoded(rgb, "JPEG", comment=b"c" * 300),
        "jpeg-1x1.jpg": encoded(photo(1, 1), "JPEG"), "jpeg-1x300.jpg": encoded(photo(1, 300), "JPEG"),
        "jpeg-named-as.png": encoded(rgb, "JPEG"),
        "png-rgb.png": encoded(rgb, "PNG"), "png-rgba.png": encoded(rgb.convert("RGBA"), "PNG"),
        "png-grey.png": encoded(rgb.convert("L"), "PNG"), "png-grey-alpha.png": encoded(rgb.convert("LA"), "PNG"),
        "png-palette.png": encoded(rgb.convert("P"), "PNG"), "png-palette-4.png": encoded(rgb.quantize(4), "PNG"),
        "png-one-bit.png": encoded(rgb.convert("1"), "PNG"),
        "png-grey-16.png": encoded(Image.fromarray((np.arange(432).reshape(18, 24) * 3).astype(np.uint16)), "PNG"),
        "png-transparency.png": encoded(rgb.convert("P"), "PNG", transparency=0), "png-1x1.png": encoded(photo(1, 1), "PNG"),
        "gif.gif": encoded(rgb.convert("P"), "GIF"), "gif-interlaced.gif": encoded(rgb.convert("P"), "GIF", interlace=1),
        "gif-transparency.gif": encoded(rgb.convert("P"), "GIF", transparency=2),
        "webp-lossless.webp": encoded(rgb, "WEBP", lossless=True), "webp-lossy.webp": encoded(rgb, "WEBP", quality=80),
        "bmp.bmp": encoded(rgb, "BMP"), "bmp-palette.bmp": encoded(rgb.convert("P"), "BMP"),
    }
    expected = {}
    for name, data in files.items():
        put(f"formats/{name}", data)
        image = Image.open(io.BytesIO(data)).convert("RGB")
        expected[name] = {"size": list(image.size), "rgb": image.tobytes().hex()}
    put("formats/expected.json", json.dumps(expected).encode())


def lists():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(4):
            for ending, content in (("png", encoded(photo(8, 6), "PNG")), ("cls", str(number % 2).encode())):
                entry = tarfile.TarInfo(f"{number:04}.{ending}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    put("tar/four.tar", out.getvalue())
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for ending, content in (("jpg", encoded(photo(8, 6), "JPEG")), ("cls", b"0")):
            entry = tarfile.TarInfo("long/" * 30 + f"größe.{ending}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    put("tar/pax.tar", out.getvalue())
    # The one file that is surely there is the table itself.
    put("table/plain.csv", "path,label\nplain.csv,cat\nb.jpg,dog\n\"c,d.jpg\",cat\n".encode())
    put("table/numbers.csv", b"path,label\nnumbers.csv,0\nb.jpg,1\nc.jpg,1\n")
    put("class-names/plain.txt", "cat\ndog\ngreat white shark\ngröße\n".encode())
    put("descriptions/two.json", b'{"cat": ["a small animal", "it has whiskers"], "big dog": ["a loyal animal"]}')
    put("class-names/bom.txt", b"\xef\xbb\xbfcat\r\ndog\r\n")
    features = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    out = io.BytesIO()
    np.save(out, features)
    put("text-features/three.npy", out.getvalue())
    save_file({"features": torch.from_numpy(features)}, here / "text-features/three.safetensors")


def folder():
    """Files of a model folder beside its weights."""
    pocket = here.parents[1] / "crates/flatclip-pocket/models/pocket"
    for name in ("vocab.json", "merges.txt", "open_clip_config.json"):
        put(f"model-folder/{name}", (pocket / name).read_bytes())
    merges = [line for line in (pocket / "merges.txt").read_text().splitlines() if line and not line.startswith("#")]
    model = {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": json.loads((pocket / "vocab.json").read_text()), "merges": merges}
    put("model-folder/tokenizer.json", json.dumps({"version": "1.0", "model": model}).encode())


def bodies():
    """Requests of the fuzz target `bodies`: a byte for the route, then the body."""
    image = base64.b64encode((here / "png/rgb.png").read_bytes()).decode()
    form = b'--xx\r\ncontent-disposition: form-data; name="classes"\r\n\r\nfish,lamp\r\n--xx\r\n'
    form += b'content-disposition: form-data; name="image"; filename="x"\r\n\r\n' + (here / "png/rgb.png").read_bytes() + b"\r\n--xx--\r\n"
    text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a fish"]}
    requests = [
        {"image": image, "classes": ["fish", "lamp"], "method": "stss", "views": 4, "options": {"radius": 0.5}},
        form,
        form,
        {"texts": ["a fish", "a lamp"]},
        {"classes": ["fish", "lamp"], "method": "tda", "views": 1},
        {"inputs": [text], "outputs": [{"name": "text_embedding"}]},
        {"inputs": image, "parameters": {"candidate_labels": ["fish", "lamp"]}},
    ]
    for route, body in enumerate(requests):
        put(f"bodies/{route}", bytes([route]) + (body if isinstance(body, bytes) else json.dumps(body).encode()))


def bombs():
    """Files of some hundred bytes (once they are packed) with millions of pixels, of decoders that keep more than the result."""
    for name, side, kind, options in (
        ("baseline-444.jpg", 5000, "JPEG", {"quality": 50, "subsampling": 0, "optimize": True}),
        ("progressive-444.jpg", 5000, "JPEG", {"quality": 50, "subsampling": 0, "optimize": True, "progressive": True}),
        ("progressive-420.jpg", 5000, "JPEG", {"quality": 50, "subsampling": 2, "optimize": True, "progressive": True}),
        ("progressive-88mp.jpg", 9400, "JPEG", {"quality": 50, "subsampling": 0, "optimize": True, "progressive": True}),
        ("cmyk.jpg", 5000, "JPEG", {"quality": 50, "optimize": True}),
        ("lossless.webp", 5000, "WEBP", {"lossless": True, "quality": 0, "method": 0}),
        ("lossless-88mp.webp", 9400, "WEBP", {"lossless": True, "quality": 0, "method": 0}),
        ("lossy.webp", 5000, "WEBP", {"quality": 10, "method": 0}),
        ("lossy-88mp.webp", 9400, "WEBP", {"quality": 10, "method": 0}),
        ("colour.tif", 5000, "TIFF", {"compression": "tiff_deflate"}),
    ):
        image = Image.new("CMYK" if name == "cmyk.jpg" else "RGB", (side, side), (90, 120, 200))
        put(f"bombs/{name}.gz", gzip.compress(encoded(image, kind, **options), 9, mtime=0))


if __name__ == "__main__":
    here.mkdir(exist_ok=True)
    for make in (weights, safetensors_attacks, pickle_attacks, images, formats, bombs, folder, lists, bodies):
        make()
    print(sum(path.stat().st_size for path in here.rglob("*") if path.is_file()), "bytes")
