"""Pictures of results as SVG files: small, the same for the same values, and fit for light and dark pages."""

import html
import itertools
import statistics

from utils.charts import Scale, line, text

WIDTH, ROW, MARGIN, TICK_ROOM = 720, 34, 16, 44
CHART_HEIGHT, Y_LABEL_ROOM, LEGEND_ROW = 260, 56, 20
CHARACTER = 6.7  # width of one, of the size that the style gives
COLORS = ("#3b6fd4", "#d97706", "#16915f", "#9b51c9", "#c2415c", "#5f7384")  # readable on white and on black

STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #57606a; }
.grid { stroke: #d0d7de; } .title { font-weight: 600; }
@media (prefers-color-scheme: dark) { text { fill: #9aa4af; } .grid { stroke: #30363d; } }
</style>"""


def strips(title, x_label, methods):
    """One row a method: a dot for each draw, a bar for the mean.

    Args:
      methods: dict from name to a dict from number of labels to values; one number of labels only.
    """
    rows = {name: next(iter(sizes.values())) for name, sizes in methods.items()}
    left = MARGIN + CHARACTER * max(map(len, rows))
    top, bottom = 30, 30 + ROW * len(rows)
    draws = [value for values in rows.values() for value in values]
    x_of = Scale(min(draws), max(draws), left + 12, WIDTH - MARGIN)
    parts = [text(MARGIN, 18, title, "start", "title")]
    for tick in x_of.ticks:
        parts += [line(x_of(tick), top, x_of(tick), bottom), text(x_of(tick), bottom + 16, f"{tick:g}")]
    parts.append(text(WIDTH - MARGIN, bottom + 34, x_label, "end"))
    for number, (name, values) in enumerate(rows.items()):
        y, color, mean = top + ROW * (number + 0.5), COLORS[number % len(COLORS)], statistics.fmean(values)
        parts.append(text(left, y + 4, name, "end"))
        parts += [dot(x_of(value), y, color, f"{name}: {value:.1f}") for value in values]
        parts.append(f'<rect x="{x_of(mean) - 1.5:.1f}" y="{y - 11:.1f}" width="3" height="22" fill="{color}"/>')
    return svg(title, bottom + TICK_ROOM, parts)


def curves(title, y_label, methods):
    """Values over the number of labels: a line through the means, a dot for each draw.

    Args:
      methods: dict from name to a dict from number of labels to values.
    """
    sizes = sorted({size for by_size in methods.values() for size in by_size})
    x_of = Scale(sizes[0], sizes[-1], Y_LABEL_ROOM, WIDTH - MARGIN, logarithmic=True)
    y_of = _y_scale(methods)
    parts = _frame(title, y_label, methods, x_of, y_of, sizes, "labels")
    for color, (name, by_size) in zip(itertools.cycle(COLORS), methods.items()):
        parts.append(_mean_line(by_size, x_of, y_of, color))
        for size, values in by_size.items():
            parts += [dot(x_of(size), y_of(value), color, f"{name}, {size:,} labels: {value:.1f}") for value in values]
    return svg(title, y_of.start + TICK_ROOM, parts)


def learning_curves(title, y_label, methods):
    """Values over the steps of training: a line through the means, in a band from the least to the largest draw.

    Args:
      methods: dict from name to a dict from step to values.
    """
    x_of = Scale(0, max(step for by_step in methods.values() for step in by_step), Y_LABEL_ROOM, WIDTH - MARGIN)
    y_of = _y_scale(methods)
    parts = _frame(title, y_label, methods, x_of, y_of, map(round, x_of.ticks), "steps")
    for color, by_step in zip(itertools.cycle(COLORS), methods.values()):
        steps = sorted(by_step)
        band = [(step, max(by_step[step])) for step in steps] + [(step, min(by_step[step])) for step in steps[::-1]]
        corners = " ".join(f"{x_of(step):.1f},{y_of(value):.1f}" for step, value in band)
        parts += [f'<polygon points="{corners}" fill="{color}" fill-opacity="0.25"/>']
        parts += [_mean_line(by_step, x_of, y_of, color)]
    return svg(title, y_of.start + TICK_ROOM, parts)


def _y_scale(methods):
    values = [value for places in methods.values() for values in places.values() for value in values]
    top = 40 + LEGEND_ROW
    return Scale(min(values), max(values), top + CHART_HEIGHT, top)


def _frame(title, y_label, methods, x_of, y_of, x_ticks, x_label):
    """Title, grid, axes and the names of the methods."""
    parts = [text(MARGIN, 18, f"{title}: {y_label}", "start", "title")]
    for tick in y_of.ticks:
        parts += [line(Y_LABEL_ROOM, y_of(tick), WIDTH - MARGIN, y_of(tick))]
        parts += [text(Y_LABEL_ROOM - 8, y_of(tick) + 4, f"{tick:g}", "end")]
    parts += [text(x_of(tick), y_of.start + 18, f"{tick:,}") for tick in x_ticks]
    parts.append(text(WIDTH - MARGIN, y_of.start + 36, x_label, "end"))
    place = Y_LABEL_ROOM
    for color, name in zip(itertools.cycle(COLORS), methods):
        parts.append(f'<rect x="{place:.1f}" y="36" width="14" height="4" fill="{color}"/>')
        parts.append(text(place + 20, 42, name, "start"))
        place += 44 + CHARACTER * len(name)
    return parts


def _mean_line(places, x_of, y_of, color):
    points = [(x_of(place), y_of(statistics.fmean(values))) for place, values in sorted(places.items())]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>'


def svg(title, height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">'
    return "\n".join([head, f"<title>{html.escape(title)}</title>", STYLE, *parts, "</svg>"]) + "\n"


def dot(x, y, color, title):
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{color}" fill-opacity="0.55">'
    return f"{circle}<title>{html.escape(title)}</title></circle>"
