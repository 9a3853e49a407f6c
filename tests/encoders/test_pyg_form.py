"""Node encoders with PyG's arguments: numbers of channels, and edges in each of PyG's forms."""

import copy
import inspect
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers.node_cases import CASES, graph
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_torch_csr_tensor

from graphzoo.datamodules import KGDataModule, LinkDataModule, NodeDataModule
from graphzoo.encoders import (
    GNN,
    PENCIL,
    GALiT,
    KnowFormer,
    NodeEncoder,
    NodeFormer,
    PairGNN,
    Polynormer,
    QueryEncoder,
    SGFormer,
    SGFormerPyG,
)
from graphzoo.encoders.any_edges import as_edge_index
from graphzoo.encoders.base import Encoder
from graphzoo.errors import UsageError
from graphzoo.ops.last_result import LastResult
from graphzoo.types import GraphSpec


class SparseTensor:
    """The part of torch_sparse's class that encoders use; the package is not installed."""

    def __init__(self, row, col, value=None):
        self.row, self.col, self.value = row, col, value

    def coo(self):
        return self.row, self.col, self.value


def forms(edge_index, num_nodes=30):
    """The same edges in the other forms of PyG."""
    source, target = edge_index
    ones = torch.ones(source.numel())
    transposed = torch.sparse_coo_tensor(edge_index.flip(0), ones, (num_nodes, num_nodes))
    return {
        "EdgeIndex": EdgeIndex(edge_index.contiguous(), sparse_size=(num_nodes, num_nodes)),
        "sparse COO": transposed,
        "sparse CSR": to_torch_csr_tensor(edge_index.flip(0), size=(num_nodes, num_nodes)),
        "SparseTensor": SparseTensor(target, source),
    }


@pytest.mark.parametrize("name", CASES)
def test_both_forms_make_the_same_encoder(name):
    """A third number adds a linear layer to the states."""
    cls, settings = CASES[name]
    hidden = settings.get("hidden_channels")
    more = {key: value for key, value in settings.items() if key != "hidden_channels"}
    built = []
    for build in (
        lambda: cls(GraphSpec(30, in_channels=9), **settings),
        lambda: cls(9, hidden, **more),
        lambda: cls(in_channels=9, hidden_channels=hidden, **more),
        lambda: cls.from_channels(9, hidden, **more),
        lambda: cls(9, hidden, 4, **more),
    ):
        torch.manual_seed(1)
        built.append(build().eval())
    x, edge_index = graph()
    states, *others, mapped = [encoder(x, edge_index) for encoder in built]
    for other in others:
        assert torch.equal(other, states)
    assert mapped.shape == (30, 4) and built[-1].out_channels == 4
    assert torch.equal(mapped, built[-1].output(states))
    assert isinstance(built[-1], cls) and built[0].out_channels == states.shape[1]


def test_numpy_integers_are_accepted():
    encoder = GALiT(np.int64(9), 8, np.int64(3))
    assert encoder.spec == GraphSpec(np.int64(0), in_channels=9) and type(encoder.spec.in_channels) is int
    assert encoder(*graph()).shape == (30, 3) and type(encoder.output.out_features) is int


@pytest.mark.parametrize("name", CASES)
def test_every_method_applies_the_output_layer_once(name):
    cls, settings = CASES[name]
    encoder = cls(GraphSpec(30, in_channels=9), out_channels=4, **settings).eval()
    x, edge_index = graph()
    expected = encoder(x, edge_index)
    torch.testing.assert_close(encoder.forward_with_auxiliary(x, edge_index)[0], expected)
    precomputed = encoder.precompute(x, edge_index)
    torch.testing.assert_close(encoder(x, edge_index, **precomputed), expected, atol=1e-5, rtol=1e-5)
    for copied in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        torch.testing.assert_close(copied(x, edge_index), expected)


