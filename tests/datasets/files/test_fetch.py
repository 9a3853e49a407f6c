"""Downloads from a local server with many kinds of faults."""

import http.server
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from graphzoo.datasets import DataError, DownloadError, load_knowledge_graph
from graphzoo.datasets.files import fetch
from graphzoo.datasets.kg import files as kg_files
from graphzoo.datasets.kg.table import KGSource

SPLITS = ("train", "valid", "test")
FILES = {
    f"{split}.txt": (resources.files("graphzoo") / "data" / "umls" / f"{split}.txt").read_bytes()
    for split in SPLITS
}


class Server(http.server.ThreadingHTTPServer):
    """A server of UMLS; `faults[path]` lists one fault per request, None for a correct answer."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults, self.requests, self.ranges = {}, Counter(), []
        self.delay = 0.0
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *args):
        """Keep the test output quiet."""

    def do_GET(self):
        path, name = self.path, self.path.rsplit("/", 1)[1]
        server = self.server
        server.requests[path] += 1
        time.sleep(server.delay)
        faults = server.faults.get(path) or server.faults.get("*", [])
        fault = faults.pop(0) if faults else None
        body, start = FILES[name], 0
        asked = self.headers.get("Range")
        if isinstance(fault, int):
            self.send_error(fault)
            return
        if fault == "html":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><html>log in</html>")
            return
        if fault == "plain html":
            body, asked = b"\n <html>log in</html>", None
        if fault == "flip":
            body = body[:500] + bytes([body[500] ^ 1]) + body[501:]
        if fault == "short":
            body = body[: body.rindex(b"\n", 0, len(body) // 2) + 1]
        if asked and fault != "no range":
            start = int(asked.removeprefix("bytes=").split("-")[0]) - 1000 * (fault == "early")
            server.ranges.append((path, start))
            if start >= len(body):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        if fault == "nothing":
            return
        if fault == "truncate":
            self.wfile.write(body[start : start + 10_000])
            return
        if fault == "stall":
            self.wfile.write(body[start : start + 1_000])
            self.wfile.flush()
            time.sleep(1.0)
            return
        self.wfile.write(body[start:])


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(fetch, "_BACKOFF", 0.01)
    monkeypatch.setattr(fetch, "_TIMEOUT", 0.5)


def row(*urls):
    return KGSource("toy", "UMLS", "", "", tuple(f"{url}/{{split}}.txt" for url in urls))


def fetched(source, root):
    files = kg_files.provide(source, "UMLS", root=root)
    for split in SPLITS:
        assert files[split].read_bytes() == FILES[f"{split}.txt"]
    return files


def only_files(folder):
    """The files in a folder except locks; partial files would be among them."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".download.lock")


def test_a_download_has_the_complete_files(server, tmp_path, capsys):
    files = fetched(row(server.url), tmp_path / "root")
    folder = tmp_path / "root" / "kg" / "UMLS"
    assert files["train"] == folder / "train.txt"
    assert only_files(folder) == ["test.txt", "train.txt", "valid.txt"]
    said = capsys.readouterr().err
    assert "326 kB" in said and str(folder) in said
    before = server.requests.total()
    fetched(row(server.url), tmp_path / "root")
    assert server.requests.total() == before


@pytest.mark.fault(
    "a download breaks off or stalls, or the server temporarily answers 429 or 500",
    "tried again; no partial file remains",
)
@pytest.mark.parametrize("fault", ["truncate", "stall", "short", "flip", 500, 503, 429])
def test_temporary_faults_are_retried(server, tmp_path, fault):
    server.faults["/train.txt"] = [fault]
    fetched(row(server.url), tmp_path)
    assert server.requests["/train.txt"] == 2
    assert only_files(tmp_path / "kg" / "UMLS") == ["test.txt", "train.txt", "valid.txt"]


def test_a_broken_transfer_is_continued(server, tmp_path):
    server.faults["/train.txt"] = ["truncate", "truncate"]
    fetched(row(server.url), tmp_path)
    assert server.ranges == [("/train.txt", 10_000), ("/train.txt", 20_000)]


