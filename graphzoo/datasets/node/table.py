"""The table of graphs with node labels: files, counts, hashes, addresses, licence. Standard library only.

Hashes and sizes are in `node_files.json` beside this file, by path below the data root. A file has no hash if
its original was not available; the counts of the parsed graph are checked nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphzoo.datasets.files.sources import Archive, DataFile, FileSource, find_row, with_bases

_RAW = "https://raw.githubusercontent.com"
# Addresses name a commit. Those of a branch, as the second choice, are safe: each such file has a hash.
_PLANETOID = (
    f"{_RAW}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data",
    f"{_RAW}/kimiyoung/planetoid/master/data",
)
_GEOM_GCN = (
    f"{_RAW}/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f",
    f"{_RAW}/graphdml-uiuc-jlu/geom-gcn/master",
)
_HETEROPHILOUS = f"{_RAW}/yandex-research/heterophilous-graphs/a431395582e929d88271309716bea4fe24ce6318/data"
_DEEZER = (
    f"{_RAW}/benedekrozemberczki/datasets/d6ddac3ad88ff05b40ddbec4a711b7d1f50387a2/deezer_europe",
    f"{_RAW}/benedekrozemberczki/datasets/master/deezer_europe",
)
_LINKX = f"{_RAW}/CUAI/Non-Homophily-Large-Scale/6cac7c49a0dc59d27d64fbaf94bcc243bde555ac/data/splits"
# The file that the code of LINKX downloads.
_POKEC = (
    "https://drive.usercontent.google.com/download"
    "?id=1dNs5E7BrWJbgcHeQ_zuy5Ozp2tRCWG0y&export=download&confirm=t"
)
_OGB = "http://snap.stanford.edu/ogb/data/nodeproppred"
_NEWS = (
    "https://ndownloader.figshare.com/files/5975967",
    "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
)
_HALF = "random-50-25-25"


@dataclass(frozen=True)
class Counts:
    """Expected counts of the parsed graph; a count of 0 is unknown or not fixed, and is not checked."""

    nodes: int
    edges: int  # in both directions, without repeats and self-loops
    features: int
    classes: int  # or yes-no labels
    listed: int = 0  # edges as the files list them


@dataclass(frozen=True)
class NodeSource(FileSource):
    """One row of the table."""

    _facts = ("graphzoo.datasets.node", "node_files.json")

    reader: str  # function that reads the files: "module.function" in `graphzoo.datasets.node`
    counts: Counts
    metric: str = "accuracy"
    default_split: str = ""  # split that is used if none is named; empty takes the first fixed one
    num_neighbors: int = 0  # neighbours of a point, itself included, of data without a graph; 0 for others


def list_node_graphs() -> list[str]:
    """Names of the graphs of the table, in its order."""
    return [source.name for source in _SOURCES]


def find_node_source(name: str) -> NodeSource:
    """The row of a data set; case, `-` and `_` do not matter.

    Raises:
        UsageError: if there is no such row; the message names the nearest one.
    """
    return find_row(_SOURCES, name, kind="graph", own="nodes")


def _planetoid(name: str, folder: str, counts: Counts) -> NodeSource:
    raw = ("x", "y", "allx", "ally", "tx", "ty", "graph", "test.index")
    splits = [f"{name}_split_0.6_0.2_{index}.npz" for index in range(10)]
    return NodeSource(
        name,
        f"planetoid/{folder}",
        "MIT (kimiyoung/planetoid); splits: none stated (geom-gcn)",
        "Yang et al., Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016; ten splits: "
        "Pei et al., Geom-GCN, ICLR 2020",
        with_bases(_PLANETOID, [f"ind.{name}.{part}" for part in raw], "raw/")
        + with_bases([f"{base}/splits" for base in _GEOM_GCN], splits, "geom-gcn-splits/"),
        "readers.read_planetoid",
        counts,
    )


def _masked(name: str, folder: str, counts: Counts, metric: str = "accuracy") -> NodeSource:
    return NodeSource(
        name,
        f"heterophilous/{folder}/raw",
        "MIT (yandex-research/heterophilous-graphs)",
        "Platonov et al., A Critical Look at the Evaluation of GNNs under Heterophily, ICLR 2023",
        with_bases([_HETEROPHILOUS], [f"{folder}.npz"]),
        "readers.read_masked",
        counts,
        metric,
    )


def _ogb(
    name: str,
    archive: str,
    num_bytes: int,
    counts: Counts,
    *,
    data: str,
    licence: str,
    split: str = "",
    optional: tuple[str, ...] = (),
    reader: str = "ogb.read_ogb",
    citation: str = "Hu et al., Open Graph Benchmark, NeurIPS 2020",
    metric: str = "accuracy",
    default_split: str = "",
) -> NodeSource:
    paths = [f"raw/{part}.csv.gz" for part in ("edge", "num-node-list", "num-edge-list", "node-label", data)]
    if split:
        paths += [f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test")]
    return NodeSource(
        name,
        f"ogb/ogbn_{archive}",
        licence,
        citation,
        (*map(DataFile, paths), *(DataFile(path, optional=True) for path in optional)),
        reader,
        counts,
        metric,
        default_split,
        archive=Archive(f"{_OGB}/{archive}.zip", f"{archive}/", num_bytes),
        note="no content hash is known: archive and counts are checked",
    )


_SOURCES = (
    _planetoid("cora", "Cora", Counts(2_708, 10_556, 1_433, 7)),
    _planetoid("citeseer", "CiteSeer", Counts(3_327, 9_104, 3_703, 6)),
    _planetoid("pubmed", "PubMed", Counts(19_717, 88_648, 500, 3)),
    _masked("squirrel", "squirrel_filtered", Counts(2_223, 93_996, 2_089, 5, listed=46_998)),
    _masked("chameleon", "chameleon_filtered", Counts(890, 17_708, 2_325, 5, listed=8_854)),
    NodeSource(
        "actor",
        "actor/raw",
        "none stated (graphdml-uiuc-jlu/geom-gcn)",
        "Pei et al., Geom-GCN, ICLR 2020; data of Tang et al., KDD 2009",
        with_bases(
            [f"{base}/new_data/film" for base in _GEOM_GCN],
            ["out1_node_feature_label.txt", "out1_graph_edges.txt"],
        )
        + with_bases(
            [f"{base}/splits" for base in _GEOM_GCN],
            [f"film_split_0.6_0.2_{index}.npz" for index in range(10)],
        ),
        "readers.read_actor",
        Counts(7_600, 53_318, 932, 5),
        note="the directed edges of the source are stored in both directions, as in published results",
    ),
    NodeSource(
        "deezer",
        "deezer_europe/raw",
        "MIT (benedekrozemberczki/datasets); splits: none stated (CUAI/Non-Homophily-Large-Scale)",
        "Rozemberczki & Sarkar, Characteristic Functions on Graphs, CIKM 2020; splits: Lim et al., "
        "NeurIPS 2021",
        (
            DataFile(
                "deezer_europe_features.json",
                tuple(f"{base}/deezer_europe_features.json" for base in _DEEZER),
                (".json.gz",),
            ),
            *with_bases(_DEEZER, ["deezer_europe_edges.csv", "deezer_europe_target.csv"]),
            *with_bases([_LINKX], ["deezer-europe-splits.npy"]),
        ),
        "readers.read_deezer",
        Counts(28_281, 185_504, 31_241, 2, listed=92_752),
        "roc_auc",
    ),
    _masked("tolokers", "tolokers", Counts(11_758, 1_038_000, 10, 2, listed=519_000), "roc_auc"),
    _ogb(
        "ogbn-arxiv",
        "arxiv",
        81_000_000,
        Counts(169_343, 0, 128, 40, listed=1_166_243),
        data="node-feat",
        licence="ODC-BY (OGB)",
        split="time",
        optional=("mapping/labelidx2arxivcategeory.csv.gz",),
    ),
    _ogb(
        "ogbn-proteins",
        "proteins",
        216_000_000,
        Counts(132_534, 0, 8, 112, listed=39_561_252),
        data="edge-feat",
        licence="CC-0 (OGB)",
        split="species",
        reader="ogb.read_proteins",
        metric="roc_auc",
    ),
    NodeSource(
        "pokec",
        "pokec",
        "none stated (CUAI/Non-Homophily-Large-Scale)",
        "Lim et al., Large Scale Learning on Non-Homophilous Graphs, NeurIPS 2021; data of Takac & "
        "Zabovsky, 2012",
        (DataFile("pokec.mat", (_POKEC,)),),
        "readers.read_linkx",
        Counts(1_632_803, 0, 65, 2, listed=30_622_564),
        default_split="random-10-10-80",
        note="no content hash is known: only the counts are checked",
    ),
    _ogb(
        "amazon2m",
        "products",
        1_480_000_000,
        Counts(2_449_029, 0, 100, 47, listed=61_859_140),
        data="node-feat",
        licence="Amazon licence (OGB)",
        citation="Chiang et al., Cluster-GCN, KDD 2019; the data of ogbn-products of Hu et al., NeurIPS 2020",
        default_split=_HALF,
    ),
    NodeSource(
        "digits",
        "",
        "BSD-3-Clause (scikit-learn)",
        "Alpaydin & Kaynak, Optical Recognition of Handwritten Digits, UCI 1998; test part, as in "
        "scikit-learn",
        (),
        "points.read_digits",
        Counts(1_797, 0, 64, 10),
        default_split=_HALF,
        num_neighbors=5,
    ),
    NodeSource(
        "20news",
        "20news",
        "none stated (J. Rennie)",
        "Lang, NewsWeeder, ICML 1995; ten groups and features as in NodeFormer",
        (DataFile("20news-bydate.tar.gz", _NEWS),),
        "points.read_newsgroups",
        Counts(9_607, 0, 0, 10),
        default_split=_HALF,
        num_neighbors=5,
    ),
    NodeSource(
        "mini-imagenet",
        "mini-imagenet",
        "none stated",
        "Vinyals et al., Matching Networks, NeurIPS 2016; features of NodeFormer's authors",
        (DataFile("mini_imagenet.pkl", alternatives=(".npz",)),),
        "points.read_mini_imagenet",
        Counts(18_000, 0, 128, 30),
        default_split=_HALF,
        num_neighbors=5,
        note="it is in the Google Drive folder that the README of github.com/qitianwu/NodeFormer names",
    ),
)
