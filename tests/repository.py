"""What the tests of the repository itself share: its root, its settings, its notebooks and their cells."""

import json
import re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_parser = ConfigParser()
_parser.read(ROOT / "settings.ini", encoding="utf-8")
SETTINGS = _parser["DEFAULT"]
NOTEBOOKS = {  # by name, such as graph/12_density
    path.relative_to(ROOT / "nbs").with_suffix("").as_posix(): path
    for path in sorted((ROOT / "nbs").rglob("*.ipynb"))
    if not re.search(r"/[._]", path.relative_to(ROOT).as_posix())
}


def read_notebook(path):
    """A notebook as its file has it."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_cells(path):
    """The cells of a notebook, each source in one string."""
    return [{**cell, "source": "".join(cell["source"])} for cell in read_notebook(path)["cells"]]


def read_code(path):
    """The sources of a notebook's code cells, without what only Jupyter understands."""
    return [re.sub(r"^[%!].*", "", cell["source"], flags=re.M) for cell in read_cells(path) if cell["cell_type"] == "code"]
