// Talks to the port that the page came from. A key is kept for this tab alone, and sent to nobody else.

const KEY = "baton-key";

/** An answer that says no. `status`: of HTTP; 0: nothing answered. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

/** Keeps a key for this tab; an empty one is forgotten. */
export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  dispatchEvent(new Event("key"));
}

/** Asks, and returns what answers. Throws a `Refusal` where the answer says no. */
export async function ask(path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (hasKey()) headers.authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  const method = body === undefined ? "GET" : "POST";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refusal(0, "Nothing answers. Is the process still running?");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Refusal(response.status, answer.message ?? answer.error?.message ?? `Status ${response.status}.`);
}

/** Makes a call of the admin service, and returns its answer. */
export async function call(name, request = {}, signal = AbortSignal.timeout(15_000)) {
  return (await ask(`admin/v1/${name}`, request, signal)).json();
}

/** Yields the data of server-sent events as they come. Throws a `Refusal` where one is named `error`. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Refusal(0, "The connection broke.");
    });
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (lines.includes("event: error")) throw new Refusal(500, JSON.parse(data.join("\n")).message);
      if (data.length > 0) yield data.join("\n");
    }
  }
}
