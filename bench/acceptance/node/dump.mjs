// Writes every user as a line of canonical Extended JSON.
//
// usage: node dump.mjs URI DB FILE
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import { MongoClient, BSON } from 'mongodb';

const [uri, dbName, file] = process.argv.slice(2);
const client = await new MongoClient(uri).connect();
const out = createWriteStream(file);
const cursor = client.db(dbName).collection('users').find({}, { promoteValues: false, batchSize: 2000 });
for await (const doc of cursor) {
  if (!out.write(BSON.EJSON.stringify(doc, { relaxed: false }) + '\n')) await once(out, 'drain');
}
out.end();
await once(out, 'finish');
await client.close();
