"""`ReduceLROnPlateau`, stepped with a metric that says something.

It knows that scheduler and a metric; it knows no model. `schedules` re-exports its name.
"""

from __future__ import annotations

import math

from torch.optim.lr_scheduler import ReduceLROnPlateau


def plateau_step(scheduler: ReduceLROnPlateau, metric: float) -> bool:
    """`scheduler.step(metric)`, for a metric that says something.

    metric  : finite; what `mode` of the scheduler is about ("min" for a loss, "max" for an accuracy); below 0 only
              with threshold_mode="abs"
    returns : whether this call lowered an lr
    raises  : ValueError for NaN or inf, before the scheduler has seen it: NaN is never better, so after `patience`
              such values it would lower the lr without a word; for any other scheduler, which would take the metric
              for an epoch number; for a metric below 0 with a relative threshold, where equal counts as better
    """
    if not isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError(
            f"only ReduceLROnPlateau takes a metric; {type(scheduler).__name__}.step({metric}) would jump to epoch "
            f"{metric}: call step() without arguments"
        )
    if not math.isfinite(metric):
        raise ValueError(f"the metric must be finite, got {float(metric)}: it would count as one without progress")
    if metric < 0 and scheduler.threshold_mode == "rel" and scheduler.threshold > 0:
        raise ValueError(
            f"a metric below 0 needs a threshold in its own units, got {float(metric)} with threshold_mode='rel': -1 "
            "after -1 would count as better, and the lr would never fall; build ReduceLROnPlateau with "
            "threshold_mode='abs'"
        )
    groups = scheduler.optimizer.param_groups
    before = [float(group["lr"]) for group in groups]
    scheduler.step(metric)
    return [float(group["lr"]) for group in groups] != before
