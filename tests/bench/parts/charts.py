"""Charts of a bench as SVG: lines over a linear axis, values on a logarithmic one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 400, 70, 50, 40, 150
_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


@dataclass(frozen=True)
class Series:
    """A line: its name, and points."""

    name: str
    points: Sequence[tuple[float, float]]


def chart(title: str, x_name: str, y_name: str, lines: Sequence[Series]) -> str:
    """Return a chart of lines whose values are above 0; empty ones are left out."""
    points = [point for line in lines for point in line.points]
    if not points:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>'
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    first = math.floor(min(math.log10(y) for _, y in points))
    last = max(math.ceil(max(math.log10(y) for _, y in points)), first + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low) / (high - low) if high > low else 0.5
        up = (math.log10(y) - first) / (last - first)
        return (
            _LEFT + across * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - up * (_HEIGHT - _BOTTOM - _TOP),
        )

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif">']
    parts.append(_text(_LEFT, 22, title, 15))
    for power in range(first, last + 1):
        _, y = place(low, 10.0**power)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(8, y + 4, f"1e{power}", 11))
    for x in sorted({x for x, _ in points}):
        parts.append(_text(place(x, 10.0**first)[0] - 8, _HEIGHT - _BOTTOM + 18, f"{x:g}", 11))
    parts.append(_text(_LEFT, _HEIGHT - 8, f"{x_name}; {y_name} on a logarithmic axis", 11))
    for k, line in enumerate(lines):
        color = _COLORS[k % len(_COLORS)]
        places = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dashes = ' stroke-dasharray="7 5"' if k % 2 else ""  # so that one line does not hide another
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
        parts.append(_text(_WIDTH - _RIGHT + 12, _TOP + 18 * k + 10, line.name, 12, color))
    return "\n".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str, size: int, color: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}">{escape(text)}</text>'
