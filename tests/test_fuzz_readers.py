"""Readers take spoiled files or refuse them in a few lines; `python -m tests.fuzz_readers` seeks worse."""

import logging
from pathlib import Path

import pytest
from helpers.fuzz_cases import READERS, check, good, spoiled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FOUND = sorted((Path(__file__).parent / "fuzz_found").rglob("*-*.*"))


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# the first call of a reader imports what it needs, on a machine that may be busy
SECONDS = 120


@pytest.fixture
def folder(tmp_path_factory):
    """Empty folders, one per call."""
    return lambda: tmp_path_factory.mktemp("spoiled")


@pytest.mark.parametrize("reader", READERS)
def test_good_files_are_read(reader, folder):
    for name in READERS[reader][1]:
        assert check(reader, name, good(reader, name), folder(), seconds=300) == "read"


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_broke_a_reader_is_refused(path, folder):
    """Kept by the fuzz run; the name of the file stands behind the first `-`."""
    reader, name = path.parent.name.replace("-", " "), path.name.partition("-")[2]
    assert check(reader, name, path.read_bytes(), folder(), seconds=SECONDS) in ("refused", "read")


@pytest.mark.fault(
    "any input file with bytes flipped, removed, inserted or encoded differently",
    "it is read, or refused with its name in at most six lines",
)
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_spoiled_files(reader, folder, data):
    names = sorted(READERS[reader][1])
    name = data.draw(st.sampled_from(names))
    check(
        reader, name, data.draw(spoiled([good(reader, other) for other in names])), folder(), seconds=SECONDS
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [(KeyError("a"), "a"), (ValueError("x" * 9), "x"), (None, "not named"), ("\n" * 9, "a message of")],
)
def test_a_reader_that_breaks_would_be_noticed(monkeypatch, folder, error, message):
    from graphzoo.datasets import DataError

    def broken(path):
        raise (
            error if isinstance(error, Exception) else DataError(f"{path.parent if error else ''}{error}a")
        )

    monkeypatch.setitem(READERS, "broken", (broken, {}))
    with pytest.raises((KeyError, ValueError, AssertionError), match=message) as caught:
        check("broken", "file.txt", b"", folder())
    assert not isinstance(caught.value, DataError)


def test_a_reader_that_hangs_would_be_noticed(monkeypatch, folder):
    from graphzoo.datasets import DataError

    def endless(path):
        try:
            while True:
                pass
        except Exception as error:  # as readers do, and the alarm must not look like damage
            raise DataError(f"{path}: damaged") from error

    monkeypatch.setitem(READERS, "endless", (endless, {}))
    with pytest.raises(AssertionError, match="not done"):
        check("endless", "file.txt", b"", folder(), seconds=0.05)
