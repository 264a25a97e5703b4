// Fill a queue of BullMQ, then let one worker empty it; prints what that took as JSON.
// usage: node bullmq.mjs PACKAGES_FOLDER REDIS_PORT JOBS CONCURRENCY PAYLOAD
import { createRequire } from "node:module"

const [packages, port, jobs, concurrency, payload] = process.argv.slice(2)
const require = createRequire(`${packages}/`)
const { Queue, Worker } = require("bullmq")

const BULK = 500
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null }
const queue = new Queue("bench", { connection })
// A finished job goes away, as an acknowledged one does elsewhere.
const job = { name: "job", data: { payload }, opts: { removeOnComplete: true } }
for (let left = Number(jobs); left > 0; left -= BULK) {
  await queue.addBulk(Array(Math.min(left, BULK)).fill(job))
}

const worker = new Worker("bench", async () => {}, {
  connection,
  concurrency: Number(concurrency),
  autorun: false,
})
await worker.waitUntilReady()
let completed = 0
const done = new Promise((resolve, reject) => {
  worker.on("completed", () => ++completed === Number(jobs) && resolve())
  worker.on("failed", (_, error) => reject(error))
  worker.on("error", reject)
})
const computed = process.cpuUsage()
const start = process.hrtime.bigint()
worker.run()
await done
const elapsed_s = Number(process.hrtime.bigint() - start) / 1e9
const { user, system } = process.cpuUsage(computed)
console.log(JSON.stringify({ completed, elapsed_s, busy: (user + system) / 1e6 / elapsed_s }))
process.exit(0)
