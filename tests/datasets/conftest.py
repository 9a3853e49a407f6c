"""Each test has its own cache folder and sees none of the machine's data settings unless it asks for them."""

import os
from pathlib import Path

import pytest

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
    """Write files below the test's folder: write("kg/train.txt", [("a", "r", "b")]) or bytes."""

    def write_file(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, bytes):
            content = "".join("\t".join(row) + "\n" for row in content).encode()
        path.write_bytes(content)
        return path

    return write_file
