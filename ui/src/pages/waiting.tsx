// Waiting: hooks, signals and timers.

export function Waiting() {
  return <main class="page"><header class="page-head"><h1>Waiting</h1></header></main>;
}