def test_a_connection_that_always_breaks_finishes_in_parts(server, tmp_path):
    server.faults["/train.txt"] = ["truncate"] * 99
    fetched(row(server.url), tmp_path)
    assert server.requests["/train.txt"] == len(FILES["train.txt"]) // 10_000 + 1


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.faults["/train.txt"] = ["truncate", "no range"]
    fetched(row(server.url), tmp_path)
    # the server sent the whole file, not the rest; it must not be appended
    assert server.requests["/train.txt"] == 2


def test_another_part_than_the_one_asked_for_is_not_taken(server, tmp_path):
    server.faults["/train.txt"] = ["truncate", "early"]
    wanted = fetch.RemoteFile("train.txt", (f"{server.url}/train.txt",), lambda part: None, 0)
    paths = fetch.provide_files("toy", "toy", [wanted], root=tmp_path)
    assert paths["train.txt"].read_bytes() == FILES["train.txt"]
    assert server.ranges == [("/train.txt", 9_000)]


@pytest.mark.fault(
    "a partial download belongs to another file", "removed; the download starts from the beginning"
)
def test_a_partial_file_of_another_file_is_removed(server, tmp_path):
    """The partial file of an interrupted process may be longer than the file, or have other content."""
    server.faults["/train.txt"] = ["truncate", *["nothing"] * 99]
    with pytest.raises(DownloadError):
        kg_files.provide(row(server.url), "UMLS", root=tmp_path)
    (part,) = (tmp_path / "kg" / "UMLS").glob(".train.txt.*.part")
    assert part.stat().st_size == 10_000
    for rubbish in (b"x" * 1_000_000, b"y" * 100):
        part.write_bytes(rubbish)
        server.faults.clear()
        (tmp_path / "kg" / "UMLS" / "train.txt").unlink(missing_ok=True)
        fetched(row(server.url), tmp_path)
    assert server.ranges[-2:] == [("/train.txt", 1_000_000), ("/train.txt", 100)]


@pytest.mark.fault("an address returns 403, 404 or a web page", "the next mirror is tried")
@pytest.mark.parametrize("fault", [403, 404, "html", "plain html"])
def test_the_mirror_of_a_refusing_address_is_tried(server, tmp_path, fault):
    for split in SPLITS:
        server.faults[f"/one/{split}.txt"] = [fault]
    fetched(row(f"{server.url}/one", f"{server.url}/two"), tmp_path)
    assert server.requests["/one/train.txt"] == server.requests["/two/train.txt"] == 1


def test_a_mirror_does_not_continue_the_download_of_another(server, tmp_path):
    server.faults["/one/train.txt"] = ["truncate", 403]
    fetched(row(f"{server.url}/one", f"{server.url}/two"), tmp_path)
    assert server.ranges == []
    assert only_files(tmp_path / "kg" / "UMLS") == ["test.txt", "train.txt", "valid.txt"]


@pytest.mark.fault(
    "every address sends a wrong, short or empty file",
    "the message has addresses, place and remedy; the wrong file is never kept",
)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (403, "HTTP 403"),
        ("html", "web page"),
        ("plain html", "web page"),
        ("flip", "wrong content"),
        ("short", "different lines instead of 5,216"),
        ("nothing", "the connection ended after 0 of"),
        (500, "HTTP 500"),
    ],
)
def test_wrong_files_from_every_address(server, tmp_path, fault, reason):
    server.faults["*"] = [fault] * 99
    with pytest.raises(DownloadError) as caught:
        kg_files.provide(row(server.url), "UMLS", root=tmp_path)
    message = str(caught.value)
    assert reason in message
    assert len(message.splitlines()) <= 6
    assert f"{server.url}/train.txt" in message
    assert str(tmp_path / "kg" / "UMLS" / "train.txt") in message
    assert "GRAPHZOO_DATA" in message
    assert not (tmp_path / "kg" / "UMLS" / "train.txt").exists()


