// Workflows: each workflow with its statistics, and one of them.

export function Workflows() {
  return <main class="page"><header class="page-head"><h1>Workflows</h1></header></main>;
}
