// Processes of one cluster: workers, and the router with the console.

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createServer } from "node:net";

/** Time for a process to say that it listens, in milliseconds. */
const PATIENCE = 30_000;

/** Returns an address of this host that nothing listens at. */
export function freeAddress() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(`127.0.0.1:${port}`));
    });
  });
}

export class Cluster {
  #binary;
  #environment;
  #processes = new Map();

  constructor(binary, model) {
    this.#binary = binary;
    this.#environment = { ...process.env, BATON_CLUSTER__SECRET: randomBytes(16).toString("hex"), BATON_MODEL__PATH: model, BATON_ENGINE__THREADS: "1" };
  }

  /** Starts a process, and returns what follows each of `marks` in what it prints, once all are there. */
  start(name, args, marks) {
    const child = spawn(this.#binary, args, { env: this.#environment, stdio: ["ignore", "pipe", "pipe"] });
    this.#processes.set(name, child);
    return new Promise((resolve, reject) => {
      let said = "";
      const fail = (why) => reject(new Error(`${name} ${why}:\n${said}`));
      const late = setTimeout(() => fail("does not listen in time"), PATIENCE);
      child.on("exit", () => fail("ended"));
      child.on("error", (error) => fail(error.message));
      const look = (bytes) => {
        said += bytes;
        const found = marks.map((mark) => said.match(mark)?.[1]);
        if (found.some((it) => it === undefined)) return;
        clearTimeout(late);
        resolve(found);
      };
      child.stdout.on("data", look);
      child.stderr.on("data", look);
    });
  }

  async worker(name, role, address) {
    const settings = ["--set", `worker.name=${name}`, "--set", "worker.ops_listen=", "--set", "host.bytes=16MiB", "--set", "kv.device_bytes=16MiB", "--set", "kv.pinned_percent=20"];
    await this.start(name, [`${role}-worker`, "--listen", address, ...settings], [/listening for routers on (\S+)/]);
  }

  /** Starts a router, and returns where its API and its console are. */
  async router(name, workers, ...settings) {
    const all = ["router.listen=127.0.0.1:0", "router.ops_listen=127.0.0.1:0", "placement.handoff=always", ...settings];
    const args = ["router", "--workers", workers.join(), ...all.flatMap((setting) => ["--set", setting])];
    const [api, ops] = await this.start(name, args, [/listening on (http:\S+)/, /console +(http:\S+)/]);
    return { api, ops };
  }

  /** Kills a process, and waits until it is gone. */
  async kill(name) {
    const child = this.#processes.get(name);
    this.#processes.delete(name);
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.on("exit", resolve));
    child.kill("SIGKILL");
    await gone;
  }

  async end() {
    for (const name of [...this.#processes.keys()]) await this.kill(name);
  }
}
