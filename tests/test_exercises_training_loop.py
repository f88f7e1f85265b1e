"""What readers of chapter 05 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import copy
import io
import math
import weakref
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pytest
import torch
from torch import nn

from course_utils.best import Best
from course_utils.evaluation import Evaluation, Mean, eval_mode
from course_utils.exercises import answer
from course_utils.exercises.machinery import exercises_of, find
from course_utils.exercises.training_loop_checks_facts import faulty_run
from course_utils.exercises.training_loop_epoch_facts import prepared_epoch
from course_utils.exercises.training_loop_modes_facts import net_in_modes
from tests.reader_answers import judged, lines_in_hints

IDS = [f"training_loop-{number}" for number in range(1, 7)]


def test_chapter_05_has_six_exercises_of_three_levels():
    levels = [e.difficulty for e in exercises_of("training_loop").values()]
    assert list(exercises_of("training_loop")) == IDS
    assert sorted(levels) == ["easy", "easy", "hard", "medium", "medium", "medium"]


@pytest.mark.parametrize("id", IDS)
def test_hints_do_not_hold_the_answer_and_the_stub_shows_an_example(id):
    exercise = find(id)
    assert lines_in_hints(exercise, longer_than=30) == []
    assert "return" not in " ".join(exercise.hints).split()
    assert any(mark in exercise.stub for mark in ("give", "the result", "the block all"))


@pytest.mark.parametrize("id", IDS)
def test_arranging_and_checking_draw_nothing_from_the_readers_generators(id):
    before = torch.get_rng_state()
    assert judged(id, answer(id))[0] == "right"
    assert torch.equal(torch.get_rng_state(), before)


# training_loop-1


def _with_mean(model, optimizer, loss_fn, batches):
    mean = Mean()
    model.train()
    for inputs, targets in batches:
        loss = loss_fn(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean.update(loss, len(targets))
    return mean.value


def _with_lists(model, optimizer, loss_fn, batches):
    losses, numbers = [], []
    for inputs, targets in batches:
        model.train().zero_grad(set_to_none=False)
        losses += [loss_fn(model(inputs), targets)]
        losses[-1].backward()
        optimizer.step()
        losses[-1] = losses[-1].detach()
        numbers.append(inputs.shape[0])
    return np.average([float(loss) for loss in losses], weights=numbers)


def _with_a_running_mean(model, optimizer, loss_fn, batches):
    """Clears before the epoch and after each step; the mean as a tensor that is corrected batch by batch."""
    mean, seen = torch.zeros(()), 0
    optimizer.zero_grad()
    for module in model.modules():
        module.training = True
    for batch in batches:
        loss = loss_fn(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        seen += batch[1].numel()
        mean += (loss.detach() - mean) * batch[1].numel() / seen
    return mean


def _with_a_sum_on_the_device(model, optimizer, loss_fn, batches):
    model.train(True)
    total = torch.zeros((), dtype=torch.float64)
    n = 0
    iterator = iter(batches)
    while (batch := next(iterator, None)) is not None:
        outputs = model(batch[0])
        optimizer.zero_grad(set_to_none=False)
        loss = loss_fn(outputs, batch[1])
        loss.backward()
        with torch.no_grad():
            total += loss * len(outputs)
        optimizer.step()
        n += len(outputs)
    return (total / n).item()


def _with_a_closure(model, optimizer, loss_fn, batches):
    def closure():
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        return loss

    model.train()
    losses = []
    for inputs, targets in batches:  # noqa: B007 (read by the closure)
        losses += [optimizer.step(closure).item()] * len(targets)
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    "epoch", [_with_mean, _with_lists, _with_a_running_mean, _with_a_sum_on_the_device, _with_a_closure]
)
def test_every_sound_epoch_is_right(epoch):
    assert judged("training_loop-1", epoch)[0] == "right"


def _epoch(*, begins="model.train()", each="zero;forward;backward;step;count", ends="return total / n"):
    """The text of an epoch, with its parts exchanged, as a function of a reader's."""
    lines = {"zero": "optimizer.zero_grad()", "forward": "loss = loss_fn(model(inputs), targets)",
             "backward": "loss.backward()", "step": "optimizer.step()",
             "count": "total += loss.item() * len(targets); n += len(targets)"}  # fmt: skip
    body = "\n        ".join(lines.get(part, part) for part in each.split(";"))
    text = (
        "def train_one_epoch(model, optimizer, loss_fn, batches):\n"
        f"    total, n = 0.0, 0\n    {begins}\n    for inputs, targets in batches:\n        {body}\n    {ends}\n"
    )
    cell = {"torch": torch, "nn": nn}
    exec(compile(text, "<cell>", "exec"), cell)
    return cell["train_one_epoch"]


def test_the_epoch_written_as_text_is_right():
    assert judged("training_loop-1", _epoch())[0] == "right"


