"""The exercise of chapter 11 about a step's operations, and the share of the peak that it reaches."""

from __future__ import annotations

from itertools import pairwise

from course_utils.exercises.declare import exercise


@exercise(
    "profiling-4",
    title="Operations of a step, and its share of the peak",
    difficulty="medium",
    minutes=12,
    cases=[
        (1, [2, 3], 1.0, 1.0),
        (32, [100, 50], 0.5, 8.0),
        (10, [100, 200, 50], 2.0, 10.0),
        (64, [784, 256, 256, 10], 4.0, 50.0),
        (128, [32, 64, 64, 64, 8], 1.6, 20.0),
    ],
    expected=[
        (24, 2.4e-5),
        (640_000, 0.16),
        (1_400_000, 0.07),
        (77_529_088, 0.38764544),
        (7_733_248, 0.241664),
    ],
    parts=("the operations", "the share"),
    keep_arguments=True,
    imports="from itertools import pairwise",
    hints=[
        "A product of matrices (B, I) and (I, O) makes B * O numbers, each from I multiplications and I additions. "
        "Which matrices does the forward pass multiply, and which two products does backward make for each layer?",
        "Backward makes the weight's gradient, (O, B) times (B, I), and the gradient of the layer's inputs, (B, O) "
        "times (O, I): each as dear as the forward product. The data needs no gradient.",
        "So the first layer has two products and each other one three, of 2 * B * I * O operations each. Then bring "
        "both to operations a second: 1 ms is 1e-3 s, 1 GFLOP/s is 1e9 a second.",
    ],
    lesson="speed_limit does this for any model: flops_of counts the products, matmul_peak_gflops measures the peak.",
)
def share_of_peak(batch_size: int, widths: list, step_ms: float, peak_gflops: float) -> tuple:
    """Operations of a training step of linear layers, and the share of the peak that it reaches.

    batch_size  : examples in the step
    widths      : of the network, at least two: [784, 256, 10] are two layers with 784 inputs and
                  256 outputs, and with 256 inputs and 10 outputs
    step_ms     : forward and backward together took so many milliseconds
    peak_gflops : the machine multiplies matrices at so many 1e9 operations a second
    returns     : (operations, share). Counted are the matrix products of forward and backward, a
                  multiplication and an addition as two operations; not counted are biases,
                  activations, the loss and the optimizer. The share goes from 0 to 1, not rounded

    Every weight gets a gradient. The network's inputs are data and get none.

    share_of_peak(1, [2, 3], 1.0, 1.0): forward 2 * 1 * 2 * 3 = 12 operations, the weight's
    gradient 12 more. 24 in 1 ms are 24,000 a second, of 1e9: the result is (24, 0.000024).
    """
    operations = 0
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        num_products = 2 if layer == 0 else 3
        operations += num_products * 2 * batch_size * inputs * outputs
    return operations, operations / (step_ms * 1e-3) / (peak_gflops * 1e9)


def _first_two_others_three(layer: int, num_layers: int) -> int:
    return 2 if layer == 0 else 3


def _operations(batch_size, widths, products=_first_two_others_three, bias=0) -> int:
    """`products(layer, num_layers)` products in each layer, and `bias` additions for each of its outputs."""
    layers = list(pairwise(widths))
    return sum(
        products(place, len(layers)) * 2 * batch_size * inputs * outputs + bias * batch_size * outputs
        for place, (inputs, outputs) in enumerate(layers)
    )


def _with_share(operations, step_ms, peak_gflops) -> tuple:
    return operations, operations / (step_ms * 1e-3) / (peak_gflops * 1e9)


def _counting(**how):
    return lambda batch_size, widths, step_ms, peak_gflops: _with_share(
        _operations(batch_size, widths, **how), step_ms, peak_gflops
    )


def _always(number: float):
    return {"products": lambda layer, num_layers: number}


