"""Arrays, files, folders, splits and batches; torchvision's own readers on small files in the real formats, downloads and offline errors.

The benchmark's files are written here, so their checksums are put into torchvision's classes for the time of a test. The checks
themselves stay on: a damaged file is refused as a real one would be.
"""

import gzip
import hashlib
import pickle
import shutil
import struct
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import PIL.Image
import pytest
import scipy.io
import torch
from helpers import message
from torchvision import datasets

from pmlp.config import DATASETS
from pmlp.data import (
    KNOWN, Batches, draw_split, image_tensor, images_from_arrays, label_tensor, load, load_split, read_folder, read_image, read_npz, save_split,
)


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


GENERATOR = np.random.default_rng(0)
SMALL = dict(
    x_train=GENERATOR.integers(0, 256, (12, 8, 8, 3)), y_train=np.arange(12) % 3,
    x_test=GENERATOR.integers(0, 256, (6, 8, 8, 3)), y_test=np.arange(6) % 3,
)
LABELS = torch.arange(60) % 3


def test_layouts():
    last, first = SMALL["x_train"], SMALL["x_train"].transpose(0, 3, 1, 2)
    assert torch.equal(image_tensor(last, "x"), image_tensor(first, "x"))
    assert image_tensor(last, "x")[5, 2, 4, 7].item() == last[5, 4, 7, 2]
    assert image_tensor(np.zeros((4, 28, 28), np.uint8), "x").shape == (4, 1, 28, 28)
    assert image_tensor(np.zeros((4, 28, 28, 1), np.int16), "x").dtype == torch.uint8
    assert label_tensor(np.array([[2], [0]]), 2, "y").tolist() == [2, 0]


@pytest.mark.parametrize("wrong", [
    np.full((2, 4, 4), 256), np.full((2, 4, 4), -1), np.zeros((2, 4, 4), bool), np.zeros((0, 4, 4), np.uint8), np.zeros((2, 5, 4, 4), np.uint8),
], ids=["too bright", "negative", "bool", "none", "five channels"])
def test_images_that_are_refused(wrong):
    assert "x_train" in message(image_tensor, wrong, "x_train")


@pytest.mark.parametrize("change, words", [
    (dict(x_train=SMALL["x_train"] / 255), "x_train of small must hold whole numbers from 0 to 255"),
    (dict(x_train=SMALL["x_train"][0]), "y_train of small must hold one whole number for each of 8 images"),
    (dict(x_test=SMALL["x_test"][..., :1]), "x_test of small holds grey 8×8 images, but x_train colour 8×8"),
    (dict(y_train=SMALL["y_train"][:5]), "y_train of small must hold one whole number for each of 12 images"),
    (dict(y_train=SMALL["y_train"] * 1.0), "y_train of small must hold one whole number"),
    (dict(y_train=SMALL["y_train"] - 1), "y_train of small holds -1"),
    (dict(y_train=SMALL["y_train"] * 2), "no training image of class 1:"),
    (dict(y_train=np.arange(12) % 3 + 1), "no training image of class 0:"),
    (dict(y_train=np.arange(12) % 2), "no training image of class 2:"),
    (dict(y_train=np.arange(12) % 2 * 10**12), "no training image of class 1:"),
    (dict(classes=["cat", "dog"]), "small names 2 classes, but its labels go from 0 to 2"),
])
def test_arrays_that_are_refused(change, words):
    assert words in message(images_from_arrays, {**SMALL, **change}, "small")