@pytest.mark.parametrize(
    "how, mistake, words",
    [
        ({"each": "zero;forward;backward;step;total += loss", "ends": "return total / len(batches)"},
         "keeps_the_graphs", "the mean loss: a tensor with its graph"),
        ({"begins": "pass", "each": "zero;forward;backward;step;total += loss", "ends": "return total / len(batches)"},
         "keeps_the_graphs", "(.item() takes the number)"),
        ({"each": "zero;forward;backward;step;total += loss.item()", "ends": "return total / len(batches)"},
         "averages_the_batches", "expected 1.85416667, got 1.53125"),
        ({"each": "forward;backward;zero;step;count"}, "clears_between_backward_and_step", "got None"),
        ({"each": "zero;forward;step;backward;count"}, "steps_before_backward", "['forward', 'step', 'backward']"),
        ({"each": "forward;backward;step;zero;count"}, "clears_after_the_step_only", "expected -3.0, got 5.0"),
        ({"begins": "optimizer.zero_grad()"}, "trains_in_evaluation_mode", "got 'evaluation'"),
        ({"each": "zero;forward;backward;step", "ends": "return loss.item()"}, "returns_the_last_loss", "0.5625"),
        ({"ends": "return total / len(batches.dataset)"}, "divides_by_examples_that_never_came", "drop_last=True"),
        ({"ends": "return total / (len(batches) * batches.batch_size)"}, "divides_by_examples_that_never_came",
         "where the last batch is smaller"),
        ({"begins": "model.training = True"}, "trains_in_evaluation_mode", "training, its Dropout in evaluation"),
        ({"each": "zero;forward;backward;step;count;return total / n"}, "ends_after_the_first_batch", "in the loop"),
        ({"each": "zero;forward;step;count"}, "leaves_out_backward_or_step", "backward() or optimizer.step()"),
        ({"each": "zero;forward;backward;count"}, "leaves_out_backward_or_step", "none is used"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)  # fmt: skip
def test_epochs_that_people_write_first_are_recognised(how, mistake, words):
    status, found, text = judged("training_loop-1", _epoch(**how))
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "how, status, words",
    [
        ({"ends": "return round(total / n, 2)"}, "wrong", "the mean loss: expected 1.85416667, got 1.85"),
        ({"ends": "print(total / n)"}, "wrong", "It prints its result"),
        ({"ends": "return (total / n, n)"}, "wrong", "the mean loss: expected a number, got a tuple"),
        ({"ends": "return torch.tensor([total / n])"}, "wrong", "the mean loss: expected a number, got a tensor of"),
        ({"ends": "return f'{total / n}'"}, "wrong", "the mean loss: '2.5'; it should be: 2.5"),
        ({"each": "zero;forward;backward;step;total = total + loss / len(batches)", "ends": "return total"}, "wrong",
         "(.item() takes the number)"),
        ({"each": "zero;forward;backward;step;step;count"}, "wrong", "expected length 3, got length 4"),
        ({"each": "zero;forward;(loss * len(targets)).backward();step;count"}, "wrong", "expected -3.0, got -6.0"),
        ({"each": "zero;forward;backward;nn.utils.clip_grad_norm_(model.parameters(), 1.0);step;count"}, "wrong",
         "the gradient that each update was made from"),
        ({"begins": "model.eval()"}, "wrong", "at each forward: at [0]: expected 'training', got 'evaluation'"),
        ({"each": "zero;forward;loss.detach().backward();step;count"}, "raised", "does not require grad"),
        ({"each": "zero;forward;backward;step;count;break"}, "wrong", "expected length 6, got length 3"),
        ({"each": "zero;forward;backward;step;total += loss.item() * len(batches);n += len(batches)"}, "wrong",
         "expected 1.85416667, got 1.53125"),
    ],
)  # fmt: skip
def test_epochs_that_are_nearly_right_are_told_what_differs(how, status, words):
    found, _, text = judged("training_loop-1", _epoch(**how))
    assert found == status and words in text


def test_a_sum_of_tensors_is_seen_though_a_plain_number_is_returned():
    given = _epoch(each="zero;forward;backward;step;total += loss * len(targets);n += len(targets)",
                   ends="return (total / n).item()")  # fmt: skip
    status, mistake, text = judged("training_loop-1", given)
    assert (status, mistake) == ("wrong", "keeps_the_graphs")
    assert "graphs of earlier batches, when a loss is computed: 3 of 4; it should be: one at most" in text


def test_the_graphs_of_the_exercise_die_with_their_loss():
    model, _, loss_fn, batches = prepared_epoch(3, 1, False, True, None)
    losses = [loss_fn(model(inputs), targets) for inputs, targets in batches]
    assert loss_fn.most_alive == 2 and all(mark() is not None for mark in loss_fn.marks)
    gone = weakref.ref(losses[0])
    losses.clear()
    assert gone() is None and all(mark() is None for mark in loss_fn.marks)


# training_loop-2


class _AsAClass:
    def __init__(self, model):
        self.model = model

    def __enter__(self):
        self.awake = {id(module) for module in self.model.modules() if module.training}
        self.model.eval()
        return self.model

    def __exit__(self, *error):
        for module in self.model.modules():
            module.training = id(module) in self.awake


@contextmanager
def _by_names(model):
    modes = {name: module.training for name, module in model.named_modules()}
    for module in model.modules():
        module.training = False
    try:
        yield model
    except BaseException:
        for name, mode in modes.items():
            model.get_submodule(name).training = mode
        raise
    for name, mode in modes.items():
        model.get_submodule(name).training = mode


@contextmanager
def _by_callbacks(model):
    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        model.train(False)
        yield


def _without_a_decorator(model):
    def block():
        modes = {module: module.training for module in model.modules()}
        try:
            yield model.eval()
        finally:
            for module in modes:
                module.training = modes[module]

    return contextmanager(block)()


@pytest.mark.parametrize("block", [_AsAClass, _by_names, _by_callbacks, _without_a_decorator, eval_mode])
def test_every_sound_evaluation_block_is_right(block):
    assert judged("training_loop-2", lambda model: block(model))[0] == "right"


@contextmanager
def _train_in_a_finally(model):
    model.eval()
    try:
        yield
    finally:
        model.train()


@contextmanager
def _train_flag(model):
    was = model.training
    model.eval()
    yield
    model.train(was)


@contextmanager
def _no_grad(model):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _train_each(model):
    modes = {name: module.training for name, module in model.named_modules()}
    model.eval()
    try:
        yield
    finally:
        for name, module in model.named_modules():
            module.train(modes[name])


@contextmanager
def _train_from_the_inside(model):
    modes = {name: module.training for name, module in model.named_modules()}
    model.eval()
    try:
        yield
    finally:
        for name, module in reversed(list(model.named_modules())):
            module.train(modes[name])


@contextmanager
def _eval_for_the_frozen(model):
    frozen = [module for module in model.modules() if not module.training]
    model.eval()
    try:
        yield
    finally:
        model.train()
        for module in frozen:
            module.eval()


@contextmanager
def _except_exception(model):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    except Exception:
        for module in modes:
            module.training = modes[module]
        raise
    for module in modes:
        module.training = modes[module]


@contextmanager
def _suppresses_exceptions(model):
    with _by_callbacks(model), suppress(Exception):
        yield


def _plain_generator(model):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    yield
    for module, mode in modes:
        module.training = mode


class _TrueOnExit(_AsAClass):
    def __exit__(self, *error):
        super().__exit__(*error)
        return True


class _ModesInTheClass(_AsAClass):
    """The list belongs to the class: an inner block adds to it."""

    noted = []

    def __enter__(self):
        self.noted[:] = [(module, module.training) for module in self.model.modules()]
        self.model.eval()

    def __exit__(self, *error):
        for module, mode in self.noted:
            module.training = mode


@pytest.mark.parametrize(
    "block, mistake, words",
    [
        (_train_in_a_finally, "wakes_everything", "in training and not as before: body, body.0, body.1"),
        (_train_flag, "gives_all_modules_the_mode_of_the_outermost", "thawed by the first validation"),
        (_train_from_the_inside, "gives_all_modules_the_mode_of_the_outermost", "whether one flag was kept or each"),
        (_eval_for_the_frozen, "speaks_to_the_inner_modules_twice", "module.eval() set"),
        (_except_exception, "forgets_exceptions", "a block that Ctrl-C stopped: in evaluation and not as before"),
        (_suppresses_exceptions, "swallows_the_exception", "taken for one that was done"),
        (_no_grad, "switches_gradients_off_too", "gradients in the block: switched off; it should be: on"),
        (_train_each, "speaks_to_the_inner_modules_twice", "stands in two parts"),
        (_plain_generator, "forgets_the_decorator", "@contextmanager above the `def`"),
        (_TrueOnExit, "swallows_the_exception", "Ctrl-C does not stop the run"),
        (_ModesInTheClass, "notes_the_modes_on_the_modules", "the modes after the outer of two nested blocks"),
    ],
)
def test_evaluation_blocks_that_people_write_first_are_recognised(block, mistake, words):
    given = block if block is _plain_generator else lambda model: block(model)
    status, found, text = judged("training_loop-2", given)
    assert (status, found) == ("wrong", mistake) and words in text


@contextmanager
def _only_batch_norms(model):
    norms = [(module, module.training) for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    model.eval()
    try:
        yield
    finally:
        model.train()
        for module, mode in norms:
            module.training = mode


@contextmanager
def _no_gradients_wanted(model):
    with _by_callbacks(model):
        model.requires_grad_(False)
        yield
        model.requires_grad_(True)


@contextmanager
def _another_exception(model):
    with _by_callbacks(model):
        try:
            yield
        except Exception as error:
            raise RuntimeError("the validation failed") from error


@contextmanager
def _two_yields(model):
    with _by_callbacks(model):
        yield
        yield


@contextmanager
def _no_yield(model):
    model.eval()


@contextmanager
def _exceptions_of_one_kind(model):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with suppress(GeneratorExit):
        try:
            yield
        except RuntimeError:
            pass
    for module, mode in modes:
        module.training = mode


@pytest.mark.parametrize(
    "block, status, words",
    [
        (_only_batch_norms, "wrong", "the modes after it"),
        (_no_gradients_wanted, "wrong", "gradients in the block: the weights do not require any; it should be: on"),
        (_another_exception, "wrong", "another one comes out, RuntimeError; it should be: comes out"),
        (_two_yields, "wrong", "generator didn't stop"),
        (_no_yield, "wrong", "'NoneType' object is not an iterator"),
        (_exceptions_of_one_kind, "wrong", "the modes after a block that raised"),
        (lambda model: model.eval(), "wrong", "context manager protocol"),
        (lambda model: [m.training for m in model.modules()], "wrong", "context manager protocol"),
        (lambda model: _by_callbacks(model.body), "wrong", "the modes in the block"),
    ],
)
def test_evaluation_blocks_that_are_nearly_right_are_told_what_differs(block, status, words):
    found, _, text = judged("training_loop-2", lambda model: block(model))
    assert found == status and words in text


def test_a_decorator_below_the_exercise_belongs_to_stub_and_answer():
    exercise = find("training_loop-2")
    for text in (exercise.stub, exercise.source):
        assert text.startswith("from contextlib import contextmanager\n\n\n@contextmanager\ndef evaluating(model):")
    assert "@" not in find("training_loop-1").source


def test_a_module_that_stands_in_two_parts_is_thawed_by_train():
    (model,) = net_in_modes("shared")
    modes = [(module, module.training) for module in model.modules()]
    for module, mode in modes:
        module.train(mode)
    assert model.body[1] is model.head[0] and model.body[1].training


# training_loop-3


def _by_numpy(confusions):
    confusion = np.stack([c.numpy() for c in confusions]).sum(0)
    right, divisors = np.diag(confusion), (confusion.sum(axis=1), confusion.sum(axis=0))
    with np.errstate(invalid="ignore"):
        shares = [np.where(d > 0, right / d, np.nan) for d in divisors]
    return *([None if np.isnan(v) else v for v in values] for values in shares), right.sum() / confusion.sum()


def _by_entries(confusions):
    classes = range(len(confusions[0]))
    cell = [[sum(int(c[r, k]) for c in confusions) for k in classes] for r in classes]
    recalls, precisions = [], []
    for k in classes:
        examples, predictions = sum(cell[k]), sum(cell[r][k] for r in classes)
        recalls.append(cell[k][k] / examples if examples > 0 else None)
        precisions.append(None if predictions == 0 else cell[k][k] / predictions)
    return [recalls, precisions, sum(cell[k][k] for k in classes) / sum(map(sum, cell))]


def _by_evaluation(confusions):
    total = torch.stack(confusions).sum(0)
    rows = Evaluation(0.0, None, total, 1.0).per_class()
    return [row["recall"] for row in rows], tuple(row["precision"] for row in rows), total.trace() / total.sum()


@pytest.mark.parametrize("measures", [_by_numpy, _by_entries, _by_evaluation])
def test_every_sound_table_of_classes_is_right(measures):
    assert judged("training_loop-3", lambda confusions: measures(confusions))[0] == "right"


def _tensors(confusions, *, over=lambda total: (total.sum(1), total.sum(0)), change=lambda values: values.tolist()):
    total = torch.stack(confusions).sum(0)
    return *(change(total.diag() / divisor) for divisor in over(total)), (total.trace() / total.sum()).item()


@pytest.mark.parametrize(
    "measures, mistake, words",
    [
        (_tensors, "gives_nan", "JSON has no NaN"),
        (lambda c: _tensors(c, over=lambda t: (t.sum(0), t.sum(1))), "reads_the_matrix_transposed", "Rows are what"),
        (lambda c: _tensors(c, over=lambda t: (t.sum(1).clamp(min=1), t.sum(0).clamp(min=1))),
         "gives_zero_for_absent_classes", "looks like the worst class of all"),
        (lambda c: _tensors(c, over=lambda t: (t.sum(1) + 1e-9, t.sum(0) + 1e-9)),
         "gives_zero_for_absent_classes", "expected None, got a number"),
        (lambda c: _by_entries(c[-1:]), "looks_at_one_batch", "is forgotten"),
        (lambda c: (*_by_entries(c)[:2], sum(_by_entries([m])[2] for m in c) / len(c)),
         "averages_over_the_batches", "Add the counts first"),
        (lambda c: [[r or None for r in part] for part in _by_entries(c)[:2]] + [_by_entries(c)[2]],
         "gives_none_where_nothing_was_right", "a class whose examples were *all* missed".capitalize()),
    ],
)  # fmt: skip
def test_tables_of_classes_that_people_make_first_are_recognised(measures, mistake, words):
    status, found, text = judged("training_loop-3", lambda confusions: measures(confusions))
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda r, p, a: (r, p), "expected a tuple (the recalls, the precisions, the accuracy), got 2 results"),
        (lambda r, p, a: {"recall": r, "precision": p, "accuracy": a}, "the accuracy), got a dict"),
        (lambda r, p, a: (a, p, r), "in this order, got a tuple"),
        (lambda r, p, a: (r, p, [a]), "the accuracy: expected a number, got a list"),
        (lambda r, p, a: ([x and round(x, 2) for x in r], p, a), "the recalls: at [1]: expected 0.666666667, got 0.67"),
        (lambda r, p, a: (r, p, 1 - a), "the accuracy: expected 0.7, got 0.3"),
        (lambda r, p, a: ([(x, y) for x, y in zip(r, p, strict=True)], p, a), "expected a number, got a tuple"),
        (lambda r, p, a: (["-" if x is None else x for x in r], p, a), "expected None, got a string"),
        (lambda r, p, a: ([2 * x * y / (x + y) if x and y else x for x, y in zip(r, p, strict=True)], p, a),
         "the recalls: at [0]: expected 0.75, got 0.666666667"),
    ],
)  # fmt: skip
def test_tables_of_classes_that_are_nearly_right_are_told_what_differs(change, words):
    status, _, text = judged("training_loop-3", lambda confusions: change(*_by_entries(confusions)))
    assert status == "wrong" and words in text


