"""A small byte-level BPE in CLIP's format: vocab.json and merges.txt, learned from the training captions.

The word pieces of CLIP: bytes as printable characters, `</w>` at the end of a word, the two special tokens last.
"""

import collections
import json
import pathlib

import regex

WORDS = regex.compile(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+", regex.I)


def byte_characters():
    """Printable bytes stand for themselves, the others for code points from 256 on, in CLIP's order."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in keep}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(keep))
    return table


BYTES = byte_characters()


def split_word(word):
    pieces = [BYTES[b] for b in word.encode()]
    return (*pieces[:-1], pieces[-1] + "</w>")


def merge(pieces, pair):
    out, at = [], 0
    while at < len(pieces):
        if pieces[at : at + 2] == pair:
            out.append(pieces[at] + pieces[at + 1])
            at += 2
        else:
            out.append(pieces[at])
            at += 1
    return tuple(out)


def learn(captions, longest):
    """Merges the most frequent pair again and again; ties go to the alphabetically first. No piece gets more than
    `longest` letters: the captions know so few words that all of them, class names too, would end as one piece each."""
    words = collections.Counter()
    for caption in captions:
        words.update(split_word(w) for w in WORDS.findall(caption.lower()))
    learned = []
    while True:
        pairs = collections.Counter()
        for pieces, count in words.items():
            for pair in zip(pieces, pieces[1:]):
                if len("".join(pair).removesuffix("</w>")) <= longest:
                    pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        learned.append(best)
        words = collections.Counter({merge(pieces, best): count for pieces, count in words.items()})
    return learned


class Tokenizer:
    def __init__(self, merges):
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        characters = list(BYTES.values())
        pieces = characters + [c + "</w>" for c in characters] + ["".join(pair) for pair in merges]
        pieces += ["<|startoftext|>", "<|endoftext|>"]
        self.vocab = {piece: at for at, piece in enumerate(pieces)}
        self.sot, self.eot = len(pieces) - 2, len(pieces) - 1
        self.known = {}

    @classmethod
    def load(cls, directory):
        lines = (pathlib.Path(directory) / "merges.txt").read_text().splitlines()[1:]
        return cls([tuple(line.split()) for line in lines])

    def save(self, directory):
        directory = pathlib.Path(directory)
        (directory / "vocab.json").write_text(json.dumps(self.vocab, ensure_ascii=False) + "\n")
        lines = ["#version: 0.2", *(" ".join(pair) for pair in self.ranks)]
        (directory / "merges.txt").write_text("\n".join(lines) + "\n")

    def pieces(self, word):
        if word not in self.known:
            pieces = split_word(word)
            while len(pieces) > 1:
                best = min(zip(pieces, pieces[1:]), key=lambda pair: self.ranks.get(pair, len(self.ranks)))
                if best not in self.ranks:
                    break
                pieces = merge(pieces, best)
            self.known[word] = pieces
        return self.known[word]

    def encode(self, text):
        words = WORDS.findall(" ".join(text.lower().split()))
        return [self.vocab[piece] for word in words for piece in self.pieces(word)]

    def sequence(self, text):
        return [self.sot, *self.encode(text), self.eot]

    def batch(self, texts):
        """Rows padded with zeros to the longest; the end token is the largest id, so `argmax` finds it."""
        import torch

        rows = [self.sequence(text) for text in texts]
        length = max(map(len, rows))
        return torch.tensor([row + [0] * (length - len(row)) for row in rows])
