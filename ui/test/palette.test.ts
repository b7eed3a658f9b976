// The palette: any two states can be told apart with every kind of colour vision, and all stand out from the page.
import { test } from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

type RGB = [number, number, number];

const states = ["running", "retrying", "waiting", "completed", "failed", "cancelled"];
// Machado, Oliveira and Fernandes 2009, severity 1.
const visions: Record<string, number[]> = {
  normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protan: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deutan: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritan: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};

const linear = (hex: string): RGB => [1, 3, 5].map((i) => {
  const c = parseInt(hex.slice(i, i + 2), 16) / 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}) as RGB;
const seen = (c: RGB, m: number[]): RGB => [0, 3, 6].map((i) => Math.min(1, Math.max(0, m[i]! * c[0] + m[i + 1]! * c[1] + m[i + 2]! * c[2]))) as RGB;
const luminance = (c: RGB) => 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
const contrast = (a: RGB, b: RGB) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p) as [number, number];
  return (x + 0.05) / (y + 0.05);
};

function lab([r, g, b]: RGB): RGB {
  const f = (t: number) => (t > 216 / 24389 ? Math.cbrt(t) : (t * 24389 / 27 + 16) / 116);
  const x = f((0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047);
  const y = f(0.2126729 * r + 0.7151522 * g + 0.072175 * b);
  const z = f((0.0193339 * r + 0.119192 * g + 0.9503041 * b) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function ciede2000([l1, a1, b1]: RGB, [l2, a2, b2]: RGB): number {
  const rad = Math.PI / 180;
  const mean = (Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2;
  const g = (1 - Math.sqrt(mean ** 7 / (mean ** 7 + 25 ** 7))) / 2;
  const [p1, p2] = [a1 * (1 + g), a2 * (1 + g)];
  const [c1, c2] = [Math.hypot(p1, b1), Math.hypot(p2, b2)];
  const angle = (b: number, a: number) => (Math.atan2(b, a) / rad + 360) % 360;
  const [h1, h2] = [angle(b1, p1), angle(b2, p2)];
  let dh = h2 - h1;
  if (dh > 180) dh -= 360;
  if (dh < -180) dh += 360;
  const dH = 2 * Math.sqrt(c1 * c2) * Math.sin((dh / 2) * rad);
  const L = (l1 + l2) / 2;
  const C = (c1 + c2) / 2;
  const H = Math.abs(h1 - h2) > 180 ? (h1 + h2 + 360) / 2 : (h1 + h2) / 2;
  const cos = (x: number) => Math.cos(x * rad);
  const T = 1 - 0.17 * cos(H - 30) + 0.24 * cos(2 * H) + 0.32 * cos(3 * H + 6) - 0.2 * cos(4 * H - 63);
  const SL = 1 + (0.015 * (L - 50) ** 2) / Math.sqrt(20 + (L - 50) ** 2);
  const SC = 1 + 0.045 * C;
  const SH = 1 + 0.015 * C * T;
  const RT = -2 * Math.sqrt(C ** 7 / (C ** 7 + 25 ** 7)) * Math.sin(60 * rad * Math.exp(-(((H - 275) / 25) ** 2)));
  const [dl, dc, dhh] = [(l2 - l1) / SL, (c2 - c1) / SC, dH / SH];
  return Math.sqrt(dl * dl + dc * dc + dhh * dhh + RT * dc * dhh);
}

const css = readFileSync("../src/css/tokens.css", "utf8");
const blocks = css.split(/^ *color-scheme:/m).slice(1);

test("the formula is right", () => {
  assert.ok(Math.abs(ciede2000([50, 2.6772, -79.7751], [50, 0, -82.7485]) - 2.0425) < 0.0001);
  assert.ok(Math.abs(ciede2000([2.0776, 0.0795, -1.135], [0.9033, -0.0636, -0.5514]) - 0.9082) < 0.0001);
});

test("states differ by 20 for every kind of vision, and stand out from the page by 3:1", () => {
  assert.equal(blocks.length, 3);
  assert.equal(blocks[1]!.split("}")[0]!.replace(/\s+/g, " "), blocks[2]!.split("}")[0]!.replace(/\s+/g, " "), "both dark blocks are the same");
  for (const block of blocks) {
    const colour = (name: string) => linear(new RegExp(`--${name}: (#[0-9a-f]{6})`).exec(block)![1]!);
    for (const state of states) {
      assert.ok(contrast(colour(state), colour("paper")) >= 3, `${state}: ${contrast(colour(state), colour("paper"))}`);
      for (const other of states) {
        for (const [vision, m] of Object.entries(visions)) {
          if (state >= other) continue;
          const distance = ciede2000(lab(seen(colour(state), m)), lab(seen(colour(other), m)));
          assert.ok(distance >= 20, `${state} and ${other}, ${vision}: ${distance}`);
        }
      }
    }
    for (const text of ["ink", "quiet", "accent"]) {
      assert.ok(contrast(colour(text), colour("raised")) >= 4.5, `${text}: ${contrast(colour(text), colour("raised"))}`);
    }
  }
});
