"""Downloads of single files and archives from a local server; damaged files are removed."""

import gzip
import io
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from helpers import node_formats
from helpers.served_files import put, stay

from graphzoo.datasets import (
    DataError,
    DownloadError,
    download,
    list_knowledge_graphs,
    load_node_graph,
)
from graphzoo.datasets.files.provide import provide_source_files
from graphzoo.datasets.node import table


@pytest.fixture
def local(monkeypatch):
    """Replace all addresses, so that only the mirror can be reached."""
    found = table.find_node_source

    def without_addresses(name):
        source = found(name)
        files = tuple(replace(file, urls=()) for file in source.files)
        archive = source.archive and replace(
            source.archive, url=f"http://127.0.0.1:9/{Path(source.archive.url).name}"
        )
        return replace(source, files=files, archive=archive)

    for module in ("node.load", "by_name"):
        found_in = import_module(f"graphzoo.datasets.{module}")
        monkeypatch.setattr(found_in, "find_node_source", without_addresses)
    return without_addresses


def test_files_of_a_data_set(mirror, local, real_data, tmp_path, capsys):
    source = local("cora")
    for file in source.files:
        put(
            mirror, f"planetoid/Cora/{file.path}", (real_data / "planetoid" / "Cora" / file.path).read_bytes()
        )
    root = tmp_path / "root"
    assert download("cora", root) == root / "planetoid" / "Cora"
    assert stay(root / "planetoid" / "Cora") == sorted(file.path for file in source.files)
    said = capsys.readouterr().err
    assert "fetching cora (ind.cora.x, ind.cora.y, ind.cora.allx and 15 more files, about 593 kB)" in said
    graph = load_node_graph("cora", root=root, download=False)
    assert graph.fingerprint == load_node_graph("cora", root=real_data).fingerprint
    before = mirror.requests.total()
    download("cora", root)
    assert mirror.requests.total() == before


def test_wrong_bytes_do_not_get_the_files_name(mirror, local, tmp_path):
    put(mirror, "heterophilous/tolokers/raw/tolokers.npz", b"PK" + bytes(1000))
    with pytest.raises(DownloadError) as caught:
        load_node_graph("tolokers", root=tmp_path / "root")
    assert "wrong content (sha256" in str(caught.value) and len(str(caught.value).splitlines()) <= 6
    assert stay(tmp_path / "root") == []


@pytest.fixture
def arxiv(mirror, local, monkeypatch):
    monkeypatch.setattr(table.NodeSource, "facts", lambda source, file: (None, 0))
    put(mirror, "ogb/ogbn_arxiv/arxiv.zip", node_formats.ogb_zip("arxiv"))
    return local("ogbn-arxiv")


def test_an_archive_is_unpacked_and_removed(mirror, arxiv, tmp_path, capsys):
    root = tmp_path / "root"
    assert download("ogbn-arxiv", root) == root / "ogb" / "ogbn_arxiv"
    tables = node_formats.ogb_tables("arxiv")
    assert stay(root) == sorted(f"ogb/ogbn_arxiv/{name}.csv.gz" for name in tables)
    for name, values in tables.items():
        assert (root / "ogb" / "ogbn_arxiv" / f"{name}.csv.gz").read_bytes() == node_formats.csv_gz(values)
    assert "81.0 MB" in capsys.readouterr().err
    assert mirror.requests == {"/ogb/ogbn_arxiv/arxiv.zip": 1}
    provide_source_files(arxiv, root=root, download=False)
    assert mirror.requests.total() == 1


def test_an_archive_put_by_hand_is_used_and_kept(mirror, arxiv, tmp_path):
    folder = tmp_path / "root" / "ogb" / "ogbn_arxiv"
    folder.mkdir(parents=True)
    (folder / "arxiv.zip").write_bytes(node_formats.ogb_zip("arxiv"))
    files = provide_source_files(arxiv, root=tmp_path / "root", download=False)
    assert files["raw/edge.csv.gz"] == folder / "raw" / "edge.csv.gz"
    assert (folder / "arxiv.zip").exists() and mirror.requests.total() == 0


