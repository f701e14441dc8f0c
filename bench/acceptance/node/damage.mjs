// Writes nonsense into the state of a few users, as a script gone wrong would after the campaign was applied (apply itself
// refuses a collection that looks like this).
//
// usage: node damage.mjs URI DB
import { MongoClient } from 'mongodb';

const [uri, dbName] = process.argv.slice(2);
const client = await new MongoClient(uri).connect();
const users = client.db(dbName).collection('users');
const wrong = ['legacy', 5, [new Date()], { last_at: 'yesterday' }, { runs: 7, first_at: 1 }];
const ids = await users.find({}, { projection: { _id: 1 } }).map((u) => u._id).toArray();
const ops = ids.filter((_, i) => i % 300 === 17).map((_id, i) => ({ updateOne: { filter: { _id }, update: { $set: { postbit: wrong[i % wrong.length] } } } }));
await users.bulkWrite(ops);
console.log(`damaged ${ops.length}`);
await client.close();
