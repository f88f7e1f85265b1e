"""The exercise of chapter 05 about one epoch: the order of the actions, and the mean loss."""

from __future__ import annotations

from collections.abc import Callable

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import close_facts_differ
from course_utils.exercises.training_loop_epoch_facts import epoch_by_hand, epoch_facts, prepared_epoch


def _words(num_examples, batch_size, drop_last, training, left_over) -> str:
    left_out = " (drop_last=True)" * drop_last
    mode = ", a model that comes in evaluation mode" * (not training)
    gradients = "" if left_over is None else f", a gradient of {left_over} left over from before"
    return f"train_one_epoch, {num_examples} examples in batches of {batch_size}{left_out}{mode}{gradients}"


@exercise(
    "training_loop-1",
    title="One epoch by hand",
    difficulty="easy",
    minutes=10,
    cases=[
        (2, 2, False, True, None),
        (3, 2, False, True, None),
        (7, 2, False, True, None),
        (8, 3, True, True, None),
        (3, 2, False, False, None),
        (3, 2, False, True, 8.0),
    ],
    expected=[
        epoch_by_hand([-3.0], 1.375, 2.5),  # w = 1: losses 4 and 1; gradients -4 and -2
        epoch_by_hand([-3.0, 3.0], 1.0, 5.5625 / 3),  # then w = 1.375, outputs 2.75: loss 0.5625, gradient 2 * 0.75 * 2
        None,
        None,
        epoch_by_hand([-3.0, 3.0], 1.0, 5.5625 / 3),
        epoch_by_hand([-3.0, 3.0], 1.0, 5.5625 / 3),
    ],
    arrange=prepared_epoch,
    observe=epoch_facts,
    difference=close_facts_differ,
    describe=_words,
    hints=[
        "For each batch: old gradients away, forward, loss, backward, step. What has to be said to the model once, "
        "before the first batch?",
        "The loss of a batch is a mean. A mean over the examples of all batches needs two sums: the losses, each times "
        "the number of its examples, and the numbers.",
        "loss.item() is a plain number. A sum of losses that are still tensors holds the graph of every batch. "
        "len(targets) is the number of examples; divide the first sum by the second at the end.",
    ],
    lesson="Mean and Trainer do the same. This loss is of a model that changes meanwhile; evaluate measures one model.",
)
def train_one_epoch(model, optimizer, loss_fn, batches) -> float:
    """Train on each batch once, in training mode; return the mean loss over all examples.

    model     : an nn.Module, in whatever mode it was used last
    optimizer : holds its parameters; makes one update a batch, from the gradient of this batch
                alone. Gradients of an earlier use may be left over at the beginning
    loss_fn   : loss_fn(outputs, targets) is the mean over the examples of a batch
    batches   : a DataLoader of (inputs, targets); the last batch may hold fewer examples
    returns   : a number without a graph: the mean over all examples that were trained on, where
                an example counts with the loss of its batch before the update. Of earlier batches
                no graph is kept either

    Batches of 3 and 1 examples with the losses 1.0 and 5.0 give (3 * 1.0 + 1 * 5.0) / 4 = 2.0.
    """
    model.train()
    total, num_examples = 0.0, 0
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(targets)
        num_examples += len(targets)
    return total / num_examples


_Done = list[tuple[float, int]]


def _batches_done(model, optimizer, loss_fn, batches, order: str = "zfbs", *, train=True, keep=False) -> _Done:
    """(loss, number of examples) of each batch; `order` names zero_grad, forward, backward and step, "|" what comes
    behind the loop."""
    if train:
        model.train()
    done, loss = [], None
    within, _, behind = order.partition("|")
    does = {"z": optimizer.zero_grad, "b": lambda: loss.backward(), "s": optimizer.step}
    for inputs, targets in batches:
        for action in within:
            loss = loss_fn(model(inputs), targets) if action == "f" else (does[action](), loss)[1]
        done.append((loss if keep else loss.item(), len(targets)))
    for action in behind:
        does[action]()
    return done


def _mean(done: _Done) -> float:
    return sum(loss * number for loss, number in done) / sum(number for _, number in done)


def _mean_of_means(done: _Done) -> float:
    return sum(loss for loss, _ in done) / len(done)


