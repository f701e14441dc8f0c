// Reads cases [{start, set, clear}] from stdin, runs each with every version, and prints [{version, case, bytes, indexes}].
import { readFileSync } from "node:fs";
import { versions, run } from "./versions.mjs";

const cases = JSON.parse(readFileSync(0));
const out = [];
for (const { number, BitField } of await versions()) {
  cases.forEach((c, i) => out.push({ version: number, case: i, ...run(BitField, c) }));
}
console.log(JSON.stringify(out));
