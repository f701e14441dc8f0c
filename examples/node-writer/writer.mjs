// A writer of postbit's analytics model, as docs/analytics.md describes it. Each id that is given to apply() counts exactly once, however often
// it is given, to how many writers of whatever language at the same time, and whoever is killed in between.
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Long, MongoBulkWriteError, MongoServerError } from 'mongodb'

const durable = { writeConcern: { w: 'majority', journal: true }, readConcern: { level: 'majority' }, readPreference: 'primary' }
const duplicate = err => err instanceof MongoServerError && err.code === 11000
const patience = 60_000 // how long one set is tried

// What the server says of a document that can never take its increments.
const final = new Set([2, 9, 14, 28, 40, 52, 54, 56, 57, 66, 121, 10334, 17419, 16837])

export class Writer {
  #db
  #applied
  #name = newName()
  #number = 0
  #last = Promise.resolve() // one set at a time

  constructor (db) {
    this.#db = db
    this.#applied = db.collection('applied', durable)
  }

  // The index without which nothing is counted exactly once. postbit makes it, too; the one that forgets is left to it.
  async ensureIndexes () {
    await this.#applied.createIndex({ ids: 1 }, { name: 'ids', unique: true })
  }

  // apply adds increments: [{collection, id, inc: {path: n}, onInsert: {field: value}}]. It resolves when they are counted, by
  // this call, an earlier one, or another process. When it rejects, the id may or may not be counted: give it again.
  apply (id, increments) {
    const result = this.#last.then(() => this.#commit(id, increments))
    this.#last = result.catch(() => {})
    return result
  }

  async #commit (id, increments) {
    const set = {
      _id: `${this.#name}/${this.#number + 1}`,
      writer: this.#name,
      number: Long.fromNumber(this.#number + 1),
      ids: [id],
      increments: increments.map(({ collection, id, inc, onInsert }) => ({
        collection,
        id,
        inc: Object.entries(inc).map(([path, n]) => ({ path, by: Long.fromNumber(n) })),
        ...(onInsert && { on_insert: onInsert })
      })),
      at: new Date()
    }
    try {
      const taken = await this.#store(set)
      if (taken) { // the id stands in another set: that one must be done, whole, under its own writer and number
        if (!taken.done_at) await this.#carryOut(taken)
        return
      }
      this.#number++
      await this.#carryOut(set)
    } catch (err) {
      // The set may be stored, or half carried out. The next number must not be used before this one is done everywhere.
      this.#name = newName()
      this.#number = 0
      throw err
    }
  }

