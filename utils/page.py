"""One HTML page that needs nothing else: no network, no scripts, light and dark as the reader's system says."""

import html
import os

NUM_COLORS = 8  # page.css has c0 to c7


def read_style():
    with open(os.path.join(os.path.dirname(__file__), "page.css"), encoding="utf-8") as file:
        return file.read() + "".join(map(color_rules, range(NUM_COLORS)))


def color_rules(number):
    """What has the class c3, say, is drawn in the color c3: lines by their stroke, areas by their content."""
    areas = ", ".join(f".{kind}.c{number}" for kind in ("band", "dot", "bar", "draw"))
    rules = {f".c{number}": "stroke: COLOR", areas: "fill: COLOR; stroke: none", f"i.c{number}": "background: COLOR"}
    lines = [f"{selector} {{ {rule}; }}\n" for selector, rule in rules.items()]
    return "".join(lines).replace("COLOR", f"var(--c{number})")


def escape(value):
    """Any text as it may stand in the page, also in attributes."""
    return html.escape(str(value), quote=True)


def document(title, parts):
    """The whole page; `parts` are HTML."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{escape(title)}</title><style>\n{read_style()}</style>"
    # An empty picture: browsers would ask a server for one.
    head += '<link rel="icon" href="data:,">'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>{"".join(parts)}</main></body></html>\n'


def section(title, *parts, note=""):
    return f"<section><h2>{escape(title)}</h2>{paragraph(note) if note else ''}{''.join(parts)}</section>\n"


def paragraph(text, kind="soft"):
    return f'<p class="{kind}">{escape(text)}</p>'


def figure_of(name, value, shown):
    """A figure with its full precision: `name` tells where it comes from, such as result.accuracy."""
    return f'<data class="{escape(name)}" value="{escape(value)}">{escape(shown)}</data>'


def tile(figure, *remarks):
    return f'<div class="card tile"><b>{figure}</b>{"".join(f"<span>{remark}</span>" for remark in remarks)}</div>'


def tiles(*parts):
    return f'<div class="tiles">{"".join(parts)}</div>'


def chart(caption, drawing, remark="", legend=()):
    """Args:
    legend: list of (number of a color, HTML).
    """
    small = f"<small>{escape(remark)}</small>" if remark else ""
    items = "".join(f'<li><i class="c{color % NUM_COLORS}"></i>{label}</li>' for color, label in legend)
    below = f'<ul class="legend">{items}</ul>' if legend else ""
    return f"<figure><figcaption>{escape(caption)}{small}</figcaption>{drawing}{below}</figure>"


def charts(parts):
    return f'<div class="charts">{"".join(parts)}</div>'


def pair(*parts):
    return f'<div class="pair">{"".join(parts)}</div>'


def card(*parts, kind=""):
    return f'<div class="card {kind}">{"".join(parts)}</div>'


def table(heads, rows, numbers=(), kind=""):
    """Args:
    heads: texts; rows: lists of HTML; numbers: which columns hold numbers.
    kind: "stack" for many columns: on a narrow screen the cells of a row stand below each other, with their heads.
    """

    def cell(tag, column, content):
        numeric = ' class="number"' if column in numbers else ""
        label = f' data-label="{escape(heads[column])}"' if kind == "stack" and tag == "td" else ""
        return f"<{tag}{numeric}{label}>{content}</{tag}>"

    head = "".join(cell("th", column, escape(name)) for column, name in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(cell('td', column, content) for column, content in enumerate(row))}</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def meter(share):
    return f'<span class="meter"><i style="width:{100 * share:.1f}%"></i></span>'


def facts(pairs):
    """Args:
    pairs: list of (name, HTML).
    """
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{content}</dd>' for name, content in pairs)}</dl>"


def command(line):
    """A command that breaks between its arguments, where they are short enough."""
    return f"<code>{' '.join(f'<span>{escape(word)}</span>' for word in line.split(' '))}</code>"


def details(summary, *parts):
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"