def test_npz_files_that_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "cells.npz", **SMALL)
    whole = (tmp_path / "cells.npz").read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 3] ^= 255
    for name, content in (("truncated", whole[: len(whole) // 2]), ("damaged", damaged), ("empty", b""), ("text", b"x_train")):
        (tmp_path / f"{name}.npz").write_bytes(content)
    np.savez(tmp_path / "objects.npz", **{**SMALL, "y_train": np.array([None] * 12)})
    np.save(tmp_path / "single.npy", SMALL["x_train"])
    for name in ("truncated.npz", "damaged.npz", "empty.npz", "text.npz", "objects.npz", "single.npy", "absent.npz"):
        assert f"{name} cannot be read" in message(read_npz, tmp_path / name)
    np.savez(tmp_path / "lacking.npz", x_train=SMALL["x_train"], y_train=SMALL["y_train"])
    assert "lacking.npz lacks x_test, y_test" in message(read_npz, tmp_path / "lacking.npz")


@pytest.mark.parametrize("n_labels", [3, 6, 60])
def test_balanced_split(n_labels):
    ids = draw_split(LABELS, n_labels, seed=5)
    assert torch.bincount(LABELS[ids]).tolist() == [n_labels // 3] * 3
    assert (ids[1:] > ids[:-1]).all() and ids.dtype == torch.int64


def test_other_splits():
    assert draw_split(LABELS, 7, seed=5, balanced=False).unique().numel() == 7
    fewer, more = (set(draw_split(LABELS, n_labels, seed=3).tolist()) for n_labels in (6, 12))
    assert fewer < more  # a larger split of one seed contains the smaller one


@pytest.mark.parametrize("labels, n_labels, words", [
    (LABELS, 7, "does not divide by 3 classes"), (LABELS, 61, "n_labels=61 of 60"), (LABELS, 0, "n_labels=0 of 60"),
    (torch.tensor([0, 2] * 9), 6, "no image of class 1"), (torch.tensor([0] * 30 + [1] * 9), 30, "class 1 has 9"),
])
def test_splits_that_are_refused(labels, n_labels, words):
    assert words in message(draw_split, labels, n_labels, seed=0)


@pytest.mark.parametrize("text", [
    "{", "[]", "{}", '{"images": 60, "ids": [1.5], "labels": [1]}', '{"images": 60, "ids": [60], "labels": [0]}',
    '{"images": 60, "ids": [], "labels": []}', '{"images": 60, "ids": [3, 3], "labels": [0, 0]}',
    '{"images": 60, "ids": [[3]], "labels": [[0]]}', '{"images": 60, "ids": ["a"], "labels": [0]}',
])
def test_stored_splits_that_are_refused(text, tmp_path):
    (tmp_path / "wrong.json").write_text(text)
    assert "split wrong.json" in message(load_split, tmp_path / "wrong.json", LABELS)


def test_stored_split_of_other_data(tmp_path):
    save_split(tmp_path / "split.json", draw_split(LABELS, 6, seed=0), LABELS)
    for labels in (LABELS[:50], LABELS.flip(0)):
        assert "is not of this dataset" in message(load_split, tmp_path / "split.json", labels)
    assert "split absent.json" in message(load_split, tmp_path / "absent.json", LABELS)


@pytest.mark.parametrize("count, batch", [(1, 1), (1, 4), (4, 64), (40, 32), (64, 64), (1000, 448)])
def test_every_image_comes_once_before_any_comes_twice(count, batch):
    sampler = Batches(count, batch, seed=2)
    stream = torch.cat([sampler(iteration) for iteration in range(-(-3 * count // batch))])
    for part in stream[: 3 * count].split(count):
        assert part.sort().values.tolist() == list(range(count))


def test_orders_of_batches():
    assert not torch.equal(Batches(1000, 64, 0)(0), Batches(1000, 64, 1)(0))
    assert not torch.equal(Batches(1000, 64, 0)(0), Batches(1000, 64, 0, stream=1)(0))
    orders = [tuple(Batches(3, 3, seed)(0).tolist()) for seed in range(600)]  # 100 expected of each of 6, deviation 9.1
    assert len(set(orders)) == 6 and min(orders.count(order) for order in set(orders)) > 60
    assert "count=0" in message(Batches, 0, 3, 0)
    assert "iteration=-1" in message(Batches(5, 3, 0), -1)


def test_digits():
    digits = load("digits")
    assert (len(digits.train), len(digits.test), digits.classes) == (1297, 500, tuple("0123456789"))
    assert sorted(set(digits.train.unique().tolist())) == [round(255 * level / 16) for level in range(17)]
    assert torch.equal(digits.test, load("digits").test)


def save_image(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path):
    """Ten images of two classes, and ten without a label."""
    for name in ("cat", "dog", "unlabeled"):
        for number in range(10):
            save_image(tmp_path / "photos" / name / f"{number}.png", GENERATOR.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    return tmp_path / "photos"


def test_folder(photos):
    images = read_folder(photos)
    expected = [read_image(path) for path in sorted((photos / "unlabeled").iterdir())]
    assert np.array_equal(images.unlabeled.permute(0, 2, 3, 1).numpy(), expected)
    assert images.train_labels.bincount().tolist() == [8, 8] and images.test_labels.bincount().tolist() == [2, 2]
    assert len({image.numpy().tobytes() for image in torch.cat([images.train, images.test])}) == 20


def test_images_in_a_folder_that_are_refused(photos):
    first = photos / "cat" / "0.png"
    first.write_bytes(first.read_bytes()[:100])
    assert f"{first} cannot be read, it is truncated" in message(read_folder, photos)
    save_image(first, np.zeros((8, 5, 3), np.uint8))
    assert "8×8 pixels" in message(read_folder, photos) and "8×5" in message(read_folder, photos)
    save_image(first, np.zeros((8, 8), np.uint16))
    assert f"{first} has more than 8 bits a channel" in message(read_folder, photos)
    (photos / "fish").mkdir()
    assert "has a class without images" in message(read_folder, photos)


def test_divided_folder(tmp_path):
    """Images lie anywhere below their class, other files do no harm, and one colour image makes all of them colour."""
    pixels = GENERATOR.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    for place in ("train/cat", "train/dog", "test/cat"):
        save_image(tmp_path / place / "deeper" / "one.bmp", pixels[:, :, 0])
        (tmp_path / place / "notes.txt").write_text("no image")
    grey = read_folder(tmp_path)
    assert (grey.classes, grey.train.shape, grey.test_labels.tolist(), grey.unlabeled) == (("cat", "dog"), (2, 1, 8, 8), [0], None)
    save_image(tmp_path / "test" / "cat" / "colour.png", pixels)
    coloured = read_folder(tmp_path)
    assert coloured.train.shape == (2, 3, 8, 8) and (coloured.train == grey.train).all()
    assert "at least two classes" in message(read_folder, tmp_path / "train" / "cat")
    assert "one image" in message(read_folder, tmp_path / "train")
    (tmp_path / "test" / "fish").mkdir()
    assert "of no others: ['fish']" in message(read_folder, tmp_path)
    shutil.rmtree(tmp_path / "test")
    (tmp_path / "test").mkdir()
    assert "must hold images" in message(read_folder, tmp_path)


def test_files_of_known_names(tmp_path):
    numbers = np.arange(20) % 10
    full = dict(x_train=np.zeros((20, 32, 32, 3), np.uint8), y_train=numbers, x_test=np.ones((20, 32, 32, 3), np.uint8), y_test=numbers)
    np.savez(tmp_path / "cifar10.npz", **full)
    assert load("cifar10", folder=tmp_path).classes[3] == "cat"
    np.savez(tmp_path / "cifar10.npz", **{**full, "x_train": full["x_train"][..., :1], "x_test": full["x_test"][..., :1]})
    assert "cifar10.npz holds grey 32×32 images, but cifar10 has colour 32×32" in message(load, "cifar10", folder=tmp_path)
    np.savez(tmp_path / "cifar100.npz", **full)
    assert "cifar100 has 100" in message(load, "cifar100", folder=tmp_path)
    np.savez(tmp_path / "svhn.npz", **full)
    assert "x_unlabeled" in message(load, "svhn", folder=tmp_path, svhn_extra=True)
    unlabeled = np.stack([np.full((32, 32, 3), value, np.uint8) for value in (0, 1, 2, 1)])
    np.savez(tmp_path / "svhn.npz", **full, x_unlabeled=unlabeled)
    assert load("svhn", folder=tmp_path, svhn_extra=True).unlabeled[:, 0, 0, 0].tolist() == [0, 2]
    assert load("svhn", folder=tmp_path, drop_test_duplicates=False).unlabeled[:, 0, 0, 0].tolist() == [0, 1, 2, 1]


def test_unknown_names(tmp_path):
    said = message(load, "nothing of the kind", folder=tmp_path)
    assert all(name in said for name in KNOWN)
    assert "svhn_extra=True is for the dataset svhn, not 'digits'" in message(load, "digits", folder=tmp_path, svhn_extra=True)


def test_a_name_of_ones_own(monkeypatch, tmp_path):
    """One entry in KNOWN makes a dataset known; its images must be what the entry says."""
    def read_cells():
        return images_from_arrays(SMALL, "cells")

    monkeypatch.setitem(KNOWN, "cells", KNOWN["digits"]._replace(shape=(3, 8, 8), classes=("round", "long", "flat"), reader=read_cells))
    assert load("cells", folder=tmp_path).classes == ("round", "long", "flat")
    monkeypatch.setitem(KNOWN, "cells", KNOWN["cells"]._replace(shape=(1, 8, 8)))
    assert "cells has grey 8×8" in message(load, "cells", folder=tmp_path)
