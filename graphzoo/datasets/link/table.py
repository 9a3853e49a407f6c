"""The table of graphs for link prediction: files, counts, protocols, addresses. Standard library only.

Hashes and sizes are in `link_files.json` beside this file, by path below the data root. A file has no hash if
its original was not available; the counts of the parsed graph are checked nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphzoo.datasets.files.sources import Archive, DataFile, FileSource, find_row, with_bases
from graphzoo.errors import UsageError, normalise, suggestion

# Commits of a copy of the download of Li et al.; its files are checked by their hashes.
_SPLITS = "https://raw.githubusercontent.com/selinceydeli/LPFormer"
_COMMITS = {
    "citeseer": "ac1816173c85c9a3354489abc9b144afc9cd1a73",
    "pubmed": "53e4bac1cf3459a4b01dde4d01df5ff3709005d5",
}
_HEART = "https://cse.msu.edu/~shomerha/HeaRT-Data/dataset.tar.gz"
_OGB = "http://snap.stanford.edu/ogb/data/linkproppred"
_PAIRS = ("train_pos", "valid_pos", "valid_neg", "test_pos", "test_neg")
# The protocol in which a link that the files list twice counts as two links.
AS_LISTED = "nbfnet"
# Protocols whose split is drawn by `split_index`.
DRAWN = ("ours", "vgae", AS_LISTED)


@dataclass(frozen=True)
class LinkCounts:
    """Expected counts of the parsed graph; a count of 0 is unknown and not checked."""

    nodes: int
    train: int  # links as the files list them
    valid: int
    test: int
    features: int = 0


@dataclass(frozen=True)
class LinkSource(FileSource):
    """One row of the table; its folder and files are those of the split. Last fields: see `LinkGraph`."""

    _facts = ("graphzoo.datasets.link", "link_files.json")

    counts: LinkCounts
    protocols: tuple[str, ...]  # the first is the default
    node_graph: str = ""  # row of the table of node graphs that has the features and all edges; empty if none
    heart_folder: str = ""  # folder of HeaRT's negatives, below the data root
    heart_files: tuple[DataFile, ...] = ()  # published negatives of HeaRT, for validation and for test
    ppr_tolerance: float = 1e-7  # see `hard_negatives`
    metric: str = "mrr"  # of the default protocol
    is_directed: bool = False
    valid_edges_at_test: bool = False
    may_recur: bool = False

    def is_drawn(self, protocol: str) -> bool:
        """Whether a protocol of this row draws its split by `split_index`."""
        return protocol in DRAWN or (protocol == "heart-ours" and self.protocols[0] == DRAWN[0])

    def protocol(self, name: str | None) -> str:
        """A protocol of the row by name; None takes the default.

        Raises:
            UsageError: if the data set has no such protocol; the message lists its protocols.
        """
        if name is None:
            return self.protocols[0]
        if normalise(name) == "original" and self.protocols[0] == "ogb":
            return "ogb"  # Li et al. call it the original setting
        known = {normalise(protocol): protocol for protocol in self.protocols}
        if normalise(name) in known:
            return known[normalise(name)]
        hint = suggestion(name, self.protocols)
        raise UsageError(f"{self.name} has no protocol {name!r}; it has {', '.join(self.protocols)}. {hint}")

    @property
    def heart(self) -> LinkSource:
        """The row with the files of HeaRT's negatives in place of those of the split."""
        return replace(
            self,
            folder=self.heart_folder,
            files=self.heart_files,
            archive=None,
            note=f"they are part of {_HEART}; --data.protocol heart-ours computes negatives instead",
        )


def list_link_graphs() -> list[str]:
    """Names of the graphs of the table, in its order."""
    return [source.name for source in _SOURCES]


def find_link_source(name: str) -> LinkSource:
    """The row of a data set; case, `-` and `_` do not matter.

    Raises:
        UsageError: if there is no such row; the message names the nearest one.
    """
    return find_row(_SOURCES, name, kind="graph", own="links")


def _heart_files(*bases: str) -> tuple[DataFile, ...]:
    return with_bases(bases, [f"heart_{split}_samples.npy" for split in ("valid", "test")])


