// The time as the server has it: a browser's clock may be wrong. And how far behind it its answers are.
import { signal } from "@preact/signals";
import { Lag } from "./lib/lag";
import { ServerTime } from "./lib/servertime";

const time = new ServerTime();
export const lag = new Lag();

export const clock = {
  // now returns the server's time in milliseconds, up to about a second late.
  now(): number {
    return time.at(performance.now()) ?? Date.now();
  },
  // observe corrects the clock by the Date of an answer. So nothing in the answer is in the future of what is shown.
  observe(date: string | null): void {
    time.observe(Date.parse(date ?? ""), performance.now());
    if (!document.hidden) tick.value = clock.now();
  },
};

// tick is the time once a second and with every answer, for what shows ages. It stands while the page is hidden.
export const tick = signal(clock.now());
setInterval(() => {
  if (!document.hidden) tick.value = clock.now();
}, 1000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) tick.value = clock.now();
});
