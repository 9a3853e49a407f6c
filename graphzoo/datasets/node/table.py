"""The table of graphs with node labels: files, counts, hashes, addresses, licence. Standard library only.

Hashes and sizes lie in `node_files.json` beside this file, by path below the data root. Files whose original
was never seen have none; the counts of the parsed graph are checked in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphzoo.datasets.files.sources import Archive, DataFile, find_row, read_facts

__all__ = ["Counts", "NodeSource", "find_node_source", "list_node_graphs"]

_RAW = "https://raw.githubusercontent.com"
# pinned to commits; a branch as second choice is safe too, since every such file has a hash
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
# the file that LINKX's own code fetches
_POKEC = (
    "https://drive.usercontent.google.com/download"
    "?id=1dNs5E7BrWJbgcHeQ_zuy5Ozp2tRCWG0y&export=download&confirm=t"
)
_OGB = "http://snap.stanford.edu/ogb/data/nodeproppred"


@dataclass(frozen=True)
class Counts:
    """What the parsed graph must have; 0 stands for a number that is not known or not fixed.

    Args:
        nodes: N.
        edges: E, both directions counted, without repetitions and self-loops.
        features: F.
        classes: Classes or yes-no labels.
        listed: Edges as the files list them.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    listed: int = 0


@dataclass(frozen=True)
class NodeSource:
    """One row of the table.

    Args:
        name: Name on the command line.
        reader: Module of `graphzoo.datasets.node` and function in it that read the files, "module.function".
        folder: Folder below the data root.
        files: What is read; empty for data that a dependency brings along.
        counts: What the graph must have.
        licence: As stated by the repositories named in the addresses.
        citation: Where the data set was published.
        metric: What it is judged by.
        default_split: The split taken when none is named; empty: the first fixed one.
        archive: What the files are fetched in, None if each has its own address.
        num_neighbors: Neighbours of a node, itself included, for data sets without a graph; 0 for others.
        note: What a user should know.
    """

    name: str
    reader: str
    folder: str
    files: tuple[DataFile, ...]
    counts: Counts
    licence: str
    citation: str
    metric: str = "accuracy"
    default_split: str = ""
    archive: Archive | None = None
    num_neighbors: int = 0
    note: str = ""

    def facts(self, file: DataFile) -> tuple[str | None, int]:
        """sha256 (None if unknown) and size in bytes (0 if unknown) of a file."""
        values = read_facts("graphzoo.datasets.node", "node_files.json").get(f"{self.folder}/{file.path}", {})
        return values.get("sha256"), int(values.get("bytes", 0))


def list_node_graphs() -> list[str]:
    """Names of the table, in its order."""
    return [source.name for source in _SOURCES]


def find_node_source(name: str) -> NodeSource:
    """The row of a data set; case, `-` and `_` do not matter.

    Raises:
        ValueError: if there is none; the message names the nearest.
    """
    return find_row(_SOURCES, name, kind="graph", own="nodes")


def _planetoid(name: str, folder: str, counts: Counts) -> NodeSource:
    stem = name.lower()
    raw = ("x", "y", "allx", "ally", "tx", "ty", "graph", "test.index")
    splits = [f"{stem}_split_0.6_0.2_{index}.npz" for index in range(10)]
    return NodeSource(
        name,
        "planetoid.read_planetoid",
        f"planetoid/{folder}",
        (
            *(
                DataFile(f"raw/ind.{stem}.{part}", tuple(f"{base}/ind.{stem}.{part}" for base in _PLANETOID))
                for part in raw
            ),
            *(
                DataFile(f"geom-gcn-splits/{file}", tuple(f"{base}/splits/{file}" for base in _GEOM_GCN))
                for file in splits
            ),
        ),
        counts,
        "MIT (kimiyoung/planetoid); splits: none stated (geom-gcn)",
        "Yang et al., Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016; ten "
        "splits: Pei et "
        "al., Geom-GCN, ICLR 2020",
    )


def _masked(name: str, folder: str, counts: Counts, metric: str = "accuracy") -> NodeSource:
    file = f"{folder}.npz"
    return NodeSource(
        name,
        "masked.read_masked",
        f"heterophilous/{folder}/raw",
        (DataFile(file, (f"{_HETEROPHILOUS}/{file}",)),),
        counts,
        "MIT (yandex-research/heterophilous-graphs)",
        "Platonov et al., A Critical Look at the Evaluation of GNNs under Heterophily, ICLR 2023",
        metric=metric,
    )