def _planetoid(name: str, counts: LinkCounts, *, usual: str, has_negatives: bool = False) -> LinkSource:
    bases = [f"{_SPLITS}/{_COMMITS[name]}/dataset/{name}"] if name in _COMMITS else []
    folder = f"linkpred/heart/{name}"
    others = [known for known in ("original", "heart", "heart-ours", *DRAWN) if known != usual]
    return LinkSource(
        f"{name}-link",
        folder,
        "MIT (kimiyoung/planetoid, Juanhui28/HeaRT); none stated by the copy of the split",
        "Li et al., Evaluating Graph Neural Networks for Link Prediction, NeurIPS 2023; features: Yang et "
        "al., ICML 2016",
        with_bases(bases, [f"{part}.txt" for part in _PAIRS]),
        counts,
        (usual, *others),
        node_graph=name,
        heart_folder=folder,
        heart_files=_heart_files(*bases) if has_negatives else _heart_files(),
        note="" if bases else f"they are part of {_HEART}; --data.protocol ours draws a split instead",
    )


def _ogb(
    name: str,
    archive: str,
    num_bytes: int,
    counts: LinkCounts,
    *,
    split: str,
    metric: str,
    licence: str,
    protocols: tuple[str, ...] = ("ogb",),
    is_directed: bool = False,
    valid_edges_at_test: bool = False,
    mapping: str = "",
) -> LinkSource:
    paths = ["raw/num-node-list.csv.gz", *(["raw/node-feat.csv.gz"] if counts.features else [])]
    paths += [f"split/{split}/{part}.pt" for part in ("train", "valid", "test")]
    optional = [DataFile(mapping, optional=True)] if mapping else []
    return LinkSource(
        f"ogbl-{name}",
        f"ogb/ogbl_{name}",
        licence,
        "Hu et al., Open Graph Benchmark, NeurIPS 2020",
        (*map(DataFile, paths), *optional),
        counts,
        protocols,
        metric=metric,
        heart_folder=f"linkpred/heart/ogbl-{name}",
        heart_files=_heart_files() if "heart" in protocols else (),
        archive=Archive(f"{_OGB}/{archive}.zip", f"{archive}/", num_bytes),
        is_directed=is_directed,
        valid_edges_at_test=valid_edges_at_test,
        may_recur=valid_edges_at_test or is_directed,
        ppr_tolerance=1e-5,
    )


_SOURCES = (
    _planetoid("cora", LinkCounts(2_708, 4_488, 263, 527, 1_433), usual="ours"),
    _planetoid("citeseer", LinkCounts(3_327, 3_870, 227, 455, 3_703), usual="original", has_negatives=True),
    _planetoid("pubmed", LinkCounts(19_717, 37_676, 2_216, 4_432, 500), usual="original"),
    _ogb(
        "ddi",
        "ddi",
        46_000_000,
        LinkCounts(4_267, 1_067_911, 133_489, 133_489),
        split="target",
        metric="hits@20",
        licence="CC-0 (OGB)",
        protocols=("ogb", "heart", "heart-ours"),
        mapping="mapping/nodeidx2drugid.csv.gz",
    ),
    _ogb(
        "collab",
        "collab",
        118_000_000,
        LinkCounts(235_868, 1_179_052, 60_084, 46_329, 128),
        split="time",
        metric="hits@50",
        licence="ODC-BY (OGB)",
        protocols=("ogb", "heart"),
        valid_edges_at_test=True,
    ),
    _ogb(
        "ppa",
        "ppassoc",
        0,
        LinkCounts(576_289, 21_231_931, 6_062_562, 3_031_780, 58),
        split="throughput",
        metric="hits@100",
        licence="CC-0 (OGB)",
    ),
    _ogb(
        "citation2",
        "citation-v2",
        0,
        LinkCounts(2_927_963, 30_387_995, 86_596, 86_596, 128),
        split="time",
        metric="mrr",
        licence="ODC-BY (OGB)",
        is_directed=True,
    ),
)
