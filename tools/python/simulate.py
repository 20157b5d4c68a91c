"""What a large run costs on n nodes: arithmetic beside a simulation. Nothing here was measured on a cluster.

    python tools/python/simulate.py            # the tables of docs/guide/cluster.md
    python tools/python/simulate.py --images 50000 --image-seconds 33 --cores 64

An evaluation is shards on workers, as `flatclip.ray.evaluate` runs them: a worker takes the next part; images differ in
cost; a node is lost now and then, its part goes on from its last record on another, and a new node comes after a while. A
tuning step is K / n classes on each node, features gathered and gradients scattered over a network.
"""

from __future__ import annotations

import argparse
import heapq
import random


def evaluation(nodes: int, a: argparse.Namespace, seed: int) -> float:
    """Hours until the last shard is done."""
    draw = random.Random(seed)
    shards = a.shards_per_node * nodes
    images = [a.images // shards + (i < a.images % shards) for i in range(shards)]
    seconds = a.image_seconds / a.cores
    # The mean of many images varies little, a node as a whole more: neighbours, clocks, storage.
    speed = [max(0.5, draw.gauss(1.0, a.node_spread)) for _ in range(nodes)]
    life = [draw.expovariate(1 / (a.days_between_failures * 86400)) for _ in range(nodes)]
    free = [(a.start_seconds, node) for node in range(nodes)]
    heapq.heapify(free)
    waiting = [(count * seconds * draw.gauss(1.0, 0.3 / max(count, 1) ** 0.5)) for count in images]
    end = 0.0
    while waiting:
        now, node = heapq.heappop(free)
        work = waiting.pop(0) / speed[node] + a.shard_seconds
        if now + work > life[node]:
            done = max(0.0, life[node] - now) * speed[node]
            rest = (work - a.shard_seconds) * speed[node] - done
            waiting.insert(0, max(rest, 0.0) + seconds)  # the image that was lost is answered again
            back = max(life[node], now) + a.replace_seconds + a.start_seconds
            life[node] = back + draw.expovariate(1 / (a.days_between_failures * 86400))
            heapq.heappush(free, (back, node))
            continue
        end = max(end, now + work)
        heapq.heappush(free, (now + work, node))
    return end / 3600


def step(nodes: int, a: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Seconds of one class-parallel step and of its network part: forward, gather, scatter, backward, the slowest decides."""
    draw = random.Random(seed)
    share = -(-a.classes // nodes)
    compute = max(share * a.class_seconds / a.cores / max(0.5, draw.gauss(1.0, a.node_spread)) for _ in range(nodes))
    # Features come in and gradients go out through the driver's own link; the context is small.
    moved = 2 * a.classes * a.width * 4 / (a.gigabits * 1e9 / 8) if nodes > 1 else 0.0
    latency = 4 * a.message_seconds * (nodes > 1)
    return compute + moved + latency, moved + latency


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=21_000)
    parser.add_argument("--cores", type=int, default=32, help="cores of a node")
    parser.add_argument("--image-seconds", type=float, default=33.3, help="core-seconds of one image: 64 views of ViT-B/16")
    parser.add_argument("--class-seconds", type=float, default=8.6e-3, help="core-seconds of one class of one context step")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--gigabits", type=float, default=10.0, help="of the driver's network link")
    parser.add_argument("--message-seconds", type=float, default=2e-3, help="of one call of an actor")
    parser.add_argument("--start-seconds", type=float, default=20.0, help="process, model, text features")
    parser.add_argument("--shard-seconds", type=float, default=2.0, help="of opening and closing a shard")
    parser.add_argument("--shards-per-node", type=int, default=16)
    parser.add_argument("--node-spread", type=float, default=0.05, help="standard deviation of a node's speed")
    parser.add_argument("--days-between-failures", type=float, default=30.0, help="of one node")
    parser.add_argument("--replace-seconds", type=float, default=300.0, help="until a lost node is replaced")
    parser.add_argument("--trials", type=int, default=20)
    a = parser.parse_args()
    print(f"{a.images} images of {a.image_seconds} core-seconds, nodes of {a.cores} cores, {a.shards_per_node} shards each\n")
    print("| nodes | ideal hours | simulated hours, mean (worst) | efficiency | node hours |")
    print("|---|---|---|---|---|")
    for nodes in [1, 4, 16, 64, 256]:
        ideal = a.images * a.image_seconds / a.cores / nodes / 3600
        found = [evaluation(nodes, a, seed) for seed in range(a.trials)]
        mean = sum(found) / len(found)
        print(f"| {nodes} | {ideal:.1f} | {mean:.1f} ({max(found):.1f}) | {100 * ideal / mean:.0f} % | {mean * nodes:.0f} |")
    print(f"\n{a.classes} classes, width {a.width}, {a.gigabits:g} Gbit/s: one step of CoOp (SAPT takes two)\n")
    print("| nodes | compute and network, s | network, s | speed-up | a run of 1000 steps, minutes |")
    print("|---|---|---|---|---|")
    alone = sum(step(1, a, seed)[0] for seed in range(a.trials)) / a.trials
    for nodes in [1, 2, 4, 8, 16, 32, 64]:
        found = [step(nodes, a, seed) for seed in range(a.trials)]
        mean, network = (sum(one[i] for one in found) / len(found) for i in (0, 1))
        print(f"| {nodes} | {mean:.3f} | {network:.3f} | {alone / mean:.1f} | {mean * 1000 / 60:.1f} |")


if __name__ == "__main__":
    main()
