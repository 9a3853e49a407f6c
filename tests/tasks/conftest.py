import pytest
from helpers.node_graphs import write_npz

from graphzoo.datamodules import NodeDataModule


@pytest.fixture
def small(tmp_path):
    """`small(**changes, settings={...})` makes a NodeDataModule of the small graph."""

    def make(settings=None, **changes):
        path = write_npz(tmp_path / f"small{len(list(tmp_path.iterdir()))}.npz", **changes)
        return NodeDataModule(name="nodes", path=path, **(settings or {}))

    return make
