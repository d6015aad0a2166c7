"""Whatever a launch's values hold, a shell reads them back unchanged, or they are refused."""

from __future__ import annotations

import gzip
import random
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.adapters.providers.boot_script import USER_DATA_BYTES_MAX, BootScriptError, render
from tests.property.examples import in_full

NEEDED = {"LOWTIDE_CONTROL_URL": "https://control.example", "LOWTIDE_LAUNCH_TOKEN": "token"}

lines = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\u2028\u2029"), max_size=200
)


@settings(max_examples=in_full(40), deadline=None)
@given(value=lines)
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_shell_reads_back_what_was_written(shell: str, value: str):
    script = render({**NEEDED, "LOWTIDE_VALUE": value}, "ec2")
    told = "\n".join(line for line in script.splitlines() if line.startswith("export LOWTIDE_V"))
    done = subprocess.run(
        [shell], input=f'{told}\nprintf %s "$LOWTIDE_VALUE"'.encode(), capture_output=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == value.encode()
    assert done.stderr == b""


@given(value=st.text(min_size=1), bad=st.sampled_from("\x00\n\r\x1b\x7f\x85\u2028\ud800"))
def test_a_value_of_more_than_a_line_is_refused(value: str, bad: str):
    with pytest.raises(BootScriptError, match="LOWTIDE_VALUE must be one line") as refused:
        render({**NEEDED, "LOWTIDE_VALUE": value + bad}, "ec2")
    assert bad not in str(refused.value)


@pytest.mark.parametrize("name", ["", "lower", "A B", "A;B", "1A", "A=B", "A\n"])
def test_a_name_that_is_none_is_refused(name: str):
    with pytest.raises(BootScriptError, match="no name of an environment variable"):
        render({**NEEDED, name: "x"}, "gce")


def test_what_is_needed_is_said():
    with pytest.raises(BootScriptError, match="LOWTIDE_LAUNCH_TOKEN is missing"):
        render({**NEEDED, "LOWTIDE_LAUNCH_TOKEN": ""}, "ec2")
    with pytest.raises(BootScriptError, match="must be ec2 or gce, not None"):
        render(NEEDED)
    with pytest.raises(BootScriptError, match="must be ec2 or gce, not 'azure'"):
        render({**NEEDED, "LOWTIDE_CLOUD": "azure"})


def test_a_script_that_no_cloud_takes_is_refused():
    noise = random.Random(1).randbytes(USER_DATA_BYTES_MAX).hex()
    with pytest.raises(BootScriptError, match="ec2 takes 16,384"):
        render({**NEEDED, "LOWTIDE_VALUE": noise}, "ec2")
    assert noise in render({**NEEDED, "LOWTIDE_VALUE": noise}, "gce")
    with pytest.raises(BootScriptError, match="gce takes 262,144"):
        render({**NEEDED, "LOWTIDE_VALUE": noise * 8}, "gce")


@pytest.mark.parametrize("cloud", ["ec2", "gce"])
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_is_valid_and_leaves_room(shell: str, cloud: str):
    script = render({**NEEDED, "LOWTIDE_CLOUD": cloud})
    done = subprocess.run([shell, "-n"], input=script.encode(), capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(gzip.compress(script.encode())) < USER_DATA_BYTES_MAX / 2
    assert script.startswith("#!/bin/sh\n")
