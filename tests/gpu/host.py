"""What steps share: the binaries, a folder to write to, time, and processes that end with their step."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

# Longest part of a failed command's output that the report has, in bytes.
SAID_MAX = 2000
# How often a process that starts is asked whether it is ready, in seconds.
POLL_S = 0.2
# How long a process may take to end when it is asked to, in seconds.
END_S = 5
# What the report needs no line of: colours.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Failed(Exception):
    """A step found something wrong."""


class Skipped(Exception):
    """A step cannot run here."""


class Host:
    """This host, with the unpacked binaries."""

    def __init__(self, root, binaries, folder, out, tiny, seconds):
        self.root, self.binaries, self.folder, self.out, self.tiny = root, binaries, folder, out, tiny
        self.ends = self.now() + seconds
        self.step_ends = self.ends
        self.log = open(out / "log.txt", "w", encoding="utf-8")
        self.log_lock = None

    @classmethod
    def unpack(cls, root, pack, folder, out, tiny, seconds):
        """Unpacks the binaries, unless they lie there unpacked. Ends the program if there are none."""
        binaries = pack / "bin"
        packed = pack / "binaries.tar.xz"
        if packed.exists():
            binaries = folder / "bin"
            binaries.mkdir()
            subprocess.run(["tar", "-xJf", packed, "-C", binaries], check=True)
        if not (binaries / "baton").exists():
            print(f"tests/gpu/run: no binaries in {pack}: run `cargo xtask gpu` where Rust is", file=sys.stderr)
            sys.exit(2)
        return cls(root, binaries, folder, out, tiny, seconds)

    @staticmethod
    def now():
        return time.monotonic()

    def left(self):
        """Returns the seconds that are left of the run."""
        return self.ends - self.now()

    def begin(self, seconds):
        """Begins a step that may take so many seconds."""
        self.step_ends = min(self.now() + seconds, self.ends)

    def step_left(self):
        """Returns the seconds that are left of the step."""
        return max(self.step_ends - self.now(), 0.1)

    def environment(self, more=None):
        """Returns the environment of processes: where binaries and tests find each other, and write."""
        written = self.folder / "written"
        written.mkdir(exist_ok=True)
        own = {"E2E_BINARY": str(self.binaries / "baton"), "E2E_FOLDER": str(written), "TMPDIR": str(self.folder)}
        # Kernels are compiled once, and kept for this run alone.
        own["XDG_CACHE_HOME"] = str(self.folder / "cache")
        return {**os.environ, **own, **(more or {})}

    def run(self, command, seconds=None, more=None, check=True):
        """Runs a command to its end, or kills it and all it started at the end of its time. Returns what it printed, and
        whether it ended well. Fails with the end of what it said if it did not and `check` is set."""
        command = [str(word) for word in command]
        limit = min(seconds or self.step_left(), self.step_left())
        self.note("$ " + " ".join(command))
        process = subprocess.Popen(
            command, cwd=self.root, env=self.environment(more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit)
            how = f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            how = f"it took longer than {limit:.0f} s"
        said = COLOURS.sub("", said)
        self.note(said)
        ended_well = process.returncode == 0
        if check and not ended_well:
            raise Failed(f"{os.path.basename(command[0])} {' '.join(command[1:3])}: {how}: {said[-SAID_MAX:].strip()}")
        return said, ended_well

    def baton(self, *arguments, **how):
        """Runs the binary."""
        return self.run([self.binaries / "baton", *arguments], **how)

    def note(self, text):
        """Writes to the log of the run."""
        self.log.write(text.rstrip() + "\n")
        self.log.flush()

    def report_path(self, name):
        return self.out / name


class Process:
    """A process of the binary that serves, until the `with` ends."""

    def __init__(self, host, name, *arguments, more=None):
        self.host, self.name = host, name
        self.path = host.folder / f"{name}.log"
        self.file = open(self.path, "w", encoding="utf-8")
        command = [str(word) for word in (host.binaries / "baton", *arguments)]
        host.note("$ " + " ".join(command))
        self.process = subprocess.Popen(
            command, cwd=host.root, env=host.environment(more), stdin=subprocess.DEVNULL, stdout=self.file,
            stderr=self.file, start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.terminate()
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.host.note(f"--- what {self.name} said\n{self.said()}")
        self.file.close()

    def said(self):
        """Returns its log so far."""
        return COLOURS.sub("", self.path.read_text(encoding="utf-8", errors="replace"))

    def until(self, what, is_so):
        """Waits until `is_so` returns something true, and returns it. Fails at the end of the step, or of the process."""
        while True:
            found = is_so()
            if found:
                return found
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended ({self.process.returncode}): {self.said()[-SAID_MAX:].strip()}")
            if self.host.step_left() <= 0.1:
                raise Failed(f"{self.name}: no time was left to wait until {what}: {self.said()[-SAID_MAX:].strip()}")
            time.sleep(POLL_S)


class Service(Process):
    """A process that speaks HTTP at `address`."""

    def __init__(self, host, name, address, *arguments, more=None):
        self.address = address
        super().__init__(host, name, *arguments, more=more)

    def get(self, path):
        """Returns what a GET is answered. `None`: it does not answer, or not well."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=self.host.step_left()) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, OSError):
            return None

    def post(self, path, body):
        """Returns the JSON that a POST is answered, and the seconds that it took. Fails if it is refused."""
        asked = urllib.request.Request(
            f"http://{self.address}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        began = time.monotonic()
        try:
            with urllib.request.urlopen(asked, timeout=self.host.step_left()) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            raise Failed(f"{path}: {error.code}: {error.read().decode()[:SAID_MAX]}") from error
        except OSError as error:
            raise Failed(f"{path}: {error}: {self.said()[-SAID_MAX:].strip()}") from error
        return json.loads(said), time.monotonic() - began

    def until_ready(self):
        self.until("it is ready", lambda: self.get("/ready"))

    def metric(self, name, **labels):
        """Returns the sum of a metric over all series that have these labels."""
        total = 0.0
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        for line in (self.get("/metrics") or "").splitlines():
            series, _, value = line.rpartition(" ")
            if series.split("{")[0] == name and all(label in series for label in wanted):
                total += float(value)
        return total


def free_address():
    """Returns an address of this host where nothing listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % listener.getsockname()[1]
