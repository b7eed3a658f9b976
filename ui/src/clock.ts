// The time as the server has it: a browser's clock may be wrong.
import { signal } from "@preact/signals";

let difference = 0; // of the server's clock to the browser's

export const clock = {
  // now returns the server's time in milliseconds, to about a second.
  now(): number {
    return Date.now() + difference;
  },
  // heard corrects the clock by the Date of an answer, which has whole seconds. What the answer tells of is never in
  // the future of what is shown.
  heard(date: string | null): void {
    const server = Date.parse(date ?? "");
    const own = Date.now();
    if (Math.abs(server - own - difference) > 2000) difference = server - own;
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
