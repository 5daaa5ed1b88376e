"""The launch scripts in a make-believe machine: every program they call is a stub that notes it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Real programs that the scripts may use anywhere; all others are stubs.
TOOLS = [
    *("bash", "cat", "cksum", "cp", "dirname", "env", "grep", "mkdir", "mktemp", "rm"),
    *("sleep", "tail", "touch"),
]
PYTHON = """#!/usr/bin/env bash
# Stands for a Python interpreter: what it is good for depends on files in $STUBS.
echo "python $*" >> "$STUBS/calls"
case "$*" in
*version_info*) [ ! -e "$STUBS/python_is_old" ] ;;
*ensurepip*) [ ! -e "$STUBS/no_ensurepip" ] ;;
*"-m venv"*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" ;;
*"pip --version"*) [ ! -e "$STUBS/no_pip" ] ;;
*"pip install"*) [ ! -e "$STUBS/no_network" ] || { echo "ERROR: no network"; exit 1; } ;;
"-P -") cat > /dev/null; [ ! -e "$STUBS/forbidden" ] || { cat "$STUBS/forbidden"; exit 1; } ;;
"- "*) cat > /dev/null; cksum "$2/setup.py" ;;
*quickstart*) echo "quickstart from $PWD set up in $COMPOSER2_JAX_SETUP_SECONDS: ${*: 4}" ;;
*"ruff check"*) [ ! -e "$STUBS/lint" ] ;;
esac
"""
APT = """#!/usr/bin/env bash
echo "apt-get $*" >> "$STUBS/calls"
[ ! -e "$STUBS/no_network" ] || { echo "E: Unable to locate package"; exit 100; }
[ "$1" = install ] || exit 0
[[ "$*" != *bubblewrap* ]] || cp "$(dirname "$0")/git" "$(dirname "$0")/bwrap"
[[ "$*" != *python3-venv* ]] || rm -f "$STUBS/no_ensurepip"
"""


class Machine:
    """A clone in `root`, a PATH of stubs in `bin`, and notes on what was called."""

    def __init__(self, folder):
        self.root, self.bin, self.notes = folder / "a clone", folder / "bin", folder / "notes"
        for made in (self.root, self.bin, self.notes):
            made.mkdir()
        shutil.copytree(ROOT / "launch", self.root / "launch")
        shutil.copy(ROOT / "setup.py", self.root)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stub("python3", PYTHON)
        self.stub("apt-get", APT)
        self.stub("id", '#!/usr/bin/env bash\necho "$FAKE_UID"\n')
        self.stub("sudo", "#!/usr/bin/env bash\nexit 1\n")
        for program in ("bwrap", "git", "setpriv", "prlimit"):
            self.stub(program, "#!/usr/bin/env bash\n")
        self.uid = 0

    def stub(self, name, text):
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def note(self, name, text=""):
        (self.notes / name).write_text(text)

    def calls(self, part):
        """The calls so far that contain `part`."""
        path = self.notes / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if part in line]

    def run(self, script, *arguments):
        return subprocess.run(
            ["bash", str(self.root / "launch" / script), *arguments],
            cwd=self.notes,
            env={"PATH": str(self.bin), "STUBS": str(self.notes), "FAKE_UID": str(self.uid)},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def assert_gave_up(done, *words):
    """Exit code 2, and the last line says what to type."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr.splitlines()[-1]


def test_a_fresh_clone_is_set_up_and_arguments_are_passed_on(machine):
    done = machine.run("quickstart.sh", "--seed=3", "--workdir=two words")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"quickstart from {machine.notes} set up in ")
    assert done.stdout.endswith(": --seed=3 --workdir=two words\n")
    [install] = machine.calls("pip install")
    assert install.endswith(f"-e {machine.root}[data]")


def test_a_second_run_installs_nothing(machine):
    machine.run("quickstart.sh")
    assert machine.run("quickstart.sh").stderr == ""
    assert len(machine.calls("pip install")) == len(machine.calls("-m venv")) == 1


def test_a_changed_setup_installs_again(machine):
    machine.run("quickstart.sh")
    with open(machine.root / "setup.py", "a") as file:
        file.write("# changed\n")
    machine.run("quickstart.sh")
    assert len(machine.calls("pip install")) == 2
    assert len(machine.calls("-m venv")) == 1


