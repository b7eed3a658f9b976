// Overview: what happens and what wants a person.

export function Overview() {
  return <main class="page"><header class="page-head"><h1>Overview</h1></header></main>;
}
