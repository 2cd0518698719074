"""Drawings for a page, as SVG: they take their colours from the page, so that they suit light and dark."""

import collections
import math

from utils.page import NUM_COLORS, escape

WIDTH, HEIGHT = 400, 232
LEFT, RIGHT, TOP, BOTTOM = 54, 18, 12, 30  # margins around the plot
MOST_POINTS = 200  # of a curve; of a longer one some are left out

# points: list of (x, y); band: list of (x, low, high), or None; color: its number, None for the next one
Series = collections.namedtuple("Series", "name points band color", defaults=[None, None])


# ---- scales ---------------------------------------------------------------------------------------------------------


class Scale:
    """Maps values to positions, and has round values to name along the axis."""

    def __init__(self, low, high, start, end, logarithmic=False):
        self.start, self.end, self.logarithmic = start, end, logarithmic
        self.low, self.high, self.ticks = (_log_ticks if logarithmic else _linear_ticks)(low, high)

    def __call__(self, value):
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def _linear_ticks(low, high):
    """A little more than the given range, and three to six round numbers in it."""
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-200):
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    rough = (high - low) / 4
    magnitude = 10 ** math.floor(math.log10(rough))
    step = min((factor * magnitude for factor in (1, 2, 2.5, 5, 10)), key=lambda value: abs(value - rough))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [float(f"{number * step:.10g}") for number in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def _log_ticks(low, high):
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    step = -(-(last - first) // 5)
    ticks = [10.0**power for power in range(first, last + step, step)]
    return ticks[0], ticks[-1], ticks


def format_number(value):
    """As short as it can be said: 1,200 0.25 3e-05."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        return text.replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def format_tick(value):
    """Short, for axes: thousands as k, millions as M, what is very small as 2.5e−4."""
    if 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}".replace("-", "−")


# ---- parts ----------------------------------------------------------------------------------------------------------


def svg(label, parts, width=WIDTH, height=HEIGHT):
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def text(x, y, content, anchor="middle", kind="tick"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1, y1, x2, y2, kind="grid"):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def rectangle(x, y, width, height, kind, title=""):
    inside = f"<title>{escape(title)}</title>" if title else ""
    shape = f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"{shape}>{inside}</rect>" if inside else f"{shape}/>"


def axes(x_scale, y_scale, x_label, y_format=format_tick, x_format=format_tick):
    parts = []
    for tick in y_scale.ticks:
        parts.append(line(x_scale.start, y_scale(tick), x_scale.end, y_scale(tick)))
        parts.append(text(x_scale.start - 6, y_scale(tick) + 4, y_format(tick), "end"))
    for tick in x_scale.ticks:
        if x_scale.start - 1 <= x_scale(tick) <= x_scale.end + 1:
            parts.append(text(x_scale(tick), y_scale.start + 15, x_format(tick)))
    parts.append(text(x_scale.end, y_scale.start + 27, x_label, "end", "label"))
    return parts


def percent_tick(value):
    return f"{100 * value:g} %"


# ---- charts ---------------------------------------------------------------------------------------------------------


def curves(label, series, x_label="step", y_range=None, y_format=format_tick, marks=(), x_format=format_tick):
    """Lines over x, with bands where there are some. What is not finite leaves a gap.

    Args:
      y_range: (low, high), or None for that of the values; a wide one of positive values is logarithmic.
      marks: list of (x, y, title) to point out.
    """
    # The lower end of a band may be below what the values can be at all: it is cut off.
    values = [ys[-1] for each in series for _, *ys in [*each.points, *(each.band or [])]]
    values = list(filter(is_drawable, values)) or [0.0]
    logarithmic = y_range is None and min(values) > 0 and max(values) > 50 * min(values)
    low, high = y_range or (min(values) if logarithmic else min(0, *values), max(values))
    xs = [x for each in series for x, _ in each.points] or [0]
    x_scale = Scale(0, max(xs), LEFT, WIDTH - RIGHT)
    y_scale = Scale(low, high, HEIGHT - BOTTOM, TOP, logarithmic)
    parts = axes(x_scale, y_scale, x_label, y_format, x_format)
    for number, each in enumerate(series):
        color = f"c{(number if each.color is None else each.color) % NUM_COLORS}"
        if each.band:
            parts.append(_draw_band(each.band, x_scale, y_scale, color))
        parts.extend(_draw_line(each, x_scale, y_scale, color, x_label, x_format))
    for x, y, title in marks:
        parts.append(line(x_scale(x), y_scale.start, x_scale(x), y_scale.end, "mark"))
        parts.append(_dot(x_scale(x), y_scale(y), "mark-dot", title, 4))
    return svg(label, parts)


def is_drawable(value):
    """Whether a value has a place: differences of huge ones would be infinite."""
    return math.isfinite(value) and abs(value) < 1e100


def _draw_band(band, x_scale, y_scale, color):
    there = [point for point in band if all(map(is_drawable, point))]
    upper = [(x, high) for x, _, high in there]
    lower = [(x, low) for x, low, _ in reversed(there)]
    corners = [f"{x_scale(x):.1f},{y_scale(_floor(y, y_scale)):.1f}" for x, y in upper + lower]
    return f'<polygon class="band {color}" points="{" ".join(corners)}"/>'


def _floor(value, scale):
    """A band may reach below what a logarithmic axis can show, or out of the plot."""
    return min(max(value, scale.low), scale.high)


def _draw_line(series, x_scale, y_scale, color, x_label, x_format):
    runs, parts = [[]], []
    for x, y in thin_out(series.points):
        if is_drawable(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    for run in runs:
        places = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in run)
        parts.append(f'<polyline class="line {color}" points="{places}"/>' if len(run) > 1 else "")
        for x, y in run:
            title = f"{series.name}, {x_label} {x_format(x) if x < 10 else f'{x:,.0f}'}: {format_number(y)}"
            parts.append(_dot(x_scale(x), y_scale(y), f"dot {color}" + " alone" * (len(run) == 1), title))
    return parts


def thin_out(points):
    """At most MOST_POINTS, evenly chosen, the last one among them."""
    step = -(-len(points) // MOST_POINTS)
    return points[::-1][::step][::-1] if points else []


def _dot(x, y, kind, title, radius=3):
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{escape(title)}</title></circle>'


def histogram(label, groups, x_label, threshold=None, num_bins=20):
    """Shares of values from 0 to 1 in bins, the groups side by side.

    Args:
      groups: dict from name to an array of values.
    """
    shares = {name: _shares(values, num_bins) for name, values in groups.items()}
    x_scale = Scale(0, 1, LEFT, WIDTH - RIGHT)
    y_scale = Scale(0, max(max(each) for each in shares.values()), HEIGHT - BOTTOM, TOP)
    parts = axes(x_scale, y_scale, x_label, percent_tick)
    width = (x_scale.end - x_scale.start) / num_bins
    for group, (name, heights) in enumerate(shares.items()):
        for number, share in enumerate(heights):
            x = x_scale.start + number * width + 1 + group * (width - 2) / len(shares)
            title = f"{name}, {number / num_bins:g} to {(number + 1) / num_bins:g}: {share:.1%}"
            size = (width - 2) / len(shares), y_scale.start - y_scale(share)
            parts.append(rectangle(x, y_scale(share), *size, f"bar c{group}", title))
    if threshold is not None:
        parts.append(line(x_scale(threshold), y_scale.start, x_scale(threshold), y_scale.end, "mark"))
    return svg(label, parts)


def _shares(values, num_bins):
    counts = collections.Counter(min(int(value * num_bins), num_bins - 1) for value in values)
    return [counts[number] / len(values) for number in range(num_bins)]


def reliability_diagram(label, bins):
    """Accuracy in each bin of confidence against the diagonal of a calibrated classifier.

    Args:
      bins: list of utils.statistics.Bin.
    """
    x_scale, y_scale = Scale(0, 1, LEFT, WIDTH - RIGHT), Scale(0, 1, HEIGHT - BOTTOM, TOP)
    parts = axes(x_scale, y_scale, "confidence", percent_tick)
    for each in bins:
        if each.count:
            title = f"{each.low:.0%} to {each.high:.0%}: {each.count} examples, sure {each.confidence:.1%}"
            x, width = x_scale(each.low) + 1, x_scale(each.high) - x_scale(each.low) - 2
            height = y_scale.start - y_scale(each.accuracy)
            parts.append(
                rectangle(x, y_scale(each.accuracy), width, height, "bar c0", f"{title}, right {each.accuracy:.1%}")
            )
            parts.append(line(x, y_scale(each.confidence), x + width, y_scale(each.confidence), "expected"))
            parts.append(text(x + width / 2, y_scale.start - 4, str(each.count), kind="count"))
    parts.append(line(x_scale(0), y_scale(0), x_scale(1), y_scale(1), "diagonal"))
    return svg(label, parts)


def strip(label, values, high, color=0, width=260, height=26):
    """Values as dots on one line from 0 to `high`, and their mean as a stroke."""

    def scale(value):
        return 8 + value / high * (width - 16)

    parts = [line(8, height / 2, width - 8, height / 2)]
    parts += [_dot(scale(value), height / 2, f"draw c{color % NUM_COLORS}", f"{value:.1%}", 4) for value in values]
    mean = scale(sum(values) / len(values))
    parts.append(line(mean, 4, mean, height - 4, f"mean c{color % NUM_COLORS}"))
    return svg(label, parts, width, height)
