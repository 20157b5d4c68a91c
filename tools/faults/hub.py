"""Downloads by the binary from a hub on this machine that behaves badly."""

import hashlib
import http.server
import threading

from harness import CORPUS, expect

MODEL, WEIGHTS, TOKEN = "ViT-B-16/openai", "open_clip_model.safetensors", "hf_secretsecret"
# How the hub behaves, and whether the download must succeed in the end.
MANNERS = {
    "good": True,
    "cuts once": True,
    "cuts always": False,
    "wrong digest": False,
    "missing": False,
    "overloaded thrice": True,
    "overloaded always": False,
    "circle": False,
    "page": False,
    "too much": False,
    "closes at once": False,
    "garbage": False,
}


def serve(weights, manner):
    """A hub and, as the real one has, another host with the files; its address, and the requests that each of them saw."""
    seen, turns = {"endpoint": [], "files": []}, iter(range(10**6))
    addresses = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        where = "endpoint"

        def log_message(self, *_):
            pass

        def send(self, status, body, length=None, **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_GET(self):
            seen[self.where].append(str(self.headers))
            self.close_connection = True
            if manner == "closes at once":
                return None
            if manner == "garbage":
                return self.wfile.write(b"\xff" * 300)
            if self.path.endswith("open_clip_config.json"):
                return self.send(200, b'{"model_cfg": {"quick_gelu": true}}')
            if not self.path.endswith(WEIGHTS) or manner == "missing":
                return self.send(404, b"")
            return (self.describe if self.where == "endpoint" else self.send_file)(next(turns))

        do_HEAD = do_GET

        def describe(self, turn):
            """The endpoint's answer: what the file is, and where it lies."""
            if manner == "overloaded always" or (manner == "overloaded thrice" and turn < 3):
                return self.send(503, b"", Retry_After="0")
            if manner == "circle":
                return self.send(302, b"", Location=self.path)
            if manner == "page":
                return self.send(200, b"<!DOCTYPE html><html>" + weights[21:])
            digest = hashlib.sha256(weights + b"x" * (manner == "wrong digest")).hexdigest()
            headers = {"X_Linked_Size": str(len(weights)), "X_Linked_Etag": f'"{digest}"'}
            return self.send(302, b"", Location=f"{addresses['files']}/cdn{self.path}", **headers)

        def send_file(self, turn):
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            body = weights[start:] + b"\0" * (manner == "too much")
            more = {"Content_Range": f"bytes {start}-{len(weights) - 1}/{len(weights)}"} if start else {}
            cut = manner == "cuts always" or (manner == "cuts once" and turn < 3)
            self.send(206 if start else 200, body[: len(body) // 2] if cut else body, len(body), **more)

    for where in ("endpoint", "files"):
        handler = type("Handler", (Handler,), {"where": where})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        addresses[where] = "http://{}:{}".format(*server.server_address)
    return addresses["endpoint"], seen


def downloads(trial):
    """F16."""
    weights = (CORPUS / "safetensors/small.safetensors").read_bytes()

    def fetch(endpoint, folder, limit=None):
        arguments = ["embed", "--text", "a photo", "--model", MODEL, "--model-dir", str(folder)]
        return trial.program.end(arguments, limit=limit, patience=90, HF_ENDPOINT=endpoint, HF_TOKEN=TOKEN)

    def whole(folder):
        file = folder / MODEL / WEIGHTS
        return file.is_file() and file.read_bytes() == weights

    def run(manner, succeeds):
        folder = trial.folder / manner
        endpoint, seen = serve(weights, manner)
        ended = fetch(endpoint, folder)
        expect(whole(folder) if succeeds else ended.code == 2, f"exit {ended.code}: {ended.stderr}")
        expect(whole(folder) or not (folder / MODEL / WEIGHTS).exists(), "a bad file under its final name")
        expect(TOKEN not in ended.stderr, "the token was printed")
        expect(all(TOKEN in head for head in seen["endpoint"]), "the endpoint was asked without the token")
        expect(not any(TOKEN in head for head in seen["files"]), "the token went elsewhere")

    def stale():
        folder = trial.folder / "stale"
        (folder / MODEL).mkdir(parents=True)
        (folder / MODEL / f"{WEIGHTS}.part").write_bytes(b"\7" * (len(weights) // 2))
        ended = fetch(serve(weights, "good")[0], folder)
        expect(whole(folder), ended.stderr)

    def no_space():
        folder, endpoint = trial.folder / "full", serve(weights, "good")[0]
        ended = fetch(endpoint, folder, limit="trap '' XFSZ; ulimit -f 20")
        expect(ended.code == 4, f"exit {ended.code}, expected 4 for a full disk: {ended.stderr}")
        expect(not (folder / MODEL / WEIGHTS).exists(), "a part under its final name")
        expect(fetch(endpoint, folder) and whole(folder), "does not recover")

    for manner, succeeds in trial.some(MANNERS.items()):
        trial.case(manner, lambda manner=manner, succeeds=succeeds: run(manner, succeeds))
    trial.case("a part of another file is discarded", stale)
    trial.case("no space", no_space)
