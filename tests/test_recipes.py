"""The code of each recipe runs as it stands, and a recipe fits on a screen."""

import re

import pytest

from repository import ROOT

RECIPES = sorted((ROOT / "docs" / "recipes").glob("add_*.md"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_works(path, home, monkeypatch):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    monkeypatch.chdir(home)
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), {"__name__": path.stem})


def test_all_recipes_are_listed():
    listed = (ROOT / "docs" / "recipes" / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^add_\w+$", listed, re.M)) == [path.stem for path in RECIPES]
