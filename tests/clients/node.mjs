// Run as: node node.mjs '{"api": ..., "page": ..., "key": ..., "topics": ...}'
import { EventSource } from "eventsource";
import { follow, reporter } from "./follow.mjs";

const { api, page, key, topics } = JSON.parse(process.argv[2]);
const withKey = (input, init) =>
  fetch(input, { ...init, headers: { ...init.headers, Authorization: `Bearer ${key}` } });

follow({
  api,
  key,
  topics,
  report: reporter(page),
  makeSource: (url) => new EventSource(url, { fetch: withKey }),
});