  // store inserts the set, again and identically until there is an answer. It returns the set that has the id already, if one does.
  #store (set) {
    return this.#untilAnswered(async () => {
      try {
        await this.#applied.insertOne(set)
        return null
      } catch (err) {
        if (!duplicate(err)) throw err
      }
      const own = await this.#applied.findOne({ _id: set._id })
      if (own) {
        if (own.ids.length === 1 && own.ids[0] === set.ids[0]) return null // the answer to an earlier try was lost
        throw Object.assign(new Error(`another writer is called ${set.writer}`), { hopeless: true })
      }
      const other = await this.#applied.findOne({ ids: set.ids[0] })
      if (other) return other
      throw new Error('what is in the way is not on a majority of the servers yet')
    })
  }

  async #carryOut (set) {
    const byCollection = Map.groupBy?.(set.increments ?? [], i => i.collection) ?? group(set.increments ?? [])
    const refused = []
    for (const [collection, docs] of byCollection) refused.push(...await this.#applyTo(set, collection, docs))
    await this.#untilAnswered(() => this.#applied.updateOne(
      { _id: set._id, done_at: { $exists: false } },
      { $set: { done_at: new Date(), ...(refused.length && { refused }) }, $unset: { increments: '' } }))
  }

  // applyTo updates the documents of one collection, and again those of which it is not known that they have taken the set.
  async #applyTo (set, name, docs) {
    const collection = this.#db.collection(name, durable)
    const mark = `w.${set.writer}`
    const number = Long.fromValue(set.number)
    const refused = []
    let open = docs
    await this.#untilAnswered(async () => {
      let failed
      try {
        if (name.startsWith('days.')) await this.#makeDays(collection, open)
        await collection.bulkWrite(open.map(doc => ({
          updateOne: {
            filter: { _id: doc.id, [mark]: { $not: { $gte: number } } },
            update: {
              $inc: Object.fromEntries(doc.inc.map(({ path, by }) => [path, Long.fromValue(by)])),
              $set: { [mark]: number },
              ...(doc.on_insert && { $setOnInsert: doc.on_insert })
            },
            upsert: true
          }
        })), { ordered: false })
        return
      } catch (err) {
        failed = err
        // E11000 is no fault: the document has taken the set, or two first updates met. Look which.
        if (err instanceof MongoBulkWriteError) {
          for (const e of [err.writeErrors].flat()) {
            if (final.has(e.code)) refused.push({ collection: name, id: open[e.index].id, code: e.code, reason: String(e.errmsg).slice(0, 200) })
          }
        }
      }
      const have = await collection.find({ _id: { $in: open.map(d => d.id) }, [mark]: { $gte: number } }, { projection: { _id: 1 } }).toArray()
      const settled = new Set([...have.map(d => d._id), ...refused.map(r => r.id)])
      open = open.filter(d => !settled.has(d.id))
      if (open.length > 0) throw failed
    })
    return refused
  }

  // makeDays gives documents of days their full shape before anything is counted in them.
  async #makeDays (collection, docs) {
    const there = new Set((await collection.find({ _id: { $in: docs.map(d => d.id) } }, { projection: { _id: 1 } }).toArray()).map(d => d._id))
    for (const doc of docs.filter(d => !there.has(d.id))) {
      try {
        await collection.updateOne({ _id: doc.id }, { $inc: { daily: 0 }, $setOnInsert: { ...zeroDay, ...doc.on_insert } }, { upsert: true })
      } catch (err) {
        if (!duplicate(err)) throw err // somebody else has made it
      }
    }
  }

  async #untilAnswered (f) {
    const end = Date.now() + patience
    for (let wait = 5; ; wait = Math.min(2 * wait, 1000)) {
      try {
        return await f()
      } catch (err) {
        if (err.hopeless || Date.now() + wait > end) throw err
        await sleep(wait / 2 + randomInt(wait))
      }
    }
  }
}

// day is what n of a metric at an instant come to: of a campaign, or of anything else that has no dot in its name, and of all.
export function day (campaign, metric, at, n = 1) {
  const [date, time] = at.toISOString().split('T')
  const [hour, minute] = time.split(':')
  return [campaign, 'all'].map(name => ({
    collection: `days.${date.slice(0, 7).replace('-', '.')}`,
    id: `${date.replaceAll('-', '')}/${name}.${metric}`,
    inc: { daily: n, [`hourly.${hour}`]: n, [`minute.${hour}.${minute}`]: n },
    onInsert: { metadata: { date: new Date(date), metric: `${name}.${metric}` } }
  }))
}

const two = n => String(n).padStart(2, '0')
const zeros = n => Object.fromEntries(Array.from({ length: n }, (_, i) => [two(i), 0]))
const zeroDay = { hourly: zeros(24), minute: Object.fromEntries(Array.from({ length: 24 }, (_, h) => [two(h), zeros(60)])) }

// A name is one start of one process. Names are random, so that no two are ever the same.
function newName () {
  return Array.from({ length: 13 }, () => 'abcdefghijklmnopqrstuvwxyz234567'[randomInt(32)]).join('')
}

function group (increments) {
  const groups = new Map()
  for (const i of increments) groups.set(i.collection, [...(groups.get(i.collection) ?? []), i])
  return groups
}
