// A server of @durable-streams/server over a folder, on a free port that is written to a file.
// usage: node durable_streams.mjs PACKAGES_FOLDER DATA_FOLDER PORT_FILE
import { renameSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"

const [packages, dataDir, portFile] = process.argv.slice(2)
const require = createRequire(`${packages}/`)
const { DurableStreamTestServer } = require("@durable-streams/server")

const server = new DurableStreamTestServer({ host: "127.0.0.1", port: 0, dataDir, compression: false })
const url = await server.start()
// A writer may be idle for longer than the default of five seconds.
server.server.keepAliveTimeout = 600_000
writeFileSync(`${portFile}.new`, new URL(url).port)
renameSync(`${portFile}.new`, portFile)
