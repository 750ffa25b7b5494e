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
first, last = (int(settings[key].split(".")[1]) for key in ("min_python", "max_python"))  # all of them Python 3

setup(
    name=settings["lib_name"],
    version=settings["version"],
    description=settings["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=settings["author"],
    license=settings["license"],
    keywords=settings["keywords"].split(),
    classifiers=settings["classifiers"].strip().splitlines() + [f"Programming Language :: Python :: 3.{minor}" for minor in range(first, last + 1)],
    python_requires=f">=3.{first},<3.{last + 1}",
    packages=[settings["lib_path"]],
    package_data={settings["lib_path"]: ["py.typed"]},
    install_requires=settings["requirements"].strip().splitlines(),
    extras_require=extras,
)
