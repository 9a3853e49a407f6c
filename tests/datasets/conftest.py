"""Each test has its own cache folder, and the machine's data settings only if it asks for them."""

import http.server
import os
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from graphzoo.datasets.files import fetch

REAL_DATA = os.environ.get("GRAPHZOO_DATA")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for name in ("GRAPHZOO_DATA", "GRAPHZOO_OFFLINE", "GRAPHZOO_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    return cache / "graphzoo"


@pytest.fixture
def real_data():
    if not REAL_DATA or not (Path(REAL_DATA) / "kg").is_dir():
        pytest.skip("GRAPHZOO_DATA with a kg folder is needed")
    return Path(REAL_DATA)


@pytest.fixture
def write(tmp_path):
    """Write a file below the test's folder: `write("kg/train.txt", [("a", "r", "b")])`, or bytes."""

    def write_file(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, bytes):
            content = "".join("\t".join(row) + "\n" for row in content).encode()
        path.write_bytes(content)
        return path

    return write_file


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Keep the test output quiet."""

    def do_GET(self):
        self.server.requests[self.path] += 1
        super().do_GET()


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A server of the folder `served`, which has the layout of a data root; it counts requests."""
    monkeypatch.setattr(fetch, "_BACKOFF", 0.001)
    monkeypatch.setattr(fetch, "_TIMEOUT", 0.5)
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.requests, server.folder = Counter(), folder
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("GRAPHZOO_MIRROR", server.url)
        yield server
        server.shutdown()
        thread.join()
