"""Downloads of splits and archives of link data from a local server; damaged files are removed."""

import io
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from helpers import link_formats
from helpers.served_files import put, stay

from graphzoo.datasets import DownloadError, download, load_link_graph
from graphzoo.datasets.link import table
from graphzoo.datasets.node import table as node_table


@pytest.fixture
def local(monkeypatch):
    """Replace all addresses, so that only the mirror can be reached."""
    find_links, find_nodes = table.find_link_source, node_table.find_node_source

    def closed(files):
        return tuple(
            replace(file, urls=tuple("http://127.0.0.1:9/x" for _ in file.urls[:1])) for file in files
        )

    def links(name):
        source = find_links(name)
        archive = source.archive and replace(
            source.archive, url=f"http://127.0.0.1:9/{Path(source.archive.url).name}"
        )
        return replace(
            source, files=closed(source.files), heart_files=closed(source.heart_files), archive=archive
        )

    def nodes(name):
        return replace(find_nodes(name), files=closed(find_nodes(name).files))

    for room, name, find in (("link", "find_link_source", links), ("node", "find_node_source", nodes)):
        for module in (f"{room}.load", "by_name"):
            monkeypatch.setattr(import_module(f"graphzoo.datasets.{module}"), name, find)


def serve(mirror, real_data, folder):
    for path in (real_data / folder).rglob("*"):
        if path.is_file():
            put(mirror, str(path.relative_to(real_data)), path.read_bytes())


def test_split_negatives_and_features_of_citeseer(mirror, local, real_data, tmp_path, capsys):
    for folder in ("linkpred/heart/citeseer", "planetoid/CiteSeer"):
        serve(mirror, real_data, folder)
    root = tmp_path / "root"
    assert download("citeseer-link", root) == root / "linkpred" / "heart" / "citeseer"
    assert stay(root / "linkpred") == sorted(
        f"heart/citeseer/{name}"
        for name in (
            *(f"{part}.txt" for part in ("train_pos", "valid_pos", "valid_neg", "test_pos", "test_neg")),
            *(f"heart_{split}_samples.npy" for split in ("valid", "test")),
        )
    )
    said = capsys.readouterr().err
    assert "fetching citeseer-link (train_pos.txt, valid_pos.txt, valid_neg.txt and 2 more files" in said
    for protocol in ("original", "heart"):
        graph = load_link_graph("citeseer-link", protocol=protocol, root=root, download=False)
        expected = load_link_graph("citeseer-link", protocol=protocol, root=real_data)
        assert graph.fingerprint == expected.fingerprint
    before = mirror.requests.total()
    download("citeseer-link", root)
    assert mirror.requests.total() == before


def test_cora_needs_only_its_graph(mirror, local, real_data, tmp_path):
    serve(mirror, real_data, "planetoid/Cora")
    root = tmp_path / "root"
    assert download("cora-link", root) == root / "planetoid" / "Cora"
    assert load_link_graph("cora-link", root=root, download=False).protocol == "ours"


def test_wrong_bytes_do_not_get_the_files_name(mirror, local, real_data, tmp_path):
    for folder in ("linkpred/heart/citeseer", "planetoid/CiteSeer"):
        serve(mirror, real_data, folder)
    put(mirror, "linkpred/heart/citeseer/test_pos.txt", b"1\t2\n")
    with pytest.raises(DownloadError) as caught:
        load_link_graph("citeseer-link", root=tmp_path / "root")
    assert "wrong content (sha256" in str(caught.value) and len(str(caught.value).splitlines()) <= 6
    assert "linkpred/heart/citeseer/test_pos.txt" not in stay(tmp_path / "root")


def archive(kind, folder):
    write = folder / "written"
    link_formats.write_ogb(write, kind)
    prefix = {"ppa": "ppassoc", "citation2": "citation-v2"}.get(kind, kind)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as content:
        for path in sorted(write.rglob("*")):
            if path.is_file():
                content.write(path, f"{prefix}/{path.relative_to(write)}")
    return f"{prefix}.zip", buffer.getvalue()


@pytest.mark.parametrize("kind", link_formats.SPLITS)
def test_archive_of_ogb(mirror, local, monkeypatch, tmp_path, kind):
    monkeypatch.setattr(table.LinkSource, "facts", lambda source, file: (None, 0))
    name, data = archive(kind, tmp_path)
    put(mirror, f"ogb/ogbl_{kind}/{name}", data)
    root = tmp_path / "root"
    assert download(f"ogbl-{kind}", root) == root / "ogb" / f"ogbl_{kind}"
    found = stay(root)
    # files that are not read are not unpacked
    assert f"ogb/ogbl_{kind}/split/{link_formats.SPLITS[kind]}/train.pt" in found
    assert not any(path.endswith(("edge.csv.gz", ".zip")) for path in found)
    written = tmp_path / "written"
    for path in found:
        assert (root / path).read_bytes() == (
            written / Path(path).relative_to(f"ogb/ogbl_{kind}")
        ).read_bytes()


def test_a_damaged_archive_is_removed(mirror, local, monkeypatch, tmp_path):
    monkeypatch.setattr(table.LinkSource, "facts", lambda source, file: (None, 0))
    name, data = archive("collab", tmp_path)
    put(mirror, f"ogb/ogbl_collab/{name}", data[: len(data) // 2])
    with pytest.raises(DownloadError, match="not a complete zip archive"):
        download("ogbl-collab", tmp_path / "root")
    assert stay(tmp_path / "root") == []


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="Did you mean: citeseer-link"):
        download("citeser-link")
    with pytest.raises(ValueError, match="links stands for your own files"):
        download("links")


def test_a_download_does_not_import_torch(mirror, tmp_path, real_data):
    serve(mirror, real_data, "linkpred/heart/citeseer")
    serve(mirror, real_data, "planetoid/CiteSeer")
    code = (
        "import sys\n"
        "from graphzoo.datasets.by_name import download\n"
        "print(download('citeseer-link', sys.argv[1]))\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "root")]
    run = subprocess.run(command, env=os.environ.copy(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().endswith("citeseer")
