"""Draw docs/map.svg, the map of the modules, from the notebooks' folders and the imports of pmlp/: python docs/draw_map.py

A band is a floor. An arrow leads from a module to one that imports it, so data flow along the arrows, from left to right.
Left out are the arrows that others imply, and those from the lowest floor, which everybody imports.
"""

import re
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parent.parent
COLORS = ["#0072b2", "#9a5b00", "#00795c", "#a3487f", "#4b3f8f", "#6b4a2b"]
WIDTH, HEIGHT, STEP_X, STEP_Y, LEFT, MARGIN = 112, 30, 146, 42, 112, 14


def read_house(root=ROOT):
    """The modules of each floor in reading order, from the ground up, and the graph of imports between them."""
    floors, imports = {}, nx.DiGraph()
    for path in sorted((root / "nbs").rglob("[0-9]*.ipynb"), key=lambda path: path.name):
        for module in re.findall(r"#\| default_exp (\w+)", path.read_text(encoding="utf-8")):
            floors.setdefault(path.parent.name, []).append(module)
            text = (root / "pmlp" / f"{module}.py").read_text(encoding="utf-8")
            imports.add_node(module)
            imports.add_edges_from((used, module) for used in re.findall(r"^\s*from (?:pmlp)?\.(\w+) import", text, re.M))
    return floors, imports


def columns(arrows):
    """A module stands right of all that it imports; one that imports nothing stands just left of the first that needs it."""
    column = {module: number for number, modules in enumerate(nx.topological_generations(arrows)) for module in modules}
    return column | {module: min((column[user] for user in arrows[module]), default=1) - 1 for module in arrows if not arrows.pred[module]}


def rows(modules, column, arrows):
    """The first row of a floor in which neither the box nor its arrows meet another box."""
    row, taken = {}, set()
    for module in sorted(modules, key=column.get):
        last = max((column[user] for user in arrows[module] if user in modules), default=0)
        cells = range(column[module], max(last, column[module] + 1))
        row[module] = next(number for number in range(len(modules)) if not taken & {(number, cell) for cell in cells})
        taken |= {(row[module], cell) for cell in cells}
    return row


def draw(root=ROOT):
    """The map as the text of an SVG file."""
    house, imports = read_house(root)
    (base, ground), *floors = house.items()
    arrows = nx.transitive_reduction(imports.subgraph([module for _, modules in floors for module in modules]))
    column = columns(arrows)
    bands, boxes, corners, colors = [], [], {}, {}
    width, y = LEFT + (max(column.values()) + 1) * STEP_X, MARGIN
    for (floor, modules), color in reversed(list(zip(floors, COLORS))):  # the highest floor is drawn on top
        row = rows(modules, column, arrows)
        height = (max(row.values()) + 1) * STEP_Y + 6
        bands.append(f'<rect x="8" y="{y}" width="{width - 16}" height="{height}" rx="6" fill="{color}" opacity="0.09"/>')
        bands.append(f'<text x="18" y="{y + 27}" fill="{color}" font-weight="bold">{floor}</text>')
        for module in modules:
            x, top = LEFT + column[module] * STEP_X, y + 9 + row[module] * STEP_Y
            corners[module], colors[module] = (x, top), color
            boxes.append(f'<rect x="{x}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="white" stroke="{color}"/>')
            boxes.append(f'<text x="{x + WIDTH // 2}" y="{top + 20}" text-anchor="middle">{module}</text>')
        y += height + MARGIN
    lines = []
    for start, end in sorted(arrows.edges):
        (x1, y1), (x2, y2) = corners[start], corners[end]
        x1, y1, y2 = x1 + WIDTH, y1 + HEIGHT // 2, y2 + HEIGHT // 2
        bend = max((x2 - x1) // 2, 18)
        curve = f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 4} {y2}"
        lines.append(f'<path d="{curve}" fill="none" stroke="{colors[start]}" stroke-width="1.4" marker-end="url(#tip)"/>')
    note = f'<text x="18" y="{y + 12}" fill="#555"><tspan font-weight="bold">{base}</tspan>: {", ".join(ground)}; every floor imports them</text>'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 28}" font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#444"/></marker></defs>',
        f'<rect width="{width}" height="{y + 28}" rx="8" fill="white"/>', *bands, *lines, *boxes, note, "</svg>", "",
    ])


if __name__ == "__main__":
    (ROOT / "docs" / "map.svg").write_text(draw(), encoding="utf-8")
