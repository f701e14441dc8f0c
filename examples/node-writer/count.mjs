// Counts n orders of a shop, one id each, each id twice, with several writers at once:
//
//   npm ci && node count.mjs mongodb://127.0.0.1:27017/postbit --ids order/ --n 1000 --metric orders [--campaign shop] [--at 2026-12-01T09:05:00Z]
import { parseArgs } from 'node:util'
import { MongoClient } from 'mongodb'
import { Writer, day } from './writer.mjs'

const { values: o, positionals: [uri] } = parseArgs({
  allowPositionals: true,
  options: {
    ids: { type: 'string', default: 'order/' },
    n: { type: 'string', default: '1000' },
    writers: { type: 'string', default: '3' },
    campaign: { type: 'string', default: 'shop' },
    metric: { type: 'string', default: 'orders' },
    at: { type: 'string', default: new Date().toISOString() },
    db: { type: 'string' }
  }
})
if (!uri) {
  console.error('node count.mjs mongodb://HOST/DB [--ids PREFIX] [--n COUNT] [--metric NAME]')
  process.exit(2)
}
const client = await MongoClient.connect(uri)
try {
  const writers = Array.from({ length: Number(o.writers) }, () => new Writer(client.db(o.db)))
  await writers[0].ensureIndexes()
  const increments = day(o.campaign, o.metric, new Date(o.at))
  const given = []
  for (let i = 0; i < 2 * Number(o.n); i++) {
    given.push(writers[i % writers.length].apply(o.ids + i % Number(o.n), increments))
  }
  await Promise.all(given)
  console.log(JSON.stringify({ given: given.length, ids: Number(o.n) }))
} finally {
  await client.close()
}