@pytest.mark.fault(
    "an archive that the user put in place is damaged inside",
    "refused; the damaged file is not unpacked under its name",
)
def test_damaged_archive_put_by_hand(mirror, arxiv, tmp_path):
    folder = tmp_path / "root" / "ogb" / "ogbn_arxiv"
    folder.mkdir(parents=True)
    for data in (b"", flip_in_member(node_formats.ogb_zip("arxiv"))):
        (folder / "arxiv.zip").write_bytes(data)
        with pytest.raises(DataError, match="arxiv.zip: not the archive of ogbn-arxiv"):
            provide_source_files(arxiv, root=tmp_path / "root")
        # the damaged member does not get its name
        assert not any(path.startswith("ogb/ogbn_arxiv/raw/edge.csv") for path in stay(tmp_path / "root"))


def test_archive_in_a_read_only_root(mirror, arxiv, tmp_path, own_cache, monkeypatch):
    root = tmp_path / "root"
    folder = root / "ogb" / "ogbn_arxiv"
    folder.mkdir(parents=True)
    (folder / "arxiv.zip").write_bytes(node_formats.ogb_zip("arxiv"))
    real = os.access
    # root ignores permissions, so the check is replaced
    monkeypatch.setattr(
        os, "access", lambda path, mode: not Path(path).is_relative_to(root) and real(path, mode)
    )
    files = provide_source_files(arxiv, root=root)
    assert files["raw/edge.csv.gz"] == own_cache / "data" / "ogb" / "ogbn_arxiv" / "raw" / "edge.csv.gz"
    assert stay(root) == ["ogb/ogbn_arxiv/arxiv.zip"]
    assert provide_source_files(arxiv, root=root) == files


