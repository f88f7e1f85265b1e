"""The class form of warm-up + cosine, done right: chapter 07 builds it beside the function."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from course_utils.schedules import warmup_cosine


class WarmupCosineLR(LRScheduler):
    """`warmup_cosine` as a class: the plan is set before `super().__init__`, which already asks for the first lr.

    raises : ValueError from `load_state_dict` for the state of another plan, which would replace this one in silence
    """

    def __init__(self, optimizer: Optimizer, *, warmup_steps: int, total_steps: int, min_factor: float = 0.0) -> None:
        self.plan = {"warmup_steps": warmup_steps, "total_steps": total_steps, "min_factor": min_factor}
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        factor = warmup_cosine(self.last_epoch, **self.plan)
        return [base_lr * factor for base_lr in self.base_lrs]

    def load_state_dict(self, state_dict: dict) -> None:
        for name, now in self.plan.items():
            if state_dict["plan"][name] != now:
                raise ValueError(f"{name} was {state_dict['plan'][name]} when saved and is {now} now")
        super().load_state_dict(state_dict)
