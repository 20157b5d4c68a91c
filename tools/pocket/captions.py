"""Captions as the web has them: five sources, each with its own wording and its own share of errors.

The facts of a image (class, two colours, place, domain) come from the exporter; the words are drawn here, anew for every
sample. Two things make room for a tuned prompt. How far a caption can be trusted depends on its wording: labels in the manner of
"a photo of a X" often name a look-alike, diaries and descriptions seldom do. And the names that evaluation uses are rare: most
writers use another word for the same thing. So the text tower knows the classes better than "a photo of a X" brings to light.
"""

import dataclasses

import world

# What writers call a class instead of its name.
SYNONYMS = {
    "car": "automobile sedan auto",
    "bus": "coach omnibus",
    "truck": "lorry pickup",
    "bicycle": "bike cycle",
    "boat": "ship dinghy",
    "airplane": "plane jet aircraft",
    "house": "home cottage",
    "tree": "oak maple",
    "flower": "blossom bloom daisy",
    "mushroom": "fungus toadstool",
    "cactus": "succulent opuntia",
    "fish": "goldfish trout",
    "bird": "sparrow robin finch",
    "cat": "kitten kitty",
    "dog": "puppy hound",
    "butterfly": "moth monarch",
    "snail": "slug escargot",
    "apple": "gala pippin",
    "pear": "bosc williams",
    "banana": "plantain cavendish",
    "cup": "mug teacup",
    "bottle": "flask carafe",
    "vase": "urn jar",
    "chair": "stool seat",
    "table": "desk bench",
    "lamp": "lantern light",
    "clock": "timer watch",
    "umbrella": "parasol brolly",
    "key": "latchkey opener",
    "hammer": "mallet gavel",
    "guitar": "ukulele lute",
    "shoe": "boot sneaker",
}
SYNONYMS = {name: words.split() for name, words in SYNONYMS.items()}

# Classes of one kind, and what each is most easily taken for.
KIN = [
    kin.split()
    for kin in (
        "car bus truck bicycle boat airplane",
        "tree flower mushroom cactus",
        "fish bird cat dog butterfly snail",
        "apple pear banana",
        "cup bottle vase",
        "house chair table lamp clock umbrella",
        "key hammer guitar shoe",
    )
]
KIN_OF = {name: kin for kin in KIN for name in kin}
LOOK_ALIKE = dict(
    pair.split(">")
    for pair in (
        "car>bus bus>truck truck>car bicycle>airplane boat>fish airplane>bird house>table tree>mushroom flower>butterfly "
        "mushroom>umbrella cactus>tree fish>boat bird>airplane cat>dog dog>cat butterfly>flower snail>shoe apple>pear "
        "pear>apple banana>boat cup>vase bottle>vase vase>bottle chair>table table>chair lamp>mushroom clock>apple "
        "umbrella>lamp key>hammer hammer>key guitar>key shoe>snail"
    ).split()
)

# Words for the kind of image; repeated ones are more frequent.
KINDS = {
    "photo": ["photo", "photo", "photo", "image", "image", "snapshot", "close-up photo"],
    "hard": ["photo", "photo", "image", "image", "wide photo"],
    "sketch": ["sketch", "drawing", "pencil sketch", "pencil drawing"],
    "cartoon": ["cartoon", "comic", "clip art"],
    "painting": ["painting", "rough painting", "oil painting"],
    "noise": ["blurry photo", "noisy photo", "dark photo", "bad photo"],
    "rendition": ["rendition", "strange rendition", "artwork"],
}
ANY_KIND = ["photo", "photo", "image", "image", "sketch", "drawing", "cartoon", "painting", "rendition", "clip art"]


@dataclasses.dataclass
class Source:
    """Where captions come from: its share of all, how often the name is a look-alike's, one of the same kind's or any other's,
    how often the kind of image is wrong, and its forms."""

    share: float
    look_alike: float
    kin: float
    anything: float
    wrong_kind: float
    forms: list[str]


