// Failures: failed runs in groups.

export function Failures() {
  return <main class="page"><header class="page-head"><h1>Failures</h1></header></main>;
}
