"""Clients that ask again and again, for a number of requests or for a time, each on a connection of its own. Plain sockets: they
take little of the machine that they share with the server."""

import itertools
import math
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field

# Nothing here takes longer than a deadline of the server.
TIMEOUT = 60
# A thread needs little; a thousand of them fit.
threading.stack_size(256 << 10)


@dataclass
class Outcome:
    # Milliseconds of every request that was answered with 200.
    times: list = field(default_factory=list)
    # Requests by status; 0 is a connection that broke.
    statuses: Counter = field(default_factory=Counter)
    seconds: float = 0.0

    def per_second(self):
        return self.statuses[200] / self.seconds

    def quantile(self, part):
        times = sorted(self.times)
        return times[max(math.ceil(len(times) * part), 1) - 1] if times else math.nan


class Connection:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    def ask(self, request):
        """The status, and whether the connection can be used again."""
        self.socket.sendall(request)
        status = int(self.reader.readline().split(b" ")[1])
        headers = {}
        while line := self.reader.readline().strip():
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        length = int(headers.get(b"content-length", -1))
        whole = len(self.reader.read(length)) == length
        return status, whole and headers.get(b"connection") != b"close"

    def close(self):
        self.reader.close()
        self.socket.close()


def load(address, clients, requests, seconds=math.inf, count=math.inf, rate=None):
    """So many clients ask `requests` in turn; with a rate, so many requests per second are begun in all."""
    host, port = address.removeprefix("http://").split(":")
    assert host == "127.0.0.1", "load is for this machine only"
    outcome, numbers, start = Outcome(), itertools.count(), time.monotonic()

    def client():
        connection = None
        while True:
            number, passed = next(numbers), time.monotonic() - start
            begin = number / rate if rate else 0.0
            if number >= count or max(passed, begin) >= seconds:
                break
            time.sleep(max(begin - passed, 0.0))
            asked = time.perf_counter()
            try:
                connection = connection or Connection(host, int(port))
                status, stays = connection.ask(requests[number % len(requests)])
            except (OSError, ValueError, IndexError):
                status, stays = 0, False
            if status == 200:
                outcome.times.append(1e3 * (time.perf_counter() - asked))
            with lock:
                outcome.statuses[status] += 1
            if connection and not stays:
                connection.close()
                connection = None
        if connection:
            connection.close()

    lock, threads = threading.Lock(), [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcome.seconds = time.monotonic() - start
    return outcome


def classify(width, height, rgb, **fields):
    """A request with a form of these fields and an image."""
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(b'name="image"; filename="x"\r\n\r\n' + png(width, height, rgb))
    body = b"".join(b"--xx\r\ncontent-disposition: form-data; " + part + b"\r\n" for part in parts) + b"--xx--\r\n"
    head = "POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=xx\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def png(width, height, rgb):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + rgb[3 * width * row : 3 * width * (row + 1)] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