# training_loop-4


def _by_clones(best, model, loss, epoch):
    if loss == loss and (best is None or loss < best["loss"]):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        best = dict(loss=loss, epoch=epoch, state=state)
    return best


def _in_place(best, model, loss, epoch):
    best = best or {"loss": math.inf}
    if loss < best["loss"]:
        best.update(loss=loss, epoch=epoch, state=copy.deepcopy(model).state_dict())
    return best if "state" in best else None


def _through_a_file(best, model, loss, epoch):
    if not np.isnan(loss) and (best is None or best["loss"] > loss):
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        return {"epoch": np.int64(epoch), "loss": torch.tensor(loss), "state": torch.load(file), "more": "is allowed"}
    return best


def _by_parts(best, model, loss, epoch):
    if math.isnan(loss) or (best and loss >= best["loss"]):
        return best
    with torch.no_grad():
        parts = [*model.named_parameters(), *model.named_buffers()]
        return {"loss": loss, "epoch": epoch, "state": {n: p.clone().requires_grad_(False) for n, p in parts}}


class _ByBest:
    """The tested class, asked through the exercise's function."""

    def __call__(self, best, model, loss, epoch):
        if epoch == 0:
            self.best = Best()
        if not math.isnan(loss):
            self.best.see(Evaluation(loss, None, None, 1.0), epoch, model)
        metric = self.best.metric
        return metric and {"loss": metric["loss"], "epoch": metric["step"], "state": self.best.model}


