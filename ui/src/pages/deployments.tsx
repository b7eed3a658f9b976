// Deployments: functions and whether they are reached.

export function Deployments() {
  return <main class="page"><header class="page-head"><h1>Deployments</h1></header></main>;
}
