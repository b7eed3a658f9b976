// Times in the zone that the reader chose.

const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string): Intl.DateTimeFormat {
  let f = formats.get(zone);
  if (!f) {
    f = new Intl.DateTimeFormat("en-GB", {
      timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
      second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23",
    });
    formats.set(zone, f);
  }
  return f;
}

// Parts is a time in a zone.
export interface Parts {
  date: string; // 2026-11-22
  time: string; // 14:02:18
  millis: string; // 204
}

// partsOf returns the parts of a time in a zone.
export function partsOf(at: Date, zone: string): Parts {
  const p: Record<string, string> = {};
  for (const { type, value } of formatOf(zone).formatToParts(at)) p[type] = value;
  return {
    date: `${p["year"]}-${p["month"]}-${p["day"]}`,
    time: `${p["hour"]}:${p["minute"]}:${p["second"]}`,
    millis: p["fractionalSecond"] ?? "000",
  };
}

// formatTime returns the whole time with the name of its zone: 2026-11-22 14:02:18.204 UTC.
export function formatTime(at: Date, zone: string): string {
  const p = partsOf(at, zone);
  return `${p.date} ${p.time}.${p.millis} ${zone}`;
}

// formatShort leaves out the date if it is that of now: 14:02:18, or 2026-11-22 14:02.
export function formatShort(at: Date, now: Date, zone: string): string {
  const p = partsOf(at, zone);
  return p.date === partsOf(now, zone).date ? p.time : `${p.date} ${p.time.slice(0, 5)}`;
}

// formatMoments returns times as date and time: 2026-11-22 14:02. If one of them has seconds, all show them.
export function formatMoments(times: string[], zone: string): string[] {
  const end = times.some((t) => Date.parse(t) % 60_000 >= 1000) ? 8 : 5;
  return times.map((t) => {
    const p = partsOf(new Date(t), zone);
    return `${p.date} ${p.time.slice(0, end)}`;
  });
}
