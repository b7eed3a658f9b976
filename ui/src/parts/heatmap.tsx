// A map of counts by hour of the day and day. Shades repeat what the numbers say; arrow keys go from hour to hour.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { levelOf, type Cell, type Day } from "../lib/heat";

interface HeatMapProps {
  label: string;
  days: Day[];
  // The address of what is behind a cell.
  to: (c: Cell) => string;
}

export function HeatMap({ label, days, to }: HeatMapProps) {
  const at = useSignal({ day: 0, hour: -1 });
  const table = useRef<HTMLTableElement>(null);
  const largest = Math.max(1, ...days.flatMap((d) => d.hours.map((c) => c?.count ?? 0)));
  const first = days.findIndex((d) => d.hours.some((c) => c?.count));
  const current = at.value.hour >= 0 ? at.value : { day: first, hour: days[first]?.hours.findIndex((c) => c?.count) ?? -1 };
  // The next cell in a direction that has something behind it.
  const press = (e: KeyboardEvent) => {
    const [down, right] = ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] } as Record<string, [number, number]>)[e.key] ?? [0, 0];
    if (down === 0 && right === 0) return;
    e.preventDefault();
    for (let { day, hour } = { day: current.day + down, hour: current.hour + right }; days[day] && hour >= 0 && hour < 24; day += down, hour += right) {
      if (!days[day]!.hours[hour]?.count) continue;
      at.value = { day, hour };
      table.current?.querySelector<HTMLElement>(`[data-at="${day} ${hour}"]`)?.focus();
      return;
    }
  };
  return (
    <div class="heat-scroll"><table class="heat" ref={table} aria-label={label} onKeyDown={press}>
      <thead><tr><th><span class="hidden">Day</span></th>{Array.from({ length: 24 }, (_, h) => <th scope="col">{h}</th>)}</tr></thead>
      <tbody>{days.map((d, day) => (
        <tr key={d.date}><th scope="row">{d.date.slice(5)}</th>
          {d.hours.map((c, hour) => (
            <td class={c ? `l${levelOf(c.count, largest)}` : "outside"}>{c && c.count > 0 && (
              <a href={to(c)} data-at={`${day} ${hour}`} tabIndex={day === current.day && hour === current.hour ? 0 : -1} onFocus={() => (at.value = { day, hour })}
                aria-label={`${d.date} ${hour}:00: ${c.count.toLocaleString("en")}`}>{short(c.count)}</a>)}</td>
          ))}</tr>
      ))}</tbody>
    </table></div>
  );
}

function short(n: number): string {
  return n < 1000 ? String(n) : n < 1_000_000 ? `${Math.floor(n / 1000)}k` : `${Math.floor(n / 1_000_000)}M`;
}
