// Makes vectors.json by running every major version of npm bitfield:  npm ci && node make-vectors.mjs > vectors.json
import { versions, run } from "./versions.mjs";

// A small generator of its own (mulberry32), so that the vectors are the same on every machine.
let state = 0x706f7374;
function random(n) {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) % n;
}
const list = (n, below) => Array.from({ length: n }, () => random(below));

const cases = [
  { name: "the bits of the source", start: "", set: [0, 7, 8, 147], clear: [] },
  { name: "nothing", start: "", set: [], clear: [] },
  { name: "the highest index", start: "", set: [4095], clear: [] },
  { name: "clearing beyond the end", start: "80", set: [], clear: [4095] },
  { name: "clearing the last bit keeps the length", start: "000001", set: [], clear: [23] },
  { name: "every bit of a byte", start: "", set: [0, 1, 2, 3, 4, 5, 6, 7], clear: [] },
];
for (let i = 0; i < 24; i++) {
  const below = [16, 148, 1024, 4096][i % 4];
  const start = Array.from({ length: random(24) }, () => random(256).toString(16).padStart(2, "0")).join("");
  cases.push({ name: `random ${i}`, start, set: list(1 + random(8), below), clear: list(random(4), below) });
}

const vectors = [];
for (const version of await versions()) {
  for (const c of cases) vectors.push({ version: version.number, ...c, ...run(version.BitField, c) });
}
console.log("[\n" + vectors.map((v) => JSON.stringify(v)).join(",\n") + "\n]");
