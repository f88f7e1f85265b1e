"""The exercise of chapter 11 about the memory that a forward pass keeps for its backward pass."""

from __future__ import annotations

from collections.abc import Callable

from course_utils.exercises.declare import exercise

_L, _R, _G = "linear", "relu", "gelu"


@exercise(
    "profiling-6",
    title="Bytes kept for backward, by hand",
    difficulty="hard",
    minutes=15,
    cases=[
        ([(_L, 3, 5)], 2),
        ([(_L, 3, 5), (_R,)], 2),
        ([(_L, 3, 5), (_R,), (_L, 5, 2)], 2),
        ([(_L, 3, 5), (_G,)], 2),
        ([(_L, 4, 8), (_G,), (_L, 8, 2)], 3),
        ([(_L, 4, 8), (_L, 8, 2)], 3),
        ([(_L, 3, 5), (_R,), (_G,), (_L, 5, 2), (_G,), (_R,)], 4),
        ([(_L, 3, 5), (_R,), (_R,), (_L, 5, 2)], 2),
        ([(_L, 784, 256), (_R,), (_L, 256, 256), (_R,), (_L, 256, 10)], 64),
    ],
    expected=[24, 64, 64, 64, 240, 144, 272, 104, 331_776],
    keep_arguments=True,
    describe=lambda layers, batch_size: f"kept_bytes({layers}, batch_size={batch_size})",
    hints=[
        "Number the tensors: 0 is the input, 1 what the first layer returns, 2 what the second returns. Which of these "
        "numbers does each layer keep? The output of one layer is the input of the next.",
        "A linear layer and a GELU at place i keep tensor i, a ReLU keeps tensor i + 1. Two layers may name the same "
        "tensor, so collect the numbers in a set.",
        "The width of a tensor changes at a linear layer only, to its outputs; keep a list of widths, one a tensor. "
        "Add up the widths of the set; each stands for batch_size numbers of 4 bytes.",
    ],
    lesson="bytes_for_backward(lambda: model(inputs).sum()) counts the same in any model: compare yours with it.",
)
def kept_bytes(layers: list[tuple], batch_size: int) -> int:
    """Bytes that a forward pass of float32 layers keeps until backward, its weights not counted.

    layers     : ("linear", inputs, outputs), ("relu",) or ("gelu",), in the order in which they
                 run; the first one is linear. The network gets a tensor (batch_size, inputs)
    batch_size : rows in each tensor
    returns    : bytes of the tensors that are kept, each piece of memory counted once. The
                 parameters are there anyway and do not count; what is done with the network's
                 output keeps nothing, as in outputs.sum()

    What backward needs: of a linear layer its input, for the gradient of the weight; of a ReLU
    its output, whose zeros say where nothing passes; of a GELU its input. The output of a layer
    and the input of the next one are the same tensor.

    kept_bytes([("linear", 3, 5), ("relu",), ("linear", 5, 2)], 2): the input of 2 x 3 numbers and
    the ReLU's output of 2 x 5, which is the second layer's input too. 16 numbers are 64 bytes.
    """
    widths, kept = [layers[0][1]], set()
    for place, (kind, *shape) in enumerate(layers):
        widths.append(shape[1] if kind == "linear" else widths[-1])
        kept.add(place + 1 if kind == "relu" else place)
    return 4 * batch_size * sum(widths[tensor] for tensor in kept)


def _widths(layers) -> list[int]:
    """Of the input and of what each layer returns."""
    widths = [layers[0][1]]
    for kind, *shape in layers:
        widths.append(shape[1] if kind == "linear" else widths[-1])
    return widths


def _keeps(place: int, kind: str) -> list[int]:
    """The tensors that a layer keeps; tensor 0 is the network's input."""
    return [place + 1 if kind == "relu" else place]


def _numbers(layers, batch_size, keeps: Callable = _keeps, *, once: bool = True) -> int:
    """Numbers that are kept: those of all tensors that `keeps(place, kind)` names."""
    widths = _widths(layers)
    named = [tensor for place, (kind, *_) in enumerate(layers) for tensor in keeps(place, kind)]
    return batch_size * sum(widths[tensor] for tensor in (set(named) if once else named))


def _parameters(layers, *, bias: bool = True) -> int:
    return sum((inputs + bias) * outputs for inputs, outputs in (shape for _, *shape in layers if shape))


def _form(name: str, keeps: Callable, *, once: bool = True) -> None:
    kept_bytes.form_of(name)(lambda layers, batch_size: 4 * _numbers(layers, batch_size, keeps, once=once))


