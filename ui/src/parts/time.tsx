// Times: relative in lists, exact in the tooltip, in the zone that the reader chose.
import { tick } from "../clock";
import { zone } from "../settings";
import { formatAge } from "../lib/duration";
import { formatShort, formatTime } from "../lib/zone";

function title(at: Date): string {
  const chosen = formatTime(at, zone.value);
  return zone.value === "UTC" ? chosen : `${chosen}\n${formatTime(at, "UTC")}`;
}

export function Age({ at }: { at: string }) {
  const time = new Date(at);
  return <time dateTime={at} title={title(time)}>{formatAge(tick.value - time.getTime())}</time>;
}

// Clock shows a time in the way that its list has chosen, or short.
export function Clock({ at, shown }: { at: string; shown?: string }) {
  const time = new Date(at);
  return <time dateTime={at} title={title(time)}>{shown ?? formatShort(time, new Date(tick.value), zone.value)}</time>;
}

export function Exact({ at }: { at: string }) {
  return <time dateTime={at} title={title(new Date(at))}>{formatTime(new Date(at), zone.value)}</time>;
}