@share_of_peak.wrong
def counts_macs(batch_size, widths, step_ms, peak_gflops):
    """A multiplication with its addition is counted as one: these are MACs, half of the FLOPs. Peaks are given in
    FLOPs, so that a step at 80 % of the peak would seem to reach 40 %."""
    return _with_share(_operations(batch_size, widths) // 2, step_ms, peak_gflops)


for _number in (0.5, 1.5):
    share_of_peak.form_of("counts_macs")(_counting(**_always(_number)))


@share_of_peak.wrong
def counts_the_forward_pass_alone(batch_size, widths, step_ms, peak_gflops):
    """Only the forward pass is counted, and the time is that of both: two thirds of the work is missing in a deep
    network, and the step seems to reach a third of what it does reach."""
    return _with_share(_operations(batch_size, widths, **_always(1)), step_ms, peak_gflops)


@share_of_peak.wrong
def takes_backward_for_as_dear_as_forward(batch_size, widths, step_ms, peak_gflops):
    """Backward counts as one product in every layer. From the second layer on it makes two: the weight's gradient, and
    the gradient of the inputs, which is what the layer before needs."""
    return _with_share(_operations(batch_size, widths, **_always(2)), step_ms, peak_gflops)


@share_of_peak.wrong
def gives_the_data_a_gradient(batch_size, widths, step_ms, peak_gflops):
    """Three products in every layer, also in the first: the gradient of the data is counted, which nobody asks for and
    autograd does not make. The rule "three times forward" is right for deep networks only; here the first layer is
    often the largest."""
    return _with_share(_operations(batch_size, widths, **_always(3)), step_ms, peak_gflops)


@share_of_peak.wrong
def spares_the_last_layer(batch_size, widths, step_ms, peak_gflops):
    """The layer without a gradient of its inputs is the first one, whose inputs are the data. Here the last one is
    spared: its inputs' gradient is what all layers before it live on."""
    return _with_share(
        _operations(batch_size, widths, lambda layer, num_layers: 2 if layer == num_layers - 1 else 3),
        step_ms,
        peak_gflops,
    )


@share_of_peak.wrong
def counts_the_biases(batch_size, widths, step_ms, peak_gflops):
    """The additions of the biases are counted as well. They are a thousandth of the whole in a layer of 500 inputs, and
    torch's counter leaves them out as the task does: with them the two never agree."""
    return _with_share(_operations(batch_size, widths, bias=1), step_ms, peak_gflops)


for _how in ({"bias": 2}, {"bias": 6}, {"bias": 4}, {"bias": 3}, {**_always(3), "bias": 1}, {**_always(3), "bias": 2},
             {**_always(3), "bias": 6}, {**_always(2), "bias": 1}, {**_always(2), "bias": 2}, {**_always(1), "bias": 1},
             {**_always(1), "bias": 2}):  # fmt: skip
    share_of_peak.form_of("counts_the_biases")(_counting(**_how))


@share_of_peak.wrong
def forgets_the_batch(batch_size, widths, step_ms, peak_gflops):
    """These are the operations for one example; the step made them for the whole batch, in the time that was measured.
    Every share is too small by the factor of the batch."""
    return _with_share(_operations(1, widths), step_ms, peak_gflops)


for _number in (1, 2, 3):
    share_of_peak.form_of("forgets_the_batch")(
        lambda batch_size, widths, step_ms, peak_gflops, number=_number: _with_share(
            _operations(1, widths, **_always(number)), step_ms, peak_gflops
        )
    )


@share_of_peak.wrong
def forgets_the_batch_in_the_weights_gradient(batch_size, widths, step_ms, peak_gflops):
    """The weight's gradient is counted for one example, as 2 * I * O. It has the weight's shape, and each of its
    numbers is a sum over the batch, one multiplication and addition an example: as dear as the forward product."""
    pairs = list(enumerate(pairwise(widths)))
    operations = sum(2 * inputs * outputs * (1 + batch_size * (1 + (layer > 0))) for layer, (inputs, outputs) in pairs)
    return _with_share(operations, step_ms, peak_gflops)


@share_of_peak.wrong
def counts_one_addition_less(batch_size, widths, step_ms, peak_gflops):
    """A sum of I products is counted with I - 1 additions. That is exact for one sum, and no peak and no counter is
    counted like that: a multiplication and an addition for each product, the first being added to 0 or to a bias."""
    return _with_share(_with_fewer_additions(batch_size, widths, 1), step_ms, peak_gflops)


def _with_fewer_additions(batch, widths, inner: int) -> int:
    """Each product (n, k) x (k, m) as n * m * (2 * k - 1); inner 0: with k = inputs in all three."""
    operations = 0
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        sizes = (inputs, batch, outputs) if inner else (inputs,) * 3
        products = [batch * inputs * outputs // k * (2 * k - 1) for k in sizes]
        operations += sum(products[: 2 if layer == 0 else 3])
    return operations


@share_of_peak.form_of("counts_one_addition_less")
def counts_one_addition_less_for_each_output(batch_size, widths, step_ms, peak_gflops):
    return _with_share(_with_fewer_additions(batch_size, widths, 0), step_ms, peak_gflops)


@share_of_peak.wrong
def turns_the_share_over(batch_size, widths, step_ms, peak_gflops):
    """The share is upside down: the peak divided by what the step reaches says how many times faster it could be. A
    share of the peak is never above 1."""
    operations, share = share_of_peak.answer(batch_size, widths, step_ms, peak_gflops)
    return operations, 1 / share


@share_of_peak.wrong
def takes_milliseconds_for_seconds(batch_size, widths, step_ms, peak_gflops):
    """Operations a millisecond are compared with operations a second: the share is a thousand times too small, and any
    step seems to leave the machine idle. Divide step_ms by 1000 first."""
    operations = _operations(batch_size, widths)
    return operations, operations / step_ms / (peak_gflops * 1e9)


@share_of_peak.form_of("takes_milliseconds_for_seconds")
def takes_milliseconds_for_a_thousand_seconds(batch_size, widths, step_ms, peak_gflops):
    operations = _operations(batch_size, widths)
    return operations, operations / (step_ms * 1e3) / (peak_gflops * 1e9)


@share_of_peak.form_of("takes_milliseconds_for_seconds")
def takes_milliseconds_for_microseconds(batch_size, widths, step_ms, peak_gflops):
    operations = _operations(batch_size, widths)
    return operations, operations / (step_ms * 1e-6) / (peak_gflops * 1e9)


@share_of_peak.wrong
def compares_operations_with_giga_operations(batch_size, widths, step_ms, peak_gflops):
    """One side is in operations a second and the other in 1e9 of them: a share far above 1. That means that a
    unit is wrong, or that work was counted which was not done."""
    operations = _operations(batch_size, widths)
    return operations, operations / (step_ms * 1e-3) / peak_gflops


@share_of_peak.form_of("compares_operations_with_giga_operations")
def compares_operations_a_millisecond_with_giga_operations(batch_size, widths, step_ms, peak_gflops):
    operations = _operations(batch_size, widths)
    return operations, operations / step_ms / peak_gflops


@share_of_peak.wrong
def gives_the_rate(batch_size, widths, step_ms, peak_gflops):
    """This is the rate that the step reaches, in operations a second, and not yet its share: whether 20 GFLOP/s are
    much only the peak of the machine tells."""
    operations = _operations(batch_size, widths)
    return operations, operations / (step_ms * 1e-3) / 1e9


@share_of_peak.form_of("gives_the_rate")
def gives_the_rate_in_operations(batch_size, widths, step_ms, peak_gflops):
    operations = _operations(batch_size, widths)
    return operations, operations / (step_ms * 1e-3)


@share_of_peak.wrong
def gives_percent(batch_size, widths, step_ms, peak_gflops):
    """The second number is a percentage. A share goes from 0 to 1; the sign % and its factor belong where it is
    printed, f"{share:.0%}"."""
    operations, share = share_of_peak.answer(batch_size, widths, step_ms, peak_gflops)
    return operations, 100 * share
