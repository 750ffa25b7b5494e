"""torchvision's own readers on small files in the real formats, downloads from a local address, and offline errors.

The files are written here, so their checksums are put into torchvision's classes for the time of a test. The checks
themselves stay on: a damaged file is refused as a real one would be.
"""

import gzip
import hashlib
import pickle
import struct
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
import scipy.io
import torch
from torchvision import datasets

from pmlp.config import DATASETS
from pmlp.data import KNOWN, load


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def arrays(count, shape, classes, seed):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, *shape), dtype=np.uint8), np.arange(count) % classes


def pack(folder, archive):
    """Put a folder into a .tar.gz beside it and remove the folder's files."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def write_cifar(root, patch, reader, classes, name_key, label_key):
    """CIFAR's pickles: rows of 3,072 bytes, channel by channel."""
    folder = root / reader.base_folder
    folder.mkdir()
    parts, written = {}, {"train": [], "test": []}
    for part in ("train", "test"):
        for seed, (name, _) in enumerate(getattr(reader, f"{part}_list")):
            images, labels = arrays(2 * classes, (3, 32, 32), classes, seed + (part == "test") * 10)
            content = {"data": images.reshape(-1, 3072), label_key: labels.tolist()}
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))
            parts.setdefault(part, []).append((images, labels))
            written[part].append([name, md5(folder / name)])
        patch.setattr(reader, f"{part}_list", written[part])
    meta = reader.meta["filename"]
    (folder / meta).write_bytes(pickle.dumps({name_key: [f"name {number}" for number in range(classes)]}, protocol=2))
    patch.setattr(reader, "meta", {**reader.meta, "md5": md5(folder / meta)})
    pack(folder, root / reader.filename)
    patch.setattr(reader, "tgz_md5", md5(root / reader.filename))
    return {part: [np.concatenate(array) for array in zip(*batches)] for part, batches in parts.items()}


def write_cifar10(root, patch):
    return write_cifar(root, patch, datasets.CIFAR10, 10, "label_names", "labels")


def write_cifar100(root, patch):
    return write_cifar(root, patch, datasets.CIFAR100, 100, "fine_label_names", "fine_labels")


def write_svhn(root, patch):
    """SVHN's MATLAB files: X [32, 32, 3, N], and the digit 0 is called 10."""
    parts, splits = {}, {}
    for seed, part in enumerate(("train", "test", "extra")):
        images, labels = arrays(20, (3, 32, 32), 10, seed)
        content = {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)}
        url, name, _ = datasets.SVHN.split_list[part]
        scipy.io.savemat(root / name, content)
        splits[part] = [url, name, md5(root / name)]
        parts[part] = [images, labels]
    patch.setattr(datasets.SVHN, "split_list", splits)
    parts["unlabeled"] = parts.pop("extra")
    return parts


