"""Looks at a set while it is learned: pictures and accuracies that change nothing of the run."""

import pytest

from dclib.cli.main import main
from dclib.results import CondensedSet

RUN = ["condense", "digits", "-K", "5", "--real-batch", "4", "--network", "MLP:width=8", "--engine", "eager"]


def test_looking_changes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*RUN, "-o", "plain"]) == 0
    capsys.readouterr()
    assert main([*RUN, "-o", "seen", "--snapshots", "2", "--evaluate-every", "5"]) == 0
    assert CondensedSet.load("plain").hash == CondensedSet.load("seen").hash
    pictures = sorted((tmp_path / "seen.snapshots").iterdir())
    assert [path.name for path in pictures] == ["2.png", "4.png"]
    assert pictures[0].read_bytes() != pictures[1].read_bytes()
    told = [line for line in capsys.readouterr().err.splitlines() if "outer steps" in line]
    assert len(told) == 1
    assert main(["train", "seen", "--network", "MLP:width=8", "--engine", "eager"]) == 0
    assert told[0] == f"dclib: after 5 of 5 outer steps: {float(capsys.readouterr().out.split()[1]):.1f} %"


@pytest.mark.parametrize(
    ("network", "form", "augment"),
    [("VGG11", "VGG11:norm=instance", "none"), ("ConvNet:width=4,depth=1,norm=batch", "", "crop+noise")],
)
def test_what_is_tested_on_the_way_is_what_the_command_afterwards_trains(network, form, augment, tmp_path, monkeypatch, capsys):
    """In the form that a network has in stage T, with that stage's augmentation; the command is the one that is named."""
    monkeypatch.chdir(tmp_path)
    seen = []

    def evaluate(images, labels, dataset, hyper, *, seeds, **how):
        seen.append((images.tolist(), labels.tolist(), dataset.hash, hyper, list(seeds)))
        return [50.0]

    monkeypatch.setattr("dclib.core.train.evaluate", evaluate)
    request = ["condense", "digits", "-K", "1", "--real-batch", "2", "--network", network, "--engine", "eager", "-o", "set"]
    assert main([*request, "--evaluate-every", "1"]) == 0
    named = capsys.readouterr().out.splitlines()[-1].split()
    assert main([*named[1 : named.index("--networks")], "--engine", "eager"]) == 0
    early, afterwards = seen
    assert early == afterwards
    assert str(early[3].network) == (form or network)
    assert early[3].augment == augment


@pytest.mark.parametrize("option", ["--snapshots", "--evaluate-every"])
def test_a_negative_number_of_steps_is_refused(option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*RUN, "-o", "set", option, "-1"]) == 1
    assert "must be a whole number of at least 0, not -1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
