"""Reads a page of utils/page.py back: its figures, texts, drawings and links."""

import collections
import html.parser

VOID = {"meta", "link", "img", "br"}
EMPTY_SHAPES = {"line", "rect", "polyline", "polygon", "circle"}


class Page(html.parser.HTMLParser):
    """figures: {name: [(value, shown)]}; texts: {tag: [text]}; drawings: one dict for each <svg>."""

    def __init__(self, content):
        super().__init__()
        self.content = content
        self.figures, self.texts = collections.defaultdict(list), collections.defaultdict(list)
        self.drawings, self.links, self.open = [], [], []
        self.feed(content)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert tag != "script" and not any(name.startswith("on") for name in attributes), (tag, attributes)
        self.links += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "svg":
            self.drawings.append({"label": attributes["aria-label"], "shapes": [], "texts": [], "titles": []})
        elif tag in EMPTY_SHAPES:
            self.drawings[-1]["shapes"].append((tag, attributes))
        if tag not in VOID:
            self.open.append((tag, attributes, []))

    def handle_startendtag(self, tag, attributes):
        self.drawings[-1]["shapes"].append((tag, dict(attributes)))

    def handle_data(self, data):
        for _, _, parts in self.open:
            parts.append(data)

    def handle_endtag(self, tag):
        opened, attributes, parts = self.open.pop()
        assert opened == tag, f"<{opened}> is closed by </{tag}>"
        text = " ".join("".join(parts).split())
        self.texts[tag].append(text)
        if tag == "data":
            self.figures[attributes["class"]].append((attributes["value"], text))
        if tag in ("text", "title") and self.drawings:
            key = "titles" if tag == "title" else "texts"
            self.drawings[-1][key].append(
                text if tag == "title" else (float(attributes["x"]), float(attributes["y"]), text)
            )

    def values(self, name):
        """The full values of a figure, as numbers, in the order of the page."""
        return [float(value) for value, _ in self.figures[name]]

    def drawing(self, label):
        (found,) = [drawing for drawing in self.drawings if drawing["label"] == label]
        return found

    def curve(self, label, number=0):
        """The points of a line in a drawing, read off its axes: a list of (x, y)."""
        drawing = self.drawing(label)
        lines = [shape for tag, shape in drawing["shapes"] if tag == "polyline"]
        ticks = [(x, y, read_tick(text)) for x, y, text in drawing["texts"] if read_tick(text) is not None]
        bottom = max(y for _, y, _ in ticks)
        (x0, _, v0), *_, (x1, _, v1) = [tick for tick in ticks if tick[1] == bottom]
        (_, y0, w0), *_, (_, y1, w1) = [tick for tick in ticks if tick[1] < bottom]
        places = [map(float, place.split(",")) for place in lines[number]["points"].split()]
        # A name beside the y axis stands 4 below its line.
        return [(v0 + (x - x0) * (v1 - v0) / (x1 - x0), w0 + (y - y0 + 4) * (w1 - w0) / (y1 - y0)) for x, y in places]


def read_tick(text):
    scales = {"k": 1e3, "M": 1e6, "%": 0.01}
    scale = scales.get(text[-1], 1) if text else 1
    try:
        return float(text.rstrip("kM% ").replace("−", "-")) * scale
    except ValueError:
        return None
