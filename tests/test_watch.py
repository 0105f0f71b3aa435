"""Looks at a set while it is learned: pictures and accuracies that change nothing of the run."""

import re

import pytest

from dclib.results import CondensedSet

RUN = ["condense", "digits", "-K", "5", "--real-batch", "4", "--network", "MLP:width=8", "--engine", "eager"]


@pytest.mark.slow
def test_looking_changes_nothing(command, tmp_path):
    assert command(*RUN, "-o", "plain")[0] == 0
    status, _, err = command(*RUN, "-o", "seen", "--snapshots", "2", "--evaluate-every", "5")
    assert status == 0
    assert CondensedSet.load("plain").hash == CondensedSet.load("seen").hash
    pictures = sorted((tmp_path / "seen.snapshots").iterdir())
    assert [path.name for path in pictures] == ["2.png", "4.png"]
    assert pictures[0].read_bytes() != pictures[1].read_bytes()
    told = [line for line in err.splitlines() if "outer steps" in line]
    out = command("train", "seen", "--network", "MLP:width=8", "--engine", "eager")[1]
    assert told == [f"dclib: after 5 of 5 outer steps: {float(out.split()[1]):.1f} %"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "form", "augment"),
    [("VGG11", "VGG11:norm=instance", "none"), ("ConvNet:width=4,depth=1,norm=batch", "", "crop+noise")],
)
def test_what_is_tested_on_the_way_is_what_the_command_afterwards_trains(network, form, augment, command):
    """In the form that a network has in stage T, with that stage's augmentation; the command is the one that is named."""
    request = ["condense", "digits", "-K", "1", "--real-batch", "2", "--network", network, "--engine", "eager", "-o", "set"]
    status, out, err = command(*request, "--evaluate-every", "1")
    early = re.search(r"after 1 of 1 outer steps: (\S+) %", err)[1]
    named = out.splitlines()[-1].split()
    status, out, _ = command(*named[1 : named.index("--networks")], "--engine", "eager")
    assert status == 0
    assert f"{float(out.split()[1]):.1f}" == early
    assert out.startswith(f"{form or network}: ")
    assert f"augmentation: {augment}\n" in out