@kept_bytes.wrong
def counts_a_shared_tensor_twice(layers, batch_size):
    """What a ReLU returns and the next layer reads is one tensor: both keep it, and its memory is there once. Counted
    twice, a network of linear layers and ReLUs seems to need almost double. The same number comes out if a ReLU is
    thought to keep its input: then it would be a tensor more."""
    return 4 * _numbers(layers, batch_size, once=False)


@kept_bytes.wrong
def counts_the_weights(layers, batch_size):
    """The parameters are counted as well. They are there before the forward pass and after backward, and do not grow
    with the batch: what is kept is what a smaller batch, or checkpointing, can save."""
    return 4 * (_numbers(layers, batch_size) + _parameters(layers))


@kept_bytes.form_of("counts_the_weights")
def counts_the_weights_without_biases(layers, batch_size):
    return 4 * (_numbers(layers, batch_size) + _parameters(layers, bias=False))


@kept_bytes.form_of("counts_the_weights")
def counts_the_weights_alone(layers, batch_size):
    return 4 * _parameters(layers)


@kept_bytes.form_of("counts_the_weights")
def counts_the_weights_for_each_row(layers, batch_size):
    return 4 * batch_size * _parameters(layers, bias=False)


@kept_bytes.form_of("counts_the_weights")
def counts_the_weights_and_shared_tensors_twice(layers, batch_size):
    return 4 * (_numbers(layers, batch_size, once=False) + _parameters(layers))


@kept_bytes.wrong
def forgets_what_a_relu_keeps(layers, batch_size):
    """A ReLU is taken for free. Backward asks where its output is 0, so it keeps that output; this is seen where no
    linear layer behind it keeps the same tensor."""
    return 4 * _numbers(layers, batch_size, lambda place, kind: [] if kind == "relu" else [place])


_form("forgets_what_a_relu_keeps", lambda place, kind: [place] if kind == "linear" else [])


@kept_bytes.wrong
def forgets_what_a_gelu_keeps(layers, batch_size):
    """A GELU is taken for free. Its derivative is a function of its input, so it keeps that: with GELU a layer keeps
    two tensors where with ReLU it keeps one."""
    return 4 * _numbers(layers, batch_size, lambda place, kind: [] if kind == "gelu" else _keeps(place, kind))


@kept_bytes.wrong
def keeps_both_sides_of_a_relu(layers, batch_size):
    """Input and output of the ReLU are counted. The output alone tells backward where nothing passes, and the next
    layer keeps it anyway: so the input, what the linear layer returned, is given back at once."""
    return 4 * _numbers(layers, batch_size, lambda place, kind: [place, place + 1] if kind == "relu" else [place])


@kept_bytes.wrong
def lets_a_gelu_keep_its_output(layers, batch_size):
    """The GELU is treated like the ReLU. A GELU has the same output for two inputs, so its slope cannot be read off the
    output: backward needs the input."""
    return 4 * _numbers(layers, batch_size, lambda place, kind: [place if kind == "linear" else place + 1])


_form("lets_a_gelu_keep_its_output", lambda place, kind: [place, place + 1] if kind == "gelu" else _keeps(place, kind))


@kept_bytes.wrong
def counts_what_every_layer_returns(layers, batch_size):
    """Each layer's output is counted. A linear layer's own output is needed by nobody unless the next layer keeps its
    input, and the network's last output is not needed at all; the network's input is."""
    return 4 * _numbers(layers, batch_size, lambda place, kind: [place + 1])


_form("counts_what_every_layer_returns", lambda place, kind: [place, place + 1])
_form("counts_what_every_layer_returns", lambda place, kind: [place, place + 1], once=False)
_form("counts_what_every_layer_returns", lambda place, kind: [place + 1] if kind == "linear" else [])


def _kept(layers) -> set[int]:
    return {tensor for place, (kind, *_) in enumerate(layers) for tensor in _keeps(place, kind)}


@kept_bytes.wrong
def counts_what_the_network_returns(layers, batch_size):
    """The network's output is counted. Backward begins there: the sum needs no number of it, a linear layer keeps its
    input and a GELU too. Only where the last layer is a ReLU is its output kept."""
    return 4 * batch_size * sum(_widths(layers)[tensor] for tensor in _kept(layers) | {len(layers)})


@kept_bytes.form_of("counts_what_the_network_returns")
def adds_what_the_network_returns(layers, batch_size):
    return 4 * (_numbers(layers, batch_size) + batch_size * _widths(layers)[-1])