@pytest.mark.parametrize("keep", [_by_clones, _in_place, _through_a_file, _by_parts, _ByBest()])
def test_every_sound_way_to_keep_the_best_is_right(keep):
    assert judged("training_loop-4", lambda best, model, loss, epoch: keep(best, model, loss, epoch))[0] == "right"


def _keep(state=lambda model: copy.deepcopy(model.state_dict()), better=lambda loss, best: loss < best, nan=math.isnan):
    def keep_best(best, model, loss, epoch):
        if nan(loss) or (best is not None and not better(loss, best["loss"])):
            return best
        return {"loss": loss, "epoch": epoch, "state": state(model)}

    return keep_best


def _forgets_a_best_of_0(best, model, loss, epoch):
    if math.isnan(loss) or (best and best["loss"] and loss >= best["loss"]):
        return best
    return {"loss": loss, "epoch": epoch, "state": copy.deepcopy(model.state_dict())}


def _only_in_the_if(best, model, loss, epoch):
    if best is None or loss < best["loss"]:
        best = {"loss": loss, "epoch": epoch, "state": copy.deepcopy(model.state_dict())}
        return best


def _none_for_nan(best, model, loss, epoch):
    if math.isnan(loss):
        return None
    return _keep()(best, model, loss, epoch)


@pytest.mark.parametrize(
    "keep, mistake, words",
    [
        (_keep(lambda model: model.state_dict().copy()), "keeps_a_reference", "the kept state: changes with it"),
        (_keep(lambda model: {n: v.cpu() for n, v in model.state_dict().items()}), "keeps_a_reference", ".cpu()"),
        (_keep(lambda model: copy.copy(model.state_dict())), "keeps_a_reference", "changes with it"),
        (_keep(lambda model: dict(model.named_parameters())), "forgets_the_buffers", "running_mean is not there"),
        (_keep(lambda model: copy.deepcopy(model)), "keeps_the_whole_model", "the state that is kept: a _Net"),
        (_keep(better=lambda loss, best: not loss > best), "keeps_the_later_of_equals", "at [2][0]: expected 1, got 2"),
        (_keep(better=lambda loss, best: not loss >= best, nan=lambda loss: False), "lets_nan_win", "math.isnan first"),
        (_keep(nan=lambda loss: False), "takes_a_first_nan", "nothing is ever lower"),
        (_keep(better=lambda loss, best: loss > best), "takes_the_highest", "the worst epoch of the run"),
        (lambda best, model, loss, epoch: copy.deepcopy(model.state_dict()), "gives_the_state_alone", "one dict"),
        (_forgets_a_best_of_0, "takes_a_loss_of_0_for_none", "Ask `is None`"),
        (_only_in_the_if, "loses_the_best_where_nothing_is_better", "Hand back what came in"),
        (_none_for_nan, "loses_the_best_where_nothing_is_better", "got None"),
    ],
)  # fmt: skip
def test_ways_to_keep_the_best_that_people_try_first_are_recognised(keep, mistake, words):
    status, found, text = judged("training_loop-4", keep)
    assert (status, found) == ("wrong", mistake) and words in text


