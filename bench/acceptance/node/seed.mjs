// Fills the users collection the way a team's own Node.js services would have: blobs by npm bitfield, dates as Date,
// every kind of _id, and the damage that years leave behind.
//
// usage: node seed.mjs URI DB USERS ZONES SEED     ZONES: comma-separated IANA names
import BitField from 'bitfield';
import { MongoClient, Binary, ObjectId, UUID } from 'mongodb';

const [uri, dbName, usersArg, zonesArg, seedArg] = process.argv.slice(2);
const total = Number(usersArg);
const zones = zonesArg.split(',');
const templates = 148, ours = 23;
const now = Date.now(), hour = 3600e3, day = 24 * hour;

let state = Number(seedArg) >>> 0 || 1;
function random() { // mulberry32
  state = (state + 0x6d2b79f5) >>> 0;
  let t = state;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const pick = (list) => list[Math.floor(random() * list.length)];
const chance = (p) => random() < p;
const ago = (ms) => new Date(now - ms);

const names = ['Zoë', 'José', 'Łukasz', 'Дарья', 'Ελένη', '美咲', '민준', 'محمد', 'नेहा', "O'Neil", 'Åse', 'Trần', '<b>Bob</b>', '{{ .User.email }}'];
const domains = ['example.com', 'example.org', 'example.net', 'mail.example.com', 'post.example.org', 'exämple.de'];

function id(i) {
  if (i % 20 === 7) return i;
  if (i % 20 === 11) return `user-${i}`;
  if (i % 20 === 13) return new UUID();
  return new ObjectId();
}

function address(i) {
  const r = random();
  const domain = pick(domains);
  if (r < 0.004) return `hard-${i}@${domain}`;
  if (r < 0.006) return `us-${i}@${domain}`;
  if (r < 0.007) return `drop-${i}@${domain}`;
  if (r < 0.008) return `soft-${i}@${domain}`;
  if (r < 0.012) return pick([undefined, 42, '', 'nobody', `two@@${domain}`, `a@b@${domain}`, null, { at: domain }, `line\r\nBcc: evil-${i}@${domain}`]);
  return `u${i}@${domain}`;
}

function blob() {
  const r = random();
  if (r < 0.25) return undefined;
  if (r < 0.255) return pick(['legacy', 7, [1, 2, 3]]);
  const bits = new BitField(chance(0.3) ? templates : 1 + Math.floor(random() * templates), { grow: templates });
  for (let i = 0; i < templates; i++) if (i !== ours && chance(0.1)) bits.set(i);
  if (chance(0.4)) bits.set(ours);
  if (r < 0.27) return Object.fromEntries([...bits.buffer].map((b, i) => [String(i), b])); // what bson 1.x made of a Uint8Array
  return new Binary(Buffer.from(bits.buffer), r < 0.29 ? Binary.SUBTYPE_BYTE_ARRAY : Binary.SUBTYPE_DEFAULT);
}

// Days and hours stay clear of the campaign's bounds (90 d and 24 h), so that it does not matter when in the run a user's turn comes.
function history() {
  const r = random();
  if (r < 0.35) return undefined;
  if (r < 0.36) return null;
  const s = {};
  const first = (100 + random() * 900) * day;
  s.first_at = ago(first);
  s.last_at = chance(0.15) ? ago((1 + random() * 20) * hour) : ago((30 + random() * 60) * hour);
  if (chance(0.6)) {
    s.open_first_at = ago(first - random() * day);
    s.open_last_at = chance(0.2) ? ago((95 + random() * 4) * day) : ago((2 + random() * 80) * day);
  } else if (chance(0.3)) {
    s.first_at = ago((2 + random() * 80) * day); // mailed not long ago, no open yet
  }
  if (chance(0.05)) { s.status = pick(['unsubscribed', 'bounced', 'complained']); s.status_at = ago(day); }
  return s;
}

function user(i, outside) {
  const u = { _id: id(i), name: pick(names), plan: outside ? pick(['enterprise', 'trial']) : pick(['free', 'pro']), created_at: ago((40 + random() * 1000) * day) };
  const mail = address(i);
  if (mail !== undefined) u.email = mail;
  const r = random();
  if (r < 0.93) u.timezone = pick(zones); else if (r < 0.96) u.timezone = pick(['Mars/Base', '', 'nowhere', 5]);
  const bits = blob();
  if (bits !== undefined) u.tpls_sent_at_least_once = bits;
  const past = history();
  if (past !== undefined) u.postbit = past;
  if (chance(0.01)) u.state = 'banned';
  return u;
}

const client = await new MongoClient(uri).connect();
const users = client.db(dbName).collection('users');
const outside = Math.ceil(total / 50);
for (let i = 0; i < total + outside; i += 1000) {
  const docs = [];
  for (let k = i; k < Math.min(i + 1000, total + outside); k++) docs.push(user(k, k >= total));
  await users.insertMany(docs, { ordered: false });
}
console.log(`seeded ${total} in the audience, ${outside} outside`);
await client.close();
