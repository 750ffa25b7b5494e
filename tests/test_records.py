"""Files that are whole or not there, folders that belong to one run, metrics that lose no line, and signals that are only noted."""

import hashlib
import io
import os
import pickle
import shutil
import signal
import threading

import pytest
import torch
from helpers import message

from pmlp.config import preset
from pmlp.records import (
    CHECKPOINT_FILES, FORMAT, Checkpoints, EarlierLayout, Records, check_output, check_room, load_checkpoint, noted_signals, progress,
    read_history, remove_strays, save_checkpoint,
)


def signed(value):
    """Any value as a file with the right checksum."""
    stored = io.BytesIO()
    torch.save(value, stored)
    return stored.getvalue() + hashlib.sha256(stored.getvalue()).digest()


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_found(tmp_path):
    file = tmp_path / "checkpoint.pt"
    save_checkpoint(file, {"iteration": 1})
    content = file.read_bytes()
    for place in range(0, len(content), 7):  # every part of the file, its padding too
        file.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        assert "damaged" in message(load_checkpoint, file)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "damaged"),
        (signed({"iteration": 1})[:300], "damaged"),
        (signed({"iteration": 1}), f"not a checkpoint of layout {FORMAT}"),
        (signed([FORMAT]), f"not a checkpoint of layout {FORMAT}"),
        (signed({"format": FORMAT + 1}), "a later version"),
    ],
)
def test_what_is_no_whole_checkpoint_is_refused_in_one_sentence(tmp_path, content, words):
    (tmp_path / "checkpoint.pt").write_bytes(content)
    said = message(load_checkpoint, tmp_path / "checkpoint.pt")
    assert words in said and said.startswith("checkpoint.pt") and ". " not in said


def test_a_missing_checkpoint_is_named(tmp_path):
    assert "missing.pt cannot be read (No such file or directory)" in message(load_checkpoint, tmp_path / "missing.pt")


@pytest.mark.parametrize("newest", [True, False])
def test_an_earlier_layout_is_refused_in_one_sentence(tmp_path, newest):
    """Also where the newest checkpoint is missing, and never by falling back to another file."""
    checkpoints = Checkpoints(tmp_path)
    for path in (checkpoints.newest, checkpoints.previous)[not newest :]:
        path.write_bytes(signed({"format": FORMAT - 1}))
    said = message(checkpoints.load, error=EarlierLayout)
    assert f"earlier layout ({FORMAT - 1} instead of {FORMAT}): start the run again" in said and ". " not in said


def test_a_state_that_cannot_be_stored_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    file = tmp_path / "checkpoint.pt"
    save_checkpoint(file, {"iteration": 1})
    before = file.read_bytes()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        save_checkpoint(file, {"no": lambda: 0})
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["checkpoint.pt"]


def test_without_any_whole_checkpoint_the_sentence_names_all(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.newest.write_bytes(b"damaged")
    checkpoints.previous.write_bytes(b"damaged")
    said = message(checkpoints.load)
    assert "checkpoint.pt" in said and "previous.pt" in said and said.endswith("start again in a new folder.")


def test_room_is_needed_for_the_missing_files_and_one_more(tmp_path):
    (tmp_path / "file").touch()
    assert "cannot be written" in message(check_room, tmp_path / "file" / "run", 1000)
    tight = (shutil.disk_usage(tmp_path).free - 2**20) // 2  # room for two files, not for four
    assert "MB free" in message(check_room, tmp_path, tight)
    for name in CHECKPOINT_FILES:
        (tmp_path / name).touch()
    check_room(tmp_path, tight // 2)


def test_a_folder_belongs_to_one_run(tmp_path):
    config, folder = preset("digits"), tmp_path / "run"
    assert check_output(folder, config) == folder and not folder.exists()
    folder.mkdir()
    (folder / "executed.ipynb").touch()
    assert check_output(folder, config) == folder
    config.save(folder / "config.json")
    assert check_output(folder, config.replace(device="cuda"), resume=True) == folder
    assert "already holds this run" in message(check_output, folder, config)
    assert "already holds another run" in message(check_output, folder, config.replace(seed=1))
    assert "already holds another run" in message(check_output, folder, config.replace(seed=1), True)
    (folder / "config.json").write_text("{}")
    assert "config.json cannot be read" in message(check_output, folder, config)
    assert "is a file" in message(check_output, folder / "config.json", config)


def test_only_our_own_strays_are_removed(tmp_path):
    stray, other = tmp_path / f".checkpoint.pt.{'0f' * 16}", tmp_path / ".checkpoint.pt.mine"
    stray.touch()
    other.touch()
    remove_strays(tmp_path)
    assert os.listdir(tmp_path) == [other.name]


def test_records_lose_and_double_no_line(tmp_path):
    records = Records(tmp_path)
    records.add({"iteration": 100, "test_accuracy": 0.5, "correct": None}, {"network": 2.5})
    position = records.position()
    records.add({"iteration": 200, "test_accuracy": 0.25, "correct": 0.75}, {"network": 2.0})
    records.rewind(position)
    records.add({"iteration": 200, "test_accuracy": 0.75, "correct": 1.0}, {"network": 2.0})
    records.close()
    history = read_history(tmp_path)
    assert history.index.tolist() == [100, 200] and history.test_accuracy.tolist() == [0.5, 0.75]
    assert history.seconds_network.tolist() == [2.5, 2.0]
    assert {path.name.split(".")[0] for path in (tmp_path / "tensorboard").iterdir()} == {"events"}
    assert "has lost lines" in message(records.rewind, [10**6, 0])
    with pytest.raises(ValueError, match="JSON"):
        records.add({"iteration": 300, "loss": float("nan")}, {})


def test_a_run_without_metrics_has_an_empty_history(tmp_path):
    assert len(read_history(tmp_path / "nowhere")) == 0


def test_signals_are_noted_and_their_handlers_come_back():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with noted_signals() as noted:
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
        assert noted == [signal.SIGINT, signal.SIGTERM] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_has_no_signals():
    inside = []

    def in_a_thread():
        with noted_signals() as noted:
            inside.append(noted)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert inside == [[]]


def test_no_bar_where_nobody_sees_it_move(capsys):
    with progress(200, start=50) as bar:
        bar.update()
    assert bar.disable and capsys.readouterr().err == ""