def write_stl10(root, patch):
    """STL-10's bytes: channel by channel, column by column; classes count from 1. Two unlabelled images are test images."""
    reader, parts = datasets.STL10, {}
    folder = root / reader.base_folder
    folder.mkdir()
    for seed, part in enumerate(("train", "test", "unlabeled")):
        images, labels = arrays(20 if part != "unlabeled" else 6, (3, 96, 96), 10, seed)
        if part == "unlabeled":
            images[[1, 4]] = parts["test"][0][[7, 7]]
        else:
            (folder / f"{part}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
        (folder / f"{part}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())
        parts[part] = [images, labels]
    (folder / "class_names.txt").write_text("\n".join(KNOWN["stl10"].classes) + "\n")
    for part in ("train", "test"):
        names = [name for name, _ in getattr(reader, f"{part}_list")]
        patch.setattr(reader, f"{part}_list", [[name, md5(folder / name)] for name in names])
    pack(folder, root / reader.filename)
    patch.setattr(reader, "tgz_md5", md5(root / reader.filename))
    return parts


def write_fashion_mnist(root, patch):
    """Fashion-MNIST's idx files: a header of big-endian numbers, then bytes; each gzipped."""
    reader, parts, resources = datasets.FashionMNIST, {}, []
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for seed, (part, prefix) in enumerate((("train", "train"), ("test", "t10k"))):
        images, labels = arrays(20, (1, 28, 28), 10, seed)
        contents = {
            f"{prefix}-images-idx3-ubyte.gz": struct.pack(">4B3I", 0, 0, 8, 3, 20, 28, 28) + images.tobytes(),
            f"{prefix}-labels-idx1-ubyte.gz": struct.pack(">4BI", 0, 0, 8, 1, 20) + labels.astype(np.uint8).tobytes(),
        }
        for name, content in contents.items():
            (folder / name).write_bytes(gzip.compress(content))
            resources.append((name, md5(folder / name)))
        parts[part] = [images, labels]
    patch.setattr(reader, "resources", resources)
    return parts


WRITERS = dict(
    cifar10=write_cifar10,
    cifar100=write_cifar100,
    svhn=write_svhn,
    stl10=write_stl10,
    fashion_mnist=write_fashion_mnist,
)
READERS = dict(
    cifar10=datasets.CIFAR10,
    cifar100=datasets.CIFAR100,
    svhn=datasets.SVHN,
    stl10=datasets.STL10,
    fashion_mnist=datasets.FashionMNIST,
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder and the local address at which it is online."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def place(name, address, patch):
    """Let torchvision download from this address."""
    reader = READERS[name]
    if name == "svhn":
        splits = {part: [f"{address}/{file}", file, sum_] for part, (_, file, sum_) in reader.split_list.items()}
        patch.setattr(reader, "split_list", splits)
    elif name == "fashion_mnist":
        patch.setattr(reader, "mirrors", [f"{address}/FashionMNIST/raw/"])
    else:
        patch.setattr(reader, "url", f"{address}/{reader.filename}")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Let every download fail at once."""
    for name in READERS:
        place(name, (tmp_path / "nowhere").as_uri(), monkeypatch)


def assert_same(images, parts):
    for part in ("train", "test"):
        expected, labels = parts[part]
        assert np.array_equal(getattr(images, part), expected)
        assert getattr(images, f"{part}_labels").tolist() == labels.tolist()
        assert getattr(images, part).is_contiguous()


@pytest.mark.parametrize("name", WRITERS)
def test_files_put_into_the_folder(name, tmp_path, monkeypatch, offline):
    parts = WRITERS[name](tmp_path, monkeypatch)
    images = load(name, folder=tmp_path)
    assert_same(images, parts)
    assert images.train.shape[1:] == KNOWN[name].shape
    assert images.classes[9] == ("name 9" if name.startswith("cifar") else KNOWN[name].classes[9])
    assert (images.unlabeled is None) == (name != "stl10")
    again = load(name, folder=tmp_path, download=False)  # unpacked the first time
    assert torch.equal(again.train, images.train)


@pytest.mark.parametrize("name", WRITERS)
def test_download(name, tmp_path, monkeypatch, capsys, site):
    parts = WRITERS[name](site[0], monkeypatch)
    place(name, site[1], monkeypatch)
    assert_same(load(name, folder=tmp_path / "data"), parts)
    assert "100%" in capsys.readouterr().err  # the progress bar


@pytest.mark.parametrize("name", WRITERS)
def test_offline(name, tmp_path, offline):
    for download in (True, False):
        with pytest.raises(ValueError) as raised:
            load(name, folder=tmp_path / "data", download=download)
        sentence = str(raised.value)
        assert "\n" not in sentence
        assert all(word in sentence for word in (str(tmp_path / "data"), KNOWN[name].files, KNOWN[name].site, f"{name}.npz"))


@pytest.mark.parametrize("name", WRITERS)
def test_truncated_file(name, tmp_path, monkeypatch, offline):
    WRITERS[name](tmp_path, monkeypatch)
    load(name, folder=tmp_path)
    for archive in tmp_path.glob("*.tar.gz"):  # it would be unpacked again
        archive.unlink()
    needed = [path for path in tmp_path.rglob("*") if path.suffix in ("", ".bin", ".mat", ".meta") and path.is_file()]
    assert len(needed) >= 2
    for file in needed:
        if file.name == "extra_32x32.mat":
            continue
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match=f"{name} is not complete"):
            load(name, folder=tmp_path)
        file.write_bytes(whole)
    load(name, folder=tmp_path)


def test_damaged_download(tmp_path, monkeypatch, site):
    write_cifar10(site[0], monkeypatch)
    place("cifar10", site[1], monkeypatch)
    archive = site[0] / datasets.CIFAR10.filename
    archive.write_bytes(archive.read_bytes()[:-5])
    with pytest.raises(ValueError, match="cifar10 is not complete"):
        load("cifar10", folder=tmp_path / "data")


def test_stl10_without_test_images(tmp_path, monkeypatch, caplog):
    parts = write_stl10(tmp_path, monkeypatch)
    with caplog.at_level("INFO", logger="pmlp.data"):
        images = load("stl10", folder=tmp_path)
    assert np.array_equal(images.unlabeled, parts["unlabeled"][0][[0, 2, 3, 5]])
    assert "dropped 2 of 6" in caplog.text
    assert len(images.test) == 20
    leaky = load("stl10", folder=tmp_path, drop_test_duplicates=False)
    assert np.array_equal(leaky.unlabeled, parts["unlabeled"][0])


def test_svhn_extra(tmp_path, monkeypatch, offline):
    parts = write_svhn(tmp_path, monkeypatch)
    images = load("svhn", folder=tmp_path, svhn_extra=True)
    assert_same(images, parts)
    assert np.array_equal(images.unlabeled, parts["unlabeled"][0])
    (tmp_path / "extra_32x32.mat").unlink()
    assert load("svhn", folder=tmp_path).unlabeled is None
    with pytest.raises(ValueError, match="extra_32x32.mat"):
        load("svhn", folder=tmp_path, svhn_extra=True)


def test_file_of_a_known_name_comes_first(tmp_path, monkeypatch, offline):
    """Without a network one .npz is enough, and it is found in the project's data folder."""
    monkeypatch.setenv("PMLP_HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    (x_train, y_train), (x_test, y_test) = (arrays(20, (32, 32, 3), 10, seed) for seed in (0, 1))
    np.savez_compressed(tmp_path / "data" / "cifar10.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    images = load("cifar10")
    assert np.array_equal(images.train.permute(0, 2, 3, 1), x_train)
    assert images.classes == KNOWN["cifar10"].classes


def test_known_names_are_those_with_presets():
    assert set(KNOWN) == set(DATASETS)


def test_path_of_an_npz_file_from_anywhere(tmp_path, monkeypatch):
    (x_train, y_train), (x_test, y_test) = (arrays(6, (5, 7), 2, seed) for seed in (0, 1))
    np.savez(tmp_path / "cells.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    monkeypatch.chdir(tmp_path)
    for dataset in ("cells.npz", "./cells.npz", tmp_path / "cells.npz"):
        assert load(dataset, folder=tmp_path / "elsewhere").train.shape == (6, 1, 5, 7)
    assert load("cells", folder=tmp_path).train.shape == (6, 1, 5, 7)


def test_pickles_are_never_read(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trapped"), "w"))

    np.savez(tmp_path / "trap.npz", x_train=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match="trap.npz"):
        load("trap", folder=tmp_path)
    assert not (tmp_path / "trapped").exists()