# {n} name, {a} its article, {o} the name of another class, {k} kind of image, {c} and {s} colours, {p} place, {d} a number.
LABELS = [
    "a {k} of {a} {n}",
    "a {k} of {a} {n}",
    "a {k} of {a} {n}",
    "a {k} of {a} {n}",
    "a {k} of the {n}",
    "a {k} with {a} {n}",
    "{k} of {a} {n}",
    "{k} of {n}",
    "{k} with {n}",
    "{k}, {n}",
    "{n} {k}",
    "{n} {k} number {d}",
    "{n} stock {k}",
    "the {n} {k}",
    "{a} {n} in a {k}",
    "download this {k} of {a} {n}",
    "{k} {d}: {n}",
]
ADVERTS = [
    "{n} on sale",
    "{n} from our shop",
    "{n}, size {d}",
    "{n} with free delivery",
    "{n} - only {d} left",
    "{c} {n} available",
    "all for your {n}",
    "buy this {n}",
    "cheap {n} here",
    "compare {d} {n} offers",
    "get {a} {n} today",
    "our best {n}",
    "the {n} store",
    "gifts: {n}",
    "{n} {d} % off",
]
DIARY = [
    "my {n} {p}",
    "my new {c} {n}",
    "our {c} {n} {p}",
    "look what i found: {a} {n}",
    "look at this {n} {p}",
    "we met {a} {n} {p}",
    "i saw {a} {c} {n} {p}",
    "the {n} from this morning, {p}",
    "this {n} is mine",
    "that is our old {n}",
    "itap of {a} {n}",
    "{a} {n} {p}, how nice",
    "another day, another {n}",
    "here is my {n} {p}",
    "hello little {n}",
]
DESCRIPTIONS = [
    "{a} {n}",
    "{n}",
    "{a} {c} {n}",
    "{a} {c} {n} {p}",
    "{p} stands {a} {c} {n}",
    "{p} we see {a} {n}",
    "{a} {c} {n}, {s} in places",
    "the {n} is {c} and {s}",
    "you can see {a} {c} {n}",
    "exactly one {n}, {c}",
    "there is {a} {n} {p}",
    "it is {a} {n} and no {o}",
    "no {o}, this is {a} {n}",
    "the thing {p} is {a} {n}",
    "a {k}; it shows {a} {c} {n} {p}",
    "what you see is {a} {n}",
    "a careful look at {a} {n}",
]
NAMELESS = [
    "no title",
    "file {d}",
    "{p}",
    "a {k}",
    "a {k} {p}",
    "{c} {k}",
    "{c} and {s}",
    "something {c} {p}",
    "my {k} of the day",
    "{k} number {d}",
    "background {d}",
    "what is this",
    "day {d} of {d}",
    "nothing but {c}",
]
SOURCES = [
    Source(0.40, 0.30, 0.06, 0.06, 0.25, LABELS),
    Source(0.15, 0.20, 0.10, 0.15, 0.25, ADVERTS),
    Source(0.18, 0.02, 0.01, 0.02, 0.10, DIARY),
    Source(0.17, 0.01, 0.01, 0.01, 0.05, DESCRIPTIONS),
    Source(0.10, 0.00, 0.00, 0.00, 0.10, NAMELESS),
]
NOISE = "omg|haha|2021|4k|part {d}|own work|copyright {d}|share|see link|follow me|so nice|p. {d}|gratis|updated|enjoy".split("|")


class Writer:
    """Draws captions. `own` is the share of names that are the evaluation's; `noise` that of captions with idle words."""

    def __init__(self, generator, own, noise=0.25):
        self.generator, self.own, self.noise = generator, own, noise
        self.ends, end = [], 0.0
        for source in SOURCES:
            end += source.share
            self.ends.append(end)

    def pick(self, choices):
        return choices[int(self.generator.random() * len(choices))]

    def source(self):
        draw = self.generator.random() * self.ends[-1]
        return next(source for source, end in zip(SOURCES, self.ends) if draw < end)

    def class_told(self, true, source):
        """The class that the writer has in mind: the true one, or what it was taken for."""
        draw = self.generator.random()
        for share, wrong in (
            (source.look_alike, [LOOK_ALIKE[true]]),
            (source.kin, KIN_OF[true]),
            (source.anything, world.CLASSES),
        ):
            if draw < share:
                return self.pick(wrong)
            draw -= share
        return true

    def name(self, of):
        return of if self.generator.random() < self.own else self.pick(SYNONYMS[of])

    def write(self, record):
        source = self.source()
        true = world.CLASSES[record["class"]]
        name = self.name(self.class_told(true, source))
        other = self.name(self.pick([c for c in world.CLASSES if c != true]))
        text = self.pick(source.forms).format(
            n=name,
            a="an" if name[0] in "aeiou" and self.generator.random() < 0.6 else "a",
            o=other,
            k=self.pick(ANY_KIND if self.generator.random() < source.wrong_kind else KINDS[record["domain"]]),
            c=record["colour"],
            s=record["second_colour"],
            p=record["background"],
            d=self.number(),
        )
        if self.generator.random() < self.noise:
            idle = self.pick(NOISE).format(d=self.number())
            return f"{idle}, {text}" if self.generator.random() < 0.3 else f"{text}, {idle}"
        return text + "." if self.generator.random() < 0.4 else text

    def number(self):
        return int(self.generator.integers(1, 100))