def _ogb(
    name: str,
    archive: str,
    num_bytes: int,
    counts: Counts,
    *,
    data: tuple[str, ...],
    split: str = "",
    reader: str = "ogb.read_ogb",
    optional: tuple[str, ...] = (),
    metric: str = "accuracy",
    default_split: str = "",
    licence: str,
    citation: str = "Hu et al., Open Graph Benchmark, NeurIPS 2020",
) -> NodeSource:
    raw = ("edge", "num-node-list", "num-edge-list", "node-label", *data)
    parts = ("train", "valid", "test") if split else ()
    return NodeSource(
        name,
        reader,
        f"ogb/ogbn_{archive}",
        (
            *(DataFile(f"raw/{part}.csv.gz") for part in raw),
            *(DataFile(f"split/{split}/{part}.csv.gz") for part in parts),
            *(DataFile(path, optional=True) for path in optional),
        ),
        counts,
        licence,
        citation,
        metric=metric,
        default_split=default_split,
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
        "actor.read_actor",
        "actor/raw",
        (
            *(
                DataFile(file, tuple(f"{base}/new_data/film/{file}" for base in _GEOM_GCN))
                for file in ("out1_node_feature_label.txt", "out1_graph_edges.txt")
            ),
            *(
                DataFile(file, tuple(f"{base}/splits/{file}" for base in _GEOM_GCN))
                for file in (f"film_split_0.6_0.2_{index}.npz" for index in range(10))
            ),
        ),
        Counts(7_600, 53_318, 932, 5),
        "none stated (graphdml-uiuc-jlu/geom-gcn)",
        "Pei et al., Geom-GCN, ICLR 2020; data of Tang et al., KDD 2009",
        note="the directed edges of the source are stored in both directions, as in published results",
    ),
    NodeSource(
        "deezer",
        "deezer.read_deezer",
        "deezer_europe/raw",
        (
            DataFile(
                "deezer_europe_features.json",
                tuple(f"{base}/deezer_europe_features.json" for base in _DEEZER),
                (".json.gz",),
            ),
            *(
                DataFile(file, tuple(f"{base}/{file}" for base in _DEEZER))
                for file in ("deezer_europe_edges.csv", "deezer_europe_target.csv")
            ),
            DataFile("deezer-europe-splits.npy", (f"{_LINKX}/deezer-europe-splits.npy",)),
        ),
        Counts(28_281, 185_504, 31_241, 2, listed=92_752),
        "MIT (benedekrozemberczki/datasets); splits: none stated (CUAI/Non-Homophily-Large-Scale)",
        "Rozemberczki & Sarkar, Characteristic Functions on Graphs, CIKM 2020; splits: Lim et "
        "al., NeurIPS 2021",
        metric="roc_auc",
    ),
    _masked("tolokers", "tolokers", Counts(11_758, 1_038_000, 10, 2, listed=519_000), "roc_auc"),
    _ogb(
        "ogbn-arxiv",
        "arxiv",
        81_000_000,
        Counts(169_343, 0, 128, 40, listed=1_166_243),
        data=("node-feat",),
        split="time",
        optional=("mapping/labelidx2arxivcategeory.csv.gz",),
        licence="ODC-BY (OGB)",
    ),
    _ogb(
        "ogbn-proteins",
        "proteins",
        216_000_000,
        Counts(132_534, 0, 8, 112, listed=39_561_252),
        data=("edge-feat",),
        split="species",
        reader="ogb.read_proteins",
        metric="roc_auc",
        licence="CC-0 (OGB)",
    ),
    NodeSource(
        "pokec",
        "linkx.read_linkx",
        "pokec",
        (DataFile("pokec.mat", (_POKEC,)),),
        Counts(1_632_803, 0, 65, 2, listed=30_622_564),
        "none stated (CUAI/Non-Homophily-Large-Scale)",
        "Lim et al., Large Scale Learning on Non-Homophilous Graphs, NeurIPS 2021; data of "
        "Takac & Zabovsky, 2012",
        default_split="random-10-10-80",
        note="no content hash is known: only the counts are checked",
    ),
    _ogb(
        "amazon2m",
        "products",
        1_480_000_000,
        Counts(2_449_029, 0, 100, 47, listed=61_859_140),
        data=("node-feat",),
        default_split="random-50-25-25",
        licence="Amazon licence (OGB)",
        citation="Chiang et al., Cluster-GCN, KDD 2019; the data of ogbn-products of Hu et al., NeurIPS 2020",
    ),
    NodeSource(
        "digits",
        "points.read_digits",
        "",
        (),
        Counts(1_797, 0, 64, 10),
        "BSD-3-Clause (scikit-learn)",
        "Alpaydin & Kaynak, Optical Recognition of Handwritten Digits, UCI 1998; test part, as "
        "in scikit-learn",
        default_split="random-50-25-25",
        num_neighbors=5,
    ),
    NodeSource(
        "20news",
        "points.read_newsgroups",
        "20news",
        (
            DataFile(
                "20news-bydate.tar.gz",
                (
                    "https://ndownloader.figshare.com/files/5975967",
                    "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
                ),
            ),
        ),
        Counts(9_607, 0, 0, 10),
        "none stated (J. Rennie)",
        "Lang, NewsWeeder, ICML 1995; ten groups and features as in NodeFormer",
        default_split="random-50-25-25",
        num_neighbors=5,
    ),
    NodeSource(
        "mini-imagenet",
        "points.read_mini_imagenet",
        "mini-imagenet",
        (DataFile("mini_imagenet.pkl", alternatives=(".npz",)),),
        Counts(18_000, 0, 128, 30),
        "none stated",
        "Vinyals et al., Matching Networks, NeurIPS 2016; features of NodeFormer's authors",
        default_split="random-50-25-25",
        num_neighbors=5,
        note="it is in the Google Drive folder that the README of github.com/qitianwu/NodeFormer names",
    ),
)
