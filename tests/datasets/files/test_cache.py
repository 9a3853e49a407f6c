"""The cache of parsed tensors: its keys, damaged entries, and folders that cannot be written."""

import os
import subprocess
from pathlib import Path

import pytest
from helpers.warm_python import python

from graphzoo.datasets import DataError, GraphzooDataWarning, from_files
from graphzoo.datasets.files import cache as store
from graphzoo.datasets.kg import own as own_module


@pytest.fixture
def folder(write, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MIN_BYTES", 0)
    rows = [("a", "r", "b"), ("b", "r", "c"), ("a", "r", "b")]
    (
        write("own/train.txt", rows),
        write("own/valid.txt", [("a", "r", "c")]),
        write("own/test.txt", [("c", "r", "a")]),
    )
    return tmp_path / "own"


def stored(own_cache):
    return sorted((own_cache / "parsed").glob("*.npz"))


def load(folder):
    with pytest.warns(GraphzooDataWarning, match="1 duplicate triple in train") as caught:
        graph, _ = from_files(folder)
    return graph, [str(warning.message) for warning in caught]


def test_the_second_load_does_not_parse_and_warns_again(folder, own_cache, monkeypatch):
    graph, lines = load(folder)
    assert len(stored(own_cache)) == 1
    assert graph.split_name == "given"
    assert sorted(path.name for path in folder.iterdir()) == ["test.txt", "train.txt", "valid.txt"]

    def no_parsing(*args, **kwargs):
        raise AssertionError("parsed again")

    monkeypatch.setattr(own_module, "read_triples", no_parsing)
    again, more_lines = load(folder)
    assert again.fingerprint == graph.fingerprint and again.split_name == "given"
    assert more_lines == lines
    monkeypatch.chdir(folder.parent)
    assert load(Path("own/../own"))[0].fingerprint == graph.fingerprint, (
        "the way to the files does not matter"
    )


def test_an_error_of_the_computation_is_not_taken_for_one_of_the_cache(tmp_path, caplog):
    calls = []

    def make():
        calls.append(1)
        raise OSError(5, "the data cannot be read")

    with pytest.raises(OSError, match="the data cannot be read"):
        store.kept(tmp_path / "entry", make, bytes, bytes, what="a result", damaged=print)
    assert len(calls) == 1 and not caplog.records


def test_a_result_that_cannot_be_stored_is_made_once(tmp_path, caplog):
    def write(*_):
        raise OSError(28, "No space left on device")

    made = iter(["result"])
    options = {"what": "a result", "damaged": print}
    assert store.kept(tmp_path / "entry", lambda: next(made), bytes, write, **options) == "result"
    assert "no cache of a result" in caplog.text and "No space left" in caplog.text


def test_other_bytes_have_another_entry(folder, own_cache, write):
    first, _ = load(folder)
    write("own/valid.txt", [("b", "r", "a")])
    second, _ = load(folder)
    assert first.fingerprint != second.fingerprint
    assert len(stored(own_cache)) == 2


@pytest.mark.fault("a cached graph is truncated, empty or changed", "rebuilt from the files, with a warning")
@pytest.mark.parametrize("damage", ["truncate", "empty", "flip"])
def test_damaged_entry_is_rebuilt_with_a_warning(folder, own_cache, damage):
    graph, _ = load(folder)
    (entry,) = stored(own_cache)
    data = entry.read_bytes()
    middle = data.index(b"a\nb\nc")
    entry.write_bytes(
        {"truncate": data[:100], "empty": b"", "flip": data[:middle] + b"x" + data[middle + 1 :]}[damage]
    )
    with pytest.warns(GraphzooDataWarning) as caught:
        again, _ = from_files(folder)
    rebuilt, counted = (str(warning.message) for warning in caught)
    assert rebuilt.startswith(f"cached data rebuilt: {entry}") and "duplicate" in counted
    assert again.fingerprint == graph.fingerprint
    assert len(load(folder)[1]) == 1


@pytest.mark.fault("the cache folder cannot be written", "a warning; files are parsed each time")
def test_a_cache_folder_that_cannot_be_written(folder, tmp_path, monkeypatch, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    graph, _ = load(folder)
    assert graph.train.size(0) == 2
    assert "no cache of parsed data" in caplog.text


@pytest.mark.fault("several processes write the same cache entry at once", "one complete entry")
def test_concurrent_processes_write_one_complete_entry(folder, own_cache):
    code = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from graphzoo.datasets import from_files\nfrom graphzoo.datasets.files import cache as store\n"
        "store._MIN_BYTES = 0\n"
        "print(from_files(sys.argv[1])[0].fingerprint)"
    )
    runs = [
        subprocess.Popen([python(), "-c", code, str(folder)], stdout=subprocess.PIPE, env=os.environ.copy())
        for _ in range(3)
    ]
    outputs = {run.communicate(timeout=120)[0] for run in runs}
    assert all(run.returncode == 0 for run in runs)
    assert len(outputs) == 1
    assert len(stored(own_cache)) == 1
    assert not list((own_cache / "parsed").glob(".*.tmp"))


@pytest.mark.fault("a sparse data file of 20 GB", "refused before it is read, also for the cache")
def test_sparse_files_are_not_read_for_the_key(folder, monkeypatch):
    digest = store.hashlib.file_digest

    def small(file, name):
        assert os.fstat(file.fileno()).st_size < 1 << 20, "it takes minutes"
        return digest(file, name)

    monkeypatch.setattr(store.hashlib, "file_digest", small)
    with (folder / "train.txt").open("r+b") as file:
        file.truncate(20 << 30)
    with pytest.raises((OSError, ValueError), match="are holes"):
        from_files(folder)


def test_two_names_of_one_file_have_entries_of_their_own(tmp_path, own_cache, monkeypatch):
    """The ending of a name decides how the file is read."""
    monkeypatch.setattr(store, "_MIN_BYTES", 0)
    (tmp_path / "blob").write_text("".join(f"a{i % 20},r,b{i % 7}\n" for i in range(140)))
    for name in ("facts.csv", "facts.tsv"):
        (tmp_path / name).symlink_to(tmp_path / "blob")
    from_files(tmp_path / "facts.csv")
    with pytest.raises(DataError, match="expected 3 columns"):
        from_files(tmp_path / "facts.tsv")