@pytest.mark.parametrize("name", CASES)
def test_edges_in_any_form_give_the_same_states(name):
    cls, settings = CASES[name]
    encoder = cls(9, **settings).eval()
    x, edge_index = graph()
    edge_index = edge_index[:, edge_index[0] < edge_index[1] + 3]  # not symmetric
    expected = encoder(x, edge_index)
    for form, edges in forms(edge_index).items():
        found = encoder(x, edges)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4, msg=form)
    torch.testing.assert_close(encoder(Data(x=x, edge_index=edge_index)), expected)
    by_adjacency = Data(x=x, adj_t=forms(edge_index)["sparse CSR"])
    torch.testing.assert_close(encoder(by_adjacency), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (torch.zeros(5, 2, dtype=torch.int64), r"got \[5, 2\]: transpose it, edge_index.t\(\)"),
        (torch.eye(30), r"a dense adjacency: give adjacency.nonzero\(\).t\(\)"),
        (torch.zeros(4, dtype=torch.int64), r"must be \[2, E\], got \[4\]"),
        (torch.zeros(2, 5), r"must be int64, got float32: give edge_index.long\(\)"),
        (2 * torch.eye(30).to_sparse(), "has weights"),
        (torch.ones(3, 30).to_sparse(), r"must be \[N, N\], got \[3, 30\]"),
        (SparseTensor(torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5])), "has weights"),
        ([[0, 1], [1, 0]], "edges are a list; give edge_index"),
    ],
)
def test_wrong_edges_are_refused(edges, message):
    encoder = GALiT(9, 8)
    for call in (encoder, encoder.forward_with_auxiliary, encoder.precompute):
        with pytest.raises(UsageError, match=message):
            call(torch.randn(30, 9), edges)


def test_weights_of_edges_are_refused():
    x, edge_index = graph()
    with pytest.raises(UsageError, match="weights and attributes of edges are not used"):
        GALiT(9, 8)(x, edge_index, torch.ones(edge_index.shape[1]))
    for name in ("edge_weight", "edge_attr"):
        with pytest.raises(UsageError, match="weights and attributes of edges are not used"):
            GALiT(9, 8)(x, edge_index, **{name: torch.ones(edge_index.shape[1])})
    with pytest.raises(UsageError, match="data needs x and edge_index; it holds y"):
        GALiT(9, 8)(Data(y=x))
    weights = torch.ones(edge_index.shape[1])
    with pytest.raises(UsageError, match="data has edge_weight, which encoders do not use"):
        GALiT(9, 8)(Data(x=x, edge_index=edge_index, edge_weight=weights))


@pytest.mark.parametrize(
    ("args", "settings", "message"),
    [
        ((9, 8, 4, 2), {}, "by position"),
        ((9, 8), {"hidden_channels": 8}, "hidden_channels is given twice"),
        ((), {"in_channels": 9, "spec": GraphSpec(3)}, "one of the two"),
        (("9", 8), {}, "GraphSpec, or in_channels, hidden_channels, out_channels; got a str first"),
        ((torch.zeros(3), 8), {}, "got a Tensor first"),
        ((-1, 8), {}, r"x.shape\[1\], got -1"),
        ((9, 8, 0), {}, "out_channels must be at least 1"),
        ((9, 0), {}, "hidden_channels must be at least 1"),
        ((GraphSpec(3, in_channels=2),), {"out_channels": True}, "out_channels must be a whole number"),
    ],
)
def test_wrong_arguments_are_refused(args, settings, message):
    with pytest.raises(UsageError, match=message):
        GALiT(*args, **settings)


def test_an_encoder_with_an_output_layer_is_saved_and_loaded(tmp_path):
    encoder = NodeFormer(9, 8, 4, num_heads=2).eval()
    found = NodeEncoder.from_pretrained(encoder.save_pretrained(tmp_path / "saved"))
    x, edge_index = graph()
    assert isinstance(found, NodeFormer) and torch.equal(found(x, edge_index), encoder(x, edge_index))
    assert encoder.init_args["out_channels"] == 4 and encoder.init_args["hidden_channels"] == 8


def test_a_sparse_adjacency_is_converted_once():
    kept = LastResult()
    adjacency = forms(graph()[1])["sparse COO"].coalesce()
    assert as_edge_index(adjacency, kept) is as_edge_index(adjacency, kept)


