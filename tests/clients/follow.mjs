// Follows topics as an application would: one session; the browser's own reconnect while the
// session lives, a new session from the last id when it is gone. Runs in browsers and in Node.

const PAUSE_MS = 100;

export function follow({ makeSource, api, key, topics, report }) {
  let last = "";

  async function createSession() {
    const response = await fetch(`${api}/v0/watch`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${key}` },
      body: JSON.stringify({ topics, limit: 2, ...(last && { cursor: last }) }),
    });
    if (!response.ok) throw new Error(`no session: ${response.status} ${await response.text()}`);
    return (await response.json()).stream_url;
  }

  async function open() {
    let path;
    try {
      path = await createSession();
    } catch (error) {
      report({ kind: "no session", message: String(error) });
      setTimeout(open, PAUSE_MS);
      return;
    }
    const source = makeSource(api + path);
    source.addEventListener("open", () => report({ kind: "open" }));
    source.addEventListener("record", (event) => {
      last = event.lastEventId;
      report({ kind: "record", id: event.lastEventId, ...JSON.parse(event.data) });
    });
    source.addEventListener("tombstone", (event) => report({ kind: "tombstone", data: event.data }));
    source.addEventListener("error", () => {
      const closed = source.readyState === 2;
      report({ kind: closed ? "closed" : "broken" });
      if (closed) setTimeout(open, PAUSE_MS);
    });
  }

  open();
}

// Reports go out one after the other, so that they arrive in their order.
export function reporter(page) {
  let sent = Promise.resolve();
  return (message) => {
    const body = JSON.stringify(message);
    sent = sent.then(() => fetch(`${page}/report`, { method: "POST", body }));
  };
}
