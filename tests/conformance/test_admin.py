"""A plain gRPC client against the admin service: it learns the calls by reflection, lists and calls."""

import os
import time
import unittest

import grpc
from admin import SERVICE, Client
from grpc_health.v1 import health_pb2, health_pb2_grpc

# How long a test waits for what must happen.
PATIENCE_S = 30
CALLS = {
    "ChangeRole", "ChangeSettings", "DrainWorker", "Dump", "ExplainRequest", "FlushWorker", "GetLogFilter", "ListLanes",
    "ListModels", "ListRequests", "ListSettings", "ListTiers", "ListWorkers", "ParkPrefix", "PinPrefix", "Reload",
    "SetLogFilter", "UndrainWorker", "UnparkPrefix", "UnpinPrefix", "Watch",
}  # fmt: skip


class Admin(unittest.TestCase):
    def setUp(self):
        self.client = Client(os.environ["BATON_OPS"])
        self.call = self.client.call

    def tearDown(self):
        self.client.close()

    def test_the_service_describes_itself(self):
        self.assertIn(SERVICE, self.client.reflection.get_services())
        self.assertEqual(set(self.client.service.methods_by_name), CALLS)

    def test_the_process_is_healthy(self):
        stub = health_pb2_grpc.HealthStub(self.client.channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
        self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)

    def test_what_there_is_is_listed(self):
        workers = self.call("ListWorkers").workers
        self.assertTrue(any(worker.name == "decode-1" for worker in workers), workers)
        self.assertEqual([model.name for model in self.call("ListModels").models], ["tiny-rust"])
        self.assertEqual({tier.tier for tier in self.call("ListTiers").tiers}, {"device"})
        self.call("ListLanes")
        self.call("ListRequests")
        dump = self.call("Dump", worker="decode-1")
        self.assertEqual(dump.worker.worker_name, "decode-1")
        self.assertEqual((list(dump.unanswered), dump.threads_left_out), ([], 0))
        (step_loop,) = (thread for thread in dump.threads if thread.name == "decode-1")
        self.assertTrue(step_loop.doing and step_loop.doing_ms >= 0, step_loop)

    def test_a_worker_is_drained_and_takes_work_again(self):
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("DrainWorker", worker="decode-1")
        self.assertEqual(refused.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        is_drained = self.client.value("WorkerState", "WORKER_STATE_DRAINED")
        self.call("DrainWorker", worker="decode-1", force=True)
        until, drained = time.monotonic() + PATIENCE_S, None
        while drained != is_drained:
            self.assertLess(time.monotonic(), until, "it is drained")
            (drained,) = (it.state for it in self.call("ListWorkers").workers if it.name == "decode-1")
        back = self.call("UndrainWorker", worker="decode-1")
        self.assertEqual(back.state, self.client.value("WorkerState", "WORKER_STATE_SERVING"))

    def test_who_is_unknown_is_told_who_is_there(self):
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("FlushWorker", worker="nobody")
        self.assertEqual(refused.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn("decode-1", refused.exception.details())

    def test_the_log_changes_and_back(self):
        before = self.call("GetLogFilter").filter
        self.assertEqual(self.call("SetLogFilter", filter="warn").before, before)
        self.assertEqual(self.call("SetLogFilter", filter=before).filter, before)

    def test_a_limit_changes_and_back(self):
        name = "router.requests_max"
        listed = {setting.name: setting for setting in self.call("ListSettings").settings}
        self.assertEqual(listed[name].unit, "prompts")
        (change,) = self.call("ChangeSettings", values={name: "7"}).changes
        self.assertEqual((change.name, change.before, change.after), (name, listed[name].value, "7"))
        (back,) = self.call("ChangeSettings", values={name: change.before}).changes
        self.assertEqual((back.before, back.after), ("7", listed[name].value))
        self.assertEqual(list(self.call("Reload").changes), [])
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("ChangeSettings", values={"router.request_max": "7"})
        self.assertEqual(refused.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn(name, refused.exception.details())

    def test_each_worker_says_what_became_of_a_prefix(self):
        prefix = {"request": '{"prompt": "%s"}' % ("Once upon a time, " * 40)}
        for name in ["PinPrefix", "UnpinPrefix", "ParkPrefix", "UnparkPrefix"]:
            answer = self.call(name, prefix=prefix)
            self.assertEqual({worker.worker_name for worker in answer.workers}, {"prefill-1", "decode-1"}, name)
            self.assertTrue(all(worker.tokens > 0 for worker in answer.workers), answer)
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("ParkPrefix", prefix={"request": "no JSON"})
        self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_snapshots_come_again_and_again(self):
        watch = self.call("Watch", every_ms=100)
        seen = [next(watch) for _ in range(3)]
        watch.cancel()
        self.assertTrue(all(snapshot.workers for snapshot in seen))


if __name__ == "__main__":
    unittest.main()
