// Queue: messages that wait, are retried, or are parked.

export function Queue() {
  return <main class="page"><header class="page-head"><h1>Queue</h1></header></main>;
}
