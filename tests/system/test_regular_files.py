"""Files of unknown origin are read only if they are regular and small enough."""

import os

import pytest

from graphzoo.datasets.files.tables import read_bytes
from graphzoo.errors import DataError
from graphzoo.system import regular_files as regular_files_module
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import free_bytes
from graphzoo.system.regular_files import (
    copy_regular,
    open_regular,
    read_regular,
    read_regular_text,
)


def make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "endless": path, "gone": "nowhere"}[kind])


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "endless", "gone"])
def test_only_regular_files_are_opened(tmp_path, kind):
    make(kind, tmp_path / "x")
    for read in (open_regular, read_regular, read_regular_text, read_json):
        with pytest.raises(OSError):
            read(tmp_path / "x")


def test_sizes_are_bounded(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, most=100) == b"x" * 100
    with pytest.raises(OSError, match=r"larger than 99 bytes \(100\)"):
        open_regular(path, most=99)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    for read in (read_regular, read_regular_text, read_json):
        with pytest.raises(OSError, match="larger than|are holes"):
            read(path)


def test_of_a_log_that_grows_the_present_part_is_read(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"step\n1\n2\n")
    fstat = os.fstat

    def before(descriptor):
        facts = fstat(descriptor)
        return os.stat_result((*facts[:6], 7, *facts[7:]))  # of three lines two were there

    monkeypatch.setattr(regular_files_module.os, "fstat", before)
    assert read_regular(path, most=99, grows=True) == b"step\n1\n"
    assert read_regular_text(path, grows=True) == "step\n1\n"
    with pytest.raises(OSError, match="grows while it is read"):
        read_regular(path, most=99)


@pytest.mark.fault("a data file is larger than the free memory", "refused before it is read, with both sizes")
def test_a_file_larger_than_the_free_memory_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "train.txt"
    path.write_bytes(b"a\tb\tc\n" * 1000)
    monkeypatch.setattr(regular_files_module, "MOST_TEXT", 100)
    monkeypatch.setattr(regular_files_module, "free_bytes", lambda: 6000)
    assert len(read_regular(path)) == 6000
    monkeypatch.setattr(regular_files_module, "free_bytes", lambda: 5999)
    with pytest.raises(DataError, match=r"train.txt: .*it has 0.0 GiB, but 0.0 GiB of memory are free"):
        read_bytes(path)
    assert read_regular(path, most=6000), "a given bound replaces the check of the memory"
    monkeypatch.setattr(regular_files_module, "free_bytes", lambda: None)
    assert len(read_regular(path)) == 6000


@pytest.mark.skipif(not os.path.isfile("/proc/meminfo"), reason="only Linux has /proc/meminfo")
def test_free_bytes_of_this_machine():
    assert 2**20 < free_bytes() < 2**50


def test_a_copy_follows_no_link(tmp_path):
    (tmp_path / "secret").write_text("s")
    (tmp_path / "link").symlink_to("secret")
    assert read_regular(tmp_path / "link") == b"s"
    with pytest.raises(OSError, match="a link, not a regular file"):
        copy_regular(tmp_path / "link", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.fault("a sparse file of 20 GB in the graph of a run to export", "refused; it is not copied")
def test_sparse_files_are_not_copied(tmp_path):
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", 1 << 30)
    with pytest.raises(OSError, match="are holes"):
        copy_regular(tmp_path / "x", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_json_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "x").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="deep"):
        read_json(tmp_path / "x")


@pytest.mark.parametrize("text", ["", "mrr: 0.5", "{'mrr': 0.5}"])
def test_text_that_is_not_json_is_refused(tmp_path, text):
    (tmp_path / "x").write_text(text)
    with pytest.raises(ValueError, match=r"^not valid JSON: .+ line 1 column"):
        read_json(tmp_path / "x")