def _form(mistake: str, *, reduce: Callable = _mean, **how) -> None:
    train_one_epoch.form_of(mistake)(
        lambda model, optimizer, loss_fn, batches: reduce(_batches_done(model, optimizer, loss_fn, batches, **how))
    )


@train_one_epoch.wrong
def averages_the_batches(model, optimizer, loss_fn, batches):
    """The batch losses are averaged, each with the same weight: one example in a last batch of its own weighs as much
    as a full batch. The figure moves with the batch size, and an odd last batch looks like a better or worse epoch."""
    return _mean_of_means(_batches_done(model, optimizer, loss_fn, batches))


@train_one_epoch.wrong
def keeps_the_graphs(model, optimizer, loss_fn, batches):
    """The losses are added up (or listed) as tensors: the sum holds the graph of every batch of the epoch, and memory
    grows until the run ends, with an error, in some later batch. Take loss.item(), or loss.detach()."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, keep=True))


_form("keeps_the_graphs", keep=True, train=False, reduce=_mean_of_means)
_form("keeps_the_graphs", keep=True, reduce=lambda done: _mean(done).item())
_form("keeps_the_graphs", keep=True, reduce=lambda done: _mean_of_means(done).item())


@train_one_epoch.wrong
def never_clears_the_gradients(model, optimizer, loss_fn, batches):
    """Gradients are never set to zero between batches (once before the epoch is not enough): backward() adds, so each
    update is made from the sum over all batches so far. The steps grow, and the loss swings or explodes."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "fbs"))


@train_one_epoch.form_of("never_clears_the_gradients")
def clears_once_before_the_epoch(model, optimizer, loss_fn, batches):
    optimizer.zero_grad()
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "fbs"))


_form("never_clears_the_gradients", order="fbs", reduce=_mean_of_means)
_form("never_clears_the_gradients", order="fbs", train=False)


@train_one_epoch.wrong
def clears_between_backward_and_step(model, optimizer, loss_fn, batches):
    """zero_grad() stands between backward() and step(): the gradient is thrown away before it is used. Nothing fails,
    no weight ever moves, and the loss stays where it was."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "fbzs"))


_form("clears_between_backward_and_step", order="fbzs", reduce=_mean_of_means)


@train_one_epoch.wrong
def steps_before_backward(model, optimizer, loss_fn, batches):
    """step() comes before backward(): there is no gradient yet, or the one of the batch before. With zero_grad() at the
    top of the loop nothing is ever learned; without it every update is one batch late."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "zfsb"))


for _order in ("fszb", "fsb", "fsbz", "szfb"):
    _form("steps_before_backward", order=_order)


@train_one_epoch.wrong
def trains_in_evaluation_mode(model, optimizer, loss_fn, batches):
    """The mode is not set, or of the outermost module alone (model.training = True): after a validation the model comes
    in evaluation mode, and all epochs but the first train without Dropout, with BatchNorm's old statistics. Call
    model.train() before the first batch."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, train=False))


_form("trains_in_evaluation_mode", train=False, reduce=_mean_of_means)


@train_one_epoch.form_of("trains_in_evaluation_mode")
def sets_the_flag_of_the_outermost_module(model, optimizer, loss_fn, batches):
    model.training = True
    return _mean(_batches_done(model, optimizer, loss_fn, batches, train=False))


@train_one_epoch.wrong
def clears_after_the_step_only(model, optimizer, loss_fn, batches):
    """zero_grad() stands behind step() only: what was left over from before the epoch, as of a test of one batch, goes
    into the first update. Clear before the first backward() as well, or at the top of the loop."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "fbsz"))


@train_one_epoch.wrong
def returns_the_last_loss(model, optimizer, loss_fn, batches):
    """This is the loss of the last batch: a figure from the few examples that happened to stand there, which jumps from
    epoch to epoch. The epoch's loss is a mean over all of its examples."""
    return _batches_done(model, optimizer, loss_fn, batches)[-1][0]


@train_one_epoch.form_of("returns_the_last_loss")
def returns_the_last_loss_with_its_graph(model, optimizer, loss_fn, batches):
    model.train()
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return loss


