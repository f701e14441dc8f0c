// The majors of npm bitfield side by side, and what a vector does with one of them.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const manifest = new URL("package.json", import.meta.url);
const require = createRequire(manifest);

export async function versions() {
  const out = [];
  for (const [alias, spec] of Object.entries(JSON.parse(readFileSync(manifest)).dependencies)) {
    const number = spec.split("@").pop();
    let mod = Number(number.split(".")[0]) < 4 ? require(alias) : await import(alias);
    while (typeof mod !== "function") mod = mod.BitField ?? mod.default;
    out.push({ number, BitField: mod });
  }
  return out;
}

// Starts with the bytes of `start` (hex), sets, then clears; gives the bytes and the indexes that are then set.
export function run(BitField, { start, set, clear }) {
  const field = new BitField(Buffer.from(start, "hex"), { grow: 1 << 20 });
  for (const i of set) field.set(i, true);
  for (const i of clear) field.set(i, false);
  const indexes = [];
  for (let i = 0; i < Math.max(field.buffer.length * 8, 4096); i++) if (field.get(i)) indexes.push(i);
  return { bytes: Buffer.from(field.buffer).toString("hex"), indexes };
}
