// Compare: two runs side by side.

export function Compare() {
  return <main class="page"><header class="page-head"><h1>Compare</h1></header></main>;
}