@train_one_epoch.wrong
def leaves_out_the_last_batch(model, optimizer, loss_fn, batches):
    """A batch with fewer examples is passed over, in training or in the mean: its examples count for nothing, and
    without shuffling they are the same ones in every epoch. It is a batch like the others, with a smaller weight."""
    full = [batch for batch in batches if len(batch[1]) == batches.batch_size]
    return _mean(_batches_done(model, optimizer, loss_fn, full))


@train_one_epoch.form_of("leaves_out_the_last_batch")
def trains_on_the_last_batch_and_does_not_count_it(model, optimizer, loss_fn, batches):
    done = _batches_done(model, optimizer, loss_fn, batches)
    return _mean([(loss, number) for loss, number in done if number == batches.batch_size])


@train_one_epoch.wrong
def divides_by_examples_that_never_came(model, optimizer, loss_fn, batches):
    """The sum is divided by a number that was not counted. len(batches.dataset) is too large with drop_last=True or a
    sampler that draws a part; batch_size * len(batches) is too large where the last batch is smaller. The loss looks
    lower than it is. Add up the numbers of examples that come."""
    done = _batches_done(model, optimizer, loss_fn, batches)
    return sum(loss * number for loss, number in done) / len(batches.dataset)


@train_one_epoch.form_of("divides_by_examples_that_never_came")
def divides_by_full_batches(model, optimizer, loss_fn, batches):
    done = _batches_done(model, optimizer, loss_fn, batches)
    return sum(loss * number for loss, number in done) / (len(batches) * batches.batch_size)


@train_one_epoch.wrong
def ends_after_the_first_batch(model, optimizer, loss_fn, batches):
    """The epoch ends after its first batch: the `return` stands in the loop, one step too far to the right (or a
    `break` does). The other batches are never seen, in no epoch. Behind the loop it is reached after the last one."""
    return _mean(_batches_done(model, optimizer, loss_fn, [next(iter(batches))]))


@train_one_epoch.wrong
def does_not_divide(model, optimizer, loss_fn, batches):
    """This is a sum: with twice the data, or half the batch size, the same model has twice the loss, and no two runs
    can be compared. Divide by the number of examples."""
    return sum(loss * number for loss, number in _batches_done(model, optimizer, loss_fn, batches))


_form("does_not_divide", reduce=lambda done: sum(loss for loss, _ in done))


@train_one_epoch.wrong
def divides_the_sum_of_means_by_the_examples(model, optimizer, loss_fn, batches):
    """The losses of the batches are means already; divided by the number of examples they become smaller by the batch
    size once more. Multiply each by the number of its examples first."""
    done = _batches_done(model, optimizer, loss_fn, batches)
    return sum(loss for loss, _ in done) / sum(number for _, number in done)


@train_one_epoch.wrong
def makes_one_update_an_epoch(model, optimizer, loss_fn, batches):
    """step() stands behind the loop: one update an epoch, from the sum over all batches. The run learns as many times
    more slowly as there are batches."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "fb|s"))


_form("makes_one_update_an_epoch", order="zfb|s")
_form("makes_one_update_an_epoch", order="fb|sz")


@train_one_epoch.wrong
def leaves_out_backward_or_step(model, optimizer, loss_fn, batches):
    """backward() or optimizer.step() is missing: no gradient is computed, or none is used. Nothing fails, and the loss
    stays where it was, which looks like a learning rate that is too small."""
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "zfb"))


for _order in ("fb", "zf", "f", "zfs", "fs", "fsz"):
    _form("leaves_out_backward_or_step", order=_order)


@train_one_epoch.wrong
def measures_after_the_update(model, optimizer, loss_fn, batches):
    """The loss is computed a second time, after the update: twice the forward passes, and the figure is too good, since
    the model has just learned this very batch. The loss from before the update is there already."""
    model.train()
    done = []
    for batch in batches:
        _batches_done(model, optimizer, loss_fn, [batch])
        done.append((loss_fn(model(batch[0]), batch[1]).item(), len(batch[1])))
    return _mean(done)


@train_one_epoch.form_of("measures_after_the_update")
def measures_after_the_epoch(model, optimizer, loss_fn, batches):
    _batches_done(model, optimizer, loss_fn, batches)
    return _mean(_batches_done(model, optimizer, loss_fn, batches, "f"))