def test_the_tests_add_their_extra_to_a_quickstart_environment(machine):
    machine.run("quickstart.sh")
    assert machine.run("test.sh").returncode == 0
    assert machine.calls("pip install")[1].endswith("[data,test]")
    assert len(machine.calls("-m venv")) == 1
    machine.run("quickstart.sh")
    machine.run("test.sh")
    assert len(machine.calls("pip install")) == 2


def test_a_failed_installation_is_tried_again(machine):
    machine.note("no_network")
    assert_gave_up(machine.run("quickstart.sh"), "pip could not install", "ERROR: no network")
    (machine.notes / "no_network").unlink()
    assert machine.run("quickstart.sh").returncode == 0
    assert len(machine.calls("pip install")) == 2


def test_an_environment_that_was_cut_short_is_made_again(machine):
    machine.run("quickstart.sh")
    machine.note("no_pip")
    machine.run("quickstart.sh")
    assert len(machine.calls("-m venv --clear")) == 2


def test_an_old_python_is_refused_and_a_newer_one_beside_it_is_found(machine):
    machine.note("python_is_old")
    done = machine.run("quickstart.sh")
    assert_gave_up(done, "Python 3.11 or newer", "Type: apt-get install python3")
    assert len(done.stderr.splitlines()) == 1
    assert not (machine.root / ".venv").exists()
    machine.stub("python3.12", PYTHON.replace("python_is_old", "never"))
    assert machine.run("quickstart.sh").returncode == 0


def test_python_without_venv_is_completed_by_root_and_named_to_others(machine):
    machine.note("no_ensurepip")
    machine.uid = 1000
    assert_gave_up(machine.run("quickstart.sh"), "apt-get install python3-venv")
    machine.uid = 0
    assert machine.run("quickstart.sh").returncode == 0
    assert machine.calls("apt-get install")[-1].endswith("python3-venv")


def test_a_missing_bwrap_is_installed_by_root_and_named_to_others(machine):
    (machine.bin / "bwrap").unlink()
    machine.uid = 1000
    assert_gave_up(machine.run("quickstart.sh"), "Type: sudo apt-get install bubblewrap")
    assert not machine.calls("apt-get install")
    machine.uid = 0
    assert machine.run("quickstart.sh").returncode == 0
    assert machine.calls("apt-get install")[-1].endswith("bubblewrap")


def test_sudo_without_a_password_is_used(machine):
    (machine.bin / "bwrap").unlink()
    machine.uid = 1000
    machine.stub("sudo", '#!/usr/bin/env bash\nshift\n[ "$1" = true ] || exec "$@"\n')
    assert machine.run("quickstart.sh").returncode == 0
    assert machine.calls("apt-get install")


def test_a_package_that_cannot_be_had_ends_with_what_apt_says(machine):
    machine.run("quickstart.sh")
    (machine.bin / "bwrap").unlink()
    machine.note("no_network")
    done = machine.run("quickstart.sh")
    assert_gave_up(done, "apt-get could not install bubblewrap", "Unable to locate package")


def test_a_forbidden_sandbox_ends_with_its_remedy(machine):
    machine.note("forbidden", "bwrap: setting up uid map\nforbidden: sysctl -w kernel.x=1\n")
    assert_gave_up(machine.run("quickstart.sh"), "sandbox does not work", "sysctl -w kernel.x=1")


def test_the_tests_run_every_check_and_hand_arguments_to_pytest(machine):
    assert machine.run("test.sh", "-k", "two words").returncode == 0
    checks = machine.calls("-m ")[-5:]
    assert [call.split()[2] for call in checks] == ["pip", "ruff", "ruff", "mypy", "pytest"]
    assert checks[-1].endswith("-k two words")


def test_a_failing_check_fails_the_run(machine):
    machine.note("lint")
    assert machine.run("test.sh").returncode == 1
    assert not machine.calls("-m pytest")


def test_ci_runs_what_a_person_runs(machine):
    (machine.root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", machine.root / ".ci")
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=machine.root,
        env={"PATH": str(machine.bin), "STUBS": str(machine.notes), "FAKE_UID": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(machine.calls("-m pytest")) == 1


@pytest.mark.parametrize("script", ["launch/quickstart.sh", "launch/test.sh", ".ci/run"])
def test_scripts_may_be_called_without_naming_bash(script):
    assert os.access(ROOT / script, os.X_OK)
