// What every user should get, worked out from a dump made before the run, by the rules as the documentation states them and
// by nothing of postbit's. It is naive on purpose: one user at a time, the whole document, no tricks.
//
// usage: node expect.mjs DUMP STARTED_AT WINDOW > EXPECTED     one JSON object a line: {user, to, copies, outcome}
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { domainToASCII } from 'node:url';
import BitField from 'bitfield';
import { BSON } from 'mongodb';

const [dump, startedAt, window] = process.argv.slice(2);
const start = new Date(startedAt);
const ours = 23, day = 24 * 3600e3;
const inactiveAfter = 90 * day, minGap = day, expiresAfter = 30 * 60e3;
const [from, to] = window.split('-').map((s) => Number(s.slice(0, 2)) * 60 + Number(s.slice(3)));

function recipient(email) {
  if (typeof email !== 'string') return null;
  const at = email.split('@');
  if (at.length !== 2 || !/^[!-~]+$/.test(at[0]) || at[1] === '') return null;
  const domain = domainToASCII(at[1]);
  return domain && domain.includes('.') ? `${at[0]}@${domain}` : null;
}

// undefined: cannot be read
function hasBit(v) {
  if (v === undefined || v === null) return false;
  let bytes;
  if (v instanceof BSON.Binary && (v.sub_type === 0 || v.sub_type === 2)) bytes = v.buffer.subarray(0, v.length());
  else if (v && typeof v === 'object' && !Array.isArray(v) && !v._bsontype && Object.keys(v).every((k) => /^\d+$/.test(k))) {
    bytes = Uint8Array.from({ length: Object.keys(v).length }, (_, i) => Number(v[i]));
  } else return undefined;
  return (ours >> 3) < bytes.length && new BitField(new Uint8Array(bytes)).get(ours);
}

function history(s) {
  if (s === undefined || s === null) return {};
  if (typeof s !== 'object' || Array.isArray(s) || s._bsontype) return undefined;
  for (const k of ['first_at', 'last_at', 'open_first_at', 'open_last_at']) if (s[k] !== undefined && s[k] !== null && !(s[k] instanceof Date)) return undefined;
  return s;
}

const formats = new Map();
function minuteOfDay(zone, at) {
  if (!formats.has(zone)) {
    let f;
    try { f = new Intl.DateTimeFormat('en-GB', { timeZone: zone, hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }); } catch { f = null; }
    formats.set(zone, f);
  }
  const f = formats.get(zone) ?? new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
  const [h, m] = f.format(at).split(':').map(Number);
  return h * 60 + m;
}

function outcome(u) {
  const to_ = recipient(u.email);
  if (!to_) return 'address';
  const state = history(u.postbit), bit = hasBit(u.tpls_sent_at_least_once);
  const status = state && state.status;
  if (['unsubscribed', 'bounced', 'complained'].includes(status) || ['deleted', 'banned'].includes(u.state)) return 'suppressed';
  if (state === undefined || bit === undefined) return 'unreadable';
  const opened = state.open_first_at ?? state.open_last_at;
  if (bit && !opened) return 'already_sent';
  const sign = state.open_last_at ?? state.open_first_at ?? state.first_at ?? state.last_at;
  if (sign && start - sign > inactiveAfter) return 'inactive';
  if (state.last_at && start - state.last_at < minGap) return 'min_gap';
  const zone = typeof u.timezone === 'string' && u.timezone !== '' ? u.timezone : 'UTC';
  const m = minuteOfDay(zone, start);
  if (m < from || m >= to) return 'expired'; // no zone of the data is within an hour of a boundary, and the run ends after 30 minutes
  return 'send';
}

for await (const line of createInterface({ input: createReadStream(dump) })) {
  const u = BSON.EJSON.parse(line, { relaxed: true });
  if (!['free', 'pro'].includes(u.plan) || !(u.created_at < new Date(start - 30 * day))) continue;
  let what = outcome(u), copies = 0;
  const to_ = recipient(u.email);
  if (what === 'send') {
    if (to_.startsWith('hard-') || to_.startsWith('us-')) what = 'failed';
    else if (to_.startsWith('drop-')) { what = 'unconfirmed'; copies = 1; } else { what = 'sent'; copies = 1; }
  }
  console.log(JSON.stringify({ user: String(u._id), to: to_, copies, outcome: what }));
}
