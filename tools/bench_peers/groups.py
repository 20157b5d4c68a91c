"""What is compared: groups of sides that take turns, and the rows of the table that are made of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ours:
    """`flatclip bench` with these arguments; the case after `skip` others."""

    arguments: str
    skip: int = 0


@dataclass(frozen=True)
class Peer:
    """A piece of work of `peers.py`; untuned in a process with the allocator as installed: torch gains from a tuned one, and
    normally has it here."""

    name: str
    tuned: bool = True


@dataclass(frozen=True)
class Goal:
    least: float | None = None
    most: float | None = None

    def show(self, found=None):
        if self.least is None and self.most is None:
            return ""
        text = f">= {self.least:g}" if self.most is None else f"<= {self.most:g}"
        missed = found is not None and not (found >= self.least if self.most is None else found <= self.most)
        return f"{text} (missed)" if missed else text


@dataclass(frozen=True)
class Row:
    """A row of the table: the time of side `over` divided by that of side `under`, which is ours."""

    title: str
    over: int
    under: int = 0
    goal: Goal = Goal()
    # Compare arithmetic per second instead of time.
    rates: bool = False


@dataclass(frozen=True)
class Memory:
    """Peak memory of one of our sides."""

    title: str
    side: int
    limit: float  # GB


@dataclass(frozen=True)
class Group:
    """Sides that take turns."""

    name: str
    sides: list
    rows: list
    memory: tuple = ()
    # Title and goal of one more row: the median of the ratios.
    median: tuple | None = None
    # Only where tiles work: elsewhere bf16 is f32 arithmetic on rounded numbers.
    tiles: bool = False
    one_thread: bool = False


def least(value):
    return Goal(least=value)


def most(value):
    return Goal(most=value)


SHAPES = [(768, 3072), (3072, 768), (768, 768), (768, 2304)]


def product(precision, shape):
    # Without f32 asked for, the f32 shapes come first.
    return Ours(f"gemm --precision {precision}", shape if precision == "f32" else len(SHAPES) + shape)


def products(precision, other, against):
    """Every shape in our precision beside what `other` makes of its number, and a row for each pair."""
    sides = [side for shape in range(len(SHAPES)) for side in (product(precision, shape), other(shape))]
    rows = [Row(f"product 3152 x {k} x {n}{against}", 2 * place + 1, 2 * place) for place, (k, n) in enumerate(SHAPES)]
    return sides, rows


def torch_product(precision):
    return lambda shape: Peer("gemm-{}-{}x{}".format(precision, *SHAPES[shape]))


def stss_rounds(skip):
    """An image whose any-time views end after `skip` more rounds than one: 1, 4, 8, 16, 32, 64 views."""
    return Ours("stss-rounds --views 64 --precision i16 --classes 1000", skip)


STEP_1000 = Ours("context-step --classes 1000", 1)

GROUPS = [
    Group(
        "f32 products (MKL through torch)",
        *products("f32", torch_product("f32"), " against torch"),
        median=("f32 products, median over the four shapes", Goal()),
    ),
    Group(
        "i16 products",
        *products("i16", lambda shape: product("f32", shape), ", i16 against our own f32"),
        median=("i16 products against our own f32, median over the four shapes", least(1.6)),
    ),
    Group(
        "views of a JPEG of 500 x 375, one thread",
        [Ours("views --image photo.jpg --views 64"), Peer("pil-views")],
        [Row("64 views of a JPEG of 500 x 375, one thread, against PIL and torchvision", 1, goal=least(5))],
        one_thread=True,
    ),
    Group(
        "ViT-B/16 without tiles",
        [
            Ours("encode-views --precision i16"),
            Ours("encode-views --precision f32"),
            Peer("openvino-views-f32"),
            Peer("onnx-views-f32"),
            Peer("torch-views-f32"),
            Peer("openvino-views-int8"),
            Peer("onnx-views-int8"),
            Ours("stss-image --precision i16 --classes 1000"),
            product("i16", 0),
            product("f32", 0),
        ],
        [
            Row("encode-views ViT-B/16, i16, against OpenVINO f32", 2, goal=least(1.45)),
            Row("encode-views ViT-B/16, i16, against ONNX Runtime f32", 3, goal=least(1.45)),
            Row("encode-views ViT-B/16, i16, against torch f32", 4),
            Row("encode-views ViT-B/16, i16, against OpenVINO int8 (NNCF)", 5),
            Row("encode-views ViT-B/16, i16, against ONNX Runtime int8 (dynamic)", 6),
            Row("encode-views ViT-B/16, i16, against our own f32", 1),
            Row("what STSS adds in i16: stss-image (K=1000, R=16) over encode-views", 7, goal=most(1.02)),
            Row("whole ViT-B/16 in i16, share of our own product rate", 0, 8, rates=True),
            Row("encode-views ViT-B/16, f32, against OpenVINO f32", 2, 1, least(1)),
            Row("encode-views ViT-B/16, f32, against torch f32", 4, 1, least(1.5)),
            Row("whole ViT-B/16 in f32, share of our own product rate", 1, 9, rates=True),
        ],
        memory=(Memory("stss-image, K=1000, R=16, i16: peak memory", 7, 0.45),),
    ),
    Group(
        "FGA image",
        [
            Ours("stss-image --precision i16 --classes 1000"),
            Ours("stss-image --precision f32 --classes 1000"),
            Peer("fga-1000"),
            *map(stss_rounds, [0, 2, 5]),
        ],
        [
            Row("FGA image (K=1000, R=16, ready bank), i16, against the same in torch f32", 2),
            Row("FGA image, f32, against the same in torch f32", 2, 1),
            Row("FGA image, i16, any-time views, ended by view 1, against torch f32, all views", 2, 3),
            Row("FGA image, i16, any-time views, ended by view 8, against torch f32, all views", 2, 4),
            Row("FGA image, i16, any-time views, not ended before view 64, against torch f32", 2, 5),
        ],
    ),
    Group(
        "RN50 without tiles",
        [
            Ours("encode-views --model random:RN50 --precision i16"),
            Peer("torch-rn50-f32"),
            Ours("encode-views --model random:RN50 --precision f32"),
        ],
        [
            Row("encode-views RN50, i16, against torch f32 channels-last", 1, goal=least(1.4)),
            Row("encode-views RN50, f32, against torch f32 channels-last", 1, 2),
        ],
    ),
    Group(
        "context step, K=100",
        [Ours("context-step --classes 100"), Peer("open_clip-step-100"), Peer("shared-step-100")],
        [
            Row("context-step K=100 against open_clip f32 at 77 positions", 1, goal=least(40)),
            Row("context-step K=100 against torch f32 with a shared prefix", 2),
        ],
    ),
    Group(
        "context step, K=1000",
        [
            STEP_1000,
            Peer("shared-step-1000"),
            Ours("context-step --classes 100"),
            Ours("context-step --classes 1000 --text-precision i16", 1),
        ],
        [
            Row("context-step K=1000, f32, against torch f32 with a shared prefix", 1),
            Row("context-step K=1000, i16, against torch f32 with a shared prefix", 1, 3, least(1.5)),
            Row("context-step K=1000, i16, against our own f32", 0, 3),
            Row("context-step: time of K=1000 over K=100", 0, 2, most(12)),
        ],
        memory=(Memory("context-step K=1000, batch 32: peak memory", 0, 1.5),),
    ),
    Group(
        "SAPT step, K=1000",
        [Ours("sapt-step --classes 1000 --text-precision i16", 1), Ours("sapt-step --classes 1000", 1)],
        [Row("sapt-step K=1000, i16, against our own f32", 1, goal=least(1.33))],
    ),
    Group(
        "TPT, K=100",
        [
            Ours("tpt-step --precision f32 --classes 100"),
            Peer("tpt-step-100"),
            Ours("tpt-image --precision f32 --classes 100"),
            Peer("tpt-100"),
        ],
        [
            Row("tpt-step K=100, features at hand, against TPT in torch f32 at 77 positions", 1, goal=least(20)),
            Row("tpt-image K=100, f32, views encoded, against TPT in torch f32 at 77 positions", 3, 2),
        ],
    ),
    Group(
        "bf16 products (oneDNN through torch)",
        *products("bf16", torch_product("bf16"), " against torch"),
        median=("bf16 products, median over the four shapes, against oneDNN AMX", least(1)),
        tiles=True,
    ),
    Group(
        "ViT-B/16 in bf16",
        [
            Ours("encode-views --precision bf16"),
            Peer("openvino-views-bf16"),
            Peer("torch-views-bf16"),
            Peer("torch-views-bf16", tuned=False),
            product("bf16", 0),
        ],
        [
            Row("encode-views ViT-B/16, bf16, against OpenVINO bf16", 1, goal=least(1.5)),
            Row("encode-views ViT-B/16, bf16, against torch bf16, allocator tuned", 2, goal=least(1.8)),
            Row("encode-views ViT-B/16, bf16, against torch bf16, as installed", 3, goal=least(3)),
            Row("whole ViT-B/16 in bf16, share of our own product rate", 0, 4, least(0.75), rates=True),
        ],
        tiles=True,
    ),
    Group(
        "RN50 in bf16",
        [Ours("encode-views --model random:RN50 --precision bf16"), Peer("torch-rn50-bf16")],
        [Row("encode-views RN50, bf16, against torch bf16 channels-last", 1, goal=least(1.2))],
        tiles=True,
    ),
    Group(
        "context step, K=1000, peer in bf16",
        [STEP_1000, Peer("shared-step-1000-bf16")],
        [Row("context-step K=1000 (f32) against torch bf16 with a shared prefix", 1, goal=least(2))],
        tiles=True,
    ),
]