def test_a_subclass_that_calls_super_has_one_output_layer():
    class Doubled(GALiT):
        def forward(self, x, edge_index=None, **settings):
            return 2 * super().forward(x, edge_index, **settings)

    x, edge_index = graph()
    torch.manual_seed(1)
    plain = GALiT(9, 8, 4).eval()
    torch.manual_seed(1)
    doubled = Doubled(9, 8, 4).eval()
    states = (plain(x, edge_index) - plain.output.bias) * 2 + plain.output.bias
    torch.testing.assert_close(doubled(x, edge_index), states)


def test_an_encoder_of_channels_can_be_compiled_and_trained():
    encoder = GALiT(9, 8, 4)
    x, edge_index = graph()
    compiled = torch.compile(encoder, backend="eager")
    torch.testing.assert_close(compiled.eval()(x, edge_index), encoder.eval()(x, edge_index))
    nn.functional.cross_entropy(encoder.train()(x, edge_index), torch.arange(30) % 4).backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_a_misspelt_setting_names_the_encoder_and_the_nearest_setting():
    with pytest.raises(TypeError, match="GALiT: .*'hidden_channel'\nDid you mean: hidden_channels"):
        GALiT(8, hidden_channel=4)
    with pytest.raises(TypeError, match="KnowFormer: .*'num_layer'\nDid you mean: num_layers"):
        KnowFormer(GraphSpec(3, 1), num_layer=4)
    with pytest.raises(TypeError, match="KnowFormer: missing a required argument: 'spec'$"):
        KnowFormer(num_layers=4)


def test_without_a_width_of_features_an_encoder_is_refused():
    with pytest.raises(ValueError, match=r"GALiT needs the width.*\nGive in_channels=x.shape"):
        GALiT(hidden_channels=4)


@pytest.mark.parametrize("form", ["EdgeIndex", "sparse COO", "sparse CSR", "SparseTensor"])
def test_the_same_edges_give_the_same_tensor(form):
    """Cached results of encoders depend on it, also after a validation in inference mode."""
    kept, edge_index = LastResult(), graph()[1]
    edges, others = forms(edge_index)[form], forms(edge_index)[form]
    with torch.inference_mode():
        first = as_edge_index(edges, kept)
    assert as_edge_index(edges, kept) is first and not first.is_inference()
    assert as_edge_index(others, kept) is not first


def test_threads_that_share_an_encoder_get_its_output():
    """Both calls are inside the encoder at the same time, as in a server."""
    meeting = threading.Barrier(2)

    class Meeting(GALiT):
        def forward(self, x, edge_index=None, **settings):
            meeting.wait(timeout=60)
            return super().forward(x, edge_index, **settings)

    encoder, (x, edge_index) = Meeting(9, 8, 4).eval(), graph()
    expected = GALiT.forward(encoder, x, edge_index)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(encoder, x, edge_index) for _ in range(2)]
        assert all(torch.equal(call.result(), expected) for call in calls)


@pytest.mark.parametrize("cls", [GALiT, NodeFormer, SGFormer, SGFormerPyG, Polynormer])
def test_batches_of_graphs_are_refused_by_encoders_with_global_attention(cls):
    x, edge_index = graph()
    data, encoder = Data(x=x, edge_index=edge_index), cls(9, 8, 4).eval()
    both = Batch.from_data_list([data, Data(x=2 * x, edge_index=edge_index)])
    with pytest.raises(UsageError, match=rf"{cls.__name__} attends .*other graphs.*\nGive one graph at a"):
        encoder(both)
    assert torch.equal(encoder(Batch.from_data_list([data])), encoder(data))


def test_encoders_without_global_attention_encode_each_graph_of_a_batch():
    x, edge_index = graph()
    parts = [Data(x=x, edge_index=edge_index), Data(x=2 * x, edge_index=edge_index)]
    for encoder in (GNN(9, 8, 4).eval(), GALiT(9, 8, 4, attention="none").eval()):
        expected = torch.cat([encoder(part) for part in parts])
        torch.testing.assert_close(encoder(Batch.from_data_list(parts)), expected)