@pytest.mark.fault("there is no connection", "the message has the address")
def test_no_connection(tmp_path):
    with pytest.raises(DownloadError, match="no connection"):
        kg_files.provide(row("http://127.0.0.1:9"), "UMLS", root=tmp_path)


@pytest.mark.fault(
    "a file is missing and GRAPHZOO_OFFLINE is set", "the message has its place; the network is not used"
)
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_offline_does_not_connect(server, tmp_path, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    with pytest.raises(DownloadError) as caught:
        kg_files.provide(
            row(server.url), "UMLS", root=tmp_path, download=False if how == "argument" else True
        )
    assert server.requests.total() == 0
    message = str(caught.value)
    assert len(message.splitlines()) <= 6
    for part in (
        f"{server.url}/train.txt",
        str(tmp_path / "kg/UMLS/train.txt"),
        "GRAPHZOO_DATA",
        "graphzoo download",
    ):
        assert part in message
    assert not (tmp_path / "kg").exists()


def test_files_put_by_hand_are_used(server, tmp_path):
    folder = tmp_path / "kg" / "UMLS"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_bytes(FILES["train.txt"])
    fetched(row(server.url), tmp_path)
    assert server.requests["/train.txt"] == 0


@pytest.mark.fault("the data root is read-only", "files go to the cache folder")
def test_a_read_only_root_is_never_written_to(server, tmp_path, own_cache, monkeypatch):
    root = tmp_path / "root"
    (root / "kg").mkdir(parents=True)
    real = os.access
    # root ignores permissions, so the check is replaced
    monkeypatch.setattr(
        os, "access", lambda path, mode: not Path(path).is_relative_to(root) and real(path, mode)
    )
    files = fetched(row(server.url), root)
    assert files["train"] == own_cache / "data" / "kg" / "UMLS" / "train.txt"
    assert list(root.rglob("*")) == [root / "kg"]
    before = server.requests.total()
    fetched(row(server.url), root)
    assert server.requests.total() == before


def test_graphzoo_mirror_is_tried_first(server, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHZOO_MIRROR", f"{server.url}/data/")
    fetched(row(f"{server.url}/public"), tmp_path)
    assert server.requests["/data/kg/UMLS/train.txt"] == 1
    assert server.requests["/public/train.txt"] == 0


def test_a_data_set_without_a_public_file(tmp_path):
    with pytest.raises(DataError, match="no public file has this layout"):
        load_knowledge_graph("yago310-quarter", root=tmp_path)


def test_a_download_of_another_data_set_is_refused(server, tmp_path, monkeypatch):
    """The server gives UMLS for Kinship, which is refused by its counts before it gets its name."""
    monkeypatch.setenv("GRAPHZOO_MIRROR", server.url)
    source = KGSource("kinship", "Kinship", "", "", (f"{server.url}/{{split}}.txt",))
    with pytest.raises(DownloadError, match="5,216 different lines instead of 8,544"):
        kg_files.provide(source, "Kinship", root=tmp_path)
    assert only_files(tmp_path / "kg" / "Kinship") == []


@pytest.mark.fault("four processes need the same file at once", "one download")
def test_four_processes_download_once(server, tmp_path):
    server.delay = 0.1
    code = (
        "import sys\n"
        "from graphzoo.datasets.kg import files as kg_files\n"
        "from graphzoo.datasets.kg.table import KGSource\n"
        "source = KGSource('toy', 'UMLS', '', '', (sys.argv[1] + '/{split}.txt',))\n"
        "files = kg_files.provide(source, 'UMLS', root=sys.argv[2])\n"
        "assert all(path.stat().st_size > 1000 for path in files.values())\n"
    )
    command = [sys.executable, "-c", code, server.url, str(tmp_path)]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    errors = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [0] * 4, errors
    assert server.requests == {f"/{split}.txt": 1 for split in SPLITS}
    assert only_files(tmp_path / "kg" / "UMLS") == ["test.txt", "train.txt", "valid.txt"]
