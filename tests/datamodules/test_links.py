"""Splits and features of own links in files, arrays and memory."""

import numpy as np
import pytest
import torch
from helpers.link_files import write_links
from helpers.link_graphs import make_link_graph

from graphzoo.datamodules import LinkDataModule
from graphzoo.errors import UsageError

LINKS = make_link_graph().train


def test_split_index_of_link_files_is_accepted_only_if_a_split_is_drawn(tmp_path):
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


def test_split_index_of_links_in_memory_is_accepted_only_if_a_split_is_drawn():
    assert LinkDataModule(edge_index=LINKS.t(), split_index=1).num_splits is None
    assert LinkDataModule(edge_index=make_link_graph()).num_splits == 1
    with pytest.raises(UsageError, match="communities has one split, 0: there is no split_index 2"):
        LinkDataModule(edge_index=make_link_graph(), split_index=2)


def test_own_features_are_standardised_or_scaled_as_in_the_training_of_a_model(tmp_path):
    """Without this, `age` in years would outweigh a feature of zeros and ones."""
    draw = np.random.default_rng(0)
    (tmp_path / "edges.csv").write_text(
        "".join(f"{u},{(u + k) % 40}\n" for u in range(40) for k in (1, 2, 7))
    )
    rows = [f"{u},{draw.integers(20, 60)},{u % 2}" for u in range(40)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,age,member", *rows]) + "\n")

    def make(**settings):
        module = LinkDataModule(path=str(tmp_path), **settings)
        module.setup()
        return module

    own = make()
    assert own.features_in_words.startswith("standardised")
    torch.testing.assert_close(own.x.std(0, correction=0), torch.ones(2))
    own.batching = "sources"
    assert own.features_in_words == "", "encoders of queries read none"
    left = make(standardize_features=False)
    assert torch.equal(left.x, left.graph.x) and left.features_in_words == ""
    assert make(normalize_features=True).transform.mean is None
    assert make(use_features=False).x is None
    assert len({module.fingerprint for module in (own, left)}) == 2
    with pytest.raises(UsageError, match="cannot be both normalised and standardised"):
        make(normalize_features=True, standardize_features=True)

    described = {**own.transform.describe(), "mean": [0.0, 0.0], "scale": [10.0, 1.0]}
    own.take_features(described)
    torch.testing.assert_close(own.x, own.graph.x / torch.tensor([10.0, 1.0]))
    left.take_features(described)
    assert torch.equal(left.x, left.graph.x), "of another kind: that is refused elsewhere"
    own.setup("fit")
    torch.testing.assert_close(own.x.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