def _halves(model):
    return {n: v.half() if v.is_floating_point() else v.clone() for n, v in model.state_dict().items()}


def _saves_nan_as_inf(best, model, loss, epoch):
    loss = math.inf if math.isnan(loss) else loss
    return best if best and loss >= best["loss"] else {
        "loss": loss, "epoch": epoch, "state": copy.deepcopy(model.state_dict())
    }  # fmt: skip


@pytest.mark.parametrize(
    "keep, status, words",
    [
        (_keep(lambda model: {n: v.numpy().copy() for n, v in model.state_dict().items()}), "wrong", "is not there"),
        (_keep(lambda model: {f"module.{n}": v.clone() for n, v in model.state_dict().items()}), "wrong",
         "the names in it: weight is not there"),
        (_keep(lambda model: {n: v.clone() if n == "weight" else v for n, v in model.state_dict().items()}), "wrong",
         "the kept state: changes with it; it should be: stays"),
        (_keep(lambda model: list(model.state_dict().values())), "wrong", "the state that is kept: a list"),
        (_saves_nan_as_inf, "wrong", "at [0]: expected None, got a tuple"),
        (lambda best, model, loss, epoch: (loss, epoch, model.state_dict()), "wrong",
         "as (epoch, loss): a tuple came back"),
        (lambda best, model, loss, epoch: {"loss": loss, "step": epoch, "state": {}}, "wrong", "without 'epoch'"),
        (_keep(better=lambda loss, best: loss < best - 0.3), "wrong", "the best after each epoch"),
        (lambda best, model, loss, epoch: torch.save(model.state_dict(), "/nowhere/best.pt"), "raised", "nowhere"),
    ],
)  # fmt: skip
def test_ways_to_keep_the_best_that_are_nearly_right_are_told_what_differs(keep, status, words):
    found, _, text = judged("training_loop-4", keep)
    assert found == status and words in text


# training_loop-5


def _by_autograd(model, optimizer, loss_fn, inputs, targets, num_classes):
    """In evaluation mode, so that no statistics move, and without touching any .grad."""
    modes = [(module, module.training) for module in model.modules()]
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    outside = [name for name in sorted(trainable) if not any(trainable[name] is p for p in held)]
    bad = targets[(targets < 0) | (targets >= num_classes)].unique().tolist()
    silent = None
    if len(bad) == 0:
        model.eval()
        grads = torch.autograd.grad(loss_fn(model(inputs), targets), list(trainable.values()), allow_unused=True)
        silent = sorted(n for n, grad in zip(trainable, grads, strict=True) if grad is None or grad.abs().max() == 0)
        for module, mode in modes:
            module.training = mode
    return {"bad_targets": bad, "no_gradient": silent, "not_in_optimizer": outside}


