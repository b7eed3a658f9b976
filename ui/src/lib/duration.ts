// Durations and ages as people read them.

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

// formatDuration returns a duration in its two largest units: 812 ms, 4.2 s, 2 m 14 s, 1 h 2 m, 3 d 4 h.
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) return "−" + formatDuration(-ms);
  if (ms < second) return `${Math.round(ms)} ms`;
  if (ms < 10 * second) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < minute) return `${Math.floor(ms / second)} s`;
  if (ms < hour) return two(ms, minute, "m", second, "s");
  if (ms < day) return two(ms, hour, "h", minute, "m");
  return two(ms, day, "d", hour, "h");
}

function two(ms: number, large: number, l: string, small: number, s: string): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${l}` + (rest > 0 ? ` ${rest} ${s}` : "");
}

// formatAge returns how long ago something was, or how soon it is, in one unit: now, 12 s ago, in 3 h.
export function formatAge(ms: number): string {
  const size = Math.abs(ms);
  if (size < second) return "now";
  const units: Array<[number, string]> = [[day, "d"], [hour, "h"], [minute, "m"], [second, "s"]];
  for (const [unit, name] of units) {
    if (size >= unit) {
      const text = `${Math.floor(size / unit)} ${name}`;
      return ms > 0 ? `${text} ago` : `in ${text}`;
    }
  }
  return "now";
}

const lengths: Record<string, number> = { s: second, m: minute, h: hour, d: day };

// parseDuration parses a duration of one or more units, such as 90s, 24h or 1d12h. It returns null for other texts.
export function parseDuration(text: string): number | null {
  if (!/^(\d+[smhd])+$/.test(text)) return null;
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/(\d+)([smhd])/g)) sum += Number(n) * (lengths[unit ?? ""] ?? 0);
  return sum;
}
