// Servers: the processes.

export function Servers() {
  return <main class="page"><header class="page-head"><h1>Servers</h1></header></main>;
}
