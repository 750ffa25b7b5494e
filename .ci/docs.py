"""Write every notebook as a web page to _docs/, each with links to all others in reading order."""

import os
from pathlib import Path

from nbconvert import HTMLExporter

from checks import notebooks

ROOT = Path(__file__).resolve().parent.parent

pages = {path: path.relative_to(ROOT / "nbs").with_suffix(".html") for path in notebooks(ROOT)}
for path, page in pages.items():
    links = " · ".join(f'<a href="{os.path.relpath(other, page.parent)}">{other.stem}</a>' for other in pages.values())
    body, _ = HTMLExporter().from_filename(path)
    head, main = body.replace('.ipynb"', '.html"').split("<main>", 1)
    target = ROOT / "_docs" / page
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f'{head}<nav style="padding: 1em">{links}</nav><main>{main}', encoding="utf-8")
    print(target.relative_to(ROOT))
