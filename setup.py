"""Package pmlp; everything that changes between releases is read from settings.ini."""

from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

here = Path(__file__).parent
parser = ConfigParser()
parser.read(here / "settings.ini", encoding="utf-8")
settings = parser["DEFAULT"]

suffix = "_requirements"
extras = {
    key.removesuffix(suffix): value.strip().splitlines() for key, value in settings.items() if key.endswith(suffix)
}
major, last_minor = settings["max_python"].split(".")

setup(
    name=settings["lib_name"],
    version=settings["version"],
    description=settings["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=settings["author"],
    license=settings["license"],
    keywords=settings["keywords"].split(),
    python_requires=f">={settings['min_python']},<{major}.{int(last_minor) + 1}",
    packages=[settings["lib_path"]],
    install_requires=settings["requirements"].strip().splitlines(),
    extras_require=extras,
)
