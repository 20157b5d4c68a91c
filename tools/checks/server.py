"""`flatclip serve` as a process, on a port of this machine that the system chooses."""

import contextlib
import subprocess
import time
import urllib.error
import urllib.request


@contextlib.contextmanager
def running(binary, folder, *arguments, **options):
    """The address of a server that is ready, and its process; afterwards it must end well."""
    command = [binary, "serve", "--bind", "127.0.0.1:0", "--offline", "--quiet", *arguments]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, **options)
    try:
        address = server.stdout.readline().strip().rstrip("/")
        assert address.startswith("http://"), "the server did not say its address"
        end = time.monotonic() + 120
        while not is_ready(address):
            assert time.monotonic() < end, "the server was not ready within 120 s"
            time.sleep(0.02)
        yield address, server
    finally:
        server.terminate()
        assert server.wait(30) == 0, "the server did not end well"


@contextlib.contextmanager
def serving(binary, folder, *arguments):
    with running(binary, folder, *arguments) as (address, _):
        yield address


def is_ready(address):
    try:
        return urllib.request.urlopen(f"{address}/readyz", timeout=60).status == 200
    except urllib.error.HTTPError:
        return False
