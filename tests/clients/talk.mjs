// Talks over a WebSocket as a browser does: the key is a subprotocol, what is heard is reported.

export function talk({ api, key, room, report }) {
  const socket = new WebSocket(`${api.replace("http", "ws")}/v0/ws`, ["bearer", key]);
  const say = (command) => socket.send(JSON.stringify(command));

  socket.addEventListener("open", () => {
    report({ kind: "open", protocol: socket.protocol });
    say({ op: "subscribe", request_id: "s", topic: room });
  });
  socket.addEventListener("message", (event) => {
    const frame = JSON.parse(event.data);
    report({ kind: "frame", ...frame });
    if (frame.op === "subscribed")
      say({ op: "publish", request_id: "p", topic: room, records: [{ data: "from the page" }] });
  });
  socket.addEventListener("close", (event) => report({ kind: "closed", code: event.code }));
  socket.addEventListener("error", () => report({ kind: "broken" }));
}
