"""Every call of the admin service, for real, on a cluster of processes: a router, a prefill worker, two decode workers.

A call that reflection lists and no test makes fails the last test of the file.
"""

import json
import os
import re
import secrets
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

import grpc
from admin import Client

# How long a test waits for what must happen.
PATIENCE_S = 120
LOOKS_AGAIN_S = 0.05
# Long enough for several full blocks.
PROMPT = "Once upon a time there was a crab that owned a shell. " * 12
PREFIX = {"request": json.dumps({"prompt": PROMPT})}
ADDRESS = r"[0-9.]+:[0-9]+"


class Process:
    """A process of the cluster, which says where it listens."""

    def __init__(self, folder, name, *arguments):
        self.path, self.name = Path(folder) / f"{name}.log", name
        # What tells the tests where things are is no setting of the binary.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
        environment["BATON_MODEL__PATH"] = os.environ["BATON_TEST_MODEL"]
        environment["BATON_CLUSTER__SECRET"] = Cluster.secret
        with self.path.open("w") as log:
            self.child = subprocess.Popen(
                [os.environ["BATON_BINARY"], *arguments], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def says(self, pattern):
        """Waits for a line; returns what the pattern has in parentheses."""
        for _ in Cluster.patience(f"{self.name} says {pattern!r}"):
            if found := re.search(pattern, self.path.read_text(), re.MULTILINE):
                return found[1]
            if self.child.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n{self.path.read_text()}")

    def ops(self):
        return self.says(rf"^ *ops *http://({ADDRESS})")

    def end(self):
        self.child.terminate()
        return self.child.wait(PATIENCE_S)


class Cluster(unittest.TestCase):
    secret = secrets.token_hex(32)
    made = set()

    @staticmethod
    def patience(what):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            yield
            time.sleep(LOOKS_AGAIN_S)
        raise AssertionError(f"not within {PATIENCE_S} s: {what}")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="baton-conformance-")
        cls.processes = []
        try:
            cls.start_all()
        except BaseException:
            cls.kill_all()
            raise

    @classmethod
    def start_all(cls):
        def start(name, *arguments):
            cls.processes.append(Process(cls.folder.name, name, *arguments))
            return cls.processes[-1]

        roles = [("prefill-a", "prefill-worker"), ("decode-a", "decode-worker"), ("decode-b", "decode-worker")]
        # Workers can pin, and have somewhere to park.
        tier = ["--set", "kv.device_bytes=16MiB", "--set", "kv.pinned_percent=15", "--set", "host.bytes=16MiB"]
        workers = [
            start(name, role, "--listen", "127.0.0.1:0", "--threads", "1", "--name", name, *tier)
            for name, role in roles
        ]
        addresses = [worker.says(rf"listening for routers on ({ADDRESS})") for worker in workers]
        router = start(
            "router", "router", "--listen", "127.0.0.1:0", "--workers", ",".join(addresses),
            "--set", "router.ops_listen=127.0.0.1:0", "--set", "placement.handoff=always",
        )  # fmt: skip
        cls.url = "http://" + router.says(rf"listening on http://({ADDRESS})")
        cls.client, cls.at_decode_b = Client(router.ops()), Client(workers[2].ops())
        cls.prefill, cls.decode = (cls.client.value("Role", name) for name in ("ROLE_PREFILL", "ROLE_DECODE"))
        for _ in cls.patience("all workers are there"):
            if len(cls.client.call("ListWorkers").workers) == len(workers):
                break
        cls.text = cls.complete()[0]

    @classmethod
    def kill_all(cls):
        for process in cls.processes:
            process.child.kill()
            process.child.wait()
        cls.folder.cleanup()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.at_decode_b.close()
        ends = {process.name: process.end() for process in reversed(cls.processes)}
        cls.folder.cleanup()
        assert set(ends.values()) == {0}, ends

    @classmethod
    def complete(cls):
        """Returns the answer to the prompt, and the id of the request."""
        model = cls.client.call("ListModels").models[0].name
        body = {"model": model, "prompt": PROMPT, "max_tokens": 16, "temperature": 0}
        ask = urllib.request.Request(
            cls.url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(ask, timeout=PATIENCE_S) as response:
            return json.load(response)["choices"][0]["text"], response.headers["x-request-id"]

    def call(self, name, **fields):
        answer = self.client.call(name, **fields)
        Cluster.made.add(name)
        return answer

    def worker(self, name):
        (worker,) = (worker for worker in self.call("ListWorkers").workers if worker.name == name)
        return worker

    def until(self, what, name, holds):
        """Waits until a worker is as it should be, as the router sees it."""
        for _ in self.patience(what):
            if holds(self.worker(name)):
                return

    def test_all_that_there_is_is_listed(self):
        workers = {worker.name: worker.role for worker in self.call("ListWorkers").workers}
        self.assertEqual(workers, {"prefill-a": self.prefill, "decode-a": self.decode, "decode-b": self.decode})
        (model,) = self.call("ListModels").models
        self.assertEqual(len({worker.model for worker in self.call("ListWorkers").workers} | {model.name}), 1)
        tiers = self.call("ListTiers")
        self.assertEqual({tier.worker_name for tier in tiers.tiers}, set(workers))
        lanes = self.call("ListLanes")
        self.assertTrue(any(lane.peer_name == "prefill-a" for lane in lanes.lanes), lanes)
        self.assertEqual((list(tiers.silent), list(lanes.silent)), ([], []))

    def test_a_request_is_listed_and_explained(self):
        _, request = self.complete()
        self.assertIn(request, [listed.id for listed in self.call("ListRequests", ended=10).requests])
        explained = self.call("ExplainRequest", id=request)
        self.assertEqual((explained.request.id, explained.request.prefill_name), (request, "prefill-a"))
        self.assertEqual(explained.request.output_tokens, 16)
        self.assertIn(explained.request.decode_name, {"decode-a", "decode-b"})
        self.assertTrue(any(candidate.chosen for candidate in explained.placements[0].candidates), explained)
        of_workers = {phase.worker_name for phase in explained.phases}
        self.assertLessEqual({"", "prefill-a", explained.request.decode_name}, of_workers, explained)
        self.assertGreater(explained.total_ms, 0)
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("ExplainRequest", id="req_0000000000000000")
        self.assertEqual(refused.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_every_subject_is_watched(self):
        subjects = self.client.service.file.enum_types_by_name["Subject"].values
        watch = self.call("Watch", subjects=[subject.number for subject in subjects if subject.number], every_ms=100)
        seen = [next(watch) for _ in range(3)]
        watch.cancel()
        for snapshot in seen:
            self.assertTrue(snapshot.workers and snapshot.tiers and snapshot.lanes and snapshot.models, snapshot)

    def test_a_role_changes_there_and_back(self):
        changed = self.call("ChangeRole", worker="decode-b", role=self.prefill)
        self.assertEqual((changed.name, changed.role), ("decode-b", self.prefill))
        self.until("it computes prompts", "decode-b", lambda worker: worker.role == self.prefill)
        self.assertEqual(self.complete()[0], self.text)
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("ChangeRole", worker="decode-a", role=self.prefill)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.FAILED_PRECONDITION, "no other one decodes")
        self.assertEqual(self.call("ChangeRole", worker="decode-b", role=self.decode).role, self.decode)
        self.until("it decodes", "decode-b", lambda worker: worker.role == self.decode)
        self.assertEqual(self.complete()[0], self.text)

    def test_a_worker_is_drained_and_takes_work_again(self):
        serving, drained = (
            self.client.value("WorkerState", f"WORKER_STATE_{name}") for name in ("SERVING", "DRAINED")
        )
        self.call("DrainWorker", worker="decode-b")
        self.until("it is drained", "decode-b", lambda worker: worker.state == drained)
        for _ in range(4):
            text, request = self.complete()
            self.assertEqual(text, self.text)
            self.assertEqual(self.call("ExplainRequest", id=request).request.decode_name, "decode-a")
        self.assertEqual(self.call("UndrainWorker", worker="decode-b").state, serving)

    def test_a_flush_drops_what_no_sequence_uses(self):
        self.complete()
        dropped = 0
        # Until the reader of the prompt has released it, its blocks stay.
        for _ in self.patience("nothing is left on the device"):
            dropped += self.call("FlushWorker", worker="prefill-a").blocks
            (device,) = (it for it in self.call("ListTiers", worker="prefill-a").tiers if it.tier == "device")
            if device.blocks == 0:
                break
        self.assertGreater(dropped, 0)
        self.assertEqual(self.complete()[0], self.text)

    def test_a_prefix_is_pinned_and_parked_and_both_are_undone(self):
        self.complete()
        done = self.client.value("PrefixOutcome", "PREFIX_OUTCOME_DONE")

        def at_prefill(name, **fields):
            (worker,) = self.call(name, prefix=PREFIX, worker="prefill-a", **fields).workers
            self.assertEqual(worker.worker_name, "prefill-a")
            return worker

        pinned = at_prefill("PinPrefix", seconds=60)
        self.assertEqual((pinned.outcome, pinned.pinned), (done, True), pinned)
        self.assertEqual(pinned.device_tokens, pinned.tokens)
        unpinned = at_prefill("UnpinPrefix")
        self.assertEqual((unpinned.outcome, unpinned.pinned), (done, False), unpinned)
        parked = at_prefill("ParkPrefix")
        self.assertEqual(parked.outcome, done, parked)
        self.assertGreater(parked.blocks, 0)
        for _ in self.patience("what was parked is loaded again"):
            unparked = at_prefill("UnparkPrefix")
            if unparked.device_tokens == unparked.tokens:
                break
        self.assertEqual(self.complete()[0], self.text)

    def test_what_changes_at_run_time_changes_back(self):
        before = self.call("GetLogFilter").filter
        self.assertEqual(self.call("SetLogFilter", filter="warn").before, before)
        self.assertEqual(self.call("SetLogFilter", filter=before).filter, before)
        name = "router.requests_max"
        listed = {setting.name: setting.value for setting in self.call("ListSettings").settings}
        (change,) = self.call("ChangeSettings", values={name: "7"}).changes
        self.assertEqual((change.before, change.after), (listed[name], "7"))
        (back,) = self.call("ChangeSettings", values={name: change.before}).changes
        self.assertEqual(back.after, listed[name])
        self.assertEqual(list(self.call("Reload").changes), [])

    def test_what_requests_and_threads_wait_for_is_dumped(self):
        dump = self.call("Dump", worker="decode-b")
        self.assertEqual((dump.worker.worker_name, list(dump.unanswered)), ("decode-b", []))
        self.assertTrue(dump.threads and dump.worker.sizes, dump)

    def test_a_worker_answers_at_its_own_port(self):
        own = self.at_decode_b
        self.assertEqual(set(own.service.methods_by_name), set(self.client.service.methods_by_name))
        self.assertEqual([worker.name for worker in own.call("ListWorkers").workers], ["decode-b"])
        own.call("FlushWorker", worker="decode-b")
        self.assertEqual(own.call("ChangeRole", worker="decode-b", role=self.prefill, force=True).role, self.prefill)
        self.until("the router places by that", "decode-b", lambda worker: worker.role == self.prefill)
        self.assertEqual(own.call("ChangeRole", worker="decode-b", role=self.decode).role, self.decode)
        self.until("the router places by that", "decode-b", lambda worker: worker.role == self.decode)

    def test_z_every_call_was_made(self):
        self.assertEqual(Cluster.made, set(self.client.service.methods_by_name))


if __name__ == "__main__":
    unittest.main()