@kept_bytes.wrong
def tells_tensors_apart_by_their_width(layers, batch_size):
    """Tensors of one shape are taken for one tensor: widths, or shapes, went into the set or were the keys of the dict.
    Two layers of 256 outputs make two tensors. Number the tensors, or use id() or data_ptr()."""
    return 4 * batch_size * sum({_widths(layers)[tensor] for tensor in _kept(layers)})


@kept_bytes.wrong
def leaves_a_relus_output_to_the_next_layer(layers, batch_size):
    """A ReLU's output counts only with the linear layer behind it, or at the end. A ReLU keeps its output whatever
    comes next: of two ReLUs one behind the other both keep theirs."""
    return 4 * _numbers(layers, batch_size, _of_the_last_relu(layers, []))


def _of_the_last_relu(layers, behind: list) -> Callable:
    last = len(layers) - 1
    return lambda place, kind: [place] if kind != "relu" else [place + 1] if place == last else behind


@kept_bytes.form_of("leaves_a_relus_output_to_the_next_layer")
def lets_only_linear_layers_and_the_last_relu_keep(layers, batch_size):
    return 4 * _numbers(
        layers,
        batch_size,
        lambda place, kind: [place] if kind == "linear" else [place + 1] if place == len(layers) - 1 else [],
    )


@kept_bytes.form_of("leaves_a_relus_output_to_the_next_layer")
def drops_a_relu_before_another(layers, batch_size):
    follows = [kind for kind, *_ in layers[1:]] + [None]
    return 4 * _numbers(
        layers,
        batch_size,
        lambda place, kind: [] if kind == "relu" and follows[place] == "relu" else _keeps(place, kind),
    )


@kept_bytes.wrong
def counts_one_tensor_for_each_activation(layers, batch_size):
    """One tensor for each ReLU and GELU is counted, with the input or without: in a net of linear layers and ReLUs by
    turns the sum is right. A linear layer keeps its input for itself, which shows where two follow each other."""
    return 4 * batch_size * _activations_and_input(layers)


def _activations_and_input(layers, *, input_too: bool = True) -> int:
    widths = _widths(layers)
    activations = sum(widths[place] for place, (kind, *_) in enumerate(layers) if kind != "linear")
    return activations + (widths[0] if input_too else 0)


@kept_bytes.form_of("counts_one_tensor_for_each_activation")
def counts_activations_without_the_input(layers, batch_size):
    return 4 * batch_size * _activations_and_input(layers, input_too=False)


@kept_bytes.form_of("counts_one_tensor_for_each_activation")
def counts_what_activations_keep(layers, batch_size):
    return 4 * _numbers(layers, batch_size, lambda place, kind: [] if kind == "linear" else _keeps(place, kind))


@kept_bytes.wrong
def takes_a_relus_output_for_a_mask(layers, batch_size):
    """A ReLU is thought to keep a mask of 1 byte a number. That would do, and torch keeps the output itself, 4 bytes a
    number: the next layer keeps it mostly anyway, and then it costs nothing more."""
    kept = 4 * _numbers(layers, batch_size, lambda place, kind: [] if kind == "relu" else [place])
    return kept + _relus(layers, batch_size)


def _relus(layers, batch_size) -> int:
    widths = _widths(layers)
    return batch_size * sum(widths[place] for place, (kind, *_) in enumerate(layers) if kind == "relu")


@kept_bytes.wrong
def forgets_the_input(layers, batch_size):
    """The network's input is left out. The first layer needs it for the gradient of its weight: for images it is often
    the largest piece of all, and it must not be changed in place before backward."""
    return 4 * _numbers(layers, batch_size, lambda place, kind: [tensor for tensor in _keeps(place, kind) if tensor])


@kept_bytes.wrong
def takes_eight_bytes_a_number(layers, batch_size):
    """Eight bytes a number: that is float64, which NumPy and Python's own floats have. Torch's layers compute in
    float32, 4 bytes a number."""
    return 8 * _numbers(layers, batch_size)


@kept_bytes.wrong
def counts_numbers_for_bytes(layers, batch_size):
    """These are numbers, as numel() counts them. A float32 number takes 4 bytes; tensor.element_size() says it."""
    return _numbers(layers, batch_size)


@kept_bytes.form_of("counts_numbers_for_bytes")
def counts_bits(layers, batch_size):
    return 32 * _numbers(layers, batch_size)


@kept_bytes.wrong
def forgets_the_batch(layers, batch_size):
    """This is for one example. Every tensor has a row for each example of the batch, which is why the memory for
    backward grows with the batch and that of the weights does not."""
    return 4 * _numbers(layers, 1)


@kept_bytes.form_of("forgets_the_batch")
def forgets_the_batch_and_counts_numbers(layers, batch_size):
    return _numbers(layers, 1)