def _by_putting_back(model, optimizer, loss_fn, inputs, targets, num_classes):
    """On the model itself; its state dict is taken before and loaded after, the gradients are set aside."""
    bad = np.unique([t for t in targets.numpy() if t not in range(num_classes)]).astype(int)
    ids = set()
    for group in optimizer.param_groups:
        ids.update(map(id, group["params"]))
    missing = sorted(n for n, p in model.named_parameters() if p.requires_grad and id(p) not in ids)
    if len(bad):
        return {"no_gradient": None, "not_in_optimizer": missing, "bad_targets": bad}
    state, aside = copy.deepcopy(model.state_dict()), [p.grad for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    loss_fn(model(inputs), targets).backward()
    flat = {n: 0.0 if p.grad is None else p.grad.norm().item() for n, p in model.named_parameters() if p.requires_grad}
    for parameter, grad in zip(model.parameters(), aside, strict=True):
        parameter.grad = grad
    model.load_state_dict(state)
    return {"no_gradient": sorted(n for n in flat if flat[n] == 0), "not_in_optimizer": missing, "bad_targets": []}


def _by_hooks(model, optimizer, loss_fn, inputs, targets, num_classes):
    found = {"bad_targets": sorted(set(targets.tolist()) - set(range(num_classes))), "no_gradient": None}
    groups = {p for group in optimizer.param_groups for p in group["params"]}
    names = tuple(n for n, p in sorted(model.named_parameters()) if p.requires_grad and p not in groups)
    if not found["bad_targets"]:
        twin, reached = copy.deepcopy(model), set()
        for name, parameter in twin.named_parameters():
            if parameter.requires_grad:
                parameter.register_hook(lambda grad, name=name: reached.add(name) if grad.count_nonzero() else None)
        loss_fn(twin(inputs), targets).backward()
        found["no_gradient"] = sorted({n for n, p in model.named_parameters() if p.requires_grad} - reached)
    return found | {"not_in_optimizer": names}


@pytest.mark.parametrize("find_all", [_by_autograd, _by_putting_back, _by_hooks])
def test_every_sound_check_before_a_training_is_right(find_all):
    assert judged("training_loop-5", find_all)[0] == "right"


def _naive(model, optimizer, loss_fn, inputs, targets, num_classes):
    loss_fn(model(inputs), targets).backward()
    silent = sorted(n for n, p in model.named_parameters() if p.requires_grad and p.grad is None)
    return {"no_gradient": silent, "not_in_optimizer": [], "bad_targets": []}


def _checks(*, run=copy.deepcopy, clear=True, got=lambda g: g is not None and bool(g.any()), own=None, bad=None,
            unseen=None):  # fmt: skip
    def find_faults(model, optimizer, loss_fn, inputs, targets, num_classes):
        wrong = (bad or (lambda t, c: sorted({v for v in t.tolist() if not 0 <= v < c})))(targets, num_classes)
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        outside = (own or (lambda n, p: sorted(n for n, p in named if id(p) not in held)))(named, optimizer)
        if wrong:
            return {"no_gradient": unseen, "not_in_optimizer": outside, "bad_targets": wrong}
        used = run(model)
        if clear:
            used.zero_grad()
        loss_fn(used(inputs), targets).backward()
        silent = sorted(n for n, p in used.named_parameters() if p.requires_grad and not got(p.grad))
        return {"no_gradient": silent, "not_in_optimizer": outside, "bad_targets": wrong}

    return find_faults


def test_the_parts_of_the_checks_make_a_right_answer():
    assert judged("training_loop-5", _checks())[0] == "right"


def _of_all_groups(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _in_evaluation_without_clearing(*given):
    with eval_mode(given[0]):
        found = _checks(run=lambda model: model, clear=False)(*given)
        given[0].zero_grad()
        return found


def _evaluates_and_trains(model, *given):
    model.eval()
    found = _checks(run=lambda model: model)(model, *given)
    model.zero_grad()
    model.train()
    return found


def _with_ids_of_the_copy(model, optimizer, *given):
    twin = copy.deepcopy(model)
    return _checks(run=lambda model: model)(twin, optimizer, *given)


@pytest.mark.parametrize(
    "find_all, mistake, words",
    [
        (_checks(run=lambda model: model), "leaves_traces", "norm.running_mean"),
        (_checks(run=lambda model: model, clear=False), "leaves_traces", "old ones pass for its own"),
        (_in_evaluation_without_clearing, "reads_old_gradients", "wrong in a notebook that was used"),
        (_checks(run=lambda model: model.eval()), "leaves_another_mode", "the modes after it"),
        (_evaluates_and_trains, "leaves_another_mode", "what was frozen is awake"),
        (_checks(own=lambda named, optimizer: [n for n, p in named if p not in _of_all_groups(optimizer)]),
         "compares_what_parameters_look_like", "compare the entries"),
        (_checks(own=lambda named, optimizer: [n for n, p in named if not any((p == q).all() for q in
                                               _of_all_groups(optimizer) if p.shape == q.shape)]),
         "compares_what_parameters_look_like", "equal entries are another parameter"),
        (_with_ids_of_the_copy, "asks_for_the_copy", "every parameter of every model"),
        (_checks(got=lambda g: g is not None and bool(g.all())), "asks_another_question_than_all_zeros", "inactive"),
        (_checks(got=lambda g: g is not None and g.sum() != 0), "asks_another_question_than_all_zeros", "cancel out"),
        (_checks(got=lambda g: g is not None and g.max() != 0), "asks_another_question_than_all_zeros", "positive"),
        (_checks(got=lambda g: g is not None and g.norm() >= 1e-6), "asks_another_question_than_all_zeros", "1e-10"),
        (_checks(got=lambda g: g is not None and g.abs().sum() >= 1e-3), "asks_another_question_than_all_zeros", "any"),
        (_checks(got=lambda g: g is not None and not torch.allclose(g, torch.zeros_like(g))),
         "asks_another_question_than_all_zeros", "allclose"),
        (_checks(got=lambda g: g is not None), "overlooks_zeros", "a ReLU whose units are never active"),
        (_checks(got=lambda g: g.abs().sum() > 0), "fails_for_none", "'NoneType' object has no attribute 'abs'"),
        (_checks(unseen=[]), "calls_unseen_sound", "never looked at"),
        (_checks(bad=lambda t, c: [v for v in t.unique().tolist() if v > c]), "takes_num_classes_for_a_class",
         "labels that count from 1"),
        (_checks(bad=lambda t, c: t[t >= c].unique().tolist()), "forgets_negative_targets", "-1 is what many tables"),
    ],
)  # fmt: skip
def test_checks_before_a_training_that_people_write_first_are_recognised(find_all, mistake, words):
    status, found, text = judged("training_loop-5", find_all)
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "find_all, status, words",
    [
        (_naive, "wrong", "the buffers after it: other ones: norm.running_mean"),
        (_checks(bad=lambda t, c: [v for v in t.tolist() if not 0 <= v < c]), "wrong", "got length 2"),
        (_checks(bad=lambda t, c: {v for v in t.tolist() if not 0 <= v < c}), "wrong", "expected a list, got a set"),
        (_checks(bad=lambda t, c: [] if len(t.unique()) <= c else [3]), "wrong", "Target 3 is out of bounds"),
        (_checks(bad=lambda t, c: 1 / 0), "raised", "ZeroDivisionError"),
        (_checks(own=lambda named, optimizer: [p for n, p in named if p not in optimizer.param_groups[0]["params"]]),
         "wrong", "must match the size"),
        (_checks(own=lambda named, optimizer: None), "wrong", "not_in_optimizer: expected a list, got None"),
        (_checks(own=lambda named, optimizer: sorted(n for n, p in named if n not in optimizer.state)), "wrong",
         "not_in_optimizer: ['body.weight', 'head.bias'"),
        (lambda model, optimizer, loss_fn, inputs, targets, num_classes: ([], [], []), "wrong",
         "what is returned: a tuple; it should be: a dict"),
        (lambda model, optimizer, loss_fn, inputs, targets, num_classes: {"no_gradient": []}, "wrong",
         "not_in_optimizer: no entry of this name; it should be: []"),
    ],
)  # fmt: skip
def test_checks_before_a_training_that_are_nearly_right_are_told_what_differs(find_all, status, words):
    found, _, text = judged("training_loop-5", find_all)
    assert found == status and words in text


@pytest.mark.parametrize("faults, targets", [("", [0, 2, 1, 0]), ("dead", [0, 2, 1, 0]), ("replaced", [0, 1, 1, 2])])
def test_the_runs_of_the_exercise_really_do_not_train_what_is_named(faults, targets):
    model, optimizer, loss_fn, inputs, targets, num_classes = faulty_run(faults, targets)
    found = answer("training_loop-5")(model, optimizer, loss_fn, inputs, targets, num_classes)
    for _ in range(3):
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
    before = model.came_in["found"][0]
    still = [name for name, p in model.named_parameters() if torch.equal(before[name], p)]
    assert sorted(still) == sorted(found["no_gradient"] + found["not_in_optimizer"])


# training_loop-6


def _from_the_end(losses, patience, min_delta):
    """For each epoch, the number of epochs since the last progress, as a list first."""
    last, marks = math.inf, []
    for loss in losses:
        made = not math.isnan(loss) and last - loss > min_delta
        last = loss if made else last
        marks.append(made)
    stop = next((e for e in range(patience - 1, len(losses)) if not any(marks[e - patience + 1 : e + 1])), None)
    run = losses[: len(losses) if stop is None else stop + 1]
    return [stop, min((e for e in range(len(run)) if run[e] == run[e]), key=lambda e: run[e], default=None)]


def _by_arrays(losses, patience, min_delta):
    array = np.nan_to_num(np.array(losses), nan=np.inf)
    reference, bad = np.inf, 0
    for epoch in range(len(array)):
        bad += 1
        if array[epoch] + min_delta < reference:
            reference, bad = array[epoch], 0
        if bad >= patience:
            break
    else:
        epoch, bad = len(array) - 1, 0
    run = array[: epoch + 1]
    return (epoch if bad else None), (run.argmin() if np.isfinite(run).any() else None)


def _by_the_module(losses, patience, min_delta):
    best, model = Best(keep_model=False, patience=patience, min_delta=min_delta), nn.Identity()
    for epoch, loss in enumerate(losses):
        best.see(Evaluation(math.inf if math.isnan(loss) else loss, None, None, 1.0), epoch, model)
        if best.stalled:
            break
    found = None if best.metric["loss"] == math.inf else best.metric["step"]
    return (epoch if best.stalled else None), found


@pytest.mark.parametrize("stops", [_from_the_end, _by_arrays, _by_the_module])
def test_every_sound_stop_is_right(stops):
    status, _, text = judged("training_loop-6", lambda losses, patience, min_delta: stops(losses, patience, min_delta))
    assert status == "right", text


def _lowest(losses, stop):
    numbers = [loss for loss in losses[:stop] if loss == loss]
    return losses.index(min(numbers)) if numbers else None


def _stops(*, better=lambda loss, ref, delta: loss < ref - delta, due=lambda bad, patience: bad >= patience,
           best=_lowest, nothing=None):  # fmt: skip
    def stop_early(losses, patience, min_delta):
        reference, bad = math.inf, 0
        for epoch, loss in enumerate(losses):
            reference, bad = (loss, 0) if better(loss, reference, min_delta) else (reference, bad + 1)
            if due(bad, patience):
                return epoch, best(losses, epoch + 1)
        return nothing, best(losses, len(losses))

    return stop_early


def _without_epoch_0(losses, patience, min_delta):
    stop, best = _stops()(losses, patience, min_delta)
    return stop if stop else None, best


def _passing_over_nan(losses, patience, min_delta):
    reference, bad, best = None, 0, None
    for epoch, loss in enumerate(losses):
        if math.isnan(loss):
            continue
        best = epoch if best is None or loss < losses[best] else best
        reference, bad = (loss, 0) if reference is None or reference - loss > min_delta else (reference, bad + 1)
        if bad == patience:
            return epoch, best
    return None, best


def _best_of_all(losses, patience, min_delta):
    stop, best = _stops()(losses, patience, min_delta)
    return stop, best if best is None else _lowest(losses, None)


def _told_an_epoch_late(losses, patience, min_delta):
    stop, best = _stops()(losses, patience, min_delta)
    return stop if stop is None else stop + 1, best


def _against_the_epoch_before(losses, patience, min_delta):
    bad, lowest, best = 0, math.inf, None
    for epoch, loss in enumerate(losses):
        if loss < lowest:
            lowest, best = loss, epoch
        bad = 0 if epoch == 0 or losses[epoch - 1] - loss > min_delta else bad + 1
        if bad == patience:
            return epoch, best
    return None, best


def test_the_parts_of_the_stop_make_a_right_answer():
    assert judged("training_loop-6", _stops())[0] == "right"


@pytest.mark.parametrize(
    "stops, mistake, words",
    [
        (_stops(due=lambda bad, patience: bad > patience), "waits_one_epoch_longer", "ReduceLROnPlateau"),
        (_stops(due=lambda bad, patience: bad + 1 == max(2, patience)), "stops_one_epoch_early", "one epoch too early"),
        (_stops(better=lambda loss, ref, delta: loss < ref + delta), "turns_min_delta_round", "*worse*"),
        (_stops(better=lambda loss, ref, delta: loss <= ref - delta), "lets_exactly_min_delta_count", "stands still"),
        (_stops(better=lambda loss, ref, delta: loss < ref and ref - loss >= delta), "lets_exactly_min_delta_count",
         "expected 1, got 2"),
        (_stops(better=lambda loss, ref, delta: loss < ref), "does_not_take_min_delta_off_the_reference", "not used"),
        (_stops(better=lambda loss, ref, delta: loss < ref * (1 - delta)), "does_not_take_min_delta_off_the_reference",
         "As a share"),
        (_stops(better=lambda loss, ref, delta: not loss >= ref - delta), "lets_nan_count_as_progress", "NaN"),
        (_stops(nothing=-1), "mixes_up_no_stop_and_an_epoch", "cut off by its plan"),
        (_without_epoch_0, "mixes_up_no_stop_and_an_epoch", "`stop or None`"),
        (_passing_over_nan, "passes_over_nan", "it is not counted"),
        (_against_the_epoch_before, "moves_the_reference_without_a_progress", "the loss of the epoch before"),
        (_stops(best=lambda losses, stop: losses.index(min(losses[:stop]))), "takes_a_nan_for_the_lowest", "min()"),
        (_stops(best=lambda losses, stop: int(np.argmin(losses[:stop]))), "takes_a_nan_for_the_lowest", "np.argmin"),
        (_stops(best=lambda losses, stop: _lowest(losses, stop) or 0), "takes_a_nan_for_the_lowest", "losses[0]"),
        (_stops(best=lambda losses, stop: losses.index(min(x for x in losses if x == x))), "looks_past_the_stop",
         "those epochs were never run"),
        (_best_of_all, "looks_past_the_stop", "those epochs were never run"),
        (_told_an_epoch_late, "waits_one_epoch_longer", "expected 2, got 3"),
        (_stops(best=lambda losses, stop: stop - 1), "keeps_the_last_epoch", "keeps the overfitted weights"),
    ],
)  # fmt: skip
def test_stops_that_people_write_first_are_recognised(stops, mistake, words):
    status, found, text = judged("training_loop-6", stops)
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "stops, words",
    [
        (_stops(better=lambda loss, ref, delta: abs(loss - ref) > delta), "stop: expected a number, got None"),
        (_stops(best=lambda losses, stop: min(x for x in losses[:stop] if x == x)), "to keep: expected 2, got"),
        (_stops(best=lambda losses, stop: losses.index(max(losses[:stop]))), "the epoch to keep: expected 2, got 0"),
        (_stops(nothing=False), "the epoch of the stop: expected None, got a bool"),
        (lambda losses, patience, min_delta: _by_arrays(losses, patience, min_delta)[::-1], "in this order, got"),
        (lambda losses, patience, min_delta: _by_arrays(losses, patience, min_delta)[1], "to keep), got a number"),
        (lambda losses, patience, min_delta: [].clear(), "Is the `return` missing"),
    ],
)  # fmt: skip
def test_stops_that_are_nearly_right_are_told_what_differs(stops, words):
    status, _, text = judged("training_loop-6", stops)
    assert status == "wrong" and words in text
