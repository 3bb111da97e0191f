// What the admin service's Watch says, again and again, for as long as somebody looks.

import { ask, events, Refusal } from "./api.js";

/** Time before a lost connection is tried again, in milliseconds: at first, and at most. */
const RETRY = [1000, 10_000];

/**
 * Follows subjects of a cluster. `onSnapshot(snapshot)` gets what there is; `onState(state, error)` gets `live`, `waiting`
 * (nothing answers, it tries again) or `refused` (it does not).
 */
export class Feed {
  #subjects = [];
  #every = 1000;
  #abort = null;

  constructor(onSnapshot, onState) {
    this.onSnapshot = onSnapshot;
    this.onState = onState;
    // A tab that nobody sees asks nothing.
    document.addEventListener("visibilitychange", () => this.#begin());
    addEventListener("key", () => this.#begin());
  }

  /** Follows these subjects from now on, with so many milliseconds between snapshots. */
  follow(subjects, every) {
    if (this.#abort && subjects.join() === this.#subjects.join() && every === this.#every) return;
    [this.#subjects, this.#every] = [subjects, every];
    this.#begin();
  }

  #begin() {
    this.#abort?.abort();
    this.#abort = null;
    if (document.hidden || this.#subjects.length === 0) return;
    this.#abort = new AbortController();
    this.#run(this.#abort.signal);
  }

  async #run(signal) {
    let pause = RETRY[0];
    while (!signal.aborted) {
      let error = new Refusal(0, "The connection ended.");
      try {
        const request = { subjects: this.#subjects, every_ms: this.#every };
        for await (const data of events(await ask("admin/v1/Watch", request, signal))) {
          if (signal.aborted) return;
          pause = RETRY[0];
          this.onState("live");
          this.onSnapshot(JSON.parse(data));
        }
      } catch (thrown) {
        // Anything else is a fault of this page, and is told as such.
        if (!(thrown instanceof Refusal) && !signal.aborted) throw thrown;
        error = thrown;
      }
      if (signal.aborted) return;
      if (error.status === 401 || error.status === 403) return this.onState("refused", error);
      this.onState("waiting", error);
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(2 * pause, RETRY[1]);
    }
  }
}