@pytest.mark.parametrize("cls", [KnowFormer, PENCIL, PairGNN])
def test_encoders_of_queries_and_pairs_refuse_numbers_of_channels(cls):
    for numbers in ((8,), (8, 32)):
        with pytest.raises(
            UsageError, match=rf"{cls.__name__} takes a GraphSpec first, got 8\nGive GraphSpec\("
        ):
            cls(*numbers)


@pytest.mark.parametrize("cls", [KnowFormer, PENCIL, GALiT])
def test_what_only_describes_a_graph_is_no_spec(cls):
    for spec in ({"num_nodes": 3}, Data(num_nodes=3), None):
        with pytest.raises(UsageError, match=rf"takes a GraphSpec first, got a {type(spec).__name__}"):
            cls(spec=spec)
    with pytest.raises((TypeError, UsageError), match="spec|width"):
        cls()


def test_own_encoders_may_use_weights_of_edges():
    class Weighted(NodeEncoder):
        def __init__(self, spec: GraphSpec):
            super().__init__()
            self.out_channels = spec.in_channels

        def forward(self, x, edge_index, *, edge_weight):
            source, target = edge_index
            return torch.zeros_like(x).index_add(0, target, x[source] * edge_weight[:, None])

    class WithSettings(Weighted):
        def forward(self, x, edge_index, **settings):
            return super().forward(x, edge_index, **settings)

    x, edge_index = graph()
    one, two = (torch.full(edge_index.shape[1:], weight) for weight in (1.0, 2.0))
    for encoder in (Weighted(9), WithSettings(9)):
        states = encoder(x, edge_index, edge_weight=one)
        torch.testing.assert_close(2 * states, encoder(x, edge_index, edge_weight=two))


def test_own_encoders_may_take_a_number_first():
    class Mine(QueryEncoder):  # made by a factory from a spec
        def __init__(self, num_relations, width):
            super().__init__()
            self.relations = torch.nn.Embedding(num_relations, width)

        def forward(self, graph, head, relation, *, edge_mask=None, noise_seed=None):
            raise NotImplementedError

    assert Mine(3, 8).relations.weight.shape == (3, 8)


def test_own_node_encoders_may_have_other_arguments():
    class Mine(NodeEncoder):
        def __init__(self, in_channels, hidden_channels, out_channels):
            super().__init__()
            self.out_channels = out_channels
            self.map = torch.nn.Linear(in_channels, hidden_channels)
            self.last = torch.nn.Linear(hidden_channels, out_channels)

        def forward(self, x, edge_index):
            return self.last(self.map(x))

    class Same(GALiT):
        def __init__(self, *sizes, **settings):
            super().__init__(*sizes, **settings)

    x, edge_index = graph()
    sizes = {"in_channels": 9, "hidden_channels": 8, "out_channels": 4}
    for cls in (Mine, Same):
        for encoder in (cls(9, 8, 4), cls(**sizes), cls.from_channels(9, 8, 4)):
            assert encoder(x, edge_index).shape == (30, 4)

    class Short(Mine):
        def __init__(self, in_channels, hidden_channels):
            super().__init__(in_channels, hidden_channels, 4)

    class Named(GALiT):
        def __init__(self, graph_spec: GraphSpec, **settings):
            super().__init__(graph_spec, **settings)

    assert Short.from_channels(9, 8)(x, edge_index).shape == (30, 4)
    for encoder in (Named(9, 8, 4), Named(**sizes), Named.from_channels(9, 8, 4)):
        assert encoder(x, edge_index).shape == (30, 4)


def test_type_checkers_accept_all_forms_of_init():
    """They read `__init__` and `__new__`, not the metaclass that adds the other forms."""
    for cls in (*(cls for cls, _ in CASES.values()), NodeDataModule, LinkDataModule, KGDataModule):
        assert inspect.getsource(cls.__init__).lstrip().startswith("@has_other_forms"), cls
    assert Encoder.__new__.__annotations__["return"] == "Self"