def flip_in_member(data):
    # after the header of the first member's gzip stream
    position = data.index(b"\x1f\x8b") + 15
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def spoil_compressed(data):
    """OGB's own archives are compressed; 7 begins a block of a kind that does not exist."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.namelist():
            new.writestr(item, old.read(item))
        first = new.infolist()[0]
    position = first.header_offset + 30 + len(first.filename)
    return buffer.getvalue()[:position] + b"\x07" + buffer.getvalue()[position + 1 :]


def without_member(data, name):
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for item in old.namelist():
            if item != name:
                new.writestr(item, old.read(item))
    return buffer.getvalue()


@pytest.mark.fault(
    "a downloaded archive is truncated, a web page, changed, or lacks a file",
    "refused; nothing is unpacked or kept",
)
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[: len(data) // 2], "not a complete zip archive"),
        (lambda data: b"<html>log in</html>", "web page"),
        (lambda data: b"", "not a complete zip archive"),
        (flip_in_member, "is damaged in the archive"),
        (spoil_compressed, "not a complete zip archive"),
        (
            lambda data: without_member(data, "arxiv/raw/edge.csv.gz"),
            "arxiv/raw/edge.csv.gz is not in the archive",
        ),
    ],
    ids=["cut off", "html", "empty", "flipped", "compressed", "member"],
)
def test_a_damaged_archive_is_removed(mirror, arxiv, tmp_path, damage, reason):
    put(mirror, "ogb/ogbn_arxiv/arxiv.zip", damage(node_formats.ogb_zip("arxiv")))
    root = tmp_path / "root"
    with pytest.raises(DownloadError) as caught:
        provide_source_files(arxiv, root=root)
    message = str(caught.value)
    assert reason in message and len(message.splitlines()) <= 6
    assert f"put it at: {root}/ogb/ogbn_arxiv/arxiv.zip" in message
    assert stay(root) == []


@pytest.mark.fault(
    "an archive holds paths such as `../x` or `/x`", "only the known files of the data set are unpacked"
)
def test_members_with_paths_outside_the_folder_are_not_unpacked(mirror, arxiv, tmp_path):
    outside = tmp_path / "harmed"
    buffer = io.BytesIO(node_formats.ogb_zip("arxiv"))
    with zipfile.ZipFile(buffer, "a") as archive:
        for name in ("../harmed", "../../../harmed", str(outside), "arxiv/raw/../../../../../harmed"):
            archive.writestr(name, b"harm")
    put(mirror, "ogb/ogbn_arxiv/arxiv.zip", buffer.getvalue())
    files = provide_source_files(arxiv, root=tmp_path / "root")
    assert all(path.is_relative_to(tmp_path / "root" / "ogb" / "ogbn_arxiv") for path in files.values())
    assert not list(tmp_path.rglob("harmed"))


def test_offline_is_refused_with_file_and_place(arxiv, mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    root = tmp_path / "root"
    with pytest.raises(DownloadError) as caught:
        load_node_graph("ogbn-arxiv", root=root)
    message = str(caught.value)
    for part in (
        "ogbn-arxiv: arxiv.zip is missing and cannot be downloaded: GRAPHZOO_OFFLINE is set",
        f"put it at: {root}/ogb/ogbn_arxiv/arxiv.zip",
        "GRAPHZOO_DATA",
        "graphzoo download ogbn-arxiv",
    ):
        assert part in message
    assert len(message.splitlines()) <= 6 and mirror.requests.total() == 0
    assert not root.exists()


def test_a_packed_file_may_be_unpacked(real_data, tmp_path, monkeypatch):
    """Deezer's features may be a .json or a .json.gz file; a damaged .gz file is refused."""
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    raw = tmp_path / "deezer_europe" / "raw"
    raw.mkdir(parents=True)
    for file in (real_data / "deezer_europe" / "raw").iterdir():
        (raw / file.name).write_bytes(file.read_bytes())
    packed = raw / "deezer_europe_features.json.gz"
    data = packed.read_bytes()
    for damaged in (data[: len(data) // 2], data[:2000] + bytes(100) + data[2100:]):
        packed.write_bytes(damaged)
        with pytest.raises(DataError, match="deezer_europe_features.json.gz: damaged or cut off"):
            load_node_graph("deezer", root=tmp_path)
    (raw / "deezer_europe_features.json").write_bytes(gzip.decompress(data))
    assert load_node_graph("deezer", root=tmp_path).num_nodes == 28_281


def test_download_knows_both_tables():
    with pytest.raises(ValueError, match="Did you mean: citeseer"):
        download("citeser")
    with pytest.raises(ValueError, match="Did you mean: wn18rr"):
        download("wn18r")
    with pytest.raises(
        ValueError, match="digits: a dependency brings it along: there is nothing to download"
    ):
        download("digits")
    with pytest.raises(ValueError, match="your own files"):
        download("nodes")
    assert download("umls").name == "umls"
    assert not set(list_knowledge_graphs()) & set(table.list_node_graphs())


def test_three_processes_unpack_once(mirror, tmp_path):
    put(mirror, "ogb/ogbn_arxiv/arxiv.zip", node_formats.ogb_zip("arxiv"))
    code = (
        "import sys\n"
        "from graphzoo.datasets.files.provide import provide_source_files\n"
        "from graphzoo.datasets.node.table import find_node_source\n"
        "files = provide_source_files(find_node_source('ogbn-arxiv'), root=sys.argv[1])\n"
        "assert all(path.stat().st_size for path in files.values())\n"
        "assert 'torch' not in sys.modules\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "root")]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ.copy()) for _ in range(3)]
    errors = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [0] * 3, errors
    assert stay(tmp_path / "root") == sorted(
        f"ogb/ogbn_arxiv/{name}.csv.gz" for name in node_formats.ogb_tables("arxiv")
    )
