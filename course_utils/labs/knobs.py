"""Knobs for live experiments: a widget where there is ipywidgets, else an object with the same `.value`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

try:
    import ipywidgets as widgets
except ImportError:  # a front end without widgets: every lab then shows its still twin
    widgets = None

_WIDE = {"description_width": "initial"}  # a label is never cut


def align(knobs: Sequence) -> None:
    """Make every label as wide as the longest: two knobs in a row, their fields one below the other."""
    longest = max((len(knob.description) for knob in knobs), default=0)
    for knob in knobs:
        knob.style.description_width, knob.layout.width = f"{longest}ch", "320px"


def _decimals(*parts: float) -> int:
    """Digits after the point that tell every value of the slider: 2 for steps of 0.05."""
    return max(0, *(-Decimal(str(part)).normalize().as_tuple().exponent for part in parts))


def choice(label: str, options: Sequence | Mapping, value: Any) -> Any:
    """A dropdown; without ipywidgets an object that has only `.value` and `.options`."""
    if widgets is None:
        return SimpleNamespace(value=value, options=options)
    return widgets.Dropdown(description=label, options=options, value=value, style=_WIDE)


def several(label: str, *, rows: int) -> Any:
    """A list from which several lines may be chosen, empty at first; without ipywidgets `.options` and `.value`."""
    if widgets is None:
        return SimpleNamespace(value=(), options=())
    return widgets.SelectMultiple(description=label, rows=rows, style=_WIDE, layout={"width": "100%"})


def switch(label: str, value: bool = False) -> Any:
    """A check box; without ipywidgets an object that has only `.value`."""
    if widgets is None:
        return SimpleNamespace(value=value)
    return widgets.Checkbox(description=label, value=value, indent=False, layout={"width": "auto"})


def number(label: str, value: float, *, low: float, high: float, step: float, calm: bool = False) -> Any:
    """A slider, for int when all four are int; without ipywidgets an object that has only `.value`.

    calm : its value changes when it is let go, not on the way: for what takes a moment to compute
    """
    if widgets is None:
        return SimpleNamespace(value=value)
    whole = all(isinstance(part, int) for part in (value, low, high, step))
    kind = widgets.IntSlider if whole else widgets.FloatSlider
    looks = {} if whole else {"readout_format": f".{_decimals(low, step)}f"}
    return kind(
        value, min=low, max=high, step=step, description=label, style=_WIDE, continuous_update=not calm, **looks
    )
