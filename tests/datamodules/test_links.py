"""Which splits own links have: those of files, of arrays and of graphs in memory."""

import numpy as np
import pytest
from helpers.link_files import write_links
from helpers.link_graphs import make_link_graph

from graphzoo.datamodules import LinkDataModule
from graphzoo.errors import UsageError

LINKS = make_link_graph().train


def test_an_index_of_links_is_taken_where_it_draws_something(tmp_path):
    edges, arrays, saved = (tmp_path / name for name in ("edges.csv", "arrays.npz", "saved.npz"))
    edges.write_text("".join(f"{u},{v}\n" for u, v in LINKS.tolist()))
    np.savez(arrays, edge_index=LINKS.t().numpy())
    make_link_graph().save(saved)
    whole, bare = write_links(tmp_path / "whole"), write_links(tmp_path / "bare")
    for part in ("valid", "test"):
        (bare / f"{part}_neg.csv").unlink()
    parts = [str(whole / f"{part}.csv") for part in ("train", "valid", "test")]
    for path in (str(edges), str(arrays), str(bare), parts):
        first, second = (LinkDataModule(path=path, split_index=index) for index in (0, 1))
        assert first.num_splits is second.num_splits is None
        first.setup()
        second.setup()
        assert first.fingerprint != second.fingerprint
    for path in (str(whole), str(saved)):
        assert LinkDataModule(path=path).num_splits == 1
        LinkDataModule(path=path).setup()
        with pytest.raises(UsageError, match="one split, 0: there is no split_index 1\nGive split_index 0"):
            LinkDataModule(path=path, split_index=1).prepare_data()


def test_an_index_of_links_in_memory_is_taken_where_it_draws_something():
    assert LinkDataModule(edge_index=LINKS.t(), split_index=1).num_splits is None
    assert LinkDataModule(edge_index=make_link_graph()).num_splits == 1
    with pytest.raises(UsageError, match="communities has one split, 0: there is no split_index 2"):
        LinkDataModule(edge_index=make_link_graph(), split_index=2)
